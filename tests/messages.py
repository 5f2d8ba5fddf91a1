"""What a message must contain: names, values and bounds, in any order. The prose around them is free."""

import re


def says(*parts: object) -> str:
    """A pattern, for ``match`` or ``re.search``, of a text that has each part as a whole word."""
    return "(?s)^" + "".join(rf"(?=.*(?<![\w.]){re.escape(str(part))}(?!\w|\.\d))" for part in parts)
