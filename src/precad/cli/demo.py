"""One round of the protocol in memory, for people to look at."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from precad.cli.output import new_console, new_table
from precad.mpc import field, fixed_point
from precad.mpc.prg import digest
from precad.privacy import clipping
from precad.protocol import submission
from precad.protocol.messages import PartA, PartB, decode
from precad.protocol.params import Params, Round
from precad.protocol.round import ServerSecrets, client_submits, nonces_of, run_round
from precad.protocol.states import Opened
from precad.protocol.submission import Submission
from precad.simulation.forging import forge

_CLIENTS, _DIM, _COLUMNS = 8, 26_010, 26
_BOOST = 10
_BARS = "▁▂▃▄▅▆▇█"

Vector = NDArray[np.float64]
Updates = dict[str, Vector]
Submissions = dict[str, Submission]


def run() -> None:
    """Made-up updates of a few clients, one of them malicious, summed by two servers that see only shares."""
    params = Params(dim=_DIM, clients=_CLIENTS, record_bound=2.0, client_bound=30.0, noise_multiplier=1.0)
    secrets = ServerSecrets.fresh(), ServerSecrets.fresh()
    round_ = Round(params, digest(b"precad demo", b"task"), 0, digest(b"precad demo", b"model"), nonces_of(*secrets))
    updates = {f"hospital-{i + 1}": _made_up_update(i) for i in range(_CLIENTS)}
    cheater = f"hospital-{_CLIENTS}"
    sent = {name: _submit(round_, name, x, honest=name != cheater) for name, x in updates.items()}
    opened = run_round(round_, sent, *secrets)
    exact = np.sum([_encoded(params, updates[name]) for name in opened.valid], axis=0)
    true_sum, noisy_sum = (fixed_point.decode(x, params.fractional_bits) for x in (exact, opened.noisy_sum))
    expected = math.sqrt(2) * math.ldexp(params.noise_std, -params.fractional_bits)
    console = new_console()
    console.print(_clients_table(params, updates, sent, opened))
    console.print(_views_table(round_, updates, sent, (true_sum, noisy_sum)))
    console.print(
        f"{cheater} sent ten times what it may, with the best proof it could forge: the servers rejected it without "
        f"seeing it. Noise in the opened sum: standard deviation {np.std(noisy_sum - true_sum):.3f} per entry "
        f"(√2·σ·R' = {expected:.3f}: each server added its own). Nothing else was opened."
    )


def _made_up_update(client: int) -> NDArray[np.float64]:
    """A wave that all clients have in common, and noise of its own; every other client is over its bound."""
    t = np.linspace(0, 4 * np.pi, _DIM)
    own = np.random.default_rng(client).standard_normal(_DIM)
    return (0.12 + 0.12 * (client % 2)) * (np.sin(t) + 0.5 * own)


def _submit(round_: Round, client: str, update: NDArray[np.float64], *, honest: bool) -> Submission:
    if honest:
        return client_submits(round_, client, update)
    return forge(round_, client, field.embed(_BOOST * _encoded(round_.params, update)))


def _encoded(params: Params, update: NDArray[np.float64]) -> NDArray[np.int64]:
    return clipping.encode_clipped(update, params.client_bound, params.fractional_bits)


def _clients_table(params: Params, updates: Updates, sent: Submissions, opened: Opened) -> Table:
    norm_sent = f"norm sent (C = {params.client_bound:g})"
    table = new_table("The clients", "client", "norm", norm_sent, "bytes to A", "bytes to B", "verdict")
    for name, x in updates.items():
        norm = math.ldexp(math.sqrt(clipping.squared_norm(_encoded(params, x))), -params.fractional_bits)
        norm *= 1 if name in opened.valid else _BOOST
        verdict = Text("valid", "green") if name in opened.valid else Text("invalid", "red")
        to_a, to_b = (len(sent[name].header) + len(part) for part in (sent[name].part_a, sent[name].part_b))
        table.add_row(name, f"{np.linalg.norm(x):.3f}", f"{norm:.5f}", f"{to_a:,}", f"{to_b:,}", verdict)
    return table


def _views_table(round_: Round, updates: Updates, sent: Submissions, sums: Sequence[Vector]) -> Table:
    params, name = round_.params, next(iter(updates))
    part_a = decode(sent[name].part_a, PartA, **submission.part_a_sizes(params))
    part_b = decode(sent[name].part_b, PartB)
    shares = (submission.share_of(round_, name, part)[: params.dim] for part in (part_a, part_b))
    lifted = (fixed_point.decode(field.lift(share), params.fractional_bits) for share in shares)
    labels = (f"update of {name}", "its share for A", "its share for B", "true sum", "noisy sum")
    readers = (name, "A", "B", "nobody", "A and B")
    table = Table("", title="Who sees what (each bar: the mean of many entries)")
    table.add_column("vector", no_wrap=True)
    table.add_column("seen by")
    table.add_column("entries", justify="right")
    for label, vector, reader in zip(labels, (updates[name], *lifted, *sums), readers, strict=True):
        table.add_row(label, _sketch(vector), reader, f"±{np.abs(vector).max():.3g}")
    return table


def _sketch(x: NDArray[np.float64]) -> str:
    means = np.array([part.mean() for part in np.array_split(x, _COLUMNS)])
    steps = ((means - means.min()) / np.ptp(means) * (len(_BARS) - 1)).round().astype(int)
    return "".join(_BARS[step] for step in steps)
