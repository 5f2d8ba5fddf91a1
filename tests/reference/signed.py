"""The test vectors of what is signed or sealed: starts, heads, receipts, logs, tasks, parts."""

import base64
import json
from dataclasses import asdict, replace
from functools import cache

from precad.deployment import receipts, sealing
from precad.deployment.keys import Identity, sign
from precad.deployment.receipts import Events, Verdict
from precad.deployment.sealing import EpochKey
from precad.protocol import digests
from precad.protocol.codec import Blob
from precad.protocol.messages import (
    Head,
    Receipt,
    encode,
)
from precad.protocol.states import Role
from tests.deployment import world
from tests.reference.book import KEYS, SERVERS, Book, make_round, named, public, submit
from tests.reference.transcripts import Table


def signatures(book: Book) -> None:
    start = {"task": named("task").hex(), "round": 7, "model": named("model").hex()}
    start |= {"key_a": public("alpha"), "key_b": public("beta")}
    commitments = {role: digests.commit_nonce(SERVERS[role].nonce) for role in Role}
    start |= {f"commitment_{role.name.lower()}": commitments[role].hex() for role in Role}
    statement = sealing.start_statement(named("task"), 7, named("model"), digests.nonces(*commitments.values()))
    right = {"signature_a": sign(KEYS["alpha"], statement).hex(), "signature_b": sign(KEYS["beta"], statement).hex()}
    book.add("start", "of a round", "both servers sign model and nonces", {**start, **right})
    forged: dict[str, Table] = {
        "another model": {"model": named("other").hex()},
        "another round": {"round": 8},
        "another nonce of B": {"commitment_b": named("other").hex()},
        "commitments swapped": {"commitment_a": start["commitment_b"], "commitment_b": start["commitment_a"]},
        "one signature twice": {"signature_b": right["signature_a"]},
        "no signature": {"signature_b": ""},
    }
    book.lies("start", "no client joins", {**start, **right}, forged)
    head = Head(
        6,
        named("next"),
        *(sign(KEYS[n], receipts.head_statement(named("task"), 6, named("next"))) for n in ("alpha", "beta")),
    )
    given = {"task": named("task").hex(), "head": encode(head).hex(), "key": public("beta"), "role": "B"}
    book.add("head", "of B", "", given)
    forged = {
        "of another server": {"key": public("alpha")},
        "of another task": {"task": named("other").hex()},
        "of another round": {"head": encode(replace(head, round=5)).hex()},
        "garbage": {"head": "00"},
    }
    book.lies("head", "this server did not sign it", given, forged)


def events(number: int, model: str, *verdicts: Verdict) -> Events:
    """Of an opened round."""
    return Events(
        task=named("task").hex(),
        round=number,
        kind=receipts.OPENED,
        model=model,
        next_model=named(f"model {number}").hex(),
        closed=named("closed").hex(),
        outcome=named("outcome").hex(),
        verdicts=verdicts,
    )


def logs(book: Book) -> None:
    both = (
        Verdict("bank", named("header").hex(), receipts.VALID, 1),
        Verdict("lab", named("header 2").hex(), "the update is not within its bound, or its proof is false", 0),
    )
    first = events(0, named("model").hex(), *both)
    second = events(2, first.next_model)
    verdicts = tuple(sign(KEYS["beta"], each) for each in first.statements())
    signed, head = (sign(KEYS["beta"], each) for each in (first.digest, receipts.head_of(first)))
    receipt = Receipt(named("task"), 0, first.digest, signed, verdicts, head)
    table = json.loads(json.dumps(asdict(first)))
    given = {"events": table, "key": public("beta"), "receipt": encode(receipt).hex()}
    book.add("receipt", "of a round", "", given)
    forged: dict[str, Table] = {
        "another verdict": {
            "events": {**table, "verdicts": [{**table["verdicts"][0], "verdict": "sent"}, table["verdicts"][1]]}
        },
        "another next model": {"events": {**table, "next_model": named("other").hex()}},
        "one count off": {
            "events": {**table, "verdicts": [{**table["verdicts"][0], "participations": 2}, table["verdicts"][1]]}
        },
        "signed by another": {"key": public("alpha")},
        "a verdict too few": {"receipt": encode(replace(receipt, verdicts=receipt.verdicts[:1])).hex()},
        "verdicts swapped": {"receipt": encode(replace(receipt, verdicts=receipt.verdicts[::-1])).hex()},
        "no head": {"receipt": encode(replace(receipt, head=Blob(b""))).hex()},
    }
    book.lies("receipt", "the servers do not settle", given, forged)
    given_up = Events(task=named("task").hex(), round=1, kind=receipts.ABANDONED, model=first.next_model)
    lines: list[str] = []
    for each in (first, given_up, second):
        peer = sign(KEYS["alpha"], each.digest) if each.kind == receipts.OPENED else b""
        lines.append(receipts.next_line(lines[-1] if lines else None, each, KEYS["beta"], peer).as_text())
    given = {
        "task": named("task").hex(),
        "model": named("model").hex(),
        "owner": public("beta"),
        "peer": public("alpha"),
        "lines": lines,
    }
    book.add("log", "three rounds", "one of them given up", given)
    unsigned = json.dumps({**json.loads(lines[2]), "peer": ""}, separators=(",", ":"))
    changed = lines[0].replace('"participations":1', '"participations":0')
    forged = {
        "a line removed": {"lines": [lines[0], lines[2]]},
        "a line changed": {"lines": [changed, *lines[1:]]},
        "lines swapped": {"lines": [lines[1], lines[0], lines[2]]},
        "not signed by the peer": {"lines": [*lines[:2], unsigned]},
        "of another owner": {"owner": public("bank")},
        "from another model": {"model": named("other").hex()},
        "a line twice": {"lines": [lines[0], lines[0]]},
        "half a line": {"lines": [lines[0], lines[1][:-3]]},
    }
    book.lies("log", "the first wrong line is named", given, forged)


