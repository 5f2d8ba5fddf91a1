"""The codec: one encoding per message, and no byte string that hurts."""

import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from precad.errors import ProtocolError
from precad.messages import VERSION, Digest, Message, NoisyShare, SeedForB, ShareForA, decode, encode
from precad.mpc.field import P
from precad.mpc.secret import Secret
from tests.strategies import vectors

KINDS: list[type[Message]] = [ShareForA, SeedForB, NoisyShare]

digests = st.binary(min_size=32, max_size=32).map(Digest)
rounds = st.integers(0, (1 << 64) - 1)
names = st.text(min_size=1, max_size=64).filter(
    lambda s: len(s.encode("utf-8", "replace")) <= 64 and s.isprintable()
)
secrets = st.binary(min_size=32, max_size=32).map(Secret)
shares = st.integers(0, 40).flatmap(vectors)

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(ShareForA, digests, rounds, names, shares),
    st.builds(SeedForB, digests, rounds, names, secrets),
    st.builds(NoisyShare, digests, rounds, shares),
)


def equal(a: Message, b: Message) -> bool:
    return type(a) is type(b) and all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name))
        for f in fields(a)  # type: ignore[arg-type]
    )


def survives(data: bytes, kind: type[Message]) -> Message | None:
    """Decode; whatever is accepted must encode to the same bytes."""
    try:
        message = decode(data, kind)
    except ProtocolError:
        return None
    assert encode(message) == data
    return message


@given(messages)
def test_what_is_sent_is_what_arrives(message: Message) -> None:
    data = encode(message)
    assert len(data) % 8 == 0
    assert equal(decode(data, type(message)), message)


@settings(max_examples=500)
@given(st.binary(max_size=300), st.sampled_from(KINDS))
@example(b"", ShareForA)
def test_no_byte_string_crashes(data: bytes, kind: type[Message]) -> None:
    survives(data, kind)


@settings(max_examples=500)
@given(messages, st.data())
def test_no_mutation_crashes_or_is_read_two_ways(message: Message, data: st.DataObject) -> None:
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for kind in KINDS:
        survives(bytes(raw), kind)
        survives(bytes(raw[:cut]), kind)
        survives(bytes(raw) + bytes(8), kind)


def example_message() -> ShareForA:
    return ShareForA(Digest(bytes(32)), 1, "bank", np.arange(5, dtype=np.uint64))


def test_every_truncation_and_extension_is_refused() -> None:
    data = encode(example_message())
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:size], ShareForA)
    with pytest.raises(ProtocolError):
        decode(data + b"\0", ShareForA)


@pytest.mark.parametrize("k", range(1, 8))
@pytest.mark.parametrize("at", range(5))
def test_words_of_p_or_more_are_refused(k: int, at: int) -> None:
    raw = bytearray(encode(example_message()))
    place = len(raw) - 8 * (5 - at)
    raw[place : place + 8] = (at + k * P).to_bytes(8, "little")
    with pytest.raises(ProtocolError, match="not below p"):
        decode(bytes(raw), ShareForA)


def patched(at: int, value: bytes) -> bytes:
    raw = bytearray(encode(example_message()))
    raw[at : at + len(value)] = value
    return bytes(raw)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (patched(0, b"x"), "not a precad message"),
        (patched(6, b"\x09"), f"version 9, this program speaks version {VERSION}"),
        (patched(7, b"\x02"), "kind 2, expected ShareForA"),
        (patched(8, b"\xff"), "says that it has"),
        (patched(56, b"\x00"), "1 to 64 bytes, got 0"),
        (patched(56, b"\x41"), "1 to 64 bytes, got 65"),
        (patched(64, b"\xff"), "not UTF-8"),
        (patched(71, b"\x01"), "padding is not zero"),
        (patched(72, (1 << 60).to_bytes(8, "little")), "in the middle of a field"),
        (patched(72, (4).to_bytes(8, "little")), "8 bytes after the end"),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(data, ShareForA)


def test_a_claimed_length_allocates_nothing() -> None:
    data = patched(72, (1 << 61).to_bytes(8, "little"))
    with pytest.raises(ProtocolError):
        decode(data, ShareForA)  # warm
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        decode(data, ShareForA)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_vectors_are_read_only_views_of_the_input() -> None:
    data = encode(example_message())
    share = decode(data, ShareForA).share
    assert not share.flags.owndata
    assert not share.flags.writeable
    assert np.shares_memory(share, np.frombuffer(data, np.uint8))
    for offset in range(1, 8):  # and at any address
        shifted = memoryview(bytes(offset) + data)[offset:]
        assert np.array_equal(decode(shifted, ShareForA).share, np.arange(5))


@pytest.mark.parametrize(
    "bad",
    [
        ShareForA(Digest(bytes(31)), 1, "c", np.zeros(1, np.uint64)),
        ShareForA(Digest(bytes(32)), 1, "", np.zeros(1, np.uint64)),
        ShareForA(Digest(bytes(32)), 1, "c" * 65, np.zeros(1, np.uint64)),
        ShareForA(Digest(bytes(32)), 1, "c", np.full(1, P, np.uint64)),
        ShareForA(Digest(bytes(32)), 1, "c", np.zeros(1, np.int64)),
    ],
)
def test_nothing_that_could_not_be_decoded_is_sent(bad: ShareForA) -> None:
    with pytest.raises(ValueError, match=r"p or more|bytes|uint64"):
        encode(bad)


def test_a_message_does_not_print_its_values() -> None:
    text = repr(ShareForA(Digest(b"t" * 32), 1, "bank", np.array([1234567], np.uint64)))
    assert text == "ShareForA(task=<32 bytes>, round=<int>, client=<str>, share=<uint64[1]>)"
