"""Training from Python: any torch model, any data sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from precad.simulation import session
from precad.simulation.hyperparameters import Hyperparameters
from precad.simulation.problem import Attack, Loss, Problem, client_names
from precad.simulation.randomness import Randomness
from precad.simulation.run_folder import RunError, RunFolder
from precad.simulation.session import Figures
from precad.simulation.settings import training_toml
from precad.simulation.trainer import Outcome, Trainer


@dataclass(frozen=True)
class Trained:
    """What a run leaves."""

    model: nn.Module
    """The model that was given, with the trained parameters."""
    figures: Figures
    """Accuracy and loss on the test set, and ε against both adversaries."""
    history: list[Figures]
    """The same on the way, since this call."""
    participations: dict[str, int]
    rejections: dict[str, int]
    """How many of a client's updates were rejected; clients without any are left out."""
    randomness: str
    """Whether the noise is private, in words: it is not with a seed."""


def train(
    model: nn.Module,
    loss_fn: Loss,
    client_datasets: Mapping[str, Dataset[Any]] | Sequence[Dataset[Any]],
    params: Hyperparameters,
    *,
    test_set: Dataset[Any] | None = None,
    attacks: Mapping[str, Attack] | None = None,
    evaluate_every: int | None = None,
    seed: int | None = None,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
) -> Trained:
    """Train ``model`` by the protocol of ``params``, over simulated clients and two servers.

    ``loss_fn(outputs, targets)`` is the mean loss of a batch. A data set gives (input, target) pairs. Clients without
    names are called client-01 and so on; ``attacks`` says what malicious ones send, given an ``AttackContext``. With a
    ``folder`` the run is kept there, and the same call again goes on where it stopped. ``seed`` makes it repeatable,
    and its noise not private.
    """
    if evaluate_every is not None and evaluate_every < 1:
        raise ValueError(f"evaluate_every must be at least 1, got {evaluate_every}")
    named = client_datasets
    if not isinstance(named, Mapping):
        named = dict(zip(client_names(len(named)), named, strict=True))
    task = Problem.of_datasets(model, loss_fn, named, test_set, attacks or {})
    randomness = Randomness.private() if seed is None else Randomness.repeatable(seed)
    if folder is None:
        return _play(Trainer(task, params, randomness, device=device), None, evaluate_every)
    path, text = Path(folder), training_toml(params, seed)
    if not path.exists():
        Trainer(task, params, randomness, device=device)  # refuses what it would refuse later
        run = RunFolder.create(path, text, randomness, {"data": None, "device": str(device)})
    else:
        run = RunFolder(path)
    try:
        if run.config != text:
            raise RunError(f"{path} holds a run with other parameters: choose another folder")
        run.check_config()
        if run.finished:
            raise RunError(f"the run in {path} has come to its end: its model is in {path / 'model.pt'}")
        trainer = Trainer(task, params, run.randomness(seed), progress=run.load(), device=device)
        trainer.keep_ledger(run.open_ledger)
        return _play(trainer, run, evaluate_every)
    finally:
        run.close()


def _play(trainer: Trainer, run: RunFolder | None, evaluate_every: int | None) -> Trained:
    history: list[Figures] = []
    rejections = Counter[str]()
    for line in run.metrics() if run is not None else ():
        rejections.update(line["rejected"].keys())

    def note(outcome: Outcome, figures: Figures | None) -> None:
        rejections.update(outcome.rejected.keys())
        if figures is not None:
            history.append(figures)

    every = evaluate_every or max(1, trainer.hyperparameters.rounds // 20)
    figures = session.play(trainer, run, every, note)
    if run is not None:
        session.finish(trainer, run, figures)
    counts = dict(zip(trainer.names, trainer.progress.participations.tolist(), strict=True))
    return Trained(trainer.trained_model(), figures, history, counts, dict(rejections), trainer.randomness.said)
