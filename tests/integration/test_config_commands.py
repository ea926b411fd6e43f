"""`pliska config` as people run it, with the store there and away."""

import json
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from services.commands import Run, Start

GROUP = "config"
PATIENCE_S = 30.0


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of a watch."""
    assert process.stdout is not None
    event: dict[str, Any] = json.loads(process.stdout.readline())
    return event


def test_of_processes_that_expect_the_same_revision_one_wins(start: Start, run: Run) -> None:
    run("set", "key", "0")
    processes = [start("set", "key", str(n), "--if-revision", "1") for n in range(1, 4)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda process: process.communicate(timeout=60), processes))
    assert sorted(process.returncode for process in processes) == [0, 4, 4]
    assert json.loads(run("get", "key", "-o", "json").stdout)["setting"]["revision"] == 2


def test_a_watch_prints_the_present_and_each_change_as_a_line(start: Start, run: Run) -> None:
    run("set", "key", "1")
    watch = start("watch", "key")
    event = told(watch)
    assert (event["schema_version"], event["value"], event["revision"]) == (1, 1, 1)
    run("set", "other", "x")
    run("set", "key", "2")
    assert (event := told(watch))["value"] == 2
    assert event["is_stale"] is False
    run("unset", "key")
    assert told(watch)["is_set"] is False
    watch.send_signal(signal.SIGTERM)
    assert watch.communicate(timeout=PATIENCE_S) == ("", "")
    assert watch.returncode == 0


def test_when_the_store_is_away_the_snapshot_serves_with_its_age(
    start: Start, run: Run, tmp_path: Path
) -> None:
    run("set", "key", "kept")
    watch = start("watch", "--snapshot", "config.json")
    assert told(watch)["value"] == "kept"
    snapshot = tmp_path / "config.json"
    run("set", "key", "newer")
    assert told(watch)["value"] == "newer"
    until_s = time.monotonic() + PATIENCE_S
    while "newer" not in snapshot.read_text():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    watch.send_signal(signal.SIGTERM)
    watch.communicate(timeout=PATIENCE_S)
    assert stat.S_IMODE(snapshot.stat().st_mode) == 0o600
    nowhere = ["--store", "consul://127.0.0.1:1/"]
    done = run("get", "key", "--snapshot", "config.json", *nowhere)
    assert (done.returncode, done.stdout) == (0, "newer\n"), done
    assert f"from a snapshot of embedded:{tmp_path / 'store'}" in done.stderr
    without = run("get", "key", *nowhere)
    assert (without.returncode, without.stdout) == (8, "")
    assert without.stderr.startswith("error: ")
