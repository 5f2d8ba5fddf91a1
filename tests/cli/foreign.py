"""Commands that read what somebody else made, run where they may hang; and folders with all that they read."""

import io
import json
import os
import resource
import shlex
import shutil
import signal
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from precad.cli.app import app
from precad.deployment import kit, receipts
from precad.protocol.states import Role
from tests.deployment import world
from tests.deployment.consortium import Consortium

MEMORY = 20 << 30
"""Bytes that a command may have."""


def make_world(folder: Path) -> None:
    """A run that ended, one that was stopped, the files of a task of three clients, and small images."""
    common = ["--rounds", "3", "--clients", "4", "--malicious", "0", "--out", str(folder)]
    for name, seed in (("run", ["--seed", "1"]), ("private", [])):
        done = CliRunner().invoke(app, ["train", *common, *seed, "--name", name])
        assert done.exit_code == 0, done.output
    shutil.copytree(folder / "run", folder / "stopped")
    (folder / "stopped" / "summary.json").unlink()
    (folder / "out").mkdir()
    consortium = Consortium(folder)
    kit.server(consortium.task, world.MODEL, Role.A, folder / "a")
    consortium.world.servers[Role.A].save(folder / "a")
    consortium.world.servers[Role.B].save(folder / "keys")
    consortium.world.clients["bank"].save(folder / "keys")
    kit.client(consortium.task, "bank", folder / "bank", door="127.0.0.1:1")
    consortium.world.clients["bank"].save(folder / "bank")
    consortium.folder = folder / "a"
    consortium.round()
    for name, log in (("alpha", consortium.a.store.log()), ("beta", consortium.b.store.log())):
        receipts.write(folder / f"{name}.audit.log", log)
    receipts.write(folder / "bank.audit.log", consortium.client("bank").log())
    consortium.close()
    made = CliRunner().invoke(app, ["data", "new", str(folder / "data"), "--epsilon", "4"])
    assert made.exit_code == 0, made.output
    (folder / "errors.txt").write_text("0.1\n0.2\n")
    (folder / "rows").mkdir()
    (folder / "rows" / "rows.jsonl").write_text("")
    (folder / "images").mkdir()
    images, labels = np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10
    np.savez(folder / "images" / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


COMMANDS = {
    "train run/config.toml --rounds 1 --out out": "run/config.toml",
    "train --dataset mnist --clients 4 --rounds 1 --data images --out out": "images/mnist.npz",
    "resume stopped": "stopped/config.toml stopped/machine.json stopped/checkpoint.npz stopped/metrics.jsonl",
    "resume private": "private/summary.json private/manifest.json",
    "report run": "run/config.toml run/about.json run/machine.json run/metrics.jsonl run/summary.json "
    "run/ledger.sqlite",
    "report a": "a/a.toml a/task.json a/alpha.db",
    "audit run": "run/config.toml run/about.json run/machine.json run/metrics.jsonl run/summary.json run/ledger.sqlite "
    "run/manifest.json run/checkpoint.npz run/model.pt run/report.html run/curves.png",
    "audit alpha.audit.log beta.audit.log bank.audit.log --task a/task.json": "alpha.audit.log bank.audit.log "
    "a/task.json",
    "ledger show run/ledger.sqlite": "run/ledger.sqlite",
    "ledger verify run/ledger.sqlite": "run/ledger.sqlite",
    "ledger export run/ledger.sqlite": "run/ledger.sqlite",
    "ledger total run private": "run/ledger.sqlite",
    "data show data": "data/data.db",
    "task new out/new.json --server-a keys/beta.pub --server-b keys/beta.pub --model a/model.npy "
    "--config run/config.toml --budget 3": "keys/beta.pub a/model.npy run/config.toml",
    "task show a/task.json": "a/task.json",
    "task digest a/task.json": "a/task.json",
    "roster show a/task.json": "a/task.json",
    "roster add a/task.json keys/bank.pub --records 5": "a/task.json keys/bank.pub",
    "roster remove a/task.json bank": "a/task.json",
    "kit server-a a/task.json out --model a/model.npy": "a/task.json a/model.npy",
    "kit client a/task.json bank out": "a/task.json",
    "server --config a/a.toml": "a/a.toml a/task.json a/model.npy a/alpha.key a/alpha.tls.key a/alpha.tls.pem",
    "client --config bank/bank.toml --train os.path:join": "bank/bank.toml bank/task.json bank/bank.key "
    "bank/bank.tls.key bank/bank.tls.pem",
    "status --config a/a.toml": "a/a.toml a/task.json a/alpha.key a/alpha.db",
    "certify --clean-errors errors.txt": "errors.txt",
    "reproduce fig4 --no-runs --dataset mnist --out rows": "rows/rows.jsonl",
}
"""Every command that reads a file, as it is given in the folder of :func:`make_world`; and the files that it reads."""


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    code: int | None
    """None if it took too long."""
    out: str
    err: str
    allowed: tuple[int, ...]

    @property
    def fault(self) -> str | None:
        """What is wrong with it, if it was given garbage."""
        if self.code is None:
            return "it hangs"
        if self.code == 99 or "Traceback" in self.err:
            return "a traceback"
        if self.code not in self.allowed:
            return f"exit code {self.code}"
        sentences = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        if self.code == 2 and len(sentences) != 1:
            return "it does not say why in one sentence"
        if any(not (char.isprintable() or char == "\n") for char in self.out + self.err):
            return "control characters on the terminal"
        return None


def run(command: str, folder: Path, seconds: float = 60.0) -> Done:
    """A command of precad in a process of its own, forked from this one, with all of its output."""
    allowed = (0, 1, 2) if command == "audit run" else (0, 2)  # 1: a file differs, and it says which
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        code, out, err = _run_here(shlex.split(command), folder)
        with os.fdopen(write_end, "w", errors="surrogateescape") as pipe:
            json.dump([code, out, err], pipe)
            pipe.flush()
        os._exit(0)
    os.close(write_end)
    deadline = time.monotonic() + seconds
    os.set_blocking(read_end, False)
    told = bytearray()
    try:
        while time.monotonic() < deadline:
            with suppress(BlockingIOError):
                part = os.read(read_end, 1 << 20)
                if not part:
                    code, out, err = json.loads(told) if told else (99, "", "it died")
                    return Done(code, out, err, allowed)
                told += part
                continue
            time.sleep(0.002)
        return Done(None, "", "", allowed)
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _run_here(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    os.chdir(folder)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app(arguments, prog_name="precad", standalone_mode=True)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
        except BaseException:
            code = 99
            traceback.print_exc(file=sys.stderr)
    return code, out.getvalue(), err.getvalue()
