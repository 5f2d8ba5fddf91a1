"""The paper's figures, panel by panel, from the rows that there are."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from precad.files import whole_file
from precad.lab.paper import plan
from precad.lab.paper.plan import CLIENT_RATE, DELTA, EPOCH, RECORD_RATE, Dataset, Experiment, Method, Scale
from precad.lab.paper.rows import Row, RowFile, Spread, spread
from precad.privacy.accounting import GdpAccountant, paper_clients_epsilon
from precad.privacy.epsilon import epsilon
from precad.privacy.terms import Adversary

TITLES: dict[Dataset, str] = {"mnist": "(a) MNIST", "cifar10": "(b) CIFAR-10"}
PERCENT = 100.0

_COLOURS = ("tab:blue", "tab:orange", "tab:green")
_STYLES = {"plain": "k-^", "ldp": "--s", "precad": "-o"}


def draw_figure_2(scale: Scale, rows: RowFile, path: Path) -> None:
    """ε by epoch, as the paper accounts it and rigorously (dotted); PRECAD's accuracy by epoch, on MNIST."""
    made = _made(scale, plan.figure_2(scale), rows)
    figure, ((left, right),) = _panels(1, "Figure 2: privacy and accuracy of PRECAD by epoch", made)
    rounds = scale.rounds["mnist"]
    for sigma, colour in zip(scale.sigmas, _COLOURS, strict=False):
        _draw_epsilons(left, sigma, rounds, colour)
        runs = [plan.clean(scale, "mnist", Method("precad", sigma), 100, seed) for seed in scale.seeds]
        looks = defaultdict[int, list[float]](list)
        for row in rows.found(runs):
            for at, accuracy in zip(row.rounds, row.accuracy, strict=True):
                looks[at].append(accuracy)
        epochs, curve = [at / EPOCH for at in sorted(looks)], [spread(looks[at]) for at in sorted(looks)]
        _line(right, epochs, curve, f"σ = {sigma:g}", "-o", colour)
    left.set(xlabel="epoch", ylabel="ε (δ = 1e-5)", ylim=(0, None))
    right.set(xlabel="epoch", ylabel="test accuracy (%)")
    _finish(figure, [left, right], path)


def draw_figure_3(scale: Scale, rows: RowFile, path: Path) -> None:
    """Accuracy and time of a round, by n."""
    made = _made(scale, plan.figure_3(scale), rows)
    figure, panels = _panels(len(scale.datasets), "Figure 3: accuracy and time by n", made)
    for dataset, (left, right) in zip(scale.datasets, panels, strict=True):

        def runs(method: Method, n: float, dataset: Dataset = dataset) -> list[Experiment]:
            return [plan.clean(scale, dataset, method, int(n), seed) for seed in scale.seeds]

        _draw_methods(left, scale, rows, scale.clients, runs, lambda row: row.final_accuracy)
        labels = ("non-private", "LDP", "PRECAD, no validation", "PRECAD, validation by proof")
        for index, (label, style) in enumerate(zip(labels, ("k-^", "--s", "-o", "-.o"), strict=True)):
            found = [rows.found([plan.time_runs(scale, dataset, n)[index]]) for n in scale.clients]
            times = [spread([row.round_seconds for row in some]) for some in found]
            _line(right, scale.clients, times, label, style, None, 1000.0)
        _label(left, dataset, scale.clients, "n, clients", "test accuracy (%)")
        _label(right, dataset, scale.clients, "n, clients", "time of a round (ms)")
        right.set_ylim(0, None)
    _finish(figure, [axes for pair in panels for axes in pair], path)


def draw_figure_4(scale: Scale, rows: RowFile, path: Path) -> None:
    """Main and backdoor accuracy, by K."""
    made = _made(scale, plan.figure_4(scale), rows)
    figure, panels = _panels(len(scale.datasets), f"Figure 4: accuracy by K, C = {plan.BOUND:g}", made)
    for dataset, (left, right) in zip(scale.datasets, panels, strict=True):

        def runs(method: Method, attackers: float, dataset: Dataset = dataset) -> list[Experiment]:
            return [plan.attacked(scale, dataset, method, int(attackers), seed) for seed in scale.seeds]

        at = scale.attackers[dataset]
        _draw_methods(left, scale, rows, at, runs, lambda row: row.final_accuracy)
        _draw_methods(right, scale, rows, at, runs, lambda row: row.final_backdoor)
        _label_accuracies(left, right, dataset, at, "K, backdoor clients")
    _finish(figure, [axes for pair in panels for axes in pair], path)


