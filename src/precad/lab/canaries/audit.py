"""Plays runs with canaries in them, and holds what the adversaries guess against what is claimed."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from precad.gradients.engine import PerRecordGradients
from precad.lab.canaries.axes import Axes, orthonormal
from precad.lab.canaries.bounds import ByRun, Counted
from precad.lab.canaries.findings import Finding, Measured, judge
from precad.lab.canaries.records import Canary, CanaryRecords, choose, make_canaries, places
from precad.lab.canaries.runs import NEXT_NOISE, OWN_NOISE, TESTS, WHOLE_RUN, CanaryRun
from precad.lab.canaries.scores import doubled, passing, thresholds
from precad.lab.canaries.views import Listening, View, views
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary
from precad.privacy.trade_off import TradeOff, trade_off
from precad.protocol.params import Unit
from precad.settings import Hyperparameters, Protocol
from precad.simulation.evaluation import read_parameters
from precad.simulation.problem import Problem
from precad.simulation.randomness import Randomness
from precad.simulation.trainer import Trainer
from precad.simulation.user_code import usable

Floats = NDArray[np.float64]

MOST_CANARIES = 96
"""In one run: they cost time in every round."""
FINAL_MODEL = "final model"
SPREADS = np.arange(-2.0, 4.25, 0.25)
"""Thresholds for the final model, in standard deviations of where earlier runs have put it."""
_SHADOWS = 3
"""How many runs an adversary makes by itself before it guesses from a final model."""


@dataclass
class _Tally:
    """All trials of one adversary by one test."""

    scores: list[Floats] = field(default_factory=list)
    present: list[NDArray[np.bool_]] = field(default_factory=list)
    rounds: int = 0
    """The most that one score adds up."""


class Audit:
    """Canaries in a problem, and all that was seen of them so far."""

    def __init__(
        self,
        problem: Problem,
        hyperparameters: Hyperparameters,
        *,
        seed: int | None = None,
        ideal: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Put up to :data:`MOST_CANARIES` canaries into the data. A seed makes samples and noise repeatable.

        Raises:
            PrecadError: The protocol claims no ε, or the model has no null record.
        """
        self._views = views(hyperparameters.protocol)
        self._hyperparameters, self._device, self._seed = hyperparameters, device, seed
        self._ideal = ideal and hyperparameters.protocol is Protocol.PRECAD
        self._clients = len(problem.clients)
        self._rng = np.random.default_rng(seed)
        self._gradients = PerRecordGradients(problem.model, problem.loss, device=usable(device))
        self._theta = read_parameters(problem.model)
        self.terms = hyperparameters.terms(self._theta.size)
        by_client = hyperparameters.unit is Unit.CLIENT
        bound = hyperparameters.client_bound if by_client else hyperparameters.record_bound
        honest = {name: records for name, records in problem.clients.items() if name not in problem.attacks}
        most = max(1, min(MOST_CANARIES, self._theta.size // 2))
        keys = places(honest, most, self._rng, whole_client=by_client)
        self.canaries = make_canaries(honest, keys, self._gradients, self._theta, bound, self._rng)
        held = defaultdict[str, dict[int, Canary]](dict)
        for (name, place), canary in self.canaries.items():
            held[name][place] = canary
        mixed = {name: CanaryRecords(honest[name], canaries) for name, canaries in held.items()}
        self._problem = replace(problem, clients={**problem.clients, **mixed})
        first = choose(list(self.canaries.values()), self._gradients, self._theta)
        basis = orthonormal(self._rng.standard_normal((len(keys), self._theta.size)))
        self._first = Axes(keys, basis, dict(zip(keys, -first, strict=True)))
        self._tallies: dict[tuple[View, str], _Tally] = defaultdict(_Tally)
        self._final: list[tuple[Floats, NDArray[np.bool_]]] = []
        """Of each run: how far the model moved along each canary's first direction, and which were in."""
        self._fewest = len(problem.clients)
        """Clients in a round."""
        self._moved: list[float] = []

    @property
    def runs(self) -> int:
        """How many there were."""
        return len(self._final)

    @property
    def strength(self) -> float:
        """How far a canary that was drawn moved the sum, on average, in units of the sensitivity."""
        return float(np.mean(self._moved)) if self._moved else 0.0

    def play(self, rounds: int, go_on: Callable[[], bool] = lambda: True) -> None:
        """One run of so many rounds.

        ``go_on`` is asked after every round. A run that it cuts short is left out, unless it is the first.
        """
        randomness = Randomness.private()
        if self._seed is not None:
            randomness = Randomness.repeatable(int(self._rng.integers(1 << 63)))
        for canary in self.canaries.values():
            canary.present = True
        settings, ideal = self._hyperparameters, self._ideal
        trainer = Trainer(self._problem, settings, randomness, device=self._device, ideal=ideal)
        trainer.aggregator = heard = Listening(settings, randomness, len(trainer.names), ideal=ideal)
        laws = {view: self.terms.mechanism(view.against, 1) for view in self._views}
        run = CanaryRun(trainer, heard, self.canaries, self._gradients, laws, self._rng)
        for number in range(1, rounds + 1):
            run.play()
            if not go_on() and number < rounds:
                if self.runs:
                    return
                break
        self._keep(run)

    def findings(self, false_alarm: float) -> list[Finding]:
        """The verdicts; any of them is wrong about a claim that is true with probability ≤ ``false_alarm``."""
        measured, rng = self.measured(), np.random.default_rng(1)
        return [judge(each, false_alarm / len(measured), self.strength, rng) for each in measured]

    def measured(self) -> list[Measured]:
        """What all runs so far say, each adversary by each test."""
        rng = np.random.default_rng(0)  # of thresholds: fixed, and apart from all that is tested
        ordered = [(view, test) for view in self._views for test in TESTS if (view, test) in self._tallies]
        found = [self._measure(view, test, self._tallies[view, test], rng) for view, test in ordered]
        return [*found, self._final_model()]

    def _measure(self, view: View, test: str, tally: _Tally, rng: np.random.Generator) -> Measured:
        law = self.terms.mechanism(view.against, tally.rounds)
        law = doubled(law) if test in (NEXT_NOISE, OWN_NOISE) else law
        limits, scores, present = thresholds(law, rng), np.concatenate(tally.scores), np.concatenate(tally.present)
        out, inside = scores[~present], scores[present]
        rates = Counted(passing(out, limits), len(out), passing(inside, limits), len(inside))
        claim, cost = self._claim(view.against, tally.rounds)
        return Measured(view.name, test, len(scores), limits, rates, claim, cost, self.terms.delta, law)

    def _claim(self, against: Adversary, rounds: int) -> tuple[TradeOff, float]:
        """The curve and the ε of so many participations; of ``ddp``, in rounds of as few noises as any had."""
        terms = self.terms
        if self._hyperparameters.protocol is Protocol.DDP:
            terms = self._hyperparameters.shared_terms(terms.dim, self._clients, self._fewest)
        return trade_off(terms, against, rounds), epsilon(terms, against, rounds)

    def _final_model(self) -> Measured:
        """Of each run after the first few: where the model is, compared with where all earlier runs have put it.

        The earlier ones are to the adversary what its own runs would be: it knows the data but for one record.
        """
        out, inside = [], []
        for number in range(_SHADOWS, self.runs):
            earlier, (moved, present) = np.array([each for each, _ in self._final[:number]]), self._final[number]
            spread = max(float(earlier.std(0, ddof=1).mean()), np.finfo(np.float64).tiny)
            passed = (moved - earlier.mean(0))[:, None] > SPREADS * spread
            out.append((passed & ~present[:, None]).mean(0))
            inside.append((passed & present[:, None]).mean(0))
        rates = ByRun(*(np.array(parts).reshape(-1, len(SPREADS)) for parts in (out, inside)))
        rounds = max(tally.rounds for tally in self._tallies.values())
        claim, cost = self._claim(Adversary.CLIENTS, rounds)
        trials = len(out) * len(self.canaries)
        return Measured(FINAL_MODEL, WHOLE_RUN, trials, SPREADS, rates, claim, cost, self.terms.delta)

    def _keep(self, run: CanaryRun) -> None:
        for key, scores in run.scores.items():
            tally = self._tallies[key]
            values, present, rounds = scores.trials(run.present)
            tally.scores.append(values)
            tally.present.append(present)
            tally.rounds = max(tally.rounds, rounds)
        step = run.trainer.progress.model.theta - self._theta
        moved = self._first.along(step)
        self._final.append((np.array(list(moved.values())), np.array([run.present[key] for key in moved], np.bool_)))
        self._moved += run.moved
        self._fewest = min(self._fewest, run.fewest)
