"""The codec: one encoding per message, and no byte string that hurts."""

import tracemalloc
from dataclasses import fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from precad.errors import ProtocolError
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest
from precad.mpc.secret import Secret
from precad.protocol.codec import Blob
from precad.protocol.messages import KINDS, VERSION, Close, Header, Message, PartA, PartB, decode, encode
from precad.protocol.triples.beaver import Words
from tests.messages import says
from tests.strategies import vectors

CODECS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, (1 << 64) - 1),
    Digest: st.binary(min_size=32, max_size=32).map(Digest),
    Secret: st.binary(min_size=32, max_size=32).map(Secret),
    str: st.text(min_size=1, max_size=16).filter(str.isprintable),
    tuple[Digest, ...]: st.lists(st.binary(min_size=32, max_size=32).map(Digest), max_size=3).map(tuple),
    tuple[str, ...]: st.lists(st.text(min_size=1, max_size=16).filter(str.isprintable), max_size=3).map(tuple),
    Blob: st.binary(max_size=40).map(Blob),
    tuple[Blob, ...]: st.lists(st.binary(max_size=20).map(Blob), max_size=3).map(tuple),
    FieldVector: st.integers(0, 40).flatmap(vectors),
    Words: st.lists(st.integers(0, (1 << 64) - 1), max_size=10).map(lambda words: np.array(words, np.uint64)),
}


def of_kind(kind: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: CODECS[hints[f.name]] for f in fields(kind)})  # type: ignore[arg-type]


messages = st.sampled_from(list(KINDS)).flatmap(of_kind)


def sizes(message: Message | type[Message], size: int = 0) -> dict[str, int]:
    """The length of each vector of a message; of a type, ``size`` for each."""
    values = {f.name: getattr(message, f.name, np.zeros(size)) for f in fields(message)}  # type: ignore[arg-type]
    return {name: value.size for name, value in values.items() if isinstance(value, np.ndarray)}


def equal(a: Message, b: Message) -> bool:
    return type(a) is type(b) and all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name))
        for f in fields(a)  # type: ignore[arg-type]
    )


def survives(data: bytes, kind: type[Message], lengths: dict[str, int]) -> None:
    """Decode; whatever is accepted must encode to the same bytes."""
    try:
        message = decode(data, kind, **lengths)
    except ProtocolError:
        return
    assert encode(message) == data


@given(messages)
def test_what_is_sent_is_what_arrives(message: Message) -> None:
    data = encode(message)
    assert len(data) % 8 == 0
    assert equal(decode(data, type(message), **sizes(message)), message)


@settings(max_examples=500)
@given(st.binary(max_size=300), st.sampled_from(list(KINDS)), st.integers(0, 5))
@example(b"", PartA, 1)
def test_no_byte_string_crashes(data: bytes, kind: type[Message], size: int) -> None:
    survives(data, kind, sizes(kind, size))


@settings(max_examples=500)
@given(messages, st.data())
def test_no_mutation_crashes_or_is_read_two_ways(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for kind in KINDS:
        lengths = sizes(message) if kind is type(message) else sizes(kind, 1)
        for mutant in (bytes(raw), bytes(raw[:cut]), bytes(raw) + bytes(8)):
            survives(mutant, kind, lengths)


EXAMPLES: dict[Any, Any] = {
    int: 1,
    Digest: Digest(bytes(32)),
    Secret: Secret(bytes(32)),
    str: "bank",
    tuple[Digest, ...]: (),
    tuple[str, ...]: (),
    Blob: Blob(b""),
    tuple[Blob, ...]: (),
    FieldVector: np.zeros(1, np.uint64),
    Words: np.zeros(1, np.uint64),
}
DIGESTS = [Digest(bytes([i]) * 32) for i in range(7)]
HEADER = Header(
    DIGESTS[0], 7, DIGESTS[1], DIGESTS[2], "bank", DIGESTS[3], DIGESTS[4], DIGESTS[5], DIGESTS[6], Blob(b"head")
)
PART = PartA(Secret(bytes(32)), Secret(bytes(32)), DIGESTS[0], np.arange(5, dtype=np.uint64), np.zeros(2, np.uint64))
LENGTHS = {"share": 5, "tail": 2}


def test_known_answer() -> None:
    """Fixed for ever: a change here is a new protocol version."""
    names = ["Header", "PartA", "PartB", "Close", "Nonce", "Check", "Tally", "NoisyShare"]
    assert {kind.__name__: number for kind, number in KINDS.items() if number <= 8} == dict(
        zip(names, range(1, 9), strict=True)
    )
    expected = "707265636164 02 01 1801000000000000" + "00" * 32 + "0700000000000000" + "01" * 32 + "02" * 32
    expected += "0400000000000000 62616e6b00000000" + "".join(f"{i:02x}" * 32 for i in range(3, 7))
    expected += "0400000000000000 6865616400000000"
    assert encode(HEADER).hex() == expected.replace(" ", "")
    assert encode(Close(DIGESTS[0], 1, (DIGESTS[1],)))[-40:].hex() == "0100000000000000" + "01" * 32
    assert (
        encode(PART)[-64:].hex() == "".join(v.to_bytes(8, "little").hex() for v in (5, 0, 1, 2, 3, 4, 2, 0, 0))[-128:]
    )


def test_every_truncation_and_extension_is_refused() -> None:
    data = encode(PART)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:size], PartA, **LENGTHS)
    with pytest.raises(ProtocolError):
        decode(data + b"\0", PartA, **LENGTHS)


