"""Server A, or a client, as a process that can be killed: one JSON object in, one out.

Server A's way to B loses, delays and repeats messages, and writes down a digest of all that passes before it passes.
"""

import base64
import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from precad.deployment import receipts
from precad.deployment.client import Client
from precad.deployment.leader import Leader
from precad.deployment.transport import Exchange, Transport, TransportError
from precad.errors import PrecadError, ProtocolError
from precad.lab.processes import Site
from precad.mpc.prg import digest
from precad.protocol.states import Role

Answer = dict[str, Any]


class Shaky:
    """A's way to B on a bad day."""

    def __init__(self, inner: Transport, notes: Path, rate: float, generator: np.random.Generator) -> None:
        self._inner, self._rate, self._generator = inner, rate, generator
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._before: list[tuple[int, Exchange, bytes]] = []

    def exchange(self, round_: int, what: Exchange, body: bytes) -> bytes:
        self._note(round_, what, "alpha", body)
        if self._happens():
            raise TransportError("lost on the way there")
        if self._happens():
            time.sleep(self._generator.uniform(0, 0.3))
        if self._happens() and self._before:
            self._send_an_old_one()
        answer = self._inner.exchange(round_, what, body)
        self._note(round_, what, "beta", answer)
        self._before = [*self._before[-20:], (round_, what, body)]
        if self._happens():
            self._note(round_, what, "beta", self._inner.exchange(round_, what, body))
        if self._happens():
            raise TransportError("lost on the way back")
        return answer

    def _send_an_old_one(self) -> None:
        """B says the same again, or refuses, since the round is over."""
        round_, what, body = self._before[self._generator.integers(len(self._before))]
        try:
            self._note(round_, what, "beta", self._inner.exchange(round_, what, body))
        except ProtocolError:
            self.note("refused", round_, what.value, "beta", "")

    def _happens(self) -> bool:
        return bool(self._generator.random() < self._rate)

    def _note(self, round_: int, what: Exchange, sender: str, message: bytes) -> None:
        self.note("sent", round_, what.value, sender, digest(b"precad chaos", message).hex())

    def note(self, *values: object) -> None:
        os.write(self._notes, (json.dumps(values) + "\n").encode())


class ServerA:
    def __init__(self, leader: Leader, log: Path) -> None:
        self._leader, self._log = leader, log

    def start(self) -> Answer:
        number, leader = self._leader.start_round(), self._leader
        selected = sorted(leader.selected())
        told = {name: text(leader.told(name) or b"") for name in selected}
        model = text(leader.model().tobytes())
        return {"round": number, "invitation": text(leader.invitation()), "model": model, "told": told}

    def submit(self, reply: str) -> Answer:
        verdict = self._leader.submit(raw(reply))
        return {"verdict": None if verdict is None else verdict.reason.value}

    def finish(self) -> Answer:
        few = self._leader.end_round()
        self._leader.write_log(self._log)
        return {"opened": few is None}

    def abandon(self) -> Answer:
        self._leader.abandon_round()
        return {}


class OneClient:
    def __init__(self, client: Client, log: Path) -> None:
        self._client, self._log = client, log

    def answer(self, invitation: str, model: str, told: str) -> Answer:
        if told:
            assert self._client.hear(raw(told)) == receipts.VALID
        joined = self._client.join(raw(invitation), np.frombuffer(raw(model)))
        reply = self._client.answer(joined, np.full(self._client.task.bounds.dim, 0.01))
        receipts.write(self._log, self._client.log())
        return {"reply": text(reply)}


def text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def raw(value: str) -> bytes:
    return base64.b64decode(value)


def main(pipe: Connection, folder: Path, name: str, seed: int, rate: float) -> None:
    """Answer until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    site = Site(folder)
    party: ServerA | OneClient
    if name == site.task.server_a.name:
        way = site.transport(attempts=1)
        shaky = Shaky(way, folder / "notes", rate, np.random.default_rng(seed))
        own = site.settings(Role.A)
        party = ServerA(own.open_leader(shaky), own.audit_log)
    else:
        party = OneClient(site.client(name), folder / name / f"{name}.audit.log")
    while True:
        try:
            asked = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        step: Callable[..., Answer] = getattr(party, asked.pop("do"))
        try:
            answer = step(**asked)
        except PrecadError as error:
            answer = {"error": str(error), "kind": type(error).__name__}
        pipe.send_bytes(json.dumps(answer).encode())
