"""One round of the protocol in memory, for people to look at."""

import math

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from precad.messages import Digest, NoisyShare, SeedForB, ShareForA, decode, encode
from precad.mpc import field, fixed_point, sharing
from precad.mpc.field import FieldVector
from precad.mpc.prg import Context, Purpose, Stream, digest
from precad.mpc.secret import Secret
from precad.params import Params
from precad.privacy import clipping
from precad.privacy.noise import integer_gaussian

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 28
_TASK = Digest(digest(b"precad task", b"demo"))


def run(clients: int = 8, dim: int = 26_010) -> None:
    """Made-up updates of a few clients, summed by two servers that see only shares."""
    params = Params(dim=dim, clients=clients, record_bound=2.0, client_bound=30.0, noise_multiplier=1.0)
    f = params.fractional_bits
    raw = {f"hospital-{i + 1}": _made_up_update(i, dim) for i in range(clients)}
    updates = {name: clipping.encode_clipped(x, params.client_bound, f) for name, x in raw.items()}
    sent = {name: _submit(name, field.embed(x)) for name, x in updates.items()}

    at_a = (decode(to_a, ShareForA).share for to_a, _ in sent.values())
    at_b = (_expand(decode(to_b, SeedForB), dim) for _, to_b in sent.values())
    noisy_a = _noisy_share("A", field.total(at_a, dim), params)
    noisy_b = _noisy_share("B", field.total(at_b, dim), params)
    opened = sharing.reconstruct(decode(noisy_a, NoisyShare).share, decode(noisy_b, NoisyShare).share)

    noisy_sum = fixed_point.decode(field.lift(opened), f)
    true_sum = fixed_point.decode(np.sum(list(updates.values()), axis=0), f)
    console = Console()
    console.print(_clients_table(raw, updates, sent, f))
    console.print(_views_table(next(iter(sent)), updates, sent, true_sum, noisy_sum, f))
    expected = math.sqrt(2) * math.ldexp(params.noise_std, -f)
    console.print(
        f"Noise in the opened sum: standard deviation {np.std(noisy_sum - true_sum):.3f} per entry "
        f"(√2·σ·R' = {expected:.3f}: each server added its own). Nothing else was opened."
    )


def _made_up_update(client: int, dim: int) -> NDArray[np.float64]:
    """A wave that all clients have in common, and noise of its own; every other client is over its bound."""
    t = np.linspace(0, 4 * np.pi, dim)
    own = np.random.default_rng(client).standard_normal(dim)
    return (0.12 + 0.12 * (client % 2)) * (np.sin(t) + 0.5 * own)


def _submit(client: str, x: FieldVector) -> tuple[bytes, bytes]:
    """Paper, Algorithm 2, line 8: what the client sends to A, and to B."""
    seed = Secret.fresh()
    share = sharing.share_a(x, seed, Context(_TASK, 0, client))
    return encode(ShareForA(_TASK, 0, client, share)), encode(SeedForB(_TASK, 0, client, seed))


def _expand(message: SeedForB, dim: int) -> FieldVector:
    return sharing.share_b(message.seed, Context(message.task, message.round, message.client), dim)


def _noisy_share(server: str, share: FieldVector, params: Params) -> bytes:
    """Paper, Algorithm 1, line 5."""
    stream = Stream(Secret.fresh(), Purpose.NOISE, Context(_TASK, 0, server))
    noise = field.embed(integer_gaussian(params.noise_std, params.dim, stream))
    return encode(NoisyShare(_TASK, 0, field.add(share, noise)))


def _clients_table(
    raw: dict[str, NDArray[np.float64]],
    updates: dict[str, NDArray[np.int64]],
    sent: dict[str, tuple[bytes, bytes]],
    f: int,
) -> Table:
    table = Table("client", "norm", "after clipping to C = 30", "bytes to A", "bytes to B", title="The clients")
    for name, x in raw.items():
        norm = math.ldexp(math.sqrt(clipping.squared_norm(updates[name])), -f)
        to_a, to_b = sent[name]
        table.add_row(name, f"{np.linalg.norm(x):.3f}", f"{norm:.6f}", f"{len(to_a):,}", f"{len(to_b):,}")
    return table


def _views_table(
    name: str,
    updates: dict[str, NDArray[np.int64]],
    sent: dict[str, tuple[bytes, bytes]],
    true_sum: NDArray[np.float64],
    noisy_sum: NDArray[np.float64],
    f: int,
) -> Table:
    to_a, to_b = sent[name]
    share_a = field.lift(decode(to_a, ShareForA).share)
    share_b = field.lift(_expand(decode(to_b, SeedForB), true_sum.size))
    table = Table("", "vector", "seen by", "entries", title="Who sees what (each bar: the mean of many entries)")
    table.add_row(
        f"update of {name}", _sketch(fixed_point.decode(updates[name], f)), name, _range(updates[name], f)
    )
    table.add_row("its share for A", _sketch(fixed_point.decode(share_a, f)), "A", _range(share_a, f))
    table.add_row("its share for B", _sketch(fixed_point.decode(share_b, f)), "B", _range(share_b, f))
    table.add_row("true sum", _sketch(true_sum), "nobody", f"±{np.abs(true_sum).max():.3g}")
    table.add_row("noisy sum", _sketch(noisy_sum), "A and B", f"±{np.abs(noisy_sum).max():.3g}")
    return table


def _sketch(x: NDArray[np.float64]) -> str:
    means = np.array([part.mean() for part in np.array_split(x, _COLUMNS)])
    low, high = means.min(), means.max()
    steps = ((means - low) / (high - low) * (len(_BARS) - 1)).round().astype(int)
    return "".join(_BARS[step] for step in steps)


def _range(integers: NDArray[np.int64], f: int) -> str:
    return f"±{math.ldexp(float(np.abs(integers).max()), -f):.3g}"
