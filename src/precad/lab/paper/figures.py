"""The paper's figures, panel by panel, from the rows that there are."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from precad.lab.paper import plan
from precad.lab.paper.plan import EPOCH, Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import Row, RowFile, spread
from precad.plotting import new_figure, save_figure
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary

TITLES: dict[Dataset, str] = {"mnist": "(a) MNIST", "cifar10": "(b) CIFAR-10"}
PERCENT, MILLI = 100.0, 1000.0

_COLOURS = ("tab:blue", "tab:orange", "tab:green")
_STYLES = {"plain": "k-^", "ldp": "--s", "precad": "-o"}
_TIMED = {"non-private": "k-^", "LDP": "--s", "PRECAD, no validation": "-o", "PRECAD, validation by proof": "-.o"}
"""The curves of Figure 3, right, in the order of the runs that are timed."""


def draw_figure_2(scale: Scale, rows: RowFile, path: Path) -> None:
    """ε by epoch, as the paper accounts it and rigorously (dotted); PRECAD's accuracy by epoch, on MNIST."""
    title, scale = "Figure 2: privacy and accuracy of PRECAD by epoch", replace(scale, datasets=("mnist",))
    with _figure(title, scale, plan.figure_2(scale), rows, path) as panels:
        left, right = panels["mnist"]
        for sigma, colour in zip(scale.sigmas, _COLOURS, strict=False):
            _draw_epsilons(left, sigma, scale.rounds["mnist"], colour)
            runs = [plan.clean(scale, "mnist", Method("precad", sigma), 100, seed) for seed in scale.seeds]
            looks = defaultdict[int, list[float]](list)
            for row in rows.found(runs):
                for at, accuracy in zip(row.rounds, row.accuracy, strict=True):
                    looks[at].append(accuracy)
            marks = sorted(looks)
            _line(right, [at / EPOCH for at in marks], [looks[at] for at in marks], f"σ = {sigma:g}", "-o", colour)
        left.set(xlabel="epoch", ylabel="ε (δ = 1e-5)", ylim=(0, None))
        right.set(xlabel="epoch", ylabel="test accuracy (%)")


def draw_figure_3(scale: Scale, rows: RowFile, path: Path) -> None:
    """Accuracy and time of a round, by n."""
    xs = scale.clients
    with _figure("Figure 3: accuracy and time by n", scale, plan.figure_3(scale), rows, path) as panels:
        for dataset, (left, right) in panels.items():
            for method in scale.methods:
                found = [rows.found(plan.clean(scale, dataset, method, n, seed) for seed in scale.seeds) for n in xs]
                accuracies = [[row.final_accuracy for row in some] for some in found]
                _line(left, xs, accuracies, method.label, *_look(scale, method))
            runs = zip(*(plan.time_runs(scale, dataset, n) for n in xs), strict=True)
            for (label, style), timed in zip(_TIMED.items(), runs, strict=True):
                times = [[row.round_seconds for row in rows.found([run])] for run in timed]
                _line(right, xs, times, label, style, None, MILLI)
            left.set(title=TITLES[dataset], xticks=xs, xlabel="n, clients", ylabel="test accuracy (%)")
            right.set(title=TITLES[dataset], xticks=xs, xlabel="n, clients", ylabel="time of a round (ms)")
            right.set_ylim(0, None)


def draw_figure_4(scale: Scale, rows: RowFile, path: Path) -> None:
    """Main and backdoor accuracy, by K."""
    title = f"Figure 4: accuracy by K, C = {plan.BOUND:g}"
    with _figure(title, scale, plan.figure_4(scale), rows, path) as panels:
        for dataset, pair in panels.items():
            xs = scale.attackers[dataset]
            for method in scale.methods:
                found = [rows.found(plan.attacked(scale, dataset, method, k, seed) for seed in scale.seeds) for k in xs]
                _draw_accuracies(pair, xs, found, method.label, *_look(scale, method))
            _label_accuracies(pair, dataset, xs, "K, backdoor clients")