@pytest.mark.parametrize("wrong", [{"share": 4, "tail": 2}, {"share": 6, "tail": 2}, {"share": 5, "tail": 0}])
def test_every_vector_has_exactly_its_length(wrong: dict[str, int]) -> None:
    with pytest.raises(ProtocolError, match=r"PartA\.(share|tail).*\d entries"):
        decode(encode(PART), PartA, **wrong)


VECTOR_FIELDS = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind in KINDS
    for name, hint in get_type_hints(kind).items()
    if hint == FieldVector
]


@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.parametrize(("kind", "name"), VECTOR_FIELDS)
def test_words_of_p_or_more_are_refused_in_every_vector_of_every_message(
    kind: type[Message], name: str, k: int
) -> None:
    """A value of 61 bits plus k·p, at each place of the vector, the rest as it was."""
    values = {f.name: EXAMPLES[get_type_hints(kind)[f.name]] for f in fields(kind)}  # type: ignore[arg-type]
    marked = kind(**{**values, name: np.array([11, 22, 33], np.uint64)})
    raw = encode(marked)
    assert equal(decode(raw, kind, **sizes(marked)), marked)
    for value in (11, 22, 33):
        at = raw.index(value.to_bytes(8, "little"))
        with pytest.raises(ProtocolError, match=says(f"{kind.__name__}.{name}", "p")):
            decode(raw[:at] + (value + k * P).to_bytes(8, "little") + raw[at + 8 :], kind, **sizes(marked))


@pytest.mark.parametrize("k", range(1, 8))
@pytest.mark.parametrize("at", range(5))
def test_words_of_p_or_more_are_refused(k: int, at: int) -> None:
    raw = bytearray(encode(PART))
    place = len(raw) - 24 - 8 * (5 - at)
    raw[place : place + 8] = (at + k * P).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match=says("PartA.share", "p")):
        decode(bytes(raw), PartA, **LENGTHS)


def patched(message: Message, at: int, value: bytes) -> bytes:
    raw = bytearray(encode(message))
    raw[at : at + len(value)] = value
    return bytes(raw)


COUNT_AT = 16 + 96  # of PART's share


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (patched(PART, 0, b"x"), "not a precad message"),
        (patched(PART, 6, b"\x09"), f"version 9.*version {VERSION}"),
        (patched(PART, 7, b"\x03"), "PartB.*PartA"),
        (patched(PART, 7, b"\xff"), "255.*PartA"),
        (patched(PART, 8, b"\xff"), "says that it has"),
        (patched(PART, COUNT_AT, (1 << 60).to_bytes(8, "little")), "in the middle of a field"),
        (encode(PART) + bytes(8), "says that it has"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(data, PartA, **LENGTHS)


NAME_AT = 16 + 32 + 8 + 32 + 32  # of HEADER's client


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (patched(HEADER, NAME_AT, b"\x00"), "1 to 64 bytes, got 0"),
        (patched(HEADER, NAME_AT, b"\x41"), "1 to 64 bytes, got 65"),
        (patched(HEADER, NAME_AT + 8, b"\xff"), "not printable UTF-8"),
        (patched(HEADER, NAME_AT + 8, b"\x1b"), "not printable UTF-8"),
        (patched(HEADER, NAME_AT + 15, b"\x01"), "padding is not zero"),
    ],
)
def test_a_name_is_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(data, Header)


def test_bytes_after_the_last_field_are_refused() -> None:
    raw = encode(HEADER) + bytes(8)
    with pytest.raises(ProtocolError, match=says("8 bytes", "Header")):
        decode(raw[:8] + len(raw).to_bytes(8, "little") + raw[16:], Header)


def test_a_claimed_length_allocates_nothing() -> None:
    data = patched(PART, COUNT_AT, (1 << 61).to_bytes(8, "little"))
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(data, PartA, **LENGTHS)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_vectors_are_read_only_views_of_the_input() -> None:
    data = encode(PART)
    share = decode(data, PartA, **LENGTHS).share
    assert not share.flags.owndata
    assert not share.flags.writeable
    assert np.shares_memory(share, np.frombuffer(data, np.uint8))
    for offset in range(1, 8):  # and at any address
        shifted = memoryview(bytes(offset) + data)[offset:]
        assert np.array_equal(decode(shifted, PartA, **LENGTHS).share, np.arange(5))


def test_a_buffer_that_can_change_is_copied_before_it_is_checked() -> None:
    raw = bytearray(encode(PART))
    message = decode(memoryview(raw), PartA, **LENGTHS)
    raw[-8:] = b"\xff" * 8
    assert message.tail.tolist() == [0, 0]


def part(**changes: Any) -> PartA:
    return replace(PART, **changes)


@pytest.mark.parametrize(
    "bad",
    [
        part(commitment_b=bytes(31)),
        part(share=np.full(1, P, np.uint64)),
        part(share=np.zeros(1, np.int64)),
        replace(HEADER, client=""),
        replace(HEADER, client="c" * 65),
        replace(HEADER, client="line\nbreak"),
        replace(HEADER, round=-1),
        replace(HEADER, round=1 << 64),
    ],
)
def test_nothing_that_could_not_be_decoded_is_sent(bad: Message) -> None:
    with pytest.raises(ValueError, match=r"p or more|bytes|uint64|2\^64"):
        encode(bad)


def test_a_message_does_not_print_its_values() -> None:
    secret = PartB(Secret(b"s" * 32), Secret(b"t" * 32), DIGESTS[0])
    assert repr(secret) == "PartB(salt=Secret(<32 bytes>), seed=Secret(<32 bytes>), commitment_a=<32 bytes>)"
