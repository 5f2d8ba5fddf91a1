"""Who gives way when there are too many connections."""

import resource

import pytest

from precad.deployment import visitors
from precad.deployment.visitors import Bounds, Visitor, Visitors
from tests.messages import says

CERTIFICATE = b"of the task"


class Book:
    """Visitors, and what became of them."""

    def __init__(self, in_all: int = 4, per_address: int = 2) -> None:
        self.notes: list[str] = []
        self.cut: list[Visitor] = []
        self.visitors = Visitors(Bounds(in_all, per_address), lambda _visitor, words: self.notes.append(words))

    def come(self, address: str, *, busy: bool = False) -> tuple[Visitor, bool]:
        visitor = Visitor(address, lambda: self.cut.append(visitor), is_busy=lambda: busy)
        return visitor, self.visitors.admit(visitor)


def test_the_one_that_has_waited_longest_at_an_address_gives_way() -> None:
    book = Book()
    first, _ = book.come("192.0.2.1")
    other, _ = book.come("192.0.2.2")
    book.come("192.0.2.1")
    _, stays = book.come("192.0.2.1")
    assert (stays, book.cut, len(book.visitors)) == (True, [first], 3)
    assert "2 connections of one address" in book.notes[0]
    assert other not in book.cut


def test_whoever_is_being_answered_stays_and_a_newcomer_is_refused() -> None:
    book = Book()
    book.come("192.0.2.1", busy=True)
    book.come("192.0.2.1", busy=True)
    _, stays = book.come("192.0.2.1")
    assert (stays, book.cut, len(book.visitors)) == (False, [], 2)
    assert "request under way" in book.notes[0]


def test_in_all_the_largest_crowd_of_strangers_gives_way_and_a_known_party_last() -> None:
    book = Book(in_all=4, per_address=3)
    known, _ = book.come("192.0.2.9")
    assert book.visitors.introduce(known, CERTIFICATE)
    book.come("192.0.2.1")
    crowd, _ = book.come("192.0.2.2")
    book.come("192.0.2.2")
    for address in ("192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"):
        assert book.come(address)[1]
    assert book.cut[0] is crowd
    assert known not in book.cut
    assert len(book.visitors) == 4


def test_one_certificate_is_bounded_from_any_number_of_addresses() -> None:
    book = Book(in_all=100, per_address=2)
    came = [book.come(f"192.0.2.{number}")[0] for number in range(5)]
    assert all(book.visitors.introduce(each, CERTIFICATE) for each in came)
    assert book.cut == came[:3]
    assert len(book.visitors) == 2
    for each in came:
        book.visitors.leave(each)
        book.visitors.leave(each)
    assert len(book.visitors) == 0


def test_known_parties_do_not_fill_an_address() -> None:
    """Many clients of one organisation come from one address."""
    book = Book(in_all=100, per_address=2)
    for number in range(10):
        visitor, _ = book.come("192.0.2.1", busy=True)
        assert book.visitors.introduce(visitor, bytes([number]))
    assert book.come("192.0.2.1")[1]
    assert not book.cut


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("this machine", "this machine", True),
    ],
)
def test_networks(first: str, second: str, same: bool) -> None:
    assert (visitors.network(first) == visitors.network(second)) is same


def test_as_many_connections_as_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(300, 300), (300, 4096), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)]
    for (soft, hard), expected in zip(limits, (172, 1024, 1024), strict=True):
        raised: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, found=(soft, hard): found)
        monkeypatch.setattr(resource, "setrlimit", lambda _kind, wanted, raised=raised: raised.append(wanted))
        assert visitors._within_files(1024) == expected
        assert all(new <= hard for new, _ in raised)


def test_a_bound_of_nobody() -> None:
    with pytest.raises(ValueError, match=says("per_address", 0)):
        Bounds(per_address=0)
