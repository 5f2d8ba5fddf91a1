"""One run of the whole program with canaries in it, round by round, and what each adversary scores.

Every canary is in with probability ½, for the whole run. Given what came before, noise of the claimed law is
independent from round to round and along orthogonal directions. So trials without a canary are independent of each
other, and so are those with one, but that it may move the sum by less than is claimed.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from precad.gradients.engine import PerRecordGradients
from precad.lab.canaries.axes import Axes, orthonormal
from precad.lab.canaries.records import Canary, Key, choose
from precad.lab.canaries.scores import doubled, score, stretch
from precad.lab.canaries.views import Listening, View
from precad.privacy.terms import Mechanism
from precad.simulation.aggregators import Grid
from precad.simulation.trainer import Trainer

Floats = NDArray[np.float64]

ONE_ROUND, STRETCH, WHOLE_RUN = "one round", "some rounds", "whole run"
NEXT_NOISE, OWN_NOISE = "noise again", "noise of both"
"""One noise less another, the next round's or the adversary's own: nothing is left where a noise is used twice."""
_CHOSEN_FOR = 4
"""Rounds for which canaries stay the same."""
_ROUNDING = 8
"""Grid steps by which a gradient may differ in a batch of another size."""
TESTS = (ONE_ROUND, STRETCH, WHOLE_RUN, NEXT_NOISE, OWN_NOISE)


@dataclass
class Scores:
    """Of one adversary by one test: a trial is the sum over ``length`` rounds of a canary, or over all of them."""

    length: int | None
    done: list[tuple[Key, float]] = field(default_factory=list)
    running: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    rounds: Counter[Key] = field(default_factory=Counter)
    """How many rounds a canary's running sum has."""

    def add(self, key: Key, value: float) -> None:
        """One more round of a canary."""
        self.running[key] += value
        self.rounds[key] += 1
        if self.rounds[key] == self.length:
            self.done.append((key, self.running.pop(key)))
            self.rounds[key] = 0

    def trials(self, present: Mapping[Key, bool]) -> tuple[Floats, NDArray[np.bool_], int]:
        """Every trial's score, whether its canary was in, and the most rounds that one adds up."""
        found = self.done or list(self.running.items())
        inside = np.array([present[key] for key, _ in found], np.bool_)
        most = self.length if self.done and self.length else max(self.rounds.values(), default=0)
        return np.array([value for _, value in found]), inside, most


