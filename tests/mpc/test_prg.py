"""The generator against a second implementation, its domains, and its uniformity."""

import hashlib
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from precad.mpc import prg
from precad.mpc.field import P
from precad.mpc.prg import Context, Digest, Purpose, Stream, _keep_field_elements, digest
from precad.mpc.secret import Secret
from tests.messages import says
from tests.stat_tests import ALPHA, uniform_field_p_value

SEED = Secret(bytes(range(32)))
KNOWN_SHARE = [1802073119839142555, 755482732735704662, 1779544767388396949]
KNOWN_DIGEST = "383c6e81f7c43d9a7b636a27503eba640e0c27df099ae8043124b570c0d2830d"
CONTEXT = Context(Digest(bytes(range(100, 132))), 7, "hôpital-1")


def reference(seed: bytes, purpose: bytes, context: Context, size: int) -> list[int]:
    """PROTOCOL §3, word by word: AES in ECB mode on a counter kept by hand."""
    state = hashlib.blake2b(digest_size=32, person=purpose)
    for part in (seed, context.task, context.round.to_bytes(8, "little"), context.party.encode()):
        state.update(len(part).to_bytes(8, "little") + part)
    key, counter = state.digest()[:16], int.from_bytes(state.digest()[16:], "big")
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - the block cipher itself
    result: list[int] = []
    while len(result) < size:
        raw = block.update((counter % (1 << 128)).to_bytes(16, "big"))
        counter += 1
        for word in (raw[:8], raw[8:]):
            value = int.from_bytes(word, "little") & P
            if value != P:
                result.append(value)
    return result[:size]


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_field_equals_the_specification(purpose: Purpose, size: int) -> None:
    drawn = Stream(SEED, purpose, CONTEXT).field(size)
    assert [int(v) for v in drawn] == reference(SEED.value, purpose.value, CONTEXT, size)


def test_known_answer() -> None:
    """Fixed for ever: a change here is a new protocol version."""
    drawn = Stream(SEED, Purpose.SHARE, CONTEXT).field(3)
    assert [int(v) for v in drawn] == KNOWN_SHARE
    assert digest(b"precad test", b"ab", b"c").hex() == KNOWN_DIGEST


@pytest.mark.parametrize("size", [(1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3 * (1 << 14) + 5])
def test_one_long_draw_equals_many_short_ones(size: int) -> None:
    whole = Stream(SEED, Purpose.SHARE, CONTEXT).field(size)
    stream = Stream(SEED, Purpose.SHARE, CONTEXT)
    parts = [stream.field(16), stream.field(1024), stream.field(size - 1040)]
    assert np.array_equal(whole, np.concatenate(parts))


def test_only_whole_vectors_of_words_are_filled() -> None:
    stream = Stream(SEED, Purpose.SHARE, CONTEXT)
    for bad in (np.zeros((4, 8), np.uint64), np.zeros(8, np.int64), np.zeros(8, np.uint64)[::2]):
        with pytest.raises(ValueError, match="contiguous uint64 vector"):
            stream.fill_words(bad)  # type: ignore[arg-type]


def test_every_input_separates_streams() -> None:
    streams = [
        Stream(SEED, Purpose.SHARE, CONTEXT),
        Stream(SEED, Purpose.NOISE, CONTEXT),
        Stream(Secret(bytes(32)), Purpose.SHARE, CONTEXT),
        Stream(SEED, Purpose.SHARE, Context(Digest(bytes(32)), 7, "hôpital-1")),
        Stream(SEED, Purpose.SHARE, Context(CONTEXT.task, 8, "hôpital-1")),
        Stream(SEED, Purpose.SHARE, Context(CONTEXT.task, 7, "hôpital-2")),
    ]
    assert len({stream.field(4).tobytes() for stream in streams}) == len(streams)


def test_lengths_are_part_of_the_hash() -> None:
    assert digest(b"p", b"ab", b"c") != digest(b"p", b"a", b"bc")
    assert digest(b"p", b"abc") != digest(b"p", b"abc", b"")
    assert digest(b"p", b"abc") != digest(b"q", b"abc")


def test_the_value_p_is_discarded_and_the_next_word_used() -> None:
    words = np.array([5, P, 6, (1 << 64) - 1, 7 | (1 << 63), P | (1 << 62)], np.uint64)
    assert _keep_field_elements(words) == 3
    assert [int(v) for v in words[:3]] == [5, 6, 7]


def test_a_stream_with_the_value_p_in_it_goes_on_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = iter(np.array([1, P, 2, P, P, 3, 4, 5], np.uint64))

    def fill_words(_self: Stream, out: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
        out[:] = [next(words) for _ in range(out.size)]

    monkeypatch.setattr(Stream, "fill_words", fill_words)
    assert [int(v) for v in Stream(SEED, Purpose.SHARE, CONTEXT).field(5)] == [1, 2, 3, 4, 5]


def test_elements_are_uniform() -> None:
    """False alarm: ALPHA. Power: a bit that is 1 in five eighths of the words is rejected."""
    x = Stream(Secret.fresh(), Purpose.SHARE, CONTEXT).field(1 << 18)
    assert uniform_field_p_value(x) > ALPHA
    biased = x.copy()
    biased[: x.size // 4] |= np.uint64(1)
    assert uniform_field_p_value(biased) < ALPHA


@pytest.mark.parametrize(("task", "round_", "words"), [(b"short", 0, "32 bytes"), (bytes(32), -1, "-1")])
def test_a_wrong_context_is_named(task: bytes, round_: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Context(Digest(task), round_, "c")


class Broken:
    """A primitive one bit of whose answer is wrong, whatever it is called with."""

    def __init__(self, right: Any, *arguments: Any, **options: Any) -> None:
        self._right = right(*arguments, **options)

    def encryptor(self) -> "Broken":
        return Broken(self._right.encryptor)

    def update(self, data: bytes) -> bytes:
        raw = bytearray(self._right.update(data))
        raw[-1] ^= 1
        return bytes(raw)

    def hexdigest(self) -> str:
        raw = bytearray(self._right.digest())
        raw[-1] ^= 1
        return raw.hex()


@pytest.mark.parametrize(
    ("name", "where", "attribute"),
    [("AES-128-CTR", prg, "Cipher"), ("BLAKE2b", hashlib, "blake2b"), ("BLAKE3", prg, "blake3")],
)
def test_a_broken_primitive_is_noticed(
    name: str, where: object, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prg.check_known_answers()
    monkeypatch.setattr(where, attribute, partial(Broken, getattr(where, attribute)))
    with pytest.raises(SystemExit, match=says(name, "broken")):
        prg.check_known_answers()


def test_a_broken_primitive_stops_the_process() -> None:
    """Before anything secret is there: when the module is loaded."""
    code = "import blake3, hashlib; blake3.blake3 = lambda *_, **__: hashlib.sha256(); import precad.protocol.round"
    stopped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    assert stopped.stderr.count("\n") == 1
    assert "BLAKE3 is broken" in stopped.stderr
