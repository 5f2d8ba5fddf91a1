"""The test vectors of messages: an example of each kind, and bytes that are no message."""

import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from precad.mpc.field import P
from precad.mpc.secret import Secret
from precad.protocol import submission
from precad.protocol.codec import Blob
from precad.protocol.messages import (
    Batch,
    Begin,
    Begun,
    Check,
    Close,
    DealA,
    DealB,
    Gate,
    Head,
    Header,
    Invitation,
    Invited,
    Masked,
    Message,
    NoisyShare,
    Nonce,
    NormOpening,
    PartA,
    Receipt,
    Relayed,
    Sealed,
    SealingKey,
    Tally,
    Told,
    decode,
    encode,
)
from precad.protocol.params import Round, Validation
from precad.protocol.submission import Submission
from tests.reference.book import Book, make_round, named, submit
from tests.reference.transcripts import Table
from tests.reference.transcripts import vector as of_texts


def example_messages(book: Book) -> None:
    round_ = make_round(5, validation=Validation.NONE)
    sent = submit(round_, "bank")
    lengths = submission.part_a_sizes(round_.params)
    header, part = decode(sent.header, Header), decode(sent.part_a, PartA, **lengths)
    blob = Blob(named("blob"))
    right: dict[str, tuple[bytes, str, Table]] = {
        "header": (sent.header, "Header", {}),
        "part A": (sent.part_a, "PartA", lengths),
        "part B": (sent.part_b, "PartB", {}),
        "close": (encode(Close(round_.task, 7, (named("one"), named("two")))), "Close", {}),
        "a name of three alphabets": (encode(replace(header, client="Größe-дом-家")), "Header", {}),
        "invitation": (
            encode(Invitation(round_.task, 7, round_.model, named("a"), named("b"), blob, blob, blob, blob)),
            "Invitation",
            {},
        ),
        **{type(each).__name__: (encode(each), type(each).__name__, sizes) for each, sizes in others(round_, sent)},
    }
    for name, (raw, kind, sizes) in right.items():
        book.add("message", name, "", {"bytes": raw.hex(), "message": kind, "lengths": sizes})
    plain = sent.header
    over = replace(part, share=np.zeros_like(part.share))
    start = len(encode(over)) - 8 * (part.tail.size + 1 + part.share.size)
    too_large = encode(over)[:start] + struct.pack("<Q", P) + encode(over)[start + 8 :]
    at = plain.index(b"bank")
    batch, gate = right["Batch"][0], right["Gate"][0]
    begin = right["Begin"][0]
    names = len(begin) - 8 - 2 * 16  # the number of names, before "bank" and "lab"
    wrong: dict[str, tuple[bytes, str, Table, str]] = {
        "version 1": (plain[:6] + b"\1" + plain[7:], "Header", {}, "another version"),
        "version 3": (plain[:6] + b"\3" + plain[7:], "Header", {}, "another version"),
        "another magic": (b"PRECAD" + plain[6:], "Header", {}, "not a message"),
        "another kind": (sent.part_b, "Header", {}, "another message than expected"),
        "cut off": (plain[:-1], "Header", {}, "shorter than it says"),
        "a byte too many": (plain + b"\0", "Header", {}, "longer than it says"),
        "a byte too many, counted": (
            plain[:8] + struct.pack("<Q", len(plain) + 8) + plain[16:] + bytes(8),
            "Header",
            {},
            "bytes after the last field",
        ),
        "empty": (b"", "Header", {}, "no header"),
        "padding that is not zero": (plain[: at + 4] + b"\1" + plain[at + 5 :], "Header", {}, "one encoding only"),
        "an empty name": (plain[: at - 8] + bytes(16) + plain[at + 8 :], "Header", {}, "a name has 1 to 64 bytes"),
        "a name with a line break": (plain[:at] + b"ba\nk" + plain[at + 4 :], "Header", {}, "no name"),
        "a name that is not UTF-8": (plain[:at] + b"ba\xffk" + plain[at + 4 :], "Header", {}, "no name"),
        "a length of 2^63": (plain[: at - 8] + struct.pack("<Q", 1 << 63) + plain[at:], "Header", {}, "does not fit"),
        "an entry of p": (too_large, "PartA", lengths, "not below p"),
        "more items than there are": (batch[:16] + struct.pack("<Q", 3) + batch[24:], "Batch", {}, "does not fit"),
        "2^64 − 1 items": (batch[:16] + b"\xff" * 8 + batch[24:], "Batch", {}, "does not fit"),
        "fewer items than there are": (batch[:16] + struct.pack("<Q", 1) + batch[24:], "Batch", {}, "bytes are left"),
        "an item's padding": (batch[:-1] + b"\1", "Batch", {}, "one encoding only"),
        "fewer names than there are": (
            begin[:names] + struct.pack("<Q", 1) + begin[names + 8 :],
            "Begin",
            {},
            "bytes are left",
        ),
        "another number of words": (gate, "Gate", {"words": 4}, "another level's"),
        "another length of a vector": (sent.part_a, "PartA", {**lengths, "share": 7}, "another model's"),
    }
    for name, (raw, kind, sizes, why) in wrong.items():
        given = {"bytes": raw.hex(), "message": kind, "lengths": sizes}
        book.add("message", name, why, given, malicious=True)


def others(round_: Round, sent: Submission) -> Iterator[tuple[Message, Table]]:
    """An example of each message that no other vector shows, and the lengths of its vectors."""
    task, model, one, two = round_.task, round_.model, Blob(named("one")), Blob(named("two")[:21])
    secret, few, words = Secret(named("secret")), of_texts(["0", str(P - 1), "5"]), of_texts(["0", str(2**64 - 1), "5"])
    header = named("header")
    yield Nonce(named("closed"), secret), {}
    yield Check("bank", named("a"), named("b"), few, few[:2]), {"wires": 3, "sums": 2}
    yield Tally(named("outcome"), named("share")), {}
    yield NoisyShare(named("outcome"), secret, few), {"share": 3}
    yield DealA(named("closed"), secret), {}
    yield DealB(named("closed"), secret, few[:1], words, words[:2]), {"norms": 1, "mask_bits": 3, "and_bits": 2}
    yield Masked("bank", few, few[:0]), {"b": 3, "projections": 0}
    yield NormOpening(named("opened"), few), {"values": 3}
    yield Gate(2, named("opened"), words), {"words": 3}
    yield SealingKey(task, "alpha", 3, one, two), {}
    yield Begin(task, 7, model, named("a"), one, ("bank", "lab")), {}
    yield Begun(task, 7, model, named("b"), one, (), two), {}
    yield Sealed(Blob(sent.header), one, two, Blob(b"")), {}
    yield Relayed(Blob(sent.header), one, two), {}
    yield Batch((one, two)), {}
    yield Receipt(task, 7, named("events"), one, (one, two), Blob(b"")), {}
    yield Told(task, 7, "bank", header, "valid", named("next"), one, two, one, two), {}
    yield Head((1 << 64) - 1, model, one, two), {}
    yield Invited(Blob(b""), two), {}