@cache
def task_text() -> str:
    """A task with keys that do not change."""
    made = world.make()
    servers = [
        replace(each, key=bytes.fromhex(public(each.name)), certificate=named(each.name))
        for each in (made.task.server_a, made.task.server_b)
    ]
    member = replace(made.task.roster[0], identity=Identity("bank", bytes.fromhex(public("bank"))))
    task = replace(
        made.task,
        server_a=servers[0],
        server_b=servers[1],
        roster=(member,),
        bounds=replace(made.task.bounds, clients=1),
    )
    return task.as_text()


def tasks(book: Book) -> None:
    text = task_text()
    book.add("task", "one client", "", {"text": text})
    value = json.loads(text)
    own = [{**value["roster"][0], "certificate": base64.b64encode(named("bank")).decode()}]
    book.add("task", "a client with a certificate", "", {"text": json.dumps({**value, "roster": own})})
    borrowed = [{**own[0], "certificate": value["server_b"]["certificate"]}]
    same = {"text": json.dumps({**value, "roster": borrowed})}
    book.add("task", "a client with a server's certificate", "each has its own", same, malicious=True)
    book.add(
        "task",
        "other white space and order",
        "the digest is of the values",
        {"text": json.dumps(dict(reversed(value.items())), indent=4)},
    )
    bounds = {name: int(each) if type(each) is float else each for name, each in value["parameters"].items()}
    whole = {"parameters": bounds, "training": {**value["training"], "client_rate": 1, "budget": 8, "reply_seconds": 0}}
    book.add("task", "whole numbers are floats", "the same digest", {"text": json.dumps({**value, **whole})})
    later = {"training": {**value["training"], "reply_seconds": 60}}
    book.add("task", "with a reply time", "", {"text": json.dumps({**value, **later})})
    for name, why, change in (
        ("rounds that are a float", "a whole number has no point", {"training": {**value["training"], "rounds": 50.0}}),
        ("version 1", "another version", {"protocol": 1}),
        ("a key too many", "no default, no extra", {"extra": 0}),
        ("a model's digest that is cut off", "", {"model": value["model"][:-2]}),
    ):
        book.add("task", name, why, {"text": json.dumps({**value, **change})}, malicious=True)
    for name, why, change in (
        ("minimum 0", "a round with nobody is opened only where participants are hidden", {"minimum": 0}),
        ("minimum 2", "more than there are clients", {"minimum": 2}),
        ("hidden, minimum 1", "whether a round is opened would tell who took part", {"participants": "hidden"}),
    ):
        changed = {**value, "training": {**value["training"], **change}}
        book.add("task", name, why, {"text": json.dumps(changed)}, malicious=True)
    hidden = {**value, "training": {**value["training"], "participants": "hidden", "minimum": 0}}
    book.add("task", "hidden, minimum 0", "a round is opened whoever took part", {"text": json.dumps(hidden)})
    missing = {key: each for key, each in value.items() if key != "training"}
    book.add("task", "a key too few", "no default", {"text": json.dumps(missing)}, malicious=True)


def seals(book: Book) -> None:
    """Made once: HPKE draws by itself."""
    made = world.make()
    server, key = made.task.server_b, EpochKey.fresh(made.task, made.task.server_b, 3, made.servers[Role.B].signing)
    round_ = replace(make_round(5), task=made.task.digest)
    sent = submit(round_, "bank")
    announced = sealing.check_announced(made.task, server, 3, key.announced)
    sealed = sealing.seal(announced, sent.part_b, sent.header, server)
    given = {
        "private": key.private.hex(),
        "header": sent.header.hex(),
        "recipient": server.name,
        "sealed": sealed.hex(),
    }
    book.add("seal", "part B", "", given)
    forged: dict[str, Table] = {
        "for another server": {"recipient": "alpha"},
        "under another header": {"header": submit(replace(round_, number=8), "bank").header.hex()},
        "one bit changed": {"sealed": (sealed[:-1] + bytes([sealed[-1] ^ 1])).hex()},
        "cut off": {"sealed": sealed[:1000].hex()},
        "to another key": {"private": bytes(range(96)).hex()},
    }
    book.lies("seal", "it does not open", given, forged)
