"""The parts of one run's page, in the order in which they are read."""

from html import escape

from precad.errors import Reason
from precad.report import figures, grid
from precad.report import formatting as fmt
from precad.report.chart import MOST_POINTS, Chart, Series, draw, thinned
from precad.report.participation import participation, rejections
from precad.report.run import RoundFigures, Run

MOST_LINES = 60
"""Of the table of figures."""


def learning(run: Run) -> str:
    """Accuracy and loss."""
    charts = learning_charts([run])
    lines = run.evaluated
    every = -(-len(lines) // MOST_LINES) if lines else 1
    chosen = [line for i, line in enumerate(lines) if (len(lines) - 1 - i) % every == 0]
    rows = [
        (
            fmt.data(line.round, f"{line.round:,}"),
            fmt.data(line.accuracy, fmt.percent(line.accuracy)),
            fmt.data(line.loss, fmt.loss(line.loss)),
            fmt.data(line.epsilon_server, fmt.epsilon(line.epsilon_server)),
            fmt.data(line.epsilon_clients, fmt.epsilon(line.epsilon_clients)),
        )
        for line in chosen
    ]
    head = ("round", "test accuracy", "test loss", "ε server", "ε clients")
    numbers = fmt.details("numbers", "The numbers", fmt.table(head, rows)) if rows else ""
    backdoor = run.summary.backdoor_accuracy if run.summary else None
    said = "" if backdoor is None else fmt.paragraph(f"Backdoor accuracy at the end: {fmt.percent(backdoor)}.")
    return fmt.section("learning", "What the model learnt", f"<div class='pair'>{charts}</div>{said}{numbers}")


def learning_charts(runs: list[Run]) -> str:
    """Accuracy and loss over rounds, the runs over each other."""
    many = len(runs) > 1
    accuracy = [_series(run, "accuracy", run.name if many else "test accuracy", i) for i, run in enumerate(runs)]
    loss = [_series(run, "loss", run.name if many else "test loss", i if many else 1) for i, run in enumerate(runs)]
    return draw(Chart("accuracy", "Test accuracy", "accuracy", tuple(accuracy), percent=True)) + draw(
        Chart("loss", "Test loss", "loss", tuple(loss), from_zero=True)
    )


def privacy(run: Run) -> str:
    """Both ε over rounds, and which one to quote."""
    unit = "one record of a client" if run.settings.unit.value == "record" else "all records of a client"
    most = (
        "for as many rounds as the task lets a client take part in, whoever did: this page names and counts nobody"
        if run.settings.hidden
        else "for the client that took part most often. No figure here counts on the sampling of clients, so it may be "
        "known who took part"
    )
    said = [
        _HOLDS.get(run.settings.protocol, ""),
        f"For {unit} that is replaced by a null one, at δ = {fmt.small(run.settings.delta)}, by an accountant whose "
        f"figures are upper bounds, {most}.",
    ]
    text = "".join(fmt.paragraph(line, "lead") for line in said)
    return fmt.section(
        "privacy", "What it cost in privacy", f"<div class='pair'>{epsilon_chart([run])}<div>{text}</div></div>"
    )


def epsilon_chart(runs: list[Run]) -> str:
    """ε against both adversaries, and the budgets."""
    many, series = len(runs) > 1, []
    for i, run in enumerate(runs):
        named = f"{run.name}, " if many else ""
        series.append(_series(run, "epsilon_server", f"{named}against a server", i))
        series.append(_series(run, "epsilon_clients", f"{named}against clients", i if many else 1, dashed=True))
    budgets = dict.fromkeys(run.settings.budget for run in runs if run.settings.budget is not None)
    levels = tuple((f"budget ε = {budget:g}", budget) for budget in budgets)
    return draw(Chart("epsilon", "ε by round", "ε", tuple(series), levels, from_zero=True))


def clients(run: Run) -> str:
    """Who was accepted, and who was not."""
    title = "Who was accepted"
    if run.settings.hidden:
        hidden = (
            "This task hides its participants: a grid or a count of who took part would void the amplification by the "
            "sampling of clients that hiding them is for (PROTOCOL §7a), so neither is shown."
        )
        return fmt.section("clients", title, fmt.paragraph(hidden, "lead"))
    taken, bad = participation(run), rejections(run)
    reasons = sorted({reason for line in run.rounds for reason in line.rejected.values()})
    said = "".join(
        fmt.paragraph(f"Rejected as {reason}: {Reason[reason.upper()].value}.", "lead")
        for reason in reasons
        if reason.upper() in Reason.__members__
    )
    sent = sum(line.selected for line in run.rounds)
    count = (
        f"<p>{fmt.data(sent, f'{sent:,}')} updates were sent, "
        f"{fmt.data(bad.total(), f'{bad.total():,}')} of them rejected.</p>"
    )
    if taken is None:
        why = (
            "Which clients took part is recorded only where there is a ledger: for the rounds of protocol precad."
            if run.rounds
            else "No round was played yet."
        )
        rows = [(escape(name), fmt.data(times, f"{times:,}")) for name, times in sorted(bad.items())]
        listed = fmt.table(("client", "rejected"), rows) if rows else ""
        return fmt.section("clients", title, count + said + fmt.paragraph(why, "note") + listed)
    table = fmt.details(
        "client-table", f"All {len(taken.clients):,} clients", grid.client_table(taken), opened=len(taken.clients) <= 12
    )
    return fmt.section("clients", title, count + said + grid.draw_grid(taken) + table)


def noise(run: Run) -> str:
    """The opened sums against the noise in them."""
    found = figures.signal(run)
    if found is None:
        why = (
            "How much noise is in a sum is not known for this run."
            if figures.noise_norms(run) is None
            else "The norms of the opened sums are not recorded, so that the noise stands alone."
            if run.rounds
            else "No round was played yet."
        )
        said = fmt.paragraph(why, "lead")
    elif found.noise == 0:
        said = fmt.paragraph("There is no noise in the sums: nothing is private.", "lead")
    else:
        left = (
            "what is left is within the play of chance"
            if found.signal is None
            else f"what is left, about {found.signal:.4g}, is the signal, "
            f"{100 * found.signal / found.noise:.3g}\u00a0% of the noise"
        )
        said = fmt.paragraph(
            f"A sum as the servers opened it has norm {found.norm:.5g} (root mean square), where noise alone would "
            f"have {found.noise:.5g}; {left}. The model learns because noise points elsewhere in every round and "
            "the signal does not.",
            "lead",
        )
    return fmt.section(
        "noise", "Noise against signal", f"<div class='pair'>{noise_chart([run])}<div>{said}</div></div>"
    )


def noise_chart(runs: list[Run]) -> str:
    """‖opened sum‖ and √E‖noise‖² over rounds."""
    many, series, width = len(runs) > 1, list[Series](), 1
    for i, run in enumerate(runs):
        named, colour = (f"{run.name}, ", i) if many else ("", 0)
        opened = [(line.round, line.update_norm) for line in run.rounds if line.update_norm is not None]
        x, y, each = thinned([x for x, _ in opened], [y for _, y in opened])
        width = max(width, each)
        series.append(Series(f"{named}opened sum", x, y, colour))
        expected = figures.noise_norms(run)
        if expected is not None:
            x, y, _ = thinned([line.round for line in run.rounds], expected)
            series.append(Series(f"{named}noise, expected", x, y, colour if many else 1, dashed=True))
    note = f"A point is the mean of {'up to ' if many else ''}{width} rounds." if width > 1 else ""
    return draw(
        Chart(
            "norms",
            "Norm of the opened sum, and of the noise in it",
            "norm",
            tuple(series),
            last=max(run.done for run in runs),
        ),
        note,
    )


def certificate(run: Run) -> str:
    """Robustness in plain words."""
    found = figures.certificate(run)
    lines = "".join(fmt.paragraph(line, "lead") for line in found.reasons)
    command = "" if found.command is None else f"<pre><code>{escape(found.command)}</code></pre>"
    return fmt.section(
        "certificate",
        "What malicious clients can do",
        fmt.paragraph(found.headline, "headline") + lines + command,
    )


_HOLDS = {
    "precad": "Quote the ε against a server: it holds even if one server and all other clients work together. The ε "
    "against clients holds while both servers are honest.",
    "cdp": "One trusted server sees every update: the ε holds against clients alone.",
    "ldp": "Each client adds its own noise: the ε holds against everybody.",
    "ddp": "The ε holds against everybody, if enough of the selected clients are honest and only their sum is seen.",
    "plain": "Nothing is private in this run.",
}


def _series(run: Run, figure: str, name: str, colour: int, *, dashed: bool = False) -> Series:
    def value(line: RoundFigures) -> float | None:
        found: float | None = getattr(line, figure)
        return found

    points = [(line.round, found) for line in run.rounds if (found := value(line)) is not None]
    every = max(1, -(-len(points) // MOST_POINTS))
    chosen = points[(len(points) - 1) % every :: every]  # figures as they were taken, the last among them
    return Series(name, [x for x, _ in chosen], [y for _, y in chosen], colour, dashed)
