"""One iteration of training under each protocol, in one run: the paper's models and rates, ten clients.

Images are random: an iteration costs the same whatever they show.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from precad.data.records import ArrayRecords
from precad.lab.bench import gradients, medians
from precad.lab.bench import protocol as rounds
from precad.mpc.prg import Context, Purpose, digest
from precad.privacy.noise import integer_gaussian
from precad.protocol.params import Validation
from precad.settings import Protocol, from_table
from precad.simulation import presets
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Outcome, Trainer

CLIENTS = 10
TARGETS = {"ratio_none": 1.10, "ratio_proof": 2.0}
"""Iteration time over that of ``ldp``, at most."""

_PAPER = replace(from_table(presets.preset("mnist", "paper")).training, rounds=1_000_000, client_rate=1.0)
_CASES = {
    "plain": replace(_PAPER, protocol=Protocol.PLAIN),
    "ldp": replace(_PAPER, protocol=Protocol.LDP),
    "none": replace(_PAPER, validation=Validation.NONE),
    "proof": _PAPER,
    "triples": replace(_PAPER, validation=Validation.TRIPLES),
}


def run(repeats: int = 15) -> dict[str, dict[str, Any]]:
    """For each model, milliseconds of an iteration of every protocol, their ratios to ``ldp``, and the stages.

    ``opacus_ratio`` and ``autograd_ratio``: how many times as fast as these our clipped gradients are.
    """
    compared = gradients.run(max(3, repeats // 3))
    return {
        name: _row(name, repeats) | {f"{way}_ratio": compared[name]["times"][way] for way in ("opacus", "autograd")}
        for name in gradients.MODELS
    }


def _row(name: str, repeats: int) -> dict[str, Any]:
    randomness = Randomness.private()  # common to all: in each of their rounds the same records are drawn
    trainers = {case: Trainer(_task(name), hyperparameters, randomness) for case, hyperparameters in _CASES.items()}
    outcomes: list[Outcome] = []
    cases: dict[str, Callable[[], object]] = {case: trainer.play for case, trainer in trainers.items()}
    cases["proof"] = lambda: outcomes.append(trainers["proof"].play())
    ms = medians(cases, repeats)
    gradient_ms = 1e3 * statistics.median(outcome.seconds["gradients"] for outcome in outcomes)
    return {
        **{f"{case}_ms": value for case, value in ms.items()},
        "ratio_none": ms["none"] / ms["ldp"],
        "ratio_proof": ms["proof"] / ms["ldp"],
        "stages_ms": _stages(trainers["proof"], gradient_ms, repeats),
    }


def _stages(trainer: Trainer, gradient_ms: float, repeats: int) -> dict[str, float]:
    """What each party works in a round with proofs, on one core; the round itself uses two."""
    dim = trainer.params.dim
    modes = Validation.PROOF, Validation.NONE
    proof, none = (rounds.run(dim, CLIENTS, mode, max(3, repeats // 3)) for mode in modes)
    stream = Randomness.private().stream(Purpose.NOISE, Context(digest(b"precad bench"), 0, "server"))
    noise = medians({"noise": lambda: integer_gaussian(trainer.params.noise_std, dim, stream)}, repeats)["noise"]
    return {
        "gradients": gradient_ms,
        "sharing": CLIENTS * none["client_ms"],
        "proof": CLIENTS * (proof["client_ms"] - none["client_ms"]),
        "server_a": CLIENTS * proof["server_a_ms"],
        "server_b": CLIENTS * proof["server_b_ms"],
        "noise": 2 * noise,
    }


def _task(name: str) -> Problem:
    build, shape, records = gradients.MODELS[name]
    rng = np.random.default_rng(0)
    size = round(records / _PAPER.record_rate)
    images = rng.integers(0, 256, (CLIENTS * size, *shape), np.uint8)
    labels = rng.integers(0, 10, len(images))
    rows = np.arange(len(images)).reshape(CLIENTS, size)
    clients = {f"client-{i}": ArrayRecords(images, labels, rows[i], _normalise) for i in range(CLIENTS)}
    return Problem(build(), torch.nn.functional.cross_entropy, clients, None, {})


def _normalise(images: Any) -> torch.Tensor:
    return torch.from_numpy(images.astype(np.float32)).div_(255)
