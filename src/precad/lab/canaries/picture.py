"""A picture of a test with canaries: what each adversary reached, and the curve that it must not pass."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from precad.lab.canaries.findings import Finding, Measured
from precad.plotting import new_figure, save_figure


def draw(measured: Sequence[Measured], findings: Sequence[Finding], title: str, error: float, path: Path) -> None:
    """One panel for each adversary: its most telling test, with bounds that all hold with probability ≥ 1 − ``error``.

    A box that lies wholly above the curve refutes the claim.
    """
    telling: dict[str, tuple[Measured, Finding]] = {}
    for pair in zip(measured, findings, strict=True):
        known = telling.get(pair[1].adversary)
        if known is None or pair[1].p_value < known[1].p_value:
            telling[pair[1].adversary] = pair
    figure = new_figure(3.4 * len(telling), 3.9)
    figure.suptitle(title, parse_math=False)
    alphas = np.linspace(0.0, 1.0, 501)
    for axes, (each, finding) in zip(figure.subplots(1, len(telling), squeeze=False)[0], telling.values(), strict=True):
        fpr, tpr = each.rates.false_positives, each.rates.true_positives
        most, least = each.bounds(error)
        axes.fill_between(alphas, each.claim.power(alphas), 1.0, color="C3", alpha=0.12, label="refutes the claim")
        axes.plot(alphas, each.claim.power(alphas), color="C3", label="claimed: at most")
        axes.errorbar(
            fpr,
            tpr,
            xerr=(np.zeros_like(fpr), np.maximum(most - fpr, 0.0)),
            yerr=(np.maximum(tpr - least, 0.0), np.zeros_like(tpr)),
            fmt="o",
            markersize=3,
            elinewidth=0.4,
            color="C0",
            label="measured, and at least",
        )
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.7, linestyle=":")
        verdict = "caught" if finding.caught else "passed"
        axes.set_title(f"{each.adversary}, {each.test}: {verdict}", fontsize="medium")
        axes.set(xlabel="false positives", ylabel="true positives", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", fontsize="x-small", frameon=False)
    save_figure(figure, path)
