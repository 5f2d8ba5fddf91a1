"""What the package does, in the form of docs/vectors.md: the ``given`` and the ``expected`` of each kind of vector."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from precad.deployment import receipts, sealing
from precad.deployment import task as tasks
from precad.deployment.keys import Identity, is_signed
from precad.errors import PrecadError, ProtocolError, Rejected
from precad.mpc import field, fixed_point
from precad.mpc.field import P
from precad.mpc.prg import Context, Digest, Purpose, Stream, digest, vector_digest
from precad.mpc.projection import ROWS
from precad.mpc.secret import Secret
from precad.privacy.terms import Adversary
from precad.protocol import aggregation, digests, norm_proof, states, submission
from precad.protocol.codec import Blob
from precad.protocol.messages import KINDS, Check, Head, Header, NoisyShare, Receipt, Tally, decode, encode
from precad.protocol.params import Normalise, Params, Round, Unit, Validation
from precad.protocol.states import Accepted, Collecting, Role
from precad.protocol.submission import ClientSecrets, Submission
from precad.protocol.update import Model, Schedule, next_model, normaliser
from precad.tables import build, parse_json

Table = dict[str, Any]


def decimals(vector: Sequence[int] | Any) -> list[str]:
    return [str(int(value)) for value in vector]


def vector(texts: Sequence[str]) -> Any:
    return np.array([int(text) for text in texts], np.uint64)


def as_table(round_: Round) -> Table:
    params = {name: getattr(value, "value", value) for name, value in asdict(round_.params).items()}
    shown = {name: getattr(round_, name).hex() for name in ("task", "model", "nonces")}
    return {"params": params, "number": round_.number, **shown}


def params_of(table: Table) -> Params:
    choices = {
        "validation": Validation(table["validation"]),
        "noise": Adversary(table["noise"]),
        "unit": Unit(table["unit"]),
    }
    values: Table = {**table, **choices}
    return Params(**values)


def round_of(table: Table) -> Round:
    task, model, nonces = (Digest(bytes.fromhex(table[name])) for name in ("task", "model", "nonces"))
    return Round(params_of(table["params"]), task, table["number"], model, nonces)


def raw(given: Table, name: str) -> bytes:
    return bytes.fromhex(given[name])


def secret(given: Table, name: str) -> Secret:
    return Secret(raw(given, name))


def expected(kind: str, given: Table) -> Table:
    """What the package finds."""
    try:
        answer: Table = _KINDS[kind](given)
    except (PrecadError, ValueError):
        return {"refused": True}
    return answer


def _field(given: Table) -> Table:
    a, b = (vector([given[name]]) for name in ("a", "b"))
    product = int(given["a"]) * int(given["b"]) % P
    assert product == field.dot(a, b)
    total, difference, lifted = field.add(a, b), field.sub(a, b), field.lift(vector([str(product)]))
    values = {"sum": total[0], "difference": difference[0], "product": product, "lift": lifted[0]}
    return {name: str(int(value)) for name, value in values.items()}


def _grid(given: Table) -> Table:
    values = np.array([float.fromhex(value) for value in given["values"]])
    return {"entries": decimals(fixed_point.encode(values, given["fractional_bits"]))}


def _params(given: Table) -> Table:
    params = params_of(given["params"])
    shape = submission.proof_shape(params)
    return {
        "f": params.fractional_bits,
        "S": str(params.squared_bound),
        "tau": shape.window,
        "w": shape.norm_bits,
        "k": shape.projection_bits,
        "L": shape.bits,
        "m": shape.wire,
        "E": shape.entry_wires,
        "B": shape.bit_wires,
        "s": params.noise_std.hex(),
        "digest": params.digest.hex(),
    }


def _hash(given: Table) -> Table:
    return {"digest": digest(f"precad {given['purpose']}".encode(), *map(bytes.fromhex, given["parts"])).hex()}


def _vector(given: Table) -> Table:
    return {"digest": vector_digest(vector(given["entries"])).hex()}


def _stream(given: Table) -> Table:
    context = Context(Digest(raw(given, "task")), given["round"], given["party"])
    stream = Stream(secret(given, "seed"), Purpose(f"precad {given['purpose']}".encode()), context)
    words = np.empty(given["words"], np.uint64)
    stream.fill_words(words)
    return {"words": decimals(words), "elements": decimals(stream.field(given["elements"]))}


def _message(given: Table) -> Table:
    kinds = {kind.__name__: kind for kind in KINDS}
    message = decode(raw(given, "bytes"), kinds[given["message"]], **given["lengths"])
    return {name: _shown(value) for name, value in vars(message).items()}


def _shown(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.value.hex()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_shown(item) for item in value]
    return decimals(value) if isinstance(value, np.ndarray) else value


def _floats(given: Table, name: str) -> Any:
    return np.array([float.fromhex(value) for value in given[name]])


def _model(given: Table) -> Table:
    return {"digest": digests.model_digest(_floats(given, "values")).hex()}


def _step(given: Table) -> Table:
    theta, first, second = (_floats(given, name) for name in ("model", "first", "second"))
    rates = {name: given[name] for name in ("client_rate", "record_rate", "records", "valid")}
    schedule = build(Schedule, {name: given[name] for name in _SCHEDULE}, "the schedule")
    with np.errstate(over="ignore", invalid="ignore"):
        moved = next_model(
            Model(theta, first, second, given["steps"]),
            fixed_point.decode(np.array([int(value) for value in given["sum"]], np.int64), given["fractional_bits"]),
            normaliser(Normalise(given["normalise"]), Unit(given["unit"]), **rates),
            schedule.learning_rate_at(given["opened"], given["rounds"]),
            schedule.optimiser,
        )
    shown = {"model": moved.theta, "first": moved.first, "second": moved.second}
    kept = {name: [float(value).hex() for value in values] for name, values in shown.items()}
    return {**kept, "steps": moved.steps, "digest": moved.digest.hex()}


_SCHEDULE = ("learning_rate", "final_learning_rate", "optimiser")


class _AgainError(Exception):
    pass


def _submission(given: Table) -> Table:
    drawn = [ClientSecrets(*(secret(given, name) for name in ("seed_a", "seed_b", "salt_a", "salt_b")))]

    def draw() -> ClientSecrets:
        if not drawn:
            raise _AgainError
        return drawn.pop()

    entries = np.array([int(value) for value in given["entries"]], np.int64)
    head = Blob(raw(given, "head"))
    try:
        sent = submission.submit(round_of(given["round"]), given["client"], entries, draw, head)
    except _AgainError:
        return {"again": True}
    return {name: getattr(sent, name).hex() for name in ("header", "part_a", "part_b")}


def _receive(given: Table) -> Table:
    known = None if given["known"] is None else decode(raw(given, "known"), Header)
    collecting = Collecting(round_of(given["round"]), Role[given["role"]], frozenset(given["selected"]))
    found = states.receive(collecting, given["client"], raw(given, "header"), raw(given, "part"), known)
    if isinstance(found, Rejected):
        return {"rejected": found.reason.name}
    return {"header": digests.header(found.header).hex()}


def _challenge(given: Table) -> Table:
    round_, nonces = round_of(given["round"]), (secret(given, "nonce_a"), secret(given, "nonce_b"))
    commitments = [digests.commit_nonce(nonce) for nonce in nonces]
    if digests.nonces(*commitments) != round_.nonces or nonces[0] == nonces[1]:
        raise ProtocolError("not the nonces of the round")
    seed = digests.challenge(round_, *nonces)
    shape, context = submission.proof_shape(round_.params), round_.context("challenge")
    stream = Stream(Secret(seed), Purpose.CHALLENGE, context)
    r = next(value for value in iter(lambda: int(stream.field(1)[0]), None) if not 1 <= value <= shape.wire)
    w, v = stream.field(shape.bit_wires), stream.field(ROWS) >> np.uint64(61 - norm_proof.V_BITS)
    drawn = norm_proof.derive_challenge(shape, seed, context)
    assert np.array_equal(drawn.wire_weights, w)
    assert drawn.v_sum == sum(map(int, v)) % P
    return {
        "commitment_a": commitments[0].hex(),
        "commitment_b": commitments[1].hex(),
        "seed": seed.hex(),
        "r": str(r),
        "w": decimals(w),
        "v": decimals(v),
    }


def judged(round_: Round, sent: Mapping[str, Submission], selected: Sequence[str], nonces: dict[Role, Secret]) -> Any:
    """Both servers up to their verdicts: (checking, accepted, checks, rejected when received) of each."""
    received: dict[Role, dict[str, Accepted | Rejected]] = {}
    for role in Role:
        state = Collecting(round_, role, frozenset(selected))
        received[role] = {
            client: states.receive(state, client, each.header, each.part_a if role is Role.A else each.part_b, None)
            for client, each in sent.items()
        }
    kept = {role: {c: r for c, r in received[role].items() if isinstance(r, Accepted)} for role in Role}
    closing = {
        role: states.close(Collecting(round_, role, frozenset(selected)), [each.header for each in kept[role].values()])
        for role in Role
    }
    agreed = {role: states.agree(closing[role][0], closing[role.other][1], nonces[role]) for role in Role}
    checking = {role: states.challenge(agreed[role][0], agreed[role.other][1]) for role in Role}
    checks: dict[Role, dict[str, Check]] = {role: {} for role in Role}
    if round_.params.validation is Validation.PROOF:
        checks = {
            role: {c: states.check(checking[role], kept[role][c]) for c in sorted(checking[role].headers)}
            for role in Role
        }
        valid = [c for c in checks[Role.A] if states.judge(checking[Role.A], checks[Role.A][c], checks[Role.B][c])]
        checking = {role: states.conclude(checking[role], valid) for role in Role}
    refused = {
        c: r.reason.name for role in (Role.B, Role.A) for c, r in received[role].items() if isinstance(r, Rejected)
    }
    rejected = {c: r.reason.name for role in (Role.B, Role.A) for c, r in checking[role].rejected.items()}
    return checking, checks, kept, {**rejected, **refused}


def submissions_of(given: Table) -> dict[str, Submission]:
    return {
        each["client"]: Submission(*(raw(each, name) for name in ("header", "part_a", "part_b")))
        for each in given["submissions"]
    }


def _nonces(given: Table) -> dict[Role, Secret]:
    return {Role.A: secret(given, "nonce_a"), Role.B: secret(given, "nonce_b")}


def _check(given: Table) -> Table:
    round_ = round_of(given["round"])
    client = decode(raw(given, "header"), Header).client
    sent = Submission(*(raw(given, name) for name in ("header", "part_a", "part_b")))
    checking, checks, _, _ = judged(round_, {client: sent}, [client], _nonces(given))
    shown = {f"check_{role.name.lower()}": encode(checks[role][client]).hex() for role in Role}
    return {**shown, "valid": client in checking[Role.A].valid}


def _round(given: Table) -> Table:
    round_ = round_of(given["round"])
    checking, _, _, rejected = judged(round_, submissions_of(given), given["selected"], _nonces(given))
    state = checking[Role.A]
    outcome = states.outcome(state)
    found = {
        "closed": state.closed.hex(),
        "seed": state.seed.hex(),
        "valid": sorted(state.valid),
        "rejected": rejected,
        "outcome": outcome.hex(),
    }
    try:
        return {**found, "sum": _opened(round_, given, outcome, len(state.valid))}
    except ProtocolError:
        return {**found, "refused": True}


def _opened(round_: Round, given: Table, outcome: Digest, valid: int) -> list[str]:
    shares = []
    tallies = [decode(raw(given, f"tally_{side}"), Tally) for side in "ab"]
    for tally, side in zip(tallies, "ab", strict=True):
        share = decode(raw(given, f"share_{side}"), NoisyShare, share=round_.params.dim)
        if tally.outcome != outcome or share.outcome != outcome:
            raise ProtocolError("another outcome")
        if tally.share != digests.tally(share.salt, share.share):
            raise ProtocolError("not the share of the tally")
        shares.append(share.share)
    if tallies[0].share == tallies[1].share:
        raise ProtocolError("one share twice")
    total = aggregation.open_sum(*shares)
    if float(np.linalg.norm(total)) > aggregation.longest_sum(round_.params, valid):
        raise ProtocolError("too long")
    return decimals(total)


def _seal(given: Table) -> Table:
    recipient = Identity(given["recipient"], bytes(32), b"")
    part = sealing.unseal(raw(given, "private"), raw(given, "sealed"), raw(given, "header"), recipient)
    return {"refused": True} if part is None else {"part": part.hex()}


def _start(given: Table) -> Table:
    nonces = digests.nonces(*(Digest(raw(given, f"commitment_{side}")) for side in "ab"))
    task, model = Digest(raw(given, "task")), Digest(raw(given, "model"))
    statement = sealing.start_statement(task, given["round"], model, nonces)
    if not all(is_signed(raw(given, f"key_{side}"), statement, raw(given, f"signature_{side}")) for side in "ab"):
        return {"refused": True}
    return {"nonces": nonces.hex(), "statement": statement.hex()}


def _receipt(given: Table) -> Table:
    events = build(receipts.Events, given["events"], "the events", complete=True)
    message, key = decode(raw(given, "receipt"), Receipt), raw(given, "key")
    statements, head = events.statements(), receipts.head_of(events)
    right = (
        (message.task.hex(), message.round, message.events) == (events.task, events.round, events.digest)
        and is_signed(key, events.digest, message.signature)
        and len(message.verdicts) == len(statements)
        and all(is_signed(key, *each) for each in zip(statements, message.verdicts, strict=True))
        and is_signed(key, head, message.head)
    )
    if not right:
        return {"refused": True}
    return {"events": events.digest.hex(), "verdicts": [each.hex() for each in statements], "head": head.hex()}


def _head(given: Table) -> Table:
    head = decode(raw(given, "head"), Head)
    statement = receipts.head_statement(Digest(raw(given, "task")), head.round, head.model)
    signature = head.signature_a if given["role"] == "A" else head.signature_b
    if not is_signed(raw(given, "key"), statement, signature):
        return {"refused": True}
    return {"statement": statement.hex()}


class _TaskOf:
    """As much of a task as a log is verified against."""

    def __init__(self, given: Table) -> None:
        self.digest, self.model = (Digest(raw(given, name)) for name in ("task", "model"))


def _log(given: Table) -> Table:
    owner, peer = (Identity(name, raw(given, name), b"") for name in ("owner", "peer"))
    for number in range(1, len(given["lines"]) + 1):
        try:
            receipts.verify("it", given["lines"][:number], owner, _TaskOf(given), peer)  # type: ignore[arg-type]
        except receipts.AuditError:
            return {"refused": True, "line": number}
    return {"links": [receipts.parse(line).link for line in given["lines"]]}


def _task(given: Table) -> Table:
    task = tasks.from_json(parse_json(given["text"]))
    return {"digest": task.digest.hex(), "params": task.bounds.digest.hex()}


_KINDS = {
    "field": _field,
    "grid": _grid,
    "params": _params,
    "hash": _hash,
    "vector": _vector,
    "stream": _stream,
    "model": _model,
    "step": _step,
    "message": _message,
    "submission": _submission,
    "receive": _receive,
    "challenge": _challenge,
    "check": _check,
    "round": _round,
    "seal": _seal,
    "start": _start,
    "receipt": _receipt,
    "head": _head,
    "log": _log,
    "task": _task,
}
