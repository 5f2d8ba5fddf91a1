"""What happened in each round, as each party signs it: a hash-chained log of lines, and the audit of several logs.

A line holds the events of a round, the link H(link before, events), the party's signature of the link and, at a server,
the other server's signature of the same events. A server's line names the closed set and its verdicts; a client's line
names itself alone: if clients had the list of participants, what hiding them earns would be lost (PROTOCOL §7a, §10).
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from precad.deployment.keys import Identity, is_signed, sign
from precad.deployment.task import Task
from precad.errors import PrecadError
from precad.files import check_own, open_to_append, open_to_read, read_text, words_of
from precad.mpc.prg import Digest, digest
from precad.protocol.messages import Receipt, Told, encode
from precad.tables import build, parse_json

_CHUNK = 1 << 16
MOST_LOG = 1 << 32
"""Bytes of a log's file."""
OPENED, ABANDONED, SENT, TOLD = "opened", "abandoned", "sent", "told"
VALID = "valid"


@dataclass(frozen=True)
class Verdict:
    """What became of one submission of the closed set."""

    client: str
    header: str
    verdict: str
    participations: int
    """How often the client's updates have been opened, this round included; at a client, sent."""


@dataclass(frozen=True, kw_only=True)
class Events:
    """One round. Digests are in hexadecimal."""

    task: str
    round: int
    kind: str
    model: str
    next_model: str = ""
    closed: str = ""
    outcome: str = ""
    verdicts: tuple[Verdict, ...] = ()

    @cached_property
    def digest(self) -> Digest:
        """What both servers sign."""
        return digest(b"precad events", json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode())

    def statements(self) -> tuple[Digest, ...]:
        """What both servers sign for each client of the closed set, in order: its own verdict."""
        return tuple(verdict_statement(self, verdict) for verdict in self.verdicts)


@dataclass(frozen=True)
class Line:
    """One line of a log."""

    events: Events
    link: str
    signature: str
    peer: str = ""

    def as_text(self) -> str:
        """As it stands in the log."""
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)


class AuditError(PrecadError):
    """Logs that do not agree, or one that was changed. Says which line."""


def verdict_statement(events: Events, verdict: Verdict) -> Digest:
    """What became of one submission, without a word about the others."""
    texts = (events.task, str(events.round), events.next_model, verdict.client, verdict.header, verdict.verdict)
    return digest(b"precad verdict", *(text.encode() for text in texts))


def head_statement(task: Digest, round_: int, next_model: Digest) -> Digest:
    """What a server signs when a round is over. A client shows it in its next header: who signed cannot forget it."""
    return digest(b"precad head", task, round_.to_bytes(8, "little"), next_model)


def head_of(events: Events) -> Digest:
    """The head's statement of a round that was opened."""
    return head_statement(_digest(events.task), events.round, _digest(events.next_model))


def tell(events: Events, key: Ed25519PrivateKey, theirs: Receipt) -> dict[str, bytes]:
    """What A tells each client of the closed set: its own verdict and the head, signed by both servers."""
    task, next_model, heads = (
        _digest(events.task),
        _digest(events.next_model),
        (sign(key, head_of(events)), theirs.head),
    )
    messages = {}
    for verdict, statement, signature in zip(events.verdicts, events.statements(), theirs.verdicts, strict=True):
        header, own = _digest(verdict.header), sign(key, statement)
        told = Told(task, events.round, verdict.client, header, verdict.verdict, next_model, own, signature, *heads)
        messages[verdict.client] = encode(told)
    return messages


def next_line(last: str | None, events: Events, key: Ed25519PrivateKey, peer: bytes = b"") -> Line:
    """The line that continues a log whose last line is this one."""
    link = _link("" if last is None else parse(last).link, events)
    return Line(events, link.hex(), sign(key, link).hex(), peer.hex())


def parse(text: str) -> Line:
    """The line of a text; anything else is a ``ValueError``."""
    try:
        return build(Line, parse_json(text), "it", complete=True)
    except ValueError as error:
        raise ValueError(f"not a line of an audit log: {error}") from None


def parse_events(text: bytes) -> Events:
    """The events of a round that a store kept."""
    return build(Events, parse_json(text), "the events", complete=True)


def write(path: Path, log: Sequence[str]) -> None:
    """Bring a log's file up to date; whole lines that are in it stay as they are."""
    with open_to_append(path, private=True) as file:
        file.seek(0)
        written = file.read()
        file.truncate(written.rfind(b"\n") + 1)
        file.writelines(line.encode() + b"\n" for line in log[written.count(b"\n") :])


def extend(path: Path, log_after: Callable[[int], list[str]]) -> None:
    """Bring a server's file up to date with what its log holds after the last whole line: the file may be long."""
    with open_to_append(path, private=True) as file:
        last = _cut_to_whole_lines(file)
        file.writelines(line.encode() + b"\n" for line in log_after(-1 if last is None else last.events.round))


def last_line(path: Path) -> Line | None:
    """The last whole line of a log's file, which is not changed; None if there is none."""
    try:
        check_own(path)
        with open_to_read(path) as file:
            return _last_whole_line(file)[1]
    except FileNotFoundError:
        return None


def read(path: Path) -> list[str]:
    """The lines of a log's file."""
    try:
        return read_text(path, MOST_LOG).splitlines()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {words_of(error)}") from None


