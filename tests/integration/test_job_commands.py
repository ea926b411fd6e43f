"""`pliska job`: the installed command against a store on disk."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from training.toy_job import toy_job

from pliska.coordinator.directory import JobDirectory
from pliska.locks import connect

Pliska = Callable[..., subprocess.CompletedProcess[str]]
EXECUTABLE = Path(sys.executable).with_name("pliska")


@pytest.fixture
def pliska(tmp_path: Path) -> Pliska:
    """Run the installed command on a store that has the small job."""
    store = f"embedded:{tmp_path / 'store'}"
    backend = connect(store)
    JobDirectory(backend, "toy").publish(toy_job())
    backend.close()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EXECUTABLE, "job", *arguments],
            env={**os.environ, "PLISKA_STORE": store, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_mode_is_asked_for_and_shown(pliska: Pliska) -> None:
    done = pliska("mode", "toy", "async", "--reason", "slow disks", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    asked = json.loads(done.stdout)
    assert (asked["asked_for"], asked["asked_for_epoch"]) == ("asynchronous", 1)
    assert asked["reason"].endswith(": slow disks")
    assert asked["in_force"] is None  # nobody leads
    assert json.loads(pliska("show", "toy", "-o", "json").stdout) == asked
    again = json.loads(pliska("mode", "toy", "asynchronous", "-o", "json").stdout)
    assert again["asked_for_epoch"] == 1
    assert "asynchronous" in pliska("show", "toy").stdout


def test_mistakes_are_one_line_with_their_exit_code(pliska: Pliska) -> None:
    unknown = pliska("mode", "gone", "hybrid")
    assert unknown.returncode == 3
    assert unknown.stderr.startswith("error: ")
    assert "no job 'gone'" in unknown.stderr
    wrong = pliska("mode", "toy", "quick")
    assert wrong.returncode == 2
    assert "'quick'" in wrong.stderr


def test_mode_that_no_leader_takes_up_in_time_is_asked_for_all_the_same(pliska: Pliska) -> None:
    waited = pliska("mode", "toy", "hybrid", "--timeout", "0.3")
    assert waited.returncode == 6
    assert "it is asked for all the same" in waited.stderr
    assert json.loads(pliska("show", "toy", "-o", "json").stdout)["asked_for"] == "hybrid"
