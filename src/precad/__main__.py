"""``python -m precad``."""

from precad.cli import app

app(prog_name="precad")
