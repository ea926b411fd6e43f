"""Rounds: what slow workers, durability and a dead leader cost, and what a round does at its end.

    make bench BENCH=rounds ARGS="--repeats 5 --only stragglers"

Each part is a file of its own, `rounds_PART.py`, with a function `figures(repeats)`.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from report import show

PARTS = ("machine", "stragglers", "durability", "takeover", "closing", "crowd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="samples of each figure")
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the other parts out")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/rounds.json"))
    options = parser.parse_args()
    figures = [
        each
        for part in options.only or PARTS
        for each in import_module(f"rounds_{part}").figures(options.repeats)
    ]
    show("Rounds", figures, options.output)
    return 0 if all(each.holds is not False for each in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
