"""A second verifier, in plain integers, written from docs/protocol.md alone, whose sections its functions name.

The public function `expected` gives what a vector (docs/vectors.md) must expect. §5, triples, is not covered."""

import base64
import functools
import hashlib
import io
import itertools
import json
import math
import operator
import re
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import ciphers, hpke
from cryptography.hazmat.primitives.asymmetric import ed25519, mlkem, x25519

Object = dict[str, Any]
Vector = list[int]
Challenge = tuple[bytes, int, Vector, Vector]  # The seed, r, all w_n and all v_j (§4).

P, HALF, ROWS, VERSION = 2**61 - 1, 2**60 - 1, 128, 2
VERDICTS = ("valid", "the update is not within its bound, or its proof is false")
CHOICES = {"validation": ("proof", "triples", "none"), "noise": ("server", "clients"), "unit": ("record", "client")}
BOUNDS = ("record_bound", "client_bound", "noise_multiplier")
FLOATS = re.compile("(record|client)_(bound|rate)|noise_multiplier|(final_)?learning_rate|delta|budget|reply_seconds")
PARAMETERS = ("dim", "clients", *BOUNDS, *CHOICES)
TRAINING = "client_rate record_rate rounds schedule delta budget participations normalise participants epoch_rounds"
REASONS = ("NOT_SELECTED", "MALFORMED", "FOREIGN", "COMMITMENT", "PART", "REPEATED")
PARTY = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Refused(Exception):
    """What came from outside is not what the protocol allows; of a submission, with a reason of §13's table."""


