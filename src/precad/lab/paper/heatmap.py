"""Attack × defence: how much is left of the model under each attack, and which attack hurts each defence most."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from precad.lab import defences, malicious
from precad.lab.paper.plan import Experiment
from precad.lab.paper.rows import Row, RowFile, Spread, spread, write_table
from precad.plotting import new_figure, save_figure
from precad.settings import from_table
from precad.simulation import presets
from precad.simulation.user_code import load_plugin
from precad.tables import merged

NO_ATTACK = "none"
ATTACKS = (
    NO_ATTACK,
    "label_flip",
    "boost",
    "boost ≤ C",
    "sign_flip",
    "sign_flip ≤ C",
    "gaussian",
    "gaussian ≤ C",
    "alie",
    "ipm",
    "ipm ≤ C",
    "just_over",
    "wrap_around",
    "backdoor",
    "backdoor ≤ C",
)
"""``≤ C``: by attackers that cut what they send to exactly C."""
WITHIN = " ≤ C"
PROTOCOLS = ("plain", "ldp", "cdp", "ddp", "precad")
DEFENCES = (*PROTOCOLS, *defences.NAMES)


@dataclass(frozen=True)
class Board:
    """The runs of a heat map: every attack against every defence."""

    dataset: str
    rounds: int
    attackers: int
    seeds: tuple[int, ...]
    attacks: tuple[str, ...] = ATTACKS
    defences: tuple[str, ...] = DEFENCES
    quick: bool = False

    def __post_init__(self) -> None:
        for attack in self.attacks:
            if attack != NO_ATTACK:
                malicious.check_attack(attack.removesuffix(WITHIN))
        for defence in self.defences:
            if ":" in defence:
                load_plugin("defence", defence)
            elif defence not in DEFENCES:
                raise ValueError(f"the defence is {defence!r}, expected {', '.join(DEFENCES)}, or module:function")

    def experiment(self, attack: str, defence: str, seed: int) -> Experiment:
        """The run of a cell with one of the seeds."""
        preset = "recommended" if self.dataset == "digits" else "paper"
        protocol = defence if defence in PROTOCOLS else "plain"
        training: dict[str, object] = {"rounds": self.rounds, "protocol": protocol}
        if protocol != defence:
            training["defence"] = defence
        if protocol == "ldp":
            training["clip_after_noise"] = True
        malicious: dict[str, object] = {"clients": 0, "attack": "boost"}
        if attack != NO_ATTACK:
            malicious = {"clients": self.attackers, "attack": attack.removesuffix(WITHIN)}
        malicious["within_bound"] = attack.endswith(WITHIN)
        changes = {"training": training, "malicious": malicious, "seed": seed, "evaluate_every": self.rounds}
        return Experiment(from_table(merged(presets.preset(self.dataset, preset), changes)))

    def experiments(self) -> list[Experiment]:
        """All runs, those with a person's own attack or defence first: they are the ones that may fail."""
        cells = sorted(product(self.attacks, self.defences), key=lambda cell: not any(":" in name for name in cell))
        return [self.experiment(*cell, seed) for seed in self.seeds for cell in cells]

    def left(self, rows: RowFile, attack: str, defence: str) -> Spread | None:
        """Of main accuracy; with a backdoor, or of its images that the model does not take for the attackers'."""
        found = rows.found(self.experiment(attack, defence, seed) for seed in self.seeds)
        return spread([_left(row) for row in found])

    def worst(self, rows: RowFile, defence: str) -> str | None:
        """The attack that leaves least to a defence."""
        cells = {attack: self.left(rows, attack, defence) for attack in self.attacks if attack != NO_ATTACK}
        known = {attack: cell.mean for attack, cell in cells.items() if cell is not None}
        return min(known, key=known.__getitem__) if known else None


def draw(board: Board, rows: RowFile, path: Path) -> None:
    """Draw the heat map, with each defence's worst case framed."""
    from matplotlib.patches import Rectangle

    figure = new_figure(1.5 + 0.8 * len(board.defences), 1.6 + 0.42 * len(board.attacks))
    axes = figure.subplots()
    cells = [[board.left(rows, attack, defence) for defence in board.defences] for attack in board.attacks]
    numbers = [[float("nan") if cell is None else 100 * cell.mean for cell in line] for line in cells]
    axes.imshow(numbers, cmap="RdYlGn", vmin=0, vmax=100, aspect="auto")
    for i, line in enumerate(cells):
        for j, cell in enumerate(line):
            axes.text(j, i, "–" if cell is None else f"{100 * cell.mean:.0f}", ha="center", va="center", fontsize=8)
    for j, defence in enumerate(board.defences):
        worst = board.worst(rows, defence)
        if worst is not None:
            corner = (j - 0.48, board.attacks.index(worst) - 0.46)
            axes.add_patch(Rectangle(corner, 0.96, 0.92, fill=False, linewidth=1.5))
    axes.set_xticks(range(len(board.defences)), board.defences, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(board.attacks)), board.attacks, fontsize=8)
    axes.set_title(_title(board), fontsize=9)
    save_figure(figure, path)


def write(board: Board, rows: RowFile, path: Path) -> None:
    """Write the same as a table in Markdown."""
    worst = {defence: board.worst(rows, defence) for defence in board.defences}
    text = [
        f"# {_title(board)}",
        "",
        "The worst case is bold. Of a backdoor: main accuracy, or the part of",
        "the attackers' images that the model resists, whichever is less.",
    ]

    def number(attack: str, defence: str) -> str:
        cell = board.left(rows, attack, defence)
        digits = "–" if cell is None else f"{100 * cell.mean:.1f}"
        return f"**{digits}**" if worst[defence] == attack else digits

    cells = [[attack, *(number(attack, defence) for defence in board.defences)] for attack in board.attacks]
    write_table(path, text, ("", *board.defences), cells)


def _left(row: Row) -> float:
    return min(row.final_accuracy, 1 - row.final_backdoor) if row.backdoor else row.final_accuracy


def _title(board: Board) -> str:
    word = "QUICK RUN: " if board.quick else ""
    seeds = f"{len(board.seeds)} seed{'s' * (len(board.seeds) > 1)}"
    return (
        f"{word}accuracy (%) under attack; {board.dataset}, {board.attackers} malicious clients, "
        f"{board.rounds} rounds, {seeds}; marked: each defence's worst case"
    )
