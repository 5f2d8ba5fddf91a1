"""The test vectors of models and of the steps that they make."""

import math

from tests.reference.book import Book
from tests.reference.transcripts import Table


def models(book: Book) -> None:
    def hexes(*values: float) -> list[str]:
        return [float(value).hex() for value in values]

    for name, values in (("of no parameters", ()), ("three parameters", (0.0, -1.5, 0.1)), ("minus zero", (-0.0,))):
        book.add("model", name, "the bits of each float64", {"values": hexes(*values)})
    for name, value in (("infinite", math.inf), ("not a number", math.nan)):
        book.add("model", name, "no model", {"values": hexes(0.0, value)}, malicious=True)
    base: Table = {
        "unit": "client",
        "normalise": "constant",
        "client_rate": 0.3,
        "record_rate": 0.05,
        "records": {"bank": 600, "clinic": 70, "lab": 9},
        "valid": ["bank", "lab"],
        "fractional_bits": 16,
        "opened": 3,
        "rounds": 20,
        "learning_rate": 0.7,
        "final_learning_rate": 0.1,
        "optimiser": "sgd",
        "model": hexes(0.0, -1.5, 0.1),
        "first": [],
        "second": [],
        "steps": 3,
        "sum": ["0", "-1234567", str((1 << 53) + 1)],
    }
    first, second = {"first": hexes(0.0, 0.3, -20.0)}, {"second": hexes(0.0, 0.7, 1e9)}
    changes: dict[str, Table] = {
        "by client": {},
        "by record": {"unit": "record"},
        "the realised N": {"unit": "record", "normalise": "realised"},
        "the realised N, by client": {"normalise": "realised"},
        "nobody valid, the realised N": {"normalise": "realised", "valid": [], "optimiser": "momentum", **first},
        "a constant rate": {"final_learning_rate": None},
        "one round": {"rounds": 1, "opened": 0},
        "momentum": {"optimiser": "momentum", **first},
        "adam": {"optimiser": "adam", **first, **second},
        "adam, the first step": {"optimiser": "adam", "first": hexes(0, 0, 0), "second": hexes(0, 0, 0), "steps": 0},
    }
    for name, change in changes.items():
        book.add("step", name, "the same bits at both servers", {**base, **change})
    overflow = {"model": hexes(1.7e308, 0, 0), "learning_rate": 1e308, "sum": [str(1 << 60), "0", "0"]}
    book.add("step", "an overflow", "no model", {**base, **overflow}, malicious=True)
