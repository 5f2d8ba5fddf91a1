"""One hypothesis profile for all tests: the first call of a kernel compiles it, so no deadline on a case."""

import signal

from hypothesis import settings

settings.register_profile("precad", deadline=None, print_blob=True)
settings.load_profile("precad")

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has its background jobs ignore Ctrl-C, and their children too; tests send it to children."""
