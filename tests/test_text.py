"""What is shown of a foreign text: every letter, and nothing that a terminal would obey."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precad.text import PrintableFilter, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ε = 1.5 [red]", "plain, ε = 1.5 [red]"),
        ("\x1b]8;;http://x\x1b\\click\x1b[0m", r"\x1b]8;;http://x\x1b\click\x1b[0m"),
        ("a\rb\nc\td\x08\x7f", r"a\rb\nc\td\x08\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("evil\u202egpj", r"evil\u202egpj"),
        ("a\u200bb\u2028c\ufeff", r"a\u200bb\u2028c\ufeff"),
        ("caf\udce9", r"caf\udce9"),
    ],
)
def test_what_is_not_printable_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(text=st.text())
def test_all_is_printable_and_what_was_printable_stays(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode().decode() == shown
    assert printable(shown) == shown
    assert shown == text or not text.isprintable()
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_a_line_of_a_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tests.text")
    log.addFilter(PrintableFilter())
    try:
        raise ValueError("\x1b[2J\u202e")
    except ValueError:
        log.exception("sent by %s", "a\nmallory\x1b[31m")
    assert caplog.messages == [r"sent by a\nmallory\x1b[31m"]
    assert "\x1b" not in caplog.text
    assert r"ValueError: \x1b[2J\u202e" in caplog.text