# What values from outside may raise: refusals, and what Python and its libraries raise for those that are wrong.
LIBRARIES = (InvalidSignature, InvalidTag, struct.error)
OUTSIDE = (Refused, *LIBRARIES, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
u64 = struct.Struct("<Q").pack  # A number as 8 bytes little-endian.
canonical = functools.partial(json.dumps, sort_keys=True, separators=(",", ":"), allow_nan=False)  # §14, §15.


def demand(condition: bool, why: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        raise Refused(why)


def whole(value: Any, least: int = 0, most: int = 2**64 - 1) -> int:
    """A whole number of JSON within bounds; a boolean is none."""
    demand(type(value) is int and least <= value <= most, "not a whole number within its bounds")
    return int(value)


def raw(value: Any, size: int | None = None) -> bytes:
    """Bytes from lower-case hexadecimal, of a size if one is given."""
    demand(re.fullmatch("([0-9a-f]{2})*", value) is not None, "not hexadecimal")
    demand(size is None or len(value) == 2 * size, "bytes of another length")
    return bytes.fromhex(value)


def keys(value: Any, names: str) -> Object:
    """A JSON object with exactly these keys; `30` in the place of a float is 30.0 (§14)."""
    demand(isinstance(value, dict) and set(value) == set(names.split()), "an object with other keys")
    return {name: float(item) if type(item) is int and FLOATS.fullmatch(name) else item for name, item in value.items()}


def shown(value: Any) -> Any:
    """A value as vectors show it: bytes and floats in hexadecimal, and whole numbers of lists as decimal texts."""
    if isinstance(value, list | tuple):
        return [str(item) if isinstance(item, int) else shown(item) for item in value]
    return value.hex() if isinstance(value, bytes | float) else value


def dot(left: Iterable[int], right: Iterable[int]) -> int:
    """The inner product, over the integers."""
    return sum(map(operator.mul, left, right))


def H(purpose: str, *parts: bytes | str | int) -> bytes:
    """The hash H(purpose; parts) of §3; a text is its UTF-8, a number its 8 bytes."""
    data = [part.encode() if isinstance(part, str) else u64(part) if isinstance(part, int) else part for part in parts]
    body = b"".join(u64(len(part)) + part for part in data)
    return hashlib.blake2b(body, digest_size=32, person=b"precad " + purpose.encode()).digest()


def V(entries: Sequence[int]) -> bytes:
    """The digest of a vector (§3)."""
    return blake3(struct.pack(f"<{len(entries)}Q", *entries), derive_key_context="precad 1 vector").digest()


class Stream:
    """PRG(seed, purpose, party) of §3: the key stream of AES-128 in counter mode."""

    def __init__(self, seed: bytes, purpose: str, task: bytes, number: int, party: str) -> None:
        start = H(purpose, seed, task, number, party)
        self._cipher = ciphers.Cipher(ciphers.algorithms.AES(start[:16]), ciphers.modes.CTR(start[16:])).encryptor()

    def words(self, count: int) -> tuple[int, ...]:
        """The next words of 64 bits."""
        return struct.unpack(f"<{count}Q", self._cipher.update(bytes(8 * count)))

    def elements(self, count: int) -> list[int]:
        """The next field elements: the low 61 bits of each word, without those that are p."""
        found: list[int] = []
        while len(found) < count:
            found += [value for word in self.words(count - len(found)) if (value := word & P) != P]
        return found


@functools.lru_cache(maxsize=256)
def lagrange(degree: int, point: int) -> list[int]:
    """The Lagrange polynomials of the points 0..degree (§4), at a point, which may be one of them."""
    inverse, points = pow(math.factorial(degree), -1, P), range(degree + 1)
    scales = [(-1) ** (degree - j) * math.comb(degree, j) * inverse for j in points]
    return [scale * math.prod(point - i for i in points if i != j) % P for j, scale in enumerate(scales)]


def read_params(value: Any) -> SimpleNamespace:
    """The parameters of a task and all of §3's numbers by their names, or a refusal (§3, §14)."""
    given = keys(value, " ".join(PARAMETERS))
    d, n = whole(given["dim"], 1, 2**32), whole(given["clients"], 1)
    demand(all(type(given[name]) is float for name in BOUNDS), "not a number")
    demand(all(given[name] in words for name, words in CHOICES.items()), "an unknown choice")
    R, C, sigma = (given[name] for name in BOUNDS)
    squares = [math.floor((Fraction(C) * 2**f) ** 2) for f in range(17)]
    f, S = max((f, S) for f, S in enumerate(squares) if 729 * S <= 16 * (2**26 - 1) ** 2)
    demand(all(2.0**-f <= bound < 2.0 ** (48 - f) for bound in (R, C)), "a bound outside of the grid")
    tau = 1 << (math.isqrt(-(-729 * S // 16) - 1) + 1).bit_length()
    sensitivity = R + (math.sqrt(d) + 1) * 2.0**-f if given["unit"] == "record" else C
    s = sigma * sensitivity * 2**f / (math.sqrt(2) if given["noise"] == "clients" else 1)
    demand(8 <= s <= 2**40, "too much or too little noise")
    demand(n * math.isqrt(S) + math.ceil(40 * math.sqrt(2) * s) < HALF, "a sum that may overflow")
    w, k, m = S.bit_length(), tau.bit_length(), 64 if d >= 2**17 else 16
    L = w + ROWS * k
    E, B = -(-d // m), -(-L // m)
    found = SimpleNamespace(**given, s=s, f=f, S=S, tau=tau, w=w, k=k, L=L, m=m, E=E, B=B)
    tail = L + 2 * m + B * (m + 1) if found.validation == "proof" else 0
    found.lengths = {"share": d + 1, "tail": tail, "wire": E + B}
    found.digest = H("params", *(f"{x}={y.hex() if isinstance(y := given[x], float) else y}" for x in PARAMETERS))
    return found


# §11: the messages in the order of their kinds; a field without a type is a Digest or a Secret.
MESSAGES = """\
Header: task, round int, model, nonces, client str, commitment_a, commitment_b, part_a, part_b, head Blob; PartA: \
salt, seed, commitment_b, share Vector, tail Vector; PartB: salt, seed, commitment_a; Close: task, round int, headers \
Digests; Nonce: closed, nonce; Check: client str, commitment_a, commitment_b, wires Vector, sums Vector; Tally: \
outcome, share; NoisyShare: outcome, salt, share Vector; DealA: closed, seed; DealB: closed, seed, norms Vector, \
mask_bits Words, and_bits Words; Masked: client str, b Vector, projections Vector; NormOpening: opened, values Vector; \
Gate: level int, opened, words Words; SealingKey: task, server str, epoch int, key Blob, signature Blob; Begin: task, \
round int, model, nonce, signature Blob, selected strs; Begun: task, round int, model, nonce, signature Blob, selected \
strs, sealing Blob; Invitation: task, round int, model, nonce_a, nonce_b, signature_a Blob, signature_b Blob, \
sealing_a Blob, sealing_b Blob; Sealed: header Blob, signature Blob, part_a Blob, part_b Blob; Relayed: header Blob, \
signature Blob, part Blob; Batch: items Blobs; Receipt: task, round int, events, signature Blob, verdicts Blobs, head \
Blob; Told: task, round int, client str, header, verdict str, next_model, signature_a Blob, signature_b Blob, head_a \
Blob, head_b Blob; Head: round int, model, signature_a Blob, signature_b Blob; Invited: invitation Blob, told Blob"""
LAYOUTS = dict(layout.split(": ") for layout in MESSAGES.split("; "))
FIELDS = {name: [(*field.split(), "Digest")[:2] for field in text.split(", ")] for name, text in LAYOUTS.items()}
KINDS = {name: kind for kind, name in enumerate(FIELDS, 1)}
LISTS = {"Digests": "Digest", "strs": "str", "Blobs": "Blob"}


def name_of(data: bytes) -> str:
    """A name from its UTF-8 (§11)."""
    text = data.decode()
    demand(1 <= len(data) <= 64 and text.isprintable(), "not a name")
    return text


class Reader(io.BytesIO):
    """Reads the fields of a message one after the other (§11)."""

    def take(self, size: int) -> bytes:
        """The next bytes, if there are as many."""
        data = self.read(size)
        demand(len(data) == size, "a field that does not fit into its message")
        return data

    def field(self, kind: str, length: int | None = None) -> Any:
        """The next field; a vector must have its length if one is given."""
        if kind == "Digest":
            return self.take(32)
        number = int.from_bytes(self.take(8), "little")
        if kind == "int":
            return number
        if kind in LISTS:
            return [self.field(LISTS[kind]) for _ in range(number)]
        if kind in ("Vector", "Words"):
            demand(length in (None, number), "a vector of another length")
            entries = [entry for (entry,) in struct.iter_unpack("<Q", self.take(8 * number))]
            demand(kind == "Words" or max(entries, default=0) < P, "an entry that is not below p")
            return entries
        data, padding = self.take(number), self.take(-number % 8)
        demand(not any(padding), "padding that is not zero")
        return name_of(data) if kind == "str" else data


def decode(name: str, data: bytes, **lengths: int) -> Object:
    """The fields of an encoded message, or a refusal (§11)."""
    start = b"precad" + bytes([VERSION, KINDS[name]]) + u64(len(data))
    demand(data[:16] == start, "a message of another version, kind or length, or none")
    reader = Reader(data[16:])
    message = {field: reader.field(kind, lengths.get(field)) for field, kind in FIELDS[name]}
    demand(not reader.read(), "bytes after the last field")
    return message


def encode(name: str, *values: Any) -> bytes:
    """The one encoding of a message without lists, from the values of its fields (§11)."""
    body = b""
    for (_, kind), value in zip(FIELDS[name], values, strict=True):
        data = u64(value) if kind == "int" else value.encode() if kind == "str" else value
        if kind == "Vector":
            data = struct.pack(f"<{len(value)}Q", *value)
        size = {"str": len(data), "Blob": len(data), "Vector": len(data) // 8}.get(kind)
        body += (b"" if size is None else u64(size)) + data + bytes(-len(data) % 8)
    return b"precad" + bytes([VERSION, KINDS[name]]) + u64(16 + len(body)) + body


def bits_of(number: int, count: int) -> list[int]:
    """The bits of a number, lowest first."""
    return list(map(int, reversed(f"{number:0{count}b}")))


def cut(entries: Sequence[int], m: int) -> list[list[int]]:
    """Entries cut into wires of m, the last filled up with zeros (§4, client's step 4)."""
    filled = [*entries, *[0] * (-len(entries) % m)]
    return [filled[i : i + m] for i in range(0, len(filled), m)]


class Round(NamedTuple):
    """A round: its parameters, and what every header of it names."""

    params: SimpleNamespace
    task: bytes
    number: int
    model: bytes
    nonces: bytes

    def draw(self, seed: bytes, purpose: str, client: str) -> Vector:
        """B's share of (x, h) or of the tail, or a server's summands of the masks: `share`, `tail`, `wire` (§3)."""
        return Stream(seed, purpose, *self[1:3], client).elements(self.params.lengths[purpose])

    def rows(self, client: str, commitment_a: bytes, commitment_b: bytes) -> list[Vector]:
        """Z by coordinates: the j-th entry of the i-th list is z_ji (§4, client's steps 1 and 2)."""
        rho = H("rho", self.task, self.number, client, commitment_a, commitment_b)
        words = Stream(rho, "Z", *self[1:3], client).words(2 * self.params.dim)
        return [bits_of(low | high << 64, ROWS) for low, high in zip(words[::2], words[1::2], strict=True)]

    def bits(self, x: Vector, h: int, rows: list[Vector]) -> Vector:
        """The bits β, or none if a projection is outside of its bound (§4, client's steps 2 and 3)."""
        tau, k = self.params.tau, self.params.k
        tops = [tau - h + sum(itertools.compress(x, column)) for column in zip(*rows, strict=True)]
        if not all(0 <= top < 2 * tau for top in tops):
            return []
        return bits_of(self.params.S - dot(x, x), self.params.w) + [bit for top in tops for bit in bits_of(top, k)]

    def tail(self, x: Vector, bits: Vector, masks: Iterable[int]) -> Vector:
        """The tail: the bits, and the claimed values of the products (§4, client's step 4)."""
        m, E, squares = self.params.m, self.params.E, []
        for mask, wire in zip(masks, cut(x, m) + cut(bits, m), strict=True):
            values = [mask, *wire]
            values += [dot(lagrange(m, point), values) % P for point in range(m + 1, 2 * m + 1)]
            squares.append([value * value % P for value in values])
        total = [sum(column) % P for column in zip(*squares[:E], strict=True)]
        claims = [value for square in squares[E:] for value in (square[0], *square[m + 1 :])]
        return [*bits, *total[:m], *total[m + 1 :], *claims]

    def accept(self, role: str, selected: list[str], client: str, header: Any, part: Any, known: Any) -> Object:
        """A header with its digest and its part, as a server receives them without a network (§13)."""
        demand(client in selected, "NOT_SELECTED")
        try:
            found, body = decode("Header", raw(header)), decode(f"Part{role}", raw(part), **self.params.lengths)
        except OUTSIDE:
            raise Refused("MALFORMED") from None
        demand([*found.values()][:5] == [*self[1:], client], "FOREIGN")  # Task, round, model, nonces and client.
        salt, seed = body["salt"], body["seed"]
        c_a = H("commit A", salt, V(body["share"])) if role == "A" else body["commitment_a"]
        c_b = body["commitment_b"] if role == "A" else H("commit B", salt, seed)
        demand((c_a, c_b) == (found["commitment_a"], found["commitment_b"]), "COMMITMENT")
        rest = (c_b, c_a, V(body["tail"])) if role == "A" else (c_a, c_b)
        demand(H(f"part {role}", salt, seed, *rest) == found[f"part_{role.lower()}"], "PART")
        demand(known in (None, header), "REPEATED")
        return {**found, "header": header, "digest": H("header", raw(header)), "part": body}

    def challenge(self, nonce_a: bytes, nonce_b: bytes) -> Challenge:
        """The challenge that both nonces give, or a refusal (§4, challenge)."""
        demand(nonce_a != nonce_b, "one's own nonce")
        demand(H("nonces", H("nonce", nonce_a), H("nonce", nonce_b)) == self.nonces, "nonces not committed to")
        seed = H("chal seed", self.task, self.params.digest, self.number, self.model, self.nonces, nonce_a, nonce_b)
        stream = Stream(seed, "challenge", *self[1:3], "challenge")
        r = next(r for r in (stream.elements(1)[0] for _ in itertools.count()) if not 1 <= r <= self.params.m)
        return seed, r, stream.elements(self.params.B), [v >> 4 for v in stream.elements(ROWS)]

    def sums(self, role: str, share: Vector, tail: Vector, rows: list[Vector], challenge: Challenge) -> Vector:
        """A server's shares of Q and of Λ (§4, servers' steps 1 and 2)."""
        (_, r, weights, v), L, m, w, params = challenge, self.params.L, self.params.m, self.params.w, self.params
        (S, tau), powers = (params.S, params.tau) if role == "A" else (0, 0), [1 << i for i in range(w + params.k)]
        bits, values, coefficients = tail[:L], tail[L : L + 2 * m], lagrange(2 * m, r)
        middle = S - dot(powers, bits[:w]) - sum(values[1:m])
        product = dot(coefficients, [*values[:m], middle, *values[m:]])
        for weight, wire, (first, *rest) in zip(weights, cut(bits, m), cut(tail[L + 2 * m :], m + 1), strict=True):
            product += weight * (dot(coefficients, [first, *wire, *rest]) % P)
        tops = [dot(powers, top) for top in cut(bits[w:], params.k)]
        projection = dot(share, (sum(itertools.compress(v, row)) for row in rows)) + sum(v) * (tau - share[-1])
        return [product % P, (projection - dot(v, tops)) % P]

    def check(self, role: str, held: Object, challenge: Challenge) -> tuple[Vector, Vector]:
        """The wires and sums of a server's `Check` of a submission (§4, servers' step 2)."""
        client, part, seed, m = held["client"], held["part"], held["part"]["seed"], self.params.m
        share, tail = (part[name] if role == "A" else self.draw(seed, name, client) for name in ("share", "tail"))
        pieces = zip(self.draw(seed, "wire", client), cut(share[:-1], m) + cut(tail[: self.params.L], m), strict=True)
        wires = [dot(lagrange(m, challenge[1]), [mask, *piece]) % P for mask, piece in pieces]
        rows = self.rows(client, held["commitment_a"], held["commitment_b"])
        return wires, self.sums(role, share, tail, rows, challenge)

    def judge(self, both: list[Object], challenge: Challenge) -> tuple[list[bytes], bool]:
        """Both servers' `Check`, and whether the submission is valid (§4, servers' step 3)."""
        checks = [self.check(role, held, challenge) for role, held in zip("AB", both, strict=True)]
        wires, (q, projection) = ([a + b for a, b in zip(*shares, strict=True)] for shares in zip(*checks, strict=True))
        squares = [wire * wire for wire in wires]
        total = sum(squares[: self.params.E]) + dot(challenge[2], squares[self.params.E :])
        names = [both[0][name] for name in ("client", "commitment_a", "commitment_b")]
        return [encode("Check", *names, *check) for check in checks], projection % P == 0 and (total - q) % P == 0

    def close(self, selected: list[str], submissions: list[Object]) -> tuple[dict[str, list[Object]], dict[str, str]]:
        """The closed set, as both servers hold it, and the reasons of those refused, A's before B's (§4, §13)."""
        held: dict[tuple[str, str], Object] = {}
        rejected: dict[str, str] = {}
        for role, sent in itertools.product("AB", submissions):
            client, header, part = sent["client"], sent["header"], sent[f"part_{role.lower()}"]
            known = held.get((role, client), {"header": None})["header"]
            try:
                held[role, client] = self.accept(role, selected, client, header, part, known)
            except Refused as refusal:
                rejected.setdefault(client, str(refusal))
        both = {name: [held.get((role, name)) for role in "AB"] for name in sorted({name for _, name in held})}
        closed = {name: [a, b] for name, (a, b) in both.items() if a and b and a["header"] == b["header"]}
        return closed, {**dict.fromkeys(both.keys() - closed.keys(), "ONE_SIDED"), **rejected}


def verify(key: bytes, signature: bytes, statement: bytes) -> None:
    """Refuse a statement that is not signed with this key (§14, signatures)."""
    ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, H("signed", statement))


def events_digest(value: Any) -> bytes:
    """The digest of a server's events of a round, or a refusal (§15, events)."""
    events = keys(value, "closed kind model next_model outcome round task verdicts")
    opened, verdicts = events["kind"] == "opened", events["verdicts"]
    demand(opened or (events["kind"] == "abandoned" and verdicts == []), "events of no known kind")
    for name in ("task", "model", "closed", "next_model", "outcome"):
        raw(events[name], 32 if opened or name in ("task", "model") else 0)
    for verdict in verdicts:
        raw(keys(verdict, "client header participations verdict")["header"], 32)
        demand(verdict["verdict"] in VERDICTS, "not a verdict")
    for number in [events["round"], *(verdict["participations"] for verdict in verdicts)]:
        whole(number)
    names = [name_of(verdict["client"].encode()) for verdict in verdicts]
    demand(names == sorted(set(names)), "verdicts that are not sorted by name")
    return H("events", canonical(events))


class Given(Object):
    """The `given` of a vector, with a method of the same name for each kind."""

    def raws(self, *names: str) -> list[bytes]:
        """Values of 32 bytes, by their names."""
        return [raw(self[name], 32) for name in names]

    def at(self) -> Round:
        """The round that the vector is of."""
        given = Given(keys(self["round"], "params task number model nonces"))
        task, model, nonces = given.raws("task", "model", "nonces")
        return Round(read_params(given["params"]), task, whole(given["number"]), model, nonces)

    def field(self) -> Object:
        """Arithmetic of the field (§3)."""
        a, b = int(self["a"]), int(self["b"])
        demand(0 <= a < P and 0 <= b < P, "not field elements")
        found = {"sum": (a + b) % P, "difference": (a - b) % P, "product": a * b % P}
        return {name: str(value) for name, value in {**found, "lift": (a * b + HALF) % P - HALF}.items()}

    def grid(self) -> Object:
        """Floats on the grid, truncated toward zero (§3)."""
        scale, values = 2 ** whole(self["fractional_bits"], 0, 16), map(float.fromhex, self["values"])
        return {"entries": [math.trunc(Fraction(value) * scale) for value in values]}

    def hash(self) -> Object:
        """The hash H (§3)."""
        return {"digest": H(self["purpose"], *map(raw, self["parts"]))}

    def vector(self) -> Object:
        """The digest V of a vector (§3)."""
        return {"digest": V([int(entry) for entry in self["entries"]])}

    def model(self) -> Object:
        """The digest of a model (§12)."""
        theta = [float.fromhex(value) for value in self["values"]]
        demand(all(map(math.isfinite, theta)), "a parameter that is not finite")
        return {"digest": H("model", V(struct.unpack(f"<{len(theta)}Q", struct.pack(f"<{len(theta)}d", *theta))))}

    def step(self) -> Object:
        """The next model and what its optimiser keeps (§6, next model)."""
        theta, a, b = ([float.fromhex(value) for value in self[name]] for name in ("model", "first", "second"))
        everybody, by_client, steps = self["normalise"] == "constant", self["unit"] == "client", self["steps"]
        counted = [1 if by_client else self["records"][name] for name in self["records" if everybody else "valid"]]
        N = (self["client_rate"] if everybody else 1.0) * (1.0 if by_client else self["record_rate"]) * sum(counted)
        start, end = self["learning_rate"], self["final_learning_rate"] or self["learning_rate"]
        eta, adam = start + (end - start) * self["opened"] / max(1, self["rounds"] - 1), self["optimiser"] == "adam"
        if N:
            u, steps = [int(value) * 2.0 ** -self["fractional_bits"] / N for value in self["sum"]], steps + 1
            a = [0.9 * x + ((1 - 0.9) * y if adam else y) for x, y in zip(a, u, strict=bool(a))]
            b = [0.999 * x + (1 - 0.999) * (y * y) for x, y in zip(b, u, strict=bool(b))]
            moves = [eta * (x / (1 - 0.9**steps) if adam else x) for x in a or u]
            roots = [math.sqrt(x / (1 - 0.999**steps)) + 1e-8 for x in b] or [1.0] * len(u)
            theta = [x + move / root for x, move, root in zip(theta, moves, roots, strict=True)]
        return {"model": theta, "first": a, "second": b, "steps": steps, **Given(values=shown(theta)).model()}

    def message(self) -> Object:
        """The fields of a message (§11)."""
        return decode(self["message"], raw(self["bytes"]), **self["lengths"])

    def params(self) -> Object:
        """The numbers of §3's table, and the digest of the parameters (§14)."""
        found = vars(read_params(self["params"]))
        return {name: found[name] for name in (*"fwkLmEBs", "tau", "digest")} | {"S": str(found["S"])}

    def stream(self) -> Object:
        """Words, and then field elements, of one stream (§3)."""
        seed, task = self.raws("seed", "task")
        stream = Stream(seed, self["purpose"], task, whole(self["round"]), self["party"])
        return {"words": stream.words(whole(self["words"])), "elements": stream.elements(whole(self["elements"]))}

    def submission(self) -> Object:
        """The three messages of a client's submission (§4, client)."""
        at, client, x = self.at(), name_of(self["client"].encode()), [int(entry) for entry in self["entries"]]
        seed_a, seed_b, salt_a, salt_b = self.raws("seed_a", "seed_b", "salt_a", "salt_b")
        demand(len(x) == at.params.dim and dot(x, x) <= at.params.S, "not an update of this task")
        h, tail = sum(x) // 2, list[int]()
        share = [(a - b) % P for a, b in zip([*x, h], at.draw(seed_b, "share", client), strict=True)]  # §3, shares
        c_a, c_b = H("commit A", salt_a, V(share)), H("commit B", salt_b, seed_b)
        if at.params.validation == "proof":
            bits = at.bits(x, h, at.rows(client, c_a, c_b))
            if not bits:
                return {"again": True}
            tail = at.tail(x, bits, map(operator.add, *(at.draw(seed, "wire", client) for seed in (seed_a, seed_b))))
            tail = [(a - b) % P for a, b in zip(tail, at.draw(seed_b, "tail", client), strict=True)]
        digests = H("part A", salt_a, seed_a, c_b, c_a, V(tail)), H("part B", salt_b, seed_b, c_a, c_b)
        context = (at.task, at.number, at.model, at.nonces, client, c_a, c_b)
        found = {"header": encode("Header", *context, *digests, raw(self["head"]))}
        found["part_a"] = encode("PartA", salt_a, seed_a, c_b, share, tail)
        return {**found, "part_b": encode("PartB", salt_b, seed_b, c_a)}

    def receive(self) -> Object:
        """A server that receives a submission without a network (§13)."""
        values = [self[name] for name in ("role", "selected", "client", "header", "part", "known")]
        return {"header": self.at().accept(*values)["digest"]}

    def challenge(self) -> Object:
        """The challenge of a round, and the commitments to its nonces (§4, challenge)."""
        nonces = self.raws("nonce_a", "nonce_b")
        seed, r, w, v = self.at().challenge(*nonces)
        commitment_a, commitment_b = (H("nonce", nonce) for nonce in nonces)
        return {"commitment_a": commitment_a, "commitment_b": commitment_b, "seed": seed, "r": str(r), "w": w, "v": v}

    def check(self) -> Object:
        """Both servers' `Check` of a submission, and the verdict (§4, servers)."""
        at, header = self.at(), self["header"]
        demand(at.params.validation == "proof", "a check without a proof")
        challenge, client = at.challenge(*self.raws("nonce_a", "nonce_b")), decode("Header", raw(header))["client"]
        both = [at.accept(role, [client], client, header, self[f"part_{role.lower()}"], None) for role in "AB"]
        (check_a, check_b), valid = at.judge(both, challenge)
        return {"check_a": check_a, "check_b": check_b, "valid": valid}

    def opened(self, at: Round, outcome: bytes, valid: int) -> Vector:
        """The opened sum of a round, or a refusal (§6, tally and opening)."""
        tallies = [decode("Tally", raw(self[name])) for name in ("tally_a", "tally_b")]
        noisy = [decode("NoisyShare", raw(self[name]), share=at.params.dim) for name in ("share_a", "share_b")]
        demand(all(message["outcome"] == outcome for message in tallies + noisy), "another outcome")
        digests = [H("tally", message["salt"], V(message["share"])) for message in noisy]
        demand(digests == [tally["share"] for tally in tallies] and digests[0] != digests[1], "another share")
        total = [(a + b + HALF) % P - HALF for a, b in zip(*(message["share"] for message in noisy), strict=True)]
        params, root = at.params, math.sqrt(at.params.dim)
        bound = valid * params.client_bound * 2**params.f + math.sqrt(2) * params.s * (root + 7) + root
        demand(params.validation == "none" or math.sqrt(dot(total, total)) <= bound, "a sum that is too long")
        return total

    def round(self) -> Object:
        """A whole round, from the submissions to the opened sum (§4, §6, §13)."""
        at, nonces = self.at(), self.raws("nonce_a", "nonce_b")
        proven = {"proof": True, "none": False}[at.params.validation]  # Validation by triples is not covered.
        challenge, (closed, rejected) = at.challenge(*nonces), at.close(self["selected"], self["submissions"])
        valid = [client for client, both in closed.items() if not proven or at.judge(both, challenge)[1]]
        rejected = {**dict.fromkeys(closed.keys() - set(valid), "INVALID"), **rejected}
        digests = sorted(both[0]["digest"] for both in closed.values())
        D = H("closed", at.task, at.params.digest, at.number, at.model, *digests)
        outcome = H("outcome", D, challenge[0], *valid)
        found = {"closed": D, "seed": challenge[0], "outcome": outcome, "valid": valid, "rejected": rejected}
        try:
            return {**found, "sum": self.opened(at, outcome, len(valid))}
        except OUTSIDE:
            return {**found, "refused": True}

    def seal(self) -> Object:
        """The part that is in a seal (§14, seals)."""
        private, data = raw(self["private"], 96), raw(self["header"])
        header, kem_key = decode("Header", data), mlkem.MLKEM768PrivateKey.from_seed_bytes(private[:64])
        key = hpke.MLKEM768X25519PrivateKey(kem_key, x25519.X25519PrivateKey.from_private_bytes(private[64:]))
        info = H("seal", header["task"], header["round"], header["client"], self["recipient"], H("header", data))
        suite = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
        return {"part": suite.decrypt(raw(self["sealed"]), key, info)}

    def start(self) -> Object:
        """The start statement that both servers signed (§12, §13)."""
        task, model, key_a, key_b = self.raws("task", "model", "key_a", "key_b")
        nonces = H("nonces", *self.raws("commitment_a", "commitment_b"))
        statement = H("start of", task, whole(self["round"]), model, nonces)
        verify(key_a, raw(self["signature_a"]), statement)
        verify(key_b, raw(self["signature_b"]), statement)
        return {"nonces": nonces, "statement": statement}

    def receipt(self) -> Object:
        """The statements of a `Receipt`, all signed by its sender, or a refusal (§15)."""
        events, receipt = self["events"], decode("Receipt", raw(self["receipt"]))
        digest, task, number, model = events_digest(events), events["task"], events["round"], events["next_model"]
        named = (receipt["events"], receipt["task"].hex(), receipt["round"])
        demand(events["kind"] == "opened" and named == (digest, task, number), "other events")
        verdicts = [(one["client"], one["header"], one["verdict"]) for one in events["verdicts"]]
        statements = [H("verdict", task, str(number), model, *verdict) for verdict in verdicts]
        head = H("head", receipt["task"], number, raw(model))
        signatures = [receipt["signature"], *receipt["verdicts"], receipt["head"]]
        for signature, statement in zip(signatures, [digest, *statements, head], strict=True):
            verify(raw(self["key"], 32), signature, statement)
        return {"events": digest, "verdicts": statements, "head": head}

    def head(self) -> Object:
        """The statement of a head that this server must have signed (§10, heads)."""
        head, (task, key) = decode("Head", raw(self["head"])), self.raws("task", "key")
        statement = H("head", task, head["round"], head["model"])
        verify(key, head[{"A": "signature_a", "B": "signature_b"}[self["role"]]], statement)
        return {"statement": statement}

    def log(self) -> Object:
        """The links of a server's log, or its first line that is wrong (§15, log)."""
        last, model, link, links, (owner, peer) = -1, self["model"], "", list[str](), self.raws("owner", "peer")
        for number, text in enumerate(self["lines"], 1):
            try:
                line = keys(json.loads(text), "events link signature peer")
                events, digest = line["events"], events_digest(line["events"])
                demand(line["link"] == (link := H("audit", link, digest).hex()), "not the link after the one before")
                demand((events["task"], events["model"]) == (self["task"], model), "another task or model")
                demand(events["round"] > last, "a round that does not rise")
                demand((line["peer"] == "") == (events["kind"] == "abandoned"), "a signature too many or too few")
                verify(owner, raw(line["signature"]), raw(link))
                if line["peer"]:
                    verify(peer, raw(line["peer"]), digest)
            except OUTSIDE:
                return {"refused": True, "line": number}
            last, model, links = events["round"], events["next_model"] or model, [*links, link]
        return {"links": links}

    def task(self) -> Object:
        """The digests of a task and of its parameters, or a refusal (§14, task)."""
        task = keys(json.loads(self["text"]), "protocol parameters training server_a server_b model roster")
        demand(whole(task["protocol"]) == VERSION and len(raw(task["model"])) == 32, "another version or no model")
        training = keys({"reply_seconds": 0, **task["training"]}, f"{TRAINING} minimum reply_seconds")
        training["schedule"] = keys(training["schedule"], "learning_rate final_learning_rate optimiser")
        training = {name: item for name, item in training.items() if item or name != "reply_seconds"}
        roster = [keys({"certificate": "", **member}, "name key records certificate") for member in task["roster"]]
        parties = [*roster, *(keys(task[name], "name key certificate") for name in ("server_a", "server_b"))]
        for party in parties:
            demand(PARTY.fullmatch(party["name"]) is not None and len(raw(party["key"])) == 32, "not a party")
            _ = whole(party.get("records", 0)), base64.b64decode(party["certificate"], validate=True)
        own = [(what, party[what]) for party in parties for what in ("name", "key", "certificate")]
        demand(max(own.count(each) for each in own if each[1]) == 1, "two parties have one name, key or certificate")
        names, given = [member["name"] for member in roster], task["parameters"]
        demand(names == sorted(names) and "clients" not in given and whole(training["rounds"]) > 0, "not a task")
        fewest = [0] if training["participants"] == "hidden" else range(1, len(names) + 1)
        demand(whole(training["minimum"]) in fewest, "a round that is never opened, or tells who took part")
        params = read_params({**given, "clients": len(names)})
        task |= {"training": training, "parameters": {name: vars(params)[name] for name in given}}
        return {"digest": H("task", canonical(task)), "params": params.digest}


def expected(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a vector of this kind must expect; whatever is wrong in `given` is a refusal."""
    try:
        return {name: shown(value) for name, value in getattr(Given(given), kind)().items()}
    except OUTSIDE as error:
        return {"rejected": str(error)} if str(error) in REASONS else {"refused": True}
