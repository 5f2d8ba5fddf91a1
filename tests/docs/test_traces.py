"""The traces of a round in CONTRIBUTING.md: straight lines down the layers, of functions that exist."""

import re
from itertools import pairwise

import pytest

from tests.docs.pages import ROOT, defines
from tests.test_layers import MAY_IMPORT

SOURCE = ROOT / "src/precad"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TRACES = [re.findall(r"`([\w/]+\.py):([\w.]+)`", part) for part in re.split(r"^##+ ", TEXT, flags=re.MULTILINE)]
each_trace = pytest.mark.parametrize("trace", [trace for trace in TRACES if trace], ids=["local", "deployed"])


@each_trace
def test_every_function_exists(trace: list[tuple[str, str]]) -> None:
    for file, name in trace:
        assert defines(SOURCE / file, name), (file, name)


@each_trace
def test_the_layers_only_go_down(trace: list[tuple[str, str]]) -> None:
    layers = [file.split("/")[0] for file, _ in trace]
    order = list(dict.fromkeys(layers))
    assert layers == sorted(layers, key=order.index)
    for upper, lower in pairwise(order):
        assert upper not in MAY_IMPORT[lower]


@each_trace
def test_every_function_is_called_from_above(trace: list[tuple[str, str]]) -> None:
    """The file of an earlier row names it, but for what Flower and the web server call in a process of its own."""
    for place, (_, name) in enumerate(trace[1:], start=1):
        call = re.compile(rf"\b{name.split('.')[-1]}\b[(,)]")
        above = [(SOURCE / file).read_text() for file, _ in trace[:place]]
        assert name in ("PrecadMod", "exchange_app") or any(map(call.search, above)), name
