"""The parts of one run's page, in the order in which they are read."""

from html import escape

from precad.errors import Reason
from precad.report import findings, grid, words
from precad.report.chart import Chart, Series, draw, thinned
from precad.report.participation import participation, rejections
from precad.report.run import RoundFigures, Run

MOST_LINES = 60
"""Of the table of figures."""


def learning(run: Run) -> str:
    """Accuracy and loss."""
    charts = learning_charts([run])
    lines = run.looked
    every = -(-len(lines) // MOST_LINES) if lines else 1
    chosen = [line for i, line in enumerate(lines) if (len(lines) - 1 - i) % every == 0]
    rows = [
        (
            words.data(line.round, f"{line.round:,}"),
            words.data(line.accuracy, words.percent(line.accuracy)),
            words.data(line.loss, "–" if line.loss is None else f"{line.loss:.4f}"),
            words.data(line.epsilon_server, words.epsilon(line.epsilon_server)),
            words.data(line.epsilon_clients, words.epsilon(line.epsilon_clients)),
        )
        for line in chosen
    ]
    head = ("round", "test accuracy", "test loss", "ε server", "ε clients")
    numbers = words.details("numbers", "The numbers", words.table(head, rows)) if rows else ""
    backdoor = run.summary.backdoor_accuracy if run.summary else None
    said = "" if backdoor is None else words.paragraph(f"Backdoor accuracy at the end: {words.percent(backdoor)}.")
    return words.section("learning", "What the model learnt", f"<div class='pair'>{charts}</div>{said}{numbers}")


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
    last = run.looked[-1] if run.looked else None
    unit = "one record of a client" if run.setting.unit.value == "record" else "all records of a client"
    said = [
        f"For {unit} that is replaced by a null one, at δ = {run.setting.delta:g}, by an accountant whose figures are "
        "upper bounds, for the client that took part most often. No figure here counts on the sampling of clients, so "
        "it may be known who took part."
        if not run.setting.hidden
        else f"For {unit}, at δ = {run.setting.delta:g}. The figure against clients counts on nobody knowing who took "
        "part: this page therefore names nobody.",
        "Quote the ε against a server: it holds even if one server and all other clients work together. The ε against "
        "clients holds if both servers are honest.",
    ]
    if last is not None and last.epsilon_server is None:
        said.append(f"Against a server nothing protects in this run (protocol {run.setting.protocol}).")
    text = "".join(words.paragraph(line, "lead") for line in said)
    return words.section("privacy", "What it cost in privacy", f"<div class='pair'>{epsilon_chart([run])}<div>{text}</div></div>")


def epsilon_chart(runs: list[Run]) -> str:
    """ε against both adversaries, and the budgets."""
    many, series = len(runs) > 1, []
    for i, run in enumerate(runs):
        named = f"{run.name}, " if many else ""
        series.append(_series(run, "epsilon_server", f"{named}against a server", i))
        series.append(_series(run, "epsilon_clients", f"{named}against clients", i if many else 1, dashed=True))
    budgets = dict.fromkeys(run.setting.budget for run in runs if run.setting.budget is not None)
    levels = tuple((f"budget ε = {budget:g}", budget) for budget in budgets)
    return draw(Chart("epsilon", "ε by round", "ε", tuple(series), levels, from_zero=True))


def clients(run: Run) -> str:
    """Who was accepted, and who was not."""
    title = "Who was accepted"
    if run.setting.hidden:
        hidden = (
            "This task hides its participants: a grid or a count of who took part would void the amplification that "
            "its ε against clients rests on (PROTOCOL §7a), so neither is shown."
        )
        return words.section("clients", title, words.paragraph(hidden, "lead"))
    taken, bad = participation(run), rejections(run)
    reasons = sorted({reason for line in run.rounds for reason in line.rejected.values()})
    said = "".join(
        words.paragraph(f"Rejected as {reason}: {Reason[reason.upper()].value}.", "lead")
        for reason in reasons
        if reason.upper() in Reason.__members__
    )
    sent = sum(line.selected for line in run.rounds)
    count = (
        f"<p>{words.data(sent, f'{sent:,}')} updates were sent, "
        f"{words.data(bad.total(), f'{bad.total():,}')} of them rejected.</p>"
    )
    if taken is None:
        why = (
            "Which clients took part is recorded only where there is a ledger: for the rounds of protocol precad."
            if run.rounds
            else "No round was played yet."
        )
        rows = [(escape(name), words.data(times, f"{times:,}")) for name, times in sorted(bad.items())]
        listed = words.table(("client", "rejected"), rows) if rows else ""
        return words.section("clients", title, count + said + words.paragraph(why, "note") + listed)
    table = words.details(
        "client-table", f"All {len(taken.clients):,} clients", grid.client_table(taken), opened=len(taken.clients) <= 12
    )
    return words.section("clients", title, count + said + grid.draw_grid(taken) + table)


def noise(run: Run) -> str:
    """The opened sums against the noise in them."""
    found = findings.signal(run)
    if found is None:
        said = words.paragraph("How much noise is in a sum is not known for this run.", "lead")
    elif found.noise == 0:
        said = words.paragraph("There is no noise in the sums: nothing is private.", "lead")
    else:
        left = (
            "what is left is within the play of chance"
            if found.signal is None
            else f"what is left, about {found.signal:.4g}, is the signal: {100 * found.signal / found.noise:.3g} % of the noise"
        )
        said = words.paragraph(
            f"A sum as the servers opened it has norm {found.norm:.5g} (root mean square), where noise alone would have "
            f"{found.noise:.5g}; {left}. The model learns because noise points elsewhere in every round and the signal "
            "does not.",
            "lead",
        )
    return words.section("noise", "Noise against signal", f"<div class='pair'>{noise_chart([run])}<div>{said}</div></div>")


def noise_chart(runs: list[Run]) -> str:
    """‖opened sum‖ and √E‖noise‖² over rounds."""
    many, series, width = len(runs) > 1, [], 1
    for i, run in enumerate(runs):
        named, colour = (f"{run.name}, ", i) if many else ("", 0)
        opened = [(line.round, line.update_norm) for line in run.rounds if line.update_norm is not None]
        x, y, width = thinned([x for x, _ in opened], [y for _, y in opened])
        series.append(Series(f"{named}opened sum", x, y, colour))
        expected = findings.noise_norms(run)
        if expected is not None:
            x, y, _ = thinned([line.round for line in run.rounds], expected)
            series.append(Series(f"{named}noise, expected", x, y, colour if many else 1, dashed=True))
    note = f"A point is the mean of {width} rounds." if width > 1 else ""
    return draw(Chart("norms", "Norm of the opened sum, and of the noise in it", "norm", tuple(series)), note)


def certificate(run: Run) -> str:
    """Robustness in plain words."""
    found = findings.certificate(run)
    lines = "".join(words.paragraph(line, "lead") for line in found.reasons)
    command = "" if found.command is None else f"<pre><code>{escape(found.command)}</code></pre>"
    return words.section("certificate", "What malicious clients can do", words.paragraph(found.headline, "headline") + lines + command)


def cost(run: Run) -> str:
    """Time and bytes, by stage, against plain training."""
    return words.section("cost", "What it cost in time and bytes", _time(run) + _bytes(run))


def _time(run: Run) -> str:
    stages, usual = findings.stages(run), findings.usual_round(run)
    if usual is None:
        return words.paragraph("No round was played yet.", "note")
    whole = sum(stage.total for stage in stages) or 1.0
    rows = [
        (
            escape(_STAGES.get(stage.name, stage.name)),
            words.data(stage.usual, words.seconds(stage.usual)),
            words.data(stage.total, words.seconds(stage.total)),
            f"<svg class='bar' role='img' aria-label='{100 * stage.total / whole:.0f} %'><rect width='{100 * stage.total / whole:.1f}%' height='100%'/></svg>",
        )
        for stage in sorted(stages, key=lambda stage: -stage.total)
    ]
    rows.append(("all of a round", words.data(usual, words.seconds(usual)), words.seconds(whole), ""))
    table = words.table(("stage", "usual round", "whole run", "share"), rows)
    return "<h3>Time</h3>" + table + words.paragraph(_against_plain(run, usual), "note")


def _against_plain(run: Run, usual: float) -> str:
    measured = "The usual round is the median: the first one compiles."
    if run.setting.protocol == "plain":
        return f"{measured} This run is plain training."
    plain = run.summary.plain_seconds if run.summary else None
    if plain is not None:
        times = f"{words.seconds(plain)} a round, so this run took {usual / plain:.2f} times as long"
        return f"{measured} Plain training of the same model and clients, timed on this machine when the run ended: {times}."
    if run.finished:
        return f"{measured} Plain training was not timed in this run; a plain run beside it, or `precad bench training`, tells."
    return f"{measured} Plain training is timed when the run ends."


def _bytes(run: Run) -> str:
    kinds, plain = findings.traffic(run), findings.plain_bytes(run)
    if not kinds or plain is None:
        return words.paragraph("Bytes are known for protocol precad only.", "note")
    rows = [
        (escape(item.name), f"{words.data(item.each, words.size(item.each))} {item.unit}", words.data(item.whole, words.size(item.whole)))
        for item in kinds
    ]
    sent = sum(line.selected for line in run.rounds)
    rows.append(("plain training: client → server", f"{words.data(plain, words.size(plain))} a submission", words.data(plain * sent, words.size(plain * sent))))
    note = (
        "At most, by the formulas of `precad protocol`, which tests compare with real messages; in this run they were "
        "passed in memory. Sealing, TLS and the download of the model come on top. Plain: float32 entries."
    )
    return "<h3>Bytes</h3>" + words.table(("message", "each", "whole run"), rows) + words.paragraph(note, "note")


def configuration(run: Run) -> str:
    """Every parameter, the versions, where the randomness came from."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, key, value in run.setting.shown:
        groups.setdefault(name, []).append((key, value))
    seed = run.setting.seed
    made = [("precad", run.about.version or "not recorded"), *run.about.versions]
    made.append(("randomness", "the operating system" if seed is None else f"seed {seed}: not private"))
    groups["versions and randomness"] = made
    digests = [("configuration", run.config_digest or "not recorded")]
    if run.ledger is not None:
        digests.append(("last link of the ledger", run.ledger.last_link or "none: no round was counted"))
    tables = "".join(_small_table(name, rows) for name, rows in groups.items())
    listed = "".join(f"<li>{escape(name)} <code>{escape(value)}</code></li>" for name, value in digests)
    audit = f"<h3>Digests</h3><ul>{listed}</ul>"
    return words.section("configuration", "Configuration", f"<div class='config'>{tables}</div>{audit}")


def limits(run: Run) -> str:
    """What the page does not show."""
    lines = [
        "The accuracy is that of one run on one test set. Other randomness gives other figures, and choosing parameters by "
        "looking at results costs privacy that is not counted here.",
        "ε holds if the two servers do not work together, and for a client up to the number of rounds that it took part in. "
        "An ε is an upper bound on what can be learnt, not a measure of what was.",
        "Clients and servers shared one machine: the times are not those of a deployment.",
        "The signal is estimated from the norm of the opened sums, which the servers see anyway; nothing on this page was "
        "computed from a client's data except through the model and its test figures.",
        "The certificate is about expectations over the randomness of training, not about this one model.",
    ]
    if run.setting.seed is not None:
        lines.insert(0, "The noise came from a seed: whoever knows it can take the noise away. The ε above are those that the "
                        "same run would have with secret noise.")  # fmt: skip
    return words.section("limits", "What this page does not show", "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>")


_STAGES = {
    "gradients": "gradients: clients compute and clip",
    "protocol": "protocol: shares, proofs, both servers",
    "ledger": "ledger: waiting for the disk",
}


def _series(run: Run, figure: str, name: str, colour: int, *, dashed: bool = False) -> Series:
    def value(line: RoundFigures) -> float | None:
        found: float | None = getattr(line, figure)
        return found

    points = [(line.round, found) for line in run.rounds if (found := value(line)) is not None]
    x, y, _ = thinned([x for x, _ in points], [y for _, y in points])
    return Series(name, x, y, colour, dashed)


def _small_table(name: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><th scope='row'>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    return f"<div><h3>{escape(name)}</h3><table>{lines}</table></div>"
