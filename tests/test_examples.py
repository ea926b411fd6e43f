"""The examples run as they stand and show what they claim."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUG_IN = Path(__file__).parents[1] / "examples" / "plug_in.py"


def accuracy_of(*arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, str(PLUG_IN), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # threads would only wait for each other
    )
    name, value = done.stdout.split()
    assert name == "accuracy"
    return float(value)


def test_two_lines_make_an_ordinary_loop_robust() -> None:
    assert accuracy_of() >= 0.9
    assert accuracy_of("--plain") <= 0.5


@pytest.mark.parametrize("mark", ["# the first line", "# the second line"])
def test_both_lines_are_marked(mark: str) -> None:
    assert PLUG_IN.read_text().count(mark) == 1
