"""``python -m precad``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working folder, where no file shall take the place of a library

from precad.cli.app import app

app(prog_name="precad")