class CanaryRun:
    """One run under way."""

    def __init__(
        self,
        trainer: Trainer,
        listening: Listening,
        canaries: Mapping[Key, Canary],
        gradients: PerRecordGradients,
        laws: Mapping[View, Mechanism],
        rng: np.random.Generator,
    ) -> None:
        """Begin a run.

        Args:
            trainer: It plays with these canaries among its records, and through ``listening``.
            listening: Its aggregator.
            canaries: By place.
            gradients: By which canaries are chosen.
            laws: What is claimed of one round, for each adversary.
            rng: For what is not tested.
        """
        self.trainer, self._heard, self._canaries, self._gradients = trainer, listening, canaries, gradients
        self._laws = laws
        self._basis = orthonormal(rng.standard_normal((len(canaries), trainer.params.dim)))
        self.present = {key: bool(rng.integers(2)) for key in canaries}
        self.scores: dict[tuple[View, str], Scores] = {}
        self.fewest = len(trainer.names)
        """Clients in a round."""
        self.moved: list[float] = []
        """How far each drawn canary moves the sum along its direction, in units of the sensitivity."""
        self._all = False
        self._last: tuple[Axes, dict[View, dict[Key, float]]] | None = None

    def play(self) -> None:
        """One round of the program, then every adversary's scores."""
        theta, heard, scale = self.trainer.progress.model.theta, self._heard, self.trainer.params.sensitivity
        if self.trainer.progress.round % _CHOSEN_FOR == 0:
            choose(list(self._canaries.values()), self._gradients, theta)
        for key, canary in self._canaries.items():
            canary.present, canary.asked = self.present[key], False
        self.trainer.play()
        self.fewest = min(self.fewest, len(heard.sent))
        moves, without = self._moves(theta)
        axes = Axes(list(self._canaries), self._basis, moves)
        self.moved += [axes.length(key, move) / scale for key, move in moves.items()]
        signal = {key: axes.length(key, heard.decoded(heard.sent[key[0]] - without[key])) for key in moves}
        here = [key for key in self._canaries if key[0] in heard.sent]
        seen: dict[View, dict[Key, float]] = {}
        for view, law in self._laws.items():
            noise = heard.noise(view, axes)
            seen[view] = {key: (noise[key] + signal.get(key, 0.0)) / scale for key in here}
            for test, length in ((ONE_ROUND, 1), (STRETCH, stretch(law)), (WHOLE_RUN, None)):
                self._add(view, test, seen[view], law, length)
            if view.role is not None:
                own = axes.along(heard.own_noise(view.role))
                again = {key: z - own[key] / scale for key, z in seen[view].items()}
                self._add(view, OWN_NOISE, again, doubled(law), stretch(doubled(law)))
        self._less_next_noise(axes, seen)

    def _less_next_noise(self, here: Axes, seen: dict[View, dict[Key, float]]) -> None:
        """Every second round: what was seen in the one before, less this one's noise along the same directions."""
        if self._last is None:
            self._last = here, seen
            return
        (axes, before), scale = self._last, self.trainer.params.sensitivity
        for view, law in self._laws.items():
            noise = self._heard.noise(view, axes)
            difference = {key: z - noise[key] / scale for key, z in before[view].items() if key in noise}
            self._add(view, NEXT_NOISE, difference, doubled(law), stretch(doubled(law)))
        self._last = None

    def _add(self, view: View, test: str, z: dict[Key, float], law: Mechanism, length: int | None) -> None:
        scores = self.scores.setdefault((view, test), Scores(length))
        values = score(np.array(list(z.values())), law)
        for key, value in zip(z, values.tolist(), strict=True):
            scores.add(key, value)

    def _moves(self, theta: Floats) -> tuple[dict[Key, Floats], dict[Key, Grid]]:
        """How each canary that was drawn moves its client's update, all else being equal: the program's own answer.

        Returns:
            The moves, and what the client would have sent without that canary.
        """
        heard, drawn = self._heard, defaultdict[str, list[Key]](list)
        for key, canary in self._canaries.items():
            if canary.asked and key[0] in heard.sent:
                drawn[key[0]].append(key)
        moves, without = dict[Key, Floats](), dict[Key, Grid]()
        while drawn:
            turned = [keys.pop() for keys in drawn.values()]
            drawn = defaultdict(list, {client: keys for client, keys in drawn.items() if keys})
            out, inside = self._worlds(turned, theta)
            for key in turned:
                if (out[key[0]] != inside[key[0]]).any():
                    moves[key], without[key] = heard.decoded(inside[key[0]] - out[key[0]]), out[key[0]]
        return moves, without

    def _worlds(self, turned: list[Key], theta: Floats) -> tuple[dict[str, Grid], dict[str, Grid]]:
        """What the clients of these canaries, one each, would send in this round without and with them.

        These clients alone answer again; all of the round's, where what they draw at random depends on who else does.
        """
        worlds = self._answers(turned, theta, present=False), self._answers(turned, theta, present=True)
        again = {key[0]: worlds[self.present[key]][key[0]] for key in turned}
        if not self._all and any(np.abs(again[name] - self._heard.sent[name]).max() > _ROUNDING for name in again):
            self._all = True
            return self._worlds(turned, theta)
        return worlds

    def _answers(self, turned: list[Key], theta: Floats, *, present: bool) -> dict[str, Grid]:
        names = tuple(self._heard.sent) if self._all else tuple(name for name, _ in turned)
        for key in turned:
            self._canaries[key].present = present
        found: dict[str, Grid] = {}
        for group in self.trainer.clients.updates(self._heard.round, names, theta):
            found |= group.encoded
        for key in turned:
            self._canaries[key].present = self.present[key]
        return found
