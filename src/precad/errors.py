"""The errors of precad.

::

    ValueError            a caller's mistake: a value outside its stated range
    PrecadError
    └── ProtocolError     a peer's breach: bytes or steps that the protocol does not allow

A message names what was wrong, the value and the bound; it never holds a share, a seed or a record.
"""


class PrecadError(Exception):
    """Base of the errors that precad defines."""


class ProtocolError(PrecadError):
    """A peer sent something that the protocol does not allow."""
