"""The test vectors of numbers, submissions, proofs and whole rounds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from precad.mpc import field
from precad.mpc.field import FieldVector, P
from precad.mpc.secret import Secret
from precad.privacy.terms import Adversary
from precad.protocol import aggregation, digests, submission
from precad.protocol.codec import Blob
from precad.protocol.messages import Head, Header, NoisyShare, PartB, Tally, decode, encode
from precad.protocol.params import Round, Unit, Validation
from precad.protocol.submission import Submission
from precad.simulation import forging
from precad.simulation.forging import forge
from tests.reference.book import Book, entries_of, make_round, named, nonces, secrets_of, shown, submit, transcript
from tests.reference.transcripts import Table, as_table, decimals
from tests.reference.transcripts import vector as of_texts


def numbers(book: Book) -> None:
    for name, a, b in (
        ("small", 3, 5),
        ("at the end of the field", P - 1, P - 1),
        ("at the middle", P // 2, 1),
        ("past the middle", P // 2 + 1, 1),
    ):
        book.add("field", name, "arithmetic mod 2^61 − 1", {"a": str(a), "b": str(b)})
    values = [0.0, 1.0, -1.0, 0.1, -0.1, 2.0**-17, -(2.0**-17), 1e-300, 29.999999, -29.999999]
    book.add(
        "grid", "truncation", "toward zero, of both signs", {"values": [v.hex() for v in values], "fractional_bits": 16}
    )
    changes: Table
    for name, changes in (
        ("small", {}),
        ("by record", {"unit": Unit.RECORD}),
        ("the example of the page", {"dim": 26_010, "client_bound": 30.0, "record_bound": 2.0}),
        ("f below 16", {"client_bound": 400.0, "record_bound": 40.0}),
        ("a bound that is no whole number", {"client_bound": 0.1, "record_bound": 0.01}),
        ("wires of 64", {"dim": 1 << 17}),
        ("just below wires of 64", {"dim": (1 << 17) - 1}),
        ("noise against clients", {"noise": Adversary.CLIENTS}),
        ("noise against clients, by record", {"noise": Adversary.CLIENTS, "unit": Unit.RECORD}),
        ("whole numbers are floats", {"client_bound": 30, "record_bound": 2, "noise_multiplier": 4}),
        ("floats that are whole", {"client_bound": 30.0, "record_bound": 2.0, "noise_multiplier": 4.0}),
    ):
        settings: Table = {"dim": 5, **changes}
        round_ = make_round(**settings)
        book.add(
            "params", name, "the numbers that follow from a task's parameters", {"params": as_table(round_)["params"]}
        )
    base = as_table(make_round(5))["params"]
    for name, change in (
        ("noise too small", {"noise_multiplier": 1e-9}),
        ("a sum that overflows", {"clients": 1 << 53}),
        ("no parameters", {"dim": 0}),
        ("a bound below the grid", {"client_bound": 1e-9}),
        ("noise too small against clients", {"noise": "clients", "noise_multiplier": 2.0**-5 * 1.2}),
    ):
        given = {"params": {**base, **change}}
        book.add("params", name, "a task that every party refuses", given, malicious=True)
    book.add("hash", "no parts", "", {"purpose": "rho", "parts": []})
    book.add("hash", "an empty part is a part", "", {"purpose": "rho", "parts": ["", "00"]})
    book.add("hash", "lengths keep parts apart", "", {"purpose": "rho", "parts": ["0001", "02"]})
    book.add("vector", "empty", "", {"entries": []})
    book.add("vector", "three entries", "", {"entries": ["0", "1", str(P - 1)]})
    for purpose, party, words, elements in (
        ("share", "bank", 0, 6),
        ("Z", "bank", 5, 0),
        ("challenge", "challenge", 3, 3),
    ):
        stream: Table = {"seed": named("seed").hex(), "purpose": purpose, "task": named("task").hex(), "round": 7}
        book.add("stream", purpose, "", {**stream, "party": party, "words": words, "elements": elements})


def submissions(book: Book) -> None:
    for name, round_ in (
        ("one parameter", make_round(1)),
        ("a wire that is not full", make_round(5)),
        ("wires that are full", make_round(32)),
        ("without validation", make_round(5, validation=Validation.NONE)),
        ("by record", make_round(3, unit=Unit.RECORD)),
    ):
        given = {
            "round": as_table(round_),
            "client": "bank",
            "head": "",
            "entries": decimals(field.lift(entries_of(round_.params.dim))),
        }
        for what, value in vars(secrets_of("bank")).items():
            given[what] = value.value.hex()
        book.add("submission", name, "all bytes of what a client sends", given)
    given = {**given, "head": encode(Head(6, named("model"), Blob(bytes(64)), Blob(bytes(64)))).hex()}
    book.add("submission", "with a head", "what the client heard last is in its header", given)
    largest = [str(int(np.sqrt(make_round(1).params.squared_bound)))]
    book.add(
        "submission", "an update at its bound", "", {**given, "round": as_table(make_round(1)), "entries": largest}
    )
    book.add(
        "submission", "an update beyond its bound", "an honest client clips first",
        {**given, "round": as_table(make_round(1)), "entries": [str(int(largest[0]) + 1)]}, malicious=True,
    )  # fmt: skip


def receiving(book: Book) -> None:
    round_, other = (make_round(5, number=number, validation=Validation.NONE) for number in (7, 8))
    sent, again = submit(round_, "bank"), submit(round_, "bank", field.embed(np.ones(5, np.int64)))

    def given(role: str, each: Submission, client: str = "bank", known: bytes | None = None) -> Table:
        part = each.part_a if role == "A" else each.part_b
        shown = {"header": each.header.hex(), "part": part.hex(), "known": None if known is None else known.hex()}
        return {"round": as_table(round_), "role": role, "selected": ["bank", "lab"], "client": client, **shown}

    for role in "AB":
        book.add("receive", f"right, at {role}", "", given(role, sent))
    book.add("receive", "the same again", "no second submission", given("A", sent, known=sent.header))
    header = decode(sent.header, Header)

    def relabelled(**changes: Any) -> Submission:
        return replace(sent, header=encode(replace(header, **changes)))

    part_b = decode(sent.part_b, PartB)
    wrong = {
        "of nobody": ("A", sent, "clinic", None),
        "of another client": ("A", sent, "lab", None),
        "of another round": ("A", submit(other, "bank"), "bank", None),
        "of another task": ("B", relabelled(task=named("other")), "bank", None),
        "of another model": ("B", relabelled(model=named("other")), "bank", None),
        "under other nonces": ("A", relabelled(nonces=named("other")), "bank", None),
        "a second one": ("A", again, "bank", sent.header),
        "another commitment to A's share": ("A", relabelled(commitment_a=named("other")), "bank", None),
        "another commitment to B's seed": ("B", relabelled(commitment_b=named("other")), "bank", None),
        "another digest of part A": ("A", relabelled(part_a=named("other")), "bank", None),
        "another digest of part B": ("B", relabelled(part_b=named("other")), "bank", None),
        "another seed for B": (
            "B",
            replace(sent, part_b=encode(replace(part_b, seed=Secret(named("x"))))),
            "bank",
            None,
        ),
        "parts of two submissions": ("A", replace(sent, part_a=again.part_a), "bank", None),
        "a part of another size": (
            "A",
            replace(sent, part_a=submit(make_round(6, validation=Validation.NONE), "bank").part_a),
            "bank",
            None,
        ),
        "garbage": ("A", replace(sent, part_a=sent.part_a[::-1]), "bank", None),
    }
    for name, arguments in wrong.items():
        book.add("receive", name, "rejected, with the reason expected", given(*arguments), malicious=True)


def challenges(book: Book) -> None:
    round_ = make_round(5)
    book.add("challenge", "of a round", "", {"round": as_table(round_), **nonces()})
    book.add("challenge", "with wires of 64", "", {"round": as_table(make_round(1 << 17)), **nonces()})
    other = {**nonces(), "nonce_b": named("second thoughts").hex()}
    book.add("challenge", "a nonce that was not committed to", "", {"round": as_table(round_), **other}, malicious=True)
    twice = {**nonces(), "nonce_b": nonces()["nonce_a"]}
    book.add("challenge", "one nonce twice", "", {"round": as_table(round_), **twice}, malicious=True)


def cheats(round_: Round) -> Iterator[tuple[str, Submission]]:
    """Submissions that are what they say, of updates or proofs that are false."""
    shape, own = submission.proof_shape(round_.params), secrets_of("bank")
    small = entries_of(round_.params.dim)
    true_h = int(field.lift(small).sum()) // 2

    def plus(at: int, error: int = 1) -> Any:
        def edit(vector: FieldVector) -> None:
            vector[at] = (int(vector[at]) + error) % P

        return edit

    def two_for_a_bit(bits: FieldVector) -> None:
        low = next(i for i in range(bits.size) if bits[i] == 0 and bits[i + 1] == 1)
        bits[low], bits[low + 1] = 2, 0

    for name, x in {
        "S + 1": forging.just_over(round_),
        "norm 10 C": forging.scaled(round_, 10),
        "the entry ⌈√p⌉": forging.wrapped(round_, 1),
        "three wrapped entries": forging.wrapped(round_, 3),
        "entries near p/2": forging.near_half(round_, 0),
        "x·x ≡ 0": forging.null_norm(round_),
    }.items():
        yield name, forge(round_, "bank", x, secrets=own)
    false: dict[str, Table] = {
        "a right proof of another vector": {"x": forging.scaled(round_, 10), "proof_of": small},
        "a bit that is 2": {"edit_bits": two_for_a_bit},
        "a norm bit off by one": {"edit_bits": plus(0)},
        "the last bit off by one": {"edit_bits": plus(shape.bits - 1)},
        "P(0) off by one": {"edit_tail": plus(shape.bits)},
        "P(2m) off by one": {"edit_tail": plus(shape.bits + 2 * shape.wire - 1)},
        "the first P_n off by one": {"edit_tail": plus(shape.bits + 2 * shape.wire)},
        "the last P_n off by one": {"edit_tail": plus(shape.tail - 1)},
        "h off by one": {"h": true_h + 1, "claimed_h": true_h},
    }
    for name, options in false.items():
        yield name, forge(round_, "bank", **{"x": small, "secrets": own, **options})


def checks(book: Book) -> None:
    for name, round_ in (
        ("small", make_round(5)),
        ("two wires", make_round(17)),
        ("by record", make_round(4, unit=Unit.RECORD)),
    ):
        sent = submit(round_, "bank")
        book.add("check", name, "a right proof", {"round": as_table(round_), **shown(sent), **nonces()})
    round_ = make_round(5)
    for name, sent in cheats(round_):
        given = {"round": as_table(round_), **shown(sent), **nonces()}
        book.add("check", name, "a proof that is false", given, malicious=True)


def rounds(book: Book) -> None:
    round_ = make_round(5)
    everyone = ["bank", "clinic", "lab"]
    honest = {name: submit(round_, name) for name in everyone}
    book.add("round", "three clients", "", transcript(round_, honest, everyone))
    book.add("round", "nobody", "a legal round: it opens noise", transcript(round_, {}, everyone))
    mixed = {"bank": dict(cheats(round_))["norm 10 C"], "lab": honest["lab"]}
    book.add(
        "round",
        "one update too long",
        "it does not count, the others do",
        transcript(round_, mixed, everyone),
        malicious=True,
    )
    plain = make_round(5, validation=Validation.NONE)
    light = {name: submit(plain, name) for name in everyone}
    book.add("round", "without validation", "", transcript(plain, light, everyone))
    one_sided = {**light, "lab": replace(light["lab"], part_b=b"")}
    book.add("round", "one part missing", "", transcript(plain, one_sided, everyone), malicious=True)
    book.add("round", "one that was not selected", "", transcript(plain, light, ["clinic", "lab"]), malicious=True)
    copied = {**light, "lab": light["bank"]}
    book.add("round", "a copy of another's", "", transcript(plain, copied, everyone), malicious=True)
    whole = transcript(round_, {"bank": honest["bank"]}, everyone)
    against_clients(book, everyone)
    share = decode(bytes.fromhex(whole["share_b"]), NoisyShare, share=5)
    tally = decode(bytes.fromhex(whole["tally_b"]), Tally)
    moved = replace(share, share=field.add(share.share, of_texts(["1", "0", "0", "0", "0"])))
    lie = replace(share, share=np.full(5, 1 << 50, np.uint64))
    fitting = {
        "tally_b": encode(replace(tally, share=digests.tally(lie.salt, lie.share))).hex(),
        "share_b": encode(lie).hex(),
    }
    for name, why, changes in (
        ("a share that was changed after its tally", "", {"share_b": encode(moved).hex()}),
        ("a tally of another outcome", "", {"tally_b": encode(replace(tally, outcome=named("other"))).hex()}),
        ("a share of another outcome", "", {"share_b": encode(replace(share, outcome=named("other"))).hex()}),
        ("a share with another salt", "", {"share_b": encode(replace(share, salt=Secret(named("x")))).hex()}),
        ("a share that is far too long", "no two noises are so long", fitting),
        ("A's own share from B", "", {"tally_b": whole["tally_a"], "share_b": whole["share_a"]}),
    ):
        book.add("round", name, why or "a server that lies", {**whole, **changes}, malicious=True)


def against_clients(book: Book, everyone: list[str]) -> None:
    """Each server adds 1/√2 of the noise, and so a shorter sum is too long."""
    round_ = make_round(5, noise=Adversary.CLIENTS)
    whole = transcript(round_, {"lab": submit(round_, "lab")}, everyone)
    book.add("round", "noise against clients", "each server adds 1/√2 of the noise", whole)
    share_a, share_b = (decode(bytes.fromhex(whole[f"share_{side}"]), NoisyShare, share=5) for side in "ab")
    longest = aggregation.longest_sum(make_round(5).params, 1)
    total = field.embed(np.array([int(longest), 0, 0, 0, 0], np.int64))
    fitting = replace(share_b, share=field.sub(total, share_a.share))
    tally = Tally(fitting.outcome, digests.tally(fitting.salt, fitting.share))
    given = {**whole, "tally_b": encode(tally).hex(), "share_b": encode(fitting).hex()}
    why = "with noise = server it would not be"
    book.add("round", "too long for noise against clients", why, given, malicious=True)
