"""The part of a page on time and bytes, against plain training."""

from html import escape

from precad.report import figures
from precad.report import formatting as fmt
from precad.report.run import Run


def cost(run: Run) -> str:
    """Time and bytes, by stage, against plain training."""
    return fmt.section(
        "cost",
        "What it cost in time and bytes",
        f"<div class='pair'><div>{_time(run)}</div><div>{_bytes(run)}</div></div>",
    )


def _time(run: Run) -> str:
    stages, usual = figures.stages(run), figures.usual_round(run)
    if usual is None:
        return "<h3>Time</h3>" + fmt.paragraph("Times are not recorded." if run.rounds else "No round yet.", "note")
    whole = sum(stage.total for stage in stages) or 1.0
    rows = [
        (
            escape(_STAGES.get(stage.name, stage.name)),
            fmt.data(stage.usual, fmt.seconds(stage.usual)),
            fmt.data(stage.total, fmt.seconds(stage.total)),
            _bar(stage.total / whole),
        )
        for stage in sorted(stages, key=lambda stage: -stage.total)
    ]
    rows.append(("all of a round", fmt.data(usual, fmt.seconds(usual)), fmt.seconds(whole), ""))
    table = fmt.table(("stage", "usual round", "whole run", "share"), rows, "numbers stages")
    return "<h3>Time</h3>" + table + fmt.paragraph(_against_plain(run, usual), "note")


def _against_plain(run: Run, usual: float) -> str:
    measured = "The usual round is the median: the first one compiles."
    if run.settings.protocol == "plain":
        return f"{measured} This run is plain training."
    plain = run.summary.plain_seconds if run.summary else None
    if plain is not None:
        times = f"{fmt.seconds(plain)} a round, so that a usual round took {usual / plain:.2f} times as long"
        return f"{measured} Plain training of the same model and clients, a few rounds at the end of the run: {times}."
    if run.finished:
        return f"{measured} Plain training was not timed in this run: `precad report` with a plain run beside it tells."
    return f"{measured} Plain training is timed when the run ends."


def _bytes(run: Run) -> str:
    kinds, plain = figures.traffic(run), figures.plain_bytes(run)
    if not kinds or plain is None:
        return fmt.paragraph("Bytes are known for protocol precad only.", "note")
    rows = [
        (
            escape(item.name),
            f"{fmt.data(item.each, fmt.size(item.each))} {item.unit}",
            "not shown" if run.settings.hidden else fmt.data(item.whole, fmt.size(item.whole)),
        )
        for item in (*kinds, figures.Traffic("plain training: client → server", plain, "a submission", kinds[0].count))
    ]
    note = (
        "At most, by the formulas of `precad protocol`, which tests compare with real messages"
        f"{'; in this run they were passed in memory' if run.simulated else '; what is for B goes through A, sealed'}. "
        "Sealing, TLS and the download of the model come on top. Plain: float32 entries."
    )
    return "<h3>Bytes</h3>" + fmt.table(("message", "each", "whole run"), rows) + fmt.paragraph(note, "note")


def _bar(share: float) -> str:
    said = f"{100 * share:.0f}\u00a0%"
    return f"<svg class='bar' role='img' aria-label='{said}'><rect width='{100 * share:.1f}%' height='100%'/></svg>"


_STAGES = {
    "gradients": "gradients: clients compute and clip",
    "protocol": "protocol: shares, proofs, both servers",
    "ledger": "ledger: waiting for the disk",
}
