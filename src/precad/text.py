"""Text that came from elsewhere, for a terminal or a log: nothing in it is obeyed, or moves what is shown."""

import logging


def printable(text: str, keep: str = "") -> str:
    r"""The text with every character that is not printable written out, as ``\x1b`` or ``\u202e``.

    These are control characters and line breaks, marks that turn the direction of writing, characters without width,
    and bytes that are no text. Characters in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


class PrintableFilter(logging.Filter):
    """Makes the lines of a log :func:`printable`, whatever was put into them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes, in printable words."""
        record.msg, record.args = printable(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = printable(logging.Formatter().formatException(record.exc_info), keep="\n")
        return True


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
