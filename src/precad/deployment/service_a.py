"""Server A as a service, like B: it alone holds A's keys, store and noise, and plays the rounds (PROTOCOL §2, §10).

A thread conducts the rounds. Three doors lead to it: of native clients, over TLS; of the app, at a Unix socket; and of
the operator. SIGTERM ends it after the step under way; whatever was cut off goes on at the next start.
"""

import logging
import signal
import ssl
import threading
import time
from contextlib import ExitStack, closing

from precad.deployment import doors, tls
from precad.deployment.app_door import app_app
from precad.deployment.client_door import client_app
from precad.deployment.conductor import Conductor
from precad.deployment.config import ServerConfig
from precad.deployment.control import MODE, SECONDS, control_app
from precad.deployment.doors import Door
from precad.deployment.log import log, log_as_json
from precad.deployment.service import Metrics, operations_app
from precad.deployment.transport import Exchange, Transport, TransportError
from precad.deployment.visitors import LOCAL
from precad.errors import ProtocolError

FAREWELL = 10.0
"""Seconds, for the step with B that is under way at a stop."""


def run(config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    log_as_json()
    metrics, ending = Metrics(), threading.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: ending.set())
    with ExitStack() as stack:
        stack.enter_context(config.alone())
        transport = stack.enter_context(config.transport())
        leader = stack.enter_context(closing(config.open_leader(_Counted(transport, metrics))))
        leader.write_log(config.audit_log)
        conductor = Conductor(leader, config.patience(), lambda: leader.write_log(config.audit_log))
        aside = _open_doors(config, conductor, metrics)
        thread = threading.Thread(target=conductor.run, daemon=True)
        thread.start()
        log(
            "started",
            server=leader.identity.name,
            task=leader.task.digest.hex(),
            socket=str(config.app_socket),
            clients_host=config.clients_host,
            clients_port=config.clients_port,
        )
        ending.wait()
        conductor.stop()
        for door in aside:
            door.should_exit = True  # all at once: one whose client is slow must not keep the others waiting
        for door in aside:
            door.leave()
        thread.join(FAREWELL)
        if thread.is_alive():
            log("a step with server B was cut off: it goes on at the next start", logging.WARNING)
        log("stopped", server=leader.identity.name)


def _open_doors(config: ServerConfig, conductor: Conductor, metrics: Metrics) -> list[Door]:
    """Listen everywhere first: a port that is taken stops the service before a round begins."""
    app, control = doors.listen_at(config.app_socket), doors.listen_at(config.control_socket, MODE)
    aside = []
    if config.clients_port:
        task, listening = conductor.task, doors.listen(config.clients_host, config.clients_port)
        own = [member.identity for member in task.roster if member.identity.certificate]
        context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, config.pair(), task.server_a, *own)
        aside.append(doors.serve_aside(client_app(conductor), [listening], context, config.bounds()))
    if config.metrics_port:
        inside = doors.listen("127.0.0.1", config.metrics_port)
        operations = operations_app(conductor.server, metrics, lambda: conductor.failing)
        aside.append(doors.serve_aside(operations, [inside], bounds=LOCAL))
    aside.append(doors.serve_aside(app_app(conductor), [app], bounds=LOCAL))
    aside.append(
        doors.serve_aside(control_app(lambda wanted: conductor.abandon(SECONDS, wanted)), [control], bounds=LOCAL)
    )
    return aside


class _Counted:
    """A's way to B, whose answers are counted for the operator."""

    def __init__(self, transport: Transport, metrics: Metrics) -> None:
        self._transport, self._metrics = transport, metrics

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        """Send a message, return the answer."""
        start, status = time.perf_counter(), 200
        try:
            return self._transport.exchange(round_, what, body)
        except TransportError:
            status = 503
            raise
        except ProtocolError:
            status = 409
            raise
        finally:
            self._metrics.count(what.value, status, time.perf_counter() - start)
