"""When each backdoor came, for docs/results.md: ``python scripts/backdoor_table.py docs/evaluation``."""

import argparse
from collections import defaultdict
from pathlib import Path

from precad.lab.paper.rows import Row, RowFile

HALF = 0.5


def main() -> None:
    """Print a row for each setting, with all its seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    found = defaultdict[tuple[str, ...], list[Row]](list)
    for row in RowFile(parser.parse_args().folder).all():
        if row.config["malicious"]["clients"] and row.backdoor:
            found[_setting(row)].append(row)
    print("| data | protocol | σ | C | K | seeds | backdoor at the end | over one half since round | main accuracy |")
    print("|" + "---|" * 9)
    for setting, rows in sorted(found.items()):
        rows.sort(key=lambda row: row.config["seed"])
        cells = [
            ", ".join(str(row.config["seed"]) for row in rows),
            ", ".join(f"{100 * row.final_backdoor:.1f} %" for row in rows),
            ", ".join(_since(row) for row in rows),
            ", ".join(f"{100 * row.final_accuracy:.1f} %" for row in rows),
        ]
        print("| " + " | ".join([*setting, *cells]) + " |")


def _setting(row: Row) -> tuple[str, ...]:
    training, protocol = row.config["training"], row.config["training"]["protocol"]
    sigma, bound = (f"{training[name]:g}" for name in ("noise_multiplier", "client_bound"))
    unused = protocol == "plain"
    clients = str(row.config["malicious"]["clients"])
    return row.config["task"]["dataset"], protocol, "-" if unused else sigma, "-" if unused else bound, clients


def _since(row: Row) -> str:
    """The first look from which on it stayed there."""
    below = [number for number, accuracy in enumerate(row.backdoor) if accuracy <= HALF]
    after = below[-1] + 1 if below else 0
    return f"{row.rounds[after]:,}" if after < len(row.rounds) else "never"


if __name__ == "__main__":
    main()