def draw_figure_5(scale: Scale, rows: RowFile, path: Path) -> None:
    """Main and backdoor accuracy of PRECAD, by C."""
    made = _made(scale, plan.figure_5(scale), rows)
    figure, panels = _panels(len(scale.datasets), "Figure 5: accuracy of PRECAD by C", made)
    for dataset, (left, right) in zip(scale.datasets, panels, strict=True):
        for attackers, style in zip(scale.bound_attackers[dataset], ("-o", "--s"), strict=False):
            for sigma, colour in zip(scale.sigmas, _COLOURS, strict=False):
                method = Method("precad", sigma)
                found = [
                    rows.found([plan.attacked(scale, dataset, method, attackers, seed, bound) for seed in scale.seeds])
                    for bound in scale.bounds
                ]
                label = f"K = {attackers}, σ = {sigma:g}"
                main = [spread([row.final_accuracy for row in some]) for some in found]
                backdoor = [spread([row.final_backdoor for row in some]) for some in found]
                _line(left, scale.bounds, main, label, style, colour)
                _line(right, scale.bounds, backdoor, label, style, colour)
        _label_accuracies(left, right, dataset, scale.bounds, "C, client-level bound")
    _finish(figure, [axes for pair in panels for axes in pair], path)


def _draw_epsilons(axes: Any, sigma: float, rounds: int, colour: str) -> None:
    marks = sorted({max(1, round(rounds * i / 12)) for i in range(1, 13)})
    epochs = [at / EPOCH for at in marks]
    terms, counts = plan.terms(sigma), [plan.participations(at) for at in marks]
    paper = [GdpAccountant().epsilon(terms.mechanism(Adversary.SERVER, count), DELTA) for count in counts]
    clients = [
        paper_clients_epsilon(sigma=sigma, record_rate=RECORD_RATE, client_rate=CLIENT_RATE, rounds=at, delta=DELTA)
        for at in marks
    ]
    ours = [epsilon(terms, Adversary.SERVER, count) for count in counts]
    axes.plot(epochs, paper, "-", color=colour, label=f"server, σ = {sigma:g}")
    axes.plot(epochs, clients, "--", color=colour, label=f"clients, σ = {sigma:g}")
    axes.plot(epochs, ours, ":", color=colour, label=f"server, rigorously, σ = {sigma:g}")


def _draw_methods(
    axes: Any,
    scale: Scale,
    rows: RowFile,
    at: Sequence[int],
    runs: Callable[[Method, float], list[Experiment]],
    value: Callable[[Row], float],
) -> None:
    for method in scale.methods:
        values = [spread([value(row) for row in rows.found(runs(method, x))]) for x in at]
        colour = None if method.protocol == "plain" else _COLOURS[scale.sigmas.index(method.sigma)]
        _line(axes, at, values, method.label, _STYLES[method.protocol], colour)


def _line(
    axes: Any,
    xs: Sequence[float],
    values: Sequence[Spread | None],
    label: str,
    style: str,
    colour: str | None,
    factor: float = PERCENT,
) -> None:
    """The means, and bars from the lowest seed to the highest: a backdoor that comes or not has no normal error."""
    points = [(x, value) for x, value in zip(xs, values, strict=True) if value is not None]
    if points:
        means = [factor * value.mean for _, value in points]
        below = [factor * (value.mean - value.lowest) for _, value in points]
        above = [factor * (value.highest - value.mean) for _, value in points]
        extra = {} if colour is None else {"color": colour}
        axes.errorbar([x for x, _ in points], means, (below, above), fmt=style, ms=3, capsize=2, label=label, **extra)


def _label_accuracies(left: Any, right: Any, dataset: Dataset, xs: Sequence[float], xlabel: str) -> None:
    _label(left, dataset, xs, xlabel, "main accuracy (%)")
    _label(right, dataset, xs, xlabel, "backdoor accuracy (%)")
    right.set_ylim(-5, 105)


def _label(axes: Any, dataset: Dataset, xs: Sequence[float], xlabel: str, ylabel: str) -> None:
    axes.set(title=TITLES[dataset], xticks=xs, xlabel=xlabel, ylabel=ylabel)


def _panels(count: int, title: str, made: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(10, 3.6 * count), layout="constrained")
    figure.suptitle(f"{title}\n{made}", fontsize=10)
    return figure, figure.subplots(count, 2, squeeze=False)


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


def _finish(figure: Figure, panels: list[Any], path: Path) -> None:
    for axes in panels:
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7, handlelength=4)
        else:
            axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
    with whole_file(path) as out:
        figure.savefig(out, dpi=150, format="png")
