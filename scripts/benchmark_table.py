"""The tables of docs/benchmarks.md, timed on this machine: ``python scripts/benchmark_table.py [PART ...]``.

Run it when nothing else runs: it prints the load that it found, so that a reader can tell.
"""

import argparse
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from precad import __version__
from precad.lab.bench import protocol
from precad.mpc.cores import usable_cores
from precad.protocol.params import Validation


def main() -> None:
    """Time what is asked for, and print it as Markdown."""
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "rounds": rounds,
        "training": training,
        "deployment": deployment,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="rounds, training, deployment; all if none is named")
    parser.add_argument("--dim", type=int, nargs="+", default=[26_010, 1_000_000])
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args()
    for unknown in sorted(set(options.parts) - parts.keys()):
        parser.error(f"there is no part {unknown!r}: expected one of {', '.join(parts)}")
    print(f"## Times, {datetime.now(UTC):%d %B %Y}\n")
    print(f"precad {__version__}, {_processor()}, {usable_cores()} cores, load {os.getloadavg()[0]:.1f} before.")
    for name, part in parts.items():
        if not options.parts or name in options.parts:
            print()
            part(options)


def rounds(options: argparse.Namespace) -> None:
    """A round in each mode."""
    print(
        f"**One round** (`precad bench protocol`): milliseconds for each of {options.clients} clients, and of a whole"
    )
    print("round beside a plain sum.\n")
    figures = ("client_ms", "server_a_ms", "server_b_ms", "round_ms", "plain_round_ms", "ratio_server_a")
    _head("parameters d", "validation", "client", "server A", "server B", "round", "plain round", "A over keystream")
    for dim in options.dim:
        for mode in Validation:
            row = protocol.run(dim, options.clients, mode)
            _row(f"{dim:,}", mode.value, *(_number(row[figure], 2) for figure in figures))


def training(_options: argparse.Namespace) -> None:
    """An iteration under each protocol."""
    from precad.lab.bench import training as benchmark

    print("**An iteration of training** (`precad bench training`): milliseconds, ten clients, the paper's models.\n")
    cases = ("plain", "ldp", "none", "proof", "triples")
    ratios = ("ratio_none", "ratio_proof", "opacus_ratio", "autograd_ratio")
    said = ("unchecked ÷ `ldp`", "proof ÷ `ldp`", "Opacus ÷ ours", "autograd ÷ ours")
    _head("model", "plain", "`ldp`", "precad, unchecked", "precad, proof", "precad, triples", *said)
    for name, row in benchmark.run().items():
        times = (_number(row[f"{case}_ms"], 1) for case in cases)
        _row(name, *times, *(_number(row[ratio], 2) for ratio in ratios))


def deployment(_options: argparse.Namespace) -> None:
    """A round on Flower."""
    from precad.lab.bench import flower as benchmark

    print("**A round on Flower** (`precad bench deployment`): seconds, three clients that train nothing, d = 26,010.\n")
    _head("", "plain", "precad", "precad ÷ plain", "SecAgg+", "precad ÷ SecAgg+")
    for kind, row in benchmark.run(26_010, 3, 10).items():
        figures = ("plain_s", "precad_s", "ratio", "secagg_s", "secagg_ratio")
        _row(kind, *(_number(row.get(figure), 3) for figure in figures))


def _head(*names: str) -> None:
    _row(*names)
    print("|" + "---|" * len(names))


def _row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |")


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _processor() -> str:
    """The processor's name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.machine()


if __name__ == "__main__":
    main()
