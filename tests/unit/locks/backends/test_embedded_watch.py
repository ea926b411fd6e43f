"""How soon a change is seen, and that waiting threads share one watcher."""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliska.locks import Backend, Create, Revision, StoreUnavailableError, connect

WRITER = """
import sys, time
from pliska.locks import connect
backend = connect(sys.argv[1])
for number, line in enumerate(sys.stdin):
    backend.create(f"d/{number}", repr(time.monotonic()).encode())
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
def backend(address: str) -> Iterator[Backend]:
    backend = connect(address)
    yield backend
    backend.close()


def test_another_processs_change_is_seen_in_milliseconds(backend: Backend, address: str) -> None:
    delays_s = []
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, address], stdin=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        listing = backend.list("d")
        for _ in range(20):
            writer.stdin.write("\n")
            writer.stdin.flush()
            assert backend.wait_for_change("d", listing.revision, 20)
            seen_s = time.monotonic()
            listing = backend.list("d")
            delays_s.append(seen_s - float(listing.records[-1].value))
        writer.stdin.close()
    # The writer's clock reading comes before its commit, so the time on disk is in it.
    assert statistics.median(delays_s) < 0.03, delays_s


def test_waiting_threads_share_one_watcher(backend: Backend) -> None:
    revision = backend.list("d").revision
    with ThreadPoolExecutor(20) as pool:
        waits = [pool.submit(backend.wait_for_change, f"d/{i}", revision, 20) for i in range(20)]
        backend.create("d/0", b"")
        assert waits[0].result(timeout=10)
        watchers = [t for t in threading.enumerate() if t.name == "pliska-store-watch"]
        assert len(watchers) == 1
        backend.transact([], [Create(f"d/{i}", b"") for i in range(1, 20)])
        assert all(wait.result(timeout=10) for wait in waits)


def test_closing_wakes_whoever_waits_and_ends_the_watcher(address: str) -> None:
    backend = connect(address)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backend.wait_for_change, "d", backend.list("d").revision, 20)
        while "pliska-store-watch" not in [t.name for t in threading.enumerate()]:
            time.sleep(0.001)
        backend.close()
        waiting.result(timeout=5)
    assert "pliska-store-watch" not in [t.name for t in threading.enumerate()]
    with pytest.raises(StoreUnavailableError):
        backend.wait_for_change("d", Revision(0), 1)
