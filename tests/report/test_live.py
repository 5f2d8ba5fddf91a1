"""The live page: who may ask, for what, and what it says of a run that goes on, stops, or is damaged."""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from precad.cli.app import app
from precad.report.live import LiveServer, Watched, state_of
from precad.report.run import read_run, run_source
from tests.messages import says
from tests.report.fake_runs import FakeRun


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return FakeRun().write(tmp_path / "mine", done=2)


@contextmanager
def serving(server: LiveServer) -> Iterator[LiveServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server(run: Path) -> Iterator[LiveServer]:
    with serving(LiveServer(Watched(run_source(run), time.time), 0)) as server:
        yield server


def ask(
    server: LiveServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def test_it_serves_the_page_and_its_state(server: LiveServer) -> None:
    status, headers, page = ask(server)
    assert status == 200
    assert "not finished: 2 of 6 rounds" in page
    state = json.loads(ask(server, "/state")[2])
    assert (state["status"], state["said"]) == ("running", "running: round 2 of 6")
    assert f"data-live='{state['stamp']}'" in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert "Python" not in headers["Server"]
    assert ask(server, "/config.toml")[0] == ask(server, "/../mine/metrics.jsonl")[0] == 404


@pytest.mark.parametrize("path", ["/", "/state"])
def test_another_host_or_origin_is_refused(server: LiveServer, path: str) -> None:
    """A site that makes its own name point to 127.0.0.1 sends that name."""
    port = server.server_address[1]
    for headers in (
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ):
        status, _, body = ask(server, path, **headers)
        assert status == 403
        assert "round" not in body
    for headers in ({"Host": f"localhost:{port}"}, {"Origin": f"http://127.0.0.1:{port}"}):
        assert ask(server, path, **headers)[0] == 200


def test_two_hosts_are_refused(server: LiveServer) -> None:
    port = server.server_address[1]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 403 " in connection.recv(100)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_only_get(server: LiveServer, method: str) -> None:
    status, headers, _ = ask(server, method=method)
    assert (status, headers["Allow"]) == (405, "GET")


def test_a_browser_that_goes_away_is_not_told_of(server: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    port = server.server_address[1]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert ask(server)[0] == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_the_stamp_does_not_tell_how_long_the_files_are(run: Path) -> None:
    first, second = (Watched(run_source(run), time.time).state().stamp for _ in range(2))
    assert first != second
    assert len(first) == 32


def test_it_listens_on_loopback_alone(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_it_follows_the_run_to_its_end(server: LiveServer, run: Path) -> None:
    def until(status: str) -> dict[str, str]:
        for _ in range(200):
            state: dict[str, str] = json.loads(ask(server, "/state")[2])
            if state["status"] == status:
                return state
            time.sleep(0.05)
        raise AssertionError(state)

    first = until("running")["stamp"]
    metrics = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("{}\n")
    assert "cannot be read now" in until("lost")["said"]
    assert "not finished: 2 of 6 rounds" in ask(server)[2]  # the last good page
    (run / "metrics.jsonl").write_text(metrics)
    until("running")
    FakeRun().write(run)
    assert until("finished")["stamp"] != first
    assert "finished" in ask(server)[2]


def test_when_a_run_is_stalled(run: Path) -> None:
    """A usual round takes 0.376 s: twenty of them are less than the 30 s that are always waited."""
    values = read_run(run)
    assert state_of(values, "", 29.0).status == "running"
    stalled = state_of(values, "", 31.0)
    assert stalled.status == "stalled"
    assert re.search(says("stalled", "round 2 of 6", "31\u00a0s", "376\u00a0ms"), stalled.said)
    begun = read_run(FakeRun().write(run.parent / "begun", done=0))
    assert state_of(begun, "", 299.0).status == "running"
    assert re.search(says("stalled", "round 0 of 6", "5.0\u00a0min"), state_of(begun, "", 301.0).said)
    assert state_of(read_run(FakeRun().write(run)), "", 1e9).status == "finished"


def test_the_clock_is_that_of_the_files(run: Path) -> None:
    late = Watched(run_source(run), lambda: time.time() + 3600)
    assert late.state().status == "stalled"


def test_a_port_that_is_taken_is_one_sentence(server: LiveServer, run: Path) -> None:
    for port, words in ((server.server_address[1], ("--port",)), (99999, ("--port", "[0, 65535]", 99999))):
        result = CliRunner().invoke(app, ["watch", str(run), "--port", str(port)])
        assert result.exit_code == 2
        assert re.search(says(*words), result.stderr)
        assert "Traceback" not in result.output
    result = CliRunner().invoke(app, ["watch", str(run.parent)])
    assert (result.exit_code, "no run" in result.stderr) == (2, True)


def test_ctrl_c_ends_it(run: Path) -> None:
    command = [sys.executable, "-m", "precad", "watch", str(run), "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert "at http://127.0.0.1:" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert "the run itself goes on" in out
