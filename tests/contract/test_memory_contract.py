"""What a rule needs beside its input: a few blocks and one row, never another matrix.

torch.sort of all rows takes three times their memory, a copy of the mixed rows as
much as the rows. The rules run in a process of its own, whose peak the kernel knows.
"""

import json
import subprocess
import sys

N, D = 32, 1_000_000
INPUT_MB = 4 * N * D / 2**20
EXTRA_MB_MAX = 64 + 2 * 4 * D / 2**20
"""The aggregate, a row in reserve and blocks: 60 % of the input."""

RULES = [
    ["mean"],
    ["trimmed-mean"],
    ["coordinate-median"],
    ["multi-krum"],
    ["geometric-median"],
    ["trimmed-mean", "nnm"],
    ["multi-krum", "arc", "nnm"],
]

PROGRAM = """
import json, resource, sys
import torch
from pliska.aggregation import rule_named

torch.set_num_threads(1)
rules = [rule_named(name, f=2, pre=pre) for name, *pre in json.loads(sys.argv[1])]
rows = torch.empty({n}, {d}).uniform_(-1, 1)
for rule in rules:
    rule(rows[:, :20_000]).report  # compile, and load what is loaded late

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak()
grown = []
for rule in rules:
    rule(rows).report
    grown.append(peak() - before)
print(grown)
"""


def test_no_rule_builds_another_matrix() -> None:
    program = PROGRAM.format(n=N, d=D)
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(RULES)],
        capture_output=True,
        text=True,
        check=True,
    )
    grown = dict(zip(map(str, RULES), json.loads(done.stdout), strict=True))
    assert max(grown.values()) < EXTRA_MB_MAX < INPUT_MB, grown
