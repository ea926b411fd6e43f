"""How long a rule's first use takes: with nothing compiled yet, and with the cache filled.

    make bench BENCH=aggregation_first_use ARGS="--n 8 16 31 64"

Every first use has a process of its own, with an empty cache, then another one
with that cache. What is counted is processor time of the first call less that
of the second, so that a busy machine matters little. With the cache it is the
time to load llvmlite. The processes see no C compiler.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from report import figure, show

D = 1 << 20
RULES: dict[str, list[str]] = {
    "coordinate-median": [],
    "trimmed-mean": [],
    "meamed": [],
    "krum": [],
    "multi-krum": [],
    "geometric-median": [],
    "centered-clipping": [],
    "bulyan": [],
    "multi-bulyan": [],
    "nnm": ["nnm"],
}
"""What stands before each; what is measured as "nnm" is the trimmed mean after it."""

PROGRAM = """
import json, sys, time, torch
from pliska.aggregation import rule_named
name, n, d, pre = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
f = max((n - 3) // 4, 0)
rule = rule_named("trimmed-mean" if pre else name, f=f, pre=pre)
rows = torch.randn(n, d)
(rows @ rows.T).sort()
seconds = []
for _ in range(2):
    started = time.process_time()
    rule(rows)
    seconds.append(time.process_time() - started)
print(json.dumps(seconds[0] - seconds[1]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[8, 16, 31, 64])
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    results = Path("benchmarks/results/aggregation_first_use.json")
    parser.add_argument("--json", type=Path, default=results)
    options = parser.parse_args()
    found = []
    for rule in options.rules:
        for n in options.n:
            with tempfile.TemporaryDirectory() as cache:
                cold, warm = (first_use_s(rule, n, Path(cache, "kernels")) for _ in range(2))
            name = f"{rule}, n={n}"
            found.append(figure(f"{name}, cold", [cold], "s", "at most 1", lambda s: s <= 1))
            found.append(figure(f"{name}, cached", [warm], "s"))
    show("first use", found, options.json)


def first_use_s(rule: str, n: int, cache: Path) -> float:
    """Return what the first call of a process takes longer than the second."""
    d = max(D // n, 1 << 16)
    environment = {
        **os.environ,
        "PLISKA_CACHE": str(cache),
        "PATH": "/nonexistent",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, rule, str(n), str(d), *RULES[rule]],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds: float = json.loads(done.stdout)
    return seconds


if __name__ == "__main__":
    main()
