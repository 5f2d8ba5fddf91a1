"""One hypothesis profile for all tests: the first call of a kernel compiles it, so no deadline on a case."""

from hypothesis import settings

settings.register_profile("precad", deadline=None, print_blob=True)
settings.load_profile("precad")
