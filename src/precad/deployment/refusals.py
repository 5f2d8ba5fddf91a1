"""How a server refuses a request, whoever asks: a status, and a sentence."""

import errno
import logging
import traceback

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from precad.deployment.disk import FULL, SetBackError, StoreError
from precad.deployment.log import log
from precad.errors import ProtocolError


def refusal(error: Exception) -> tuple[int, str]:
    """The status and the words for whoever asks. A fault goes to the log by its place alone: no value."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, ClientDisconnect):
        return 400, "the message broke off"
    if isinstance(error, ProtocolError | SetBackError):
        return 409, str(error)
    if isinstance(error, StoreError):
        return 507 if "disk is full" in str(error) else 503, str(error)
    if isinstance(error, OSError):
        return (507, FULL) if error.errno == errno.ENOSPC else (503, f"a file cannot be written: {error.strerror}")
    where = traceback.extract_tb(error.__traceback__)[-1]
    log("fault", logging.ERROR, kind=type(error).__name__, file=where.filename, line=where.lineno)
    return 500, "a fault in this server: see its log"
