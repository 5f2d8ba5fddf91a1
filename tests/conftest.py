"""One hypothesis profile for all tests, without deadlines: the first call of a kernel compiles it. And Ctrl-C for
all: a shell has its background jobs ignore it, and what they start too, but tests send it to children.
"""

import signal

from hypothesis import settings

settings.register_profile("precad", deadline=None, print_blob=True)
settings.load_profile("precad")

signal.signal(signal.SIGINT, signal.default_int_handler)
