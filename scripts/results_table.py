"""The table of docs/results.md, from the folders of finished runs: ``python scripts/results_table.py runs/*``."""

import json
import sys
import tomllib
from pathlib import Path


def main(folders: list[str]) -> None:
    """Print a row a run."""
    print("| run | q | T | σ | seed | test accuracy | ε server | ε clients | most rounds of a client | time |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for folder in map(Path, folders):
        summary = json.loads((folder / "summary.json").read_text())
        training = tomllib.loads((folder / "config.toml").read_text())["training"]
        minutes = sum(summary["seconds"].values()) / 60
        cells = (
            summary["run"],
            training["client_rate"],
            f"{summary['rounds']:,}",
            f"{training['noise_multiplier']:.4g}",
            summary["seed"],
            f"{100 * summary['test_accuracy']:.2f} %",
            _epsilon(summary["epsilon_server"]),
            _epsilon(summary["epsilon_clients"]),
            summary["participations"],
            f"{minutes:.1f} min",
        )
        print("| " + " | ".join(map(str, cells)) + " |")


def _epsilon(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main(sys.argv[1:])
