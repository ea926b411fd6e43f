"""`pliska demo` as a newcomer runs it: real processes, and none left behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PLISKA = Path(sys.executable).with_name("pliska")
ROUNDS = 40
PATIENCE_S = 60.0


def demo(directory: Path, *options: str) -> list[str]:
    return [str(PLISKA), "demo", "--directory", str(directory), *options]


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that name this directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.05)


@pytest.mark.timeout(400)
def test_demo_trains_through_liars_and_a_dead_leader_and_rolls_back(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    done = subprocess.run(
        demo(directory, "--rounds", str(ROUNDS)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((directory / "report.json").read_text())
    assert report["holds"] is True
    assert report["rounds"] == ROUNDS
    assert report["lost_rounds"] == 0
    assert report["byzantine_workers"] == ["w7", "w8"]
    assert set(report["flagged_workers"]) >= {"w7", "w8"}
    assert report["accuracy"]["robust"] > report["accuracy"]["clean"] - 0.02
    assert report["accuracy"]["mean"] < report["accuracy"]["clean"] - 0.15
    assert report["takeover_s"] < report["session_timeout_s"] + 1
    assert (report["rollback"]["from"], report["rollback"]["to"]) == (2, 1)
    assert report["memory_bytes_max"] < 4_000_000_000
    assert (directory / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert str(directory / "report.json") in done.stdout
    assert processes_of(directory) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_that_is_interrupted_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    directory = tmp_path / "demo"
    with subprocess.Popen(
        demo(directory), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_until((directory / "logs" / "robust-w8.log").exists)
        running.send_signal(number)
        _, messages = running.communicate(timeout=PATIENCE_S)
    if number is not signal.SIGKILL:
        assert running.returncode == 130
        assert messages.startswith("interrupted; no process is left")
    wait_until(lambda: processes_of(directory) == [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "6"), "error: multi-krum with f=2 needs n >= 2f + 3"),
        (("--rule", "krumm"), "error: there is no rule named 'krumm'"),
        (("--rounds", "3"), "error: --rounds is 3"),
        (("--data", "mnist"), "error: unknown data 'mnist'"),
    ],
)
def test_option_that_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    directory = tmp_path / "demo"
    done = subprocess.run(
        demo(directory, *options), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr
    assert not directory.exists()
