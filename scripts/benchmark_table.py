"""A round's times on this machine, for docs/benchmarks.md: ``python scripts/benchmark_table.py``.

Run it when nothing else runs: it prints the load that it found, so that a reader can tell.
"""

import argparse
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from precad import __version__
from precad.bench import protocol
from precad.params import Validation


def main() -> None:
    """Time a round in each mode and print a row a mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, nargs="+", default=[26_010, 1_000_000])
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    print(f"## Times, {datetime.now(UTC):%d %B %Y}\n")
    print(f"precad {__version__}, {_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before;")
    print(f"milliseconds for each of {options.clients} clients, and of a whole round beside a plain sum.\n")
    print(
        "| parameters d | validation | client | server A | server B | round | plain round | server A over keystream |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for dim in options.dim:
        for mode in Validation:
            row = protocol.run(dim, options.clients, mode)
            figures = ("client_ms", "server_a_ms", "server_b_ms", "round_ms", "plain_round_ms")
            cells = [f"{dim:,}", mode.value, *(f"{row[figure]:,.2f}" for figure in figures)]
            print(
                "| "
                + " | ".join([*cells, "-" if row["ratio_server_a"] is None else f"{row['ratio_server_a']:.1f}"])
                + " |"
            )


def _processor() -> str:
    """The processor's name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.machine()


if __name__ == "__main__":
    main()
