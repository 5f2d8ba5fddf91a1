"""Training from Python: any torch model, any data sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from precad.errors import UnusableError
from precad.settings import Hyperparameters, training_toml
from precad.simulation import session
from precad.simulation.problem import Attack, Loss, Problem, client_names
from precad.simulation.randomness import Randomness
from precad.simulation.run_folder import RunError, RunFolder
from precad.simulation.session import Figures
from precad.simulation.trainer import Outcome, Trainer


@dataclass(frozen=True)
class Trained:
    """What a run leaves."""

    model: nn.Module
    """A copy of the model that was given, with the trained parameters."""
    figures: Figures
    """Accuracy and loss on the test set, and ε against both adversaries."""
    history: list[Figures]
    """The figures of the rounds that this call evaluated, in order."""
    participations: dict[str, int]
    """How many rounds each client took part in."""
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
    """Train a copy of ``model`` by the protocol of ``params``, over simulated clients and two servers.

    Args:
        model: Any module whose records do not mix; BatchNorm is refused (see ``precad.fix``). Its parameters are the
            initial model, and stay as they are: another call with the same model begins where this one did.
        loss_fn: ``loss_fn(outputs, targets)`` is the mean loss of a batch.
        client_datasets: One data set of (input, target) pairs for each client, by name; without names, the clients
            are called client-01 and so on.
        params: The numbers of the run.
        test_set: What the model is evaluated on.
        attacks: What each malicious client sends, as a function of an :class:`AttackContext`.
        evaluate_every: The number of rounds from one evaluation to the next; a twentieth of the run if not given.
        seed: Makes the run repeatable, and its noise **not private**.
        folder: Where to keep the run. The same call again goes on where it stopped.
        device: Where gradients are computed.

    Returns:
        The trained model, its figures, and who took part and was rejected.

    Raises:
        ValueError: An argument is outside its range; the message names it, the value and the bound.
        PrecadError: The model, the loss or the data cannot be trained with, or failed; or the folder holds another run,
            or one that has ended.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> clinics = [TensorDataset(torch.randn(50, 4), torch.randint(0, 2, (50,))) for _ in range(3)]
        >>> params = Hyperparameters(
        ...     rounds=2, client_rate=1, record_rate=0.5, record_bound=1, client_bound=20, noise_multiplier=2,
        ...     learning_rate=1,
        ... )
        >>> trained = train(torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy, clinics, params)
        >>> trained.participations
        {'client-01': 2, 'client-02': 2, 'client-03': 2}
    """
    if evaluate_every is not None and evaluate_every < 1:
        raise ValueError(f"evaluate_every must be at least 1, got {evaluate_every}")
    task = Problem.of_datasets(model, loss_fn, _named(client_datasets), test_set, attacks or {})
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
        if run.finished:
            raise RunError(f"the run in {path} has come to its end: its model is in {path / 'model.pt'}")
        trainer = Trainer(task, params, run.randomness(seed), progress=run.load(), device=device)
        trainer.keep_ledger(run.open_ledger)
        return _play(trainer, run, evaluate_every)
    finally:
        run.close()


def _named(datasets: object) -> Mapping[str, Any]:
    if isinstance(datasets, Mapping):
        return datasets
    if isinstance(datasets, Dataset) or not isinstance(datasets, Sequence):
        raise UnusableError(
            "client_datasets must be a list of data sets, one for each client, or a dict of them by name, got one "
            f"{type(datasets).__name__}"
        )
    return dict(zip(client_names(len(datasets)), datasets, strict=True))


def _play(trainer: Trainer, run: RunFolder | None, evaluate_every: int | None) -> Trained:
    history: list[Figures] = []
    rejections = Counter[str]()
    for line in run.rounds()[: trainer.progress.round] if run is not None else ():
        rejections.update(line.rejected.keys())

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
