"""Programs that are less private than they say: one fault each, put into the product's own functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from precad.gradients import engine
from precad.mpc.prg import Context, Purpose, Stream
from precad.mpc.secret import Secret
from precad.privacy.clipping import encode_clipped
from precad.privacy.noise import integer_gaussian
from precad.privacy.record_sums import add_clipped
from precad.privacy.sampling import poisson_sample
from precad.protocol import aggregation
from precad.simulation import aggregators, clients, randomness

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


class TaggedStream(Stream):
    """A stream that tells a fault whose it is."""

    def __init__(self, seed: Secret, purpose: Purpose, context: Context) -> None:
        super().__init__(seed, purpose, context)
        self.context = context


def _draw_noise(patch: Patch, draw: Callable[[float, int, Any], Any]) -> None:
    patch.setattr(aggregation, "Stream", TaggedStream)
    patch.setattr(aggregation, "integer_gaussian", draw)


def _draw_records(patch: Patch, draw: Callable[[Any, int, float], Any]) -> None:
    patch.setattr(randomness, "Stream", TaggedStream)
    patch.setattr(clients, "poisson_sample", draw)


def noise_halved(patch: Patch, factor: float = 2.0) -> None:
    for module in (aggregation, aggregators):
        patch.setattr(module, "integer_gaussian", lambda std, *args: integer_gaussian(std / factor, *args))


def noise_of_one_server_missing(patch: Patch) -> None:
    def draw(std: float, size: int, stream: Any) -> Any:
        return integer_gaussian(std, size, stream) * (stream.context.party != "server B")

    _draw_noise(patch, draw)


def noise_missing_in_some_entries(patch: Patch) -> None:
    def draw(std: float, size: int, stream: Any) -> Any:
        noise = integer_gaussian(std, size, stream)
        noise[: size // 2] = 0
        return noise

    _draw_noise(patch, draw)


def noise_of_the_first_round_in_all(patch: Patch) -> None:
    first: dict[object, Any] = {}

    def draw(std: float, size: int, stream: Any) -> Any:
        if stream.context.round == 0:
            first[stream.context.party] = integer_gaussian(std, size, stream)
        return first[stream.context.party].copy()

    _draw_noise(patch, draw)


def noise_the_same_at_both_servers(patch: Patch) -> None:
    drawn: dict[object, Any] = {}

    def draw(std: float, size: int, stream: Any) -> Any:
        key = stream.context.task, stream.context.round
        if stream.context.round == 0 and stream.context.party == "server A":
            drawn.clear()
        return drawn.setdefault(key, integer_gaussian(std, size, stream)).copy()

    _draw_noise(patch, draw)


def batch_clipped_instead_of_records(patch: Patch) -> None:
    """The sum of a client's gradients is clipped to as many times R as it has records."""

    def add(gradients: Any, bound: float, fractional_bits: int, total: Any) -> None:
        rows = gradients[np.isfinite(gradients).all(1)].astype(np.float64)
        summed = rows.sum(0)
        norm = max(float(np.linalg.norm(summed)), 1e-30)
        total += np.trunc(summed * min(1.0, bound * len(gradients) / norm) * 2.0**fractional_bits).astype(np.int64)

    patch.setattr(engine, "add_clipped", add)


def batch_clipped_to_the_bound_of_one(patch: Patch) -> None:
    """The sum of a client's gradients is clipped to R: one record turns it from one side to the other."""

    def add(gradients: Any, bound: float, fractional_bits: int, total: Any) -> None:
        rows = gradients[np.isfinite(gradients).all(1)].astype(np.float64)
        summed = rows.sum(0)
        norm = max(float(np.linalg.norm(summed)), 1e-30)
        total += np.trunc(summed * (2 * bound / norm) * 2.0**fractional_bits).astype(np.int64)

    patch.setattr(engine, "add_clipped", add)


def record_remembered_by_the_next(patch: Patch) -> None:
    """State across records: each gradient has that of the record before it in it."""

    def add(gradients: Any, bound: float, fractional_bits: int, total: Any) -> None:
        add_clipped(gradients, bound, fractional_bits, total)
        if len(gradients) > 1:
            add_clipped(np.ascontiguousarray(gradients[:-1]), bound, fractional_bits, total)

    patch.setattr(engine, "add_clipped", add)


def record_not_clipped_enough(patch: Patch) -> None:
    patch.setattr(engine, "add_clipped", lambda g, bound, f, total: add_clipped(g, 2 * bound, f, total))


def record_drawn_twice(patch: Patch) -> None:
    patch.setattr(clients, "poisson_sample", lambda *args: np.repeat(poisson_sample(*args), 2))


def record_drawn_too_often(patch: Patch) -> None:
    def draw(stream: Any, size: int, rate: float) -> Any:
        return poisson_sample(stream, size, min(1.0, 2 * rate))

    patch.setattr(clients, "poisson_sample", draw)


def record_drawn_in_all_rounds_or_in_none(patch: Patch) -> None:
    first: dict[object, Any] = {}

    def draw(stream: Any, size: int, rate: float) -> Any:
        if stream.purpose is Purpose.SAMPLE and stream.context.round == 0:
            first[stream.context.party] = poisson_sample(stream, size, rate)
        return first[stream.context.party]

    _draw_records(patch, draw)


def client_not_clipped_enough(patch: Patch) -> None:
    patch.setattr("precad.privacy.clipping.encode_clipped", lambda x, bound, f: encode_clipped(x, 2 * bound, f))


RECORD: tuple[Fault, ...] = (
    noise_halved,
    noise_of_one_server_missing,
    noise_missing_in_some_entries,
    noise_of_the_first_round_in_all,
    noise_the_same_at_both_servers,
    batch_clipped_instead_of_records,
    batch_clipped_to_the_bound_of_one,
    record_remembered_by_the_next,
    record_not_clipped_enough,
    record_drawn_twice,
    record_drawn_too_often,
)