def owner(log: Sequence[str]) -> str:
    """The client that a client's log is of."""
    verdicts = parse(log[0]).events.verdicts if log else ()
    if len(verdicts) != 1:
        raise ValueError("not a client's log: its first line names no client")
    return verdicts[0].client


def verify(name: str, log: Iterable[str], owner: Identity, task: Task, peer: Identity | None = None) -> list[Events]:
    """Check a log by itself: chain, signatures, task, rising rounds; with a peer, a server's, from model to model.

    Returns its events.
    """
    link, last, model, events = "", -1, task.model.hex(), []
    for number, text in enumerate(log, 1):
        try:
            line = parse(text)
            own, other = bytes.fromhex(line.signature), bytes.fromhex(line.peer)
        except ValueError as error:
            raise AuditError(f"{name}, line {number}: {error}") from None
        expected = _link(link, line.events)
        checks = {
            "is of another task": line.events.task == task.digest.hex(),
            "was changed, or one before it was removed": line.link == expected.hex(),
            f"is not signed by {owner.name}": is_signed(owner.key, expected, own),
            "has a round that is not after the one before": line.events.round > last or line.events.kind == TOLD,
        }
        if peer is not None:
            checks["starts from another model than the round before ended with"] = line.events.model == model
        if peer is not None and line.events.kind == OPENED:
            checks[f"is not signed by {peer.name}"] = is_signed(peer.key, line.events.digest, other)
        for fault, fine in checks.items():
            if not fine:
                raise AuditError(f"{name}, line {number} {fault}")
        link, last = line.link, max(last, line.events.round)
        model = line.events.next_model if line.events.kind == OPENED else model
        events.append(line.events)
    return events


def audit(task: Task, log_a: Sequence[str], log_b: Sequence[str], clients: Mapping[str, Sequence[str]]) -> str:
    """Prove that the logs agree, or raise an :class:`AuditError` that names the first line that differs."""
    a, b = task.server_a, task.server_b
    events_a = _opened(verify("A's log", log_a, a, task, b))
    events_b = _opened(verify("B's log", log_b, b, task, a))
    for (number, mine), (_, theirs) in zip(events_a, events_b, strict=False):
        if mine != theirs:
            raise AuditError(f"line {number} of A's log, round {mine.round}, differs from B's round {theirs.round}")
    if len(events_a) != len(events_b):
        longer, events = ("A", events_a) if len(events_a) > len(events_b) else ("B", events_b)
        number, first = events[min(len(events_a), len(events_b))]
        raise AuditError(f"line {number} of {longer}'s log, round {first.round}, is not in the other's")
    rounds = {events.round: events for _, events in events_a}
    counted = [_audit_client(task, name, log, rounds) for name, log in clients.items()]
    return "\n".join([f"both servers agree on all {len(rounds)} opened rounds", *counted])


def _audit_client(task: Task, name: str, log: Sequence[str], rounds: dict[int, Events]) -> str:
    if name not in task.members:
        raise AuditError(f"{name} is not in the roster")
    valid, sent_in = 0, set()
    for number, events in enumerate(verify(f"{name}'s log", log, task.members[name].identity, task), 1):
        if events.kind == SENT:
            sent_in.add(events.round)
        opened = rounds.get(events.round)
        found = next((each for each in opened.verdicts if each.client == name), None) if opened is not None else None
        fault = _client_fault(events, opened, found)
        if fault is not None:
            raise AuditError(f"{name}'s log, line {number}: another {fault} than the servers' in round {events.round}")
        valid += events.kind == SENT and found is not None and found.verdict == VALID
    for opened in rounds.values():
        if any(verdict.client == name for verdict in opened.verdicts) and opened.round not in sent_in:
            raise AuditError(f"the servers hold a submission of {name} in round {opened.round} that it did not send")
    return f"{name} sent in {len(sent_in)} rounds, and counted in {valid}"


def _client_fault(events: Events, opened: Events | None, found: Verdict | None) -> str | None:
    """What differs between a line of a client and the servers' record of the same round."""
    own = events.verdicts[0]
    if opened is not None and opened.model != events.model:
        return "model"
    if found is not None and found.header != own.header:
        return "submission"
    if events.kind != TOLD:
        return None
    if opened is None or found is None or found.verdict != own.verdict or opened.next_model != events.next_model:
        return "verdict"
    return None


def _cut_to_whole_lines(file: BinaryIO) -> Line | None:
    """Cut off a last line that was not written to its end; the last whole one."""
    length, line = _last_whole_line(file)
    file.truncate(length)
    return line


def _last_whole_line(file: BinaryIO) -> tuple[int, Line | None]:
    """The length of all whole lines, and the last of them, read from the end of the file."""
    end, tail = file.seek(0, os.SEEK_END), b""
    start = end
    while start > 0 and tail.count(b"\n") < 2:
        start = max(0, start - _CHUNK)
        file.seek(start)
        tail = file.read(end - start)
    whole = tail[: tail.rfind(b"\n") + 1]
    lines = whole.splitlines()
    return start + len(whole), parse(lines[-1].decode()) if lines else None


def _opened(events: list[Events]) -> list[tuple[int, Events]]:
    return [(number, event) for number, event in enumerate(events, 1) if event.kind == OPENED]


def _digest(hexadecimal: str) -> Digest:
    return Digest(bytes.fromhex(hexadecimal))


def _link(previous: str, events: Events) -> Digest:
    return digest(b"precad audit", previous.encode(), events.digest)
