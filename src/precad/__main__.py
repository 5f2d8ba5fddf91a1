"""``python -m precad``."""

from precad.cli.app import app

app(prog_name="precad")