def draw_figure_5(scale: Scale, rows: RowFile, path: Path) -> None:
    """Main and backdoor accuracy of PRECAD, by C."""
    xs = scale.bounds
    with _figure("Figure 5: accuracy of PRECAD by C", scale, plan.figure_5(scale), rows, path) as panels:
        for dataset, pair in panels.items():
            for k, style in zip(scale.bound_attackers[dataset], ("-o", "--s"), strict=False):
                for sigma, colour in zip(scale.sigmas, _COLOURS, strict=False):
                    method, seeds = Method("precad", sigma), scale.seeds
                    found = [
                        rows.found(plan.attacked(scale, dataset, method, k, seed, c) for seed in seeds) for c in xs
                    ]
                    _draw_accuracies(pair, xs, found, f"K = {k}, σ = {sigma:g}", style, colour)
            _label_accuracies(pair, dataset, xs, "C, client-level bound")


def _draw_epsilons(axes: Any, sigma: float, rounds: int, colour: str) -> None:
    marks = sorted({max(1, round(rounds * i / 12)) for i in range(1, 13)})
    server, clients = ([plan.paper_epsilon(adversary, sigma, at) for at in marks] for adversary in Adversary)
    ours = [epsilon(plan.terms(sigma), Adversary.SERVER, plan.participations(at)) for at in marks]
    curves = (
        (server, "-", "server"),
        (clients, "--", "clients"),
        (ours, ":", "server, rigorously, for q·T rounds of a client"),
    )
    for curve, style, name in curves:
        axes.plot([at / EPOCH for at in marks], curve, style, color=colour, label=f"{name}, σ = {sigma:g}")


def _draw_accuracies(
    pair: Any, xs: Sequence[float], found: list[list[Row]], label: str, style: str, colour: str | None
) -> None:
    _line(pair[0], xs, [[row.final_accuracy for row in some] for some in found], label, style, colour)
    _line(pair[1], xs, [[row.final_backdoor for row in some] for some in found], label, style, colour)


def _look(scale: Scale, method: Method) -> tuple[str, str | None]:
    """The style and the colour of a method's curve."""
    colour = None if method.protocol == "plain" else _COLOURS[scale.sigmas.index(method.sigma)]
    return _STYLES[method.protocol], colour


def _line(
    axes: Any,
    xs: Sequence[float],
    samples: Sequence[Sequence[float]],
    label: str,
    style: str,
    colour: str | None,
    factor: float = PERCENT,
) -> None:
    """The means, and bars from the lowest seed to the highest: a backdoor that comes or not has no normal error."""
    points = [(x, value) for x, value in zip(xs, map(spread, samples), strict=True) if value is not None]
    if points:
        means = [factor * value.mean for _, value in points]
        below = [factor * max(0.0, value.mean - value.lowest) for _, value in points]  # a mean is rounded
        above = [factor * max(0.0, value.highest - value.mean) for _, value in points]
        extra = {} if colour is None else {"color": colour}
        axes.errorbar([x for x, _ in points], means, (below, above), fmt=style, ms=3, capsize=2, label=label, **extra)


def _label_accuracies(pair: Any, dataset: Dataset, xs: Sequence[float], xlabel: str) -> None:
    for axes, kind in zip(pair, ("main", "backdoor"), strict=True):
        axes.set(title=TITLES[dataset], xticks=xs, xlabel=xlabel, ylabel=f"{kind} accuracy (%)")
    pair[1].set_ylim(-5, 105)


@contextmanager
def _figure(
    title: str, scale: Scale, runs: list[Experiment], rows: RowFile, path: Path
) -> Iterator[Mapping[Dataset, Any]]:
    """A figure with two panels for each data set, to draw on; it is written at the end of the block."""
    count = len(scale.datasets)
    figure = new_figure(10, 3.6 * count)
    figure.suptitle(f"{title}\n{_made(scale, runs, rows)}", fontsize=10)
    yield dict(zip(scale.datasets, figure.subplots(count, 2, squeeze=False), strict=True))
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7, handlelength=4)
        else:
            axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
    save_figure(figure, path)


def _made(scale: Scale, runs: list[Experiment], rows: RowFile) -> str:
    """What every figure says of its runs."""
    parts = []
    for dataset in scale.datasets:
        every = plan.unique(run for run in runs if run.config.task.dataset == dataset)
        if every:
            made = [run for run in every if rows.get(run) is not None]
            seeds = len({run.config.seed for run in made})
            number = f"{len(made)} of {len(every)} runs of {scale.rounds[dataset]} rounds"
            parts.append(f"{dataset}: {number}, {seeds} seed{'s' * (seeds != 1)}")
    word = "QUICK RUN, not the paper's length: " if scale.quick else ""
    return word + "; ".join(parts)
