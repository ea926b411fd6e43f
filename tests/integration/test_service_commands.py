"""`pliska service` as people run it: real processes that are ended, killed and drained."""

import http.server
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.commands import Run, Start

GROUP = "service"
PATIENCE_S = 30.0


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def instances(run: Run) -> dict[str, str]:
    """State of each instance, as `service list` tells it."""
    done = run("list", "scorer", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return {each["id"]: each["state"] for each in json.loads(done.stdout)["instances"]}


def events_until(
    process: subprocess.Popen[str], is_awaited: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first line of a watch that is what the test waits for."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if is_awaited(event):
            return event
    raise AssertionError("the watch ended")


def test_an_instance_is_registered_until_its_process_is_told_to_end(start: Start, run: Run) -> None:
    options = ["--port", "8080", "--address", "127.0.0.1", "--tag", "gpu", "--meta", "model=v3"]
    process = start("register", "scorer", *options, "--zone", "eu", "--weight", "2")
    assert first_line(process) == "registered scorer/127.0.0.1:8080 at 127.0.0.1:8080\n"
    (row,) = json.loads(run("list", "scorer", "-o", "json").stdout)["instances"]
    assert row == {
        "id": "127.0.0.1:8080",
        "endpoint": "127.0.0.1:8080",
        "state": "up",
        "zone": "eu",
        "weight": 2,
        "tags": ["gpu"],
        "address": "127.0.0.1",
        "port": 8080,
        "metadata": {"model": "v3"},
    }
    assert run("resolve", "scorer").stdout == "127.0.0.1:8080\n"
    assert "scorer" in run("list").stdout
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "deregistered scorer/127.0.0.1:8080\n", "")
    done = run("resolve", "scorer")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: scorer has no instance\n"


def test_a_killed_process_is_gone_within_its_lease_and_a_watch_says_so(
    start: Start, run: Run
) -> None:
    first = start("register", "scorer", "--id", "s1", "--address", "h", "--lease", "2")
    second = start("register", "scorer", "--id", "s2", "--address", "h", "--lease", "2")
    assert first_line(first).startswith("registered")
    assert first_line(second).startswith("registered")
    watch = start("watch", "scorer")
    events_until(watch, lambda event: len(event["instances"]) == 2)
    killed_s = time.monotonic()
    first.kill()
    event = events_until(watch, lambda event: len(event["instances"]) == 1)
    assert time.monotonic() - killed_s < 2.0
    assert [each["id"] for each in event["instances"]] == ["s2"]
    assert (event["standing"], event["reason"]) == ("confirmed", None)
    second.kill()
    event = events_until(watch, lambda event: event["standing"] == "emptied")
    assert [each["id"] for each in event["instances"]] == ["s2"]
    assert instances(run) == {}
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=PATIENCE_S)
    assert watch.returncode == 0


def test_a_drained_instance_takes_no_work_and_its_process_goes_on(start: Start, run: Run) -> None:
    process = start("register", "scorer", "--id", "s1", "--address", "h")
    first_line(process)
    assert run("drain", "scorer", "s1").stdout == "scorer/s1 is draining\n"
    assert instances(run) == {"s1": "draining"}
    done = run("resolve", "scorer")
    assert (done.returncode, done.stderr) == (
        3,
        "error: no instance of scorer takes work: 1 draining\n",
    )
    assert process.poll() is None


def test_an_instance_that_does_not_answer_its_probe_is_shown_as_failing(
    start: Start, run: Run
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = str(server.server_address[1])
    options = ["--id", "s1", "--address", "127.0.0.1", "--port", port]
    # It answers every GET with 501, so the HTTP probe fails while the port is open.
    process = start(
        "register", "scorer", *options, "--probe", "http:/health", "--probe-interval", "0.1"
    )
    first_line(process)
    watch = start("watch", "scorer")
    event = events_until(
        watch, lambda event: [each["state"] for each in event["instances"]] == ["failing"]
    )
    assert event["standing"] == "confirmed"
    server.shutdown()
    thread.join()
    server.server_close()


def test_removed_from_the_store_the_registration_ends(
    start: Start, tmp_path: Path, run: Run
) -> None:
    from pliska.locks import connect

    process = start("register", "scorer", "--id", "s1", "--address", "h")
    first_line(process)
    backend = connect(f"embedded:{tmp_path / 'store'}")
    assert backend.delete("services/scorer/s1")
    backend.close()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert "removed from the store by somebody else" in err
