"""Waiting in tests for what has no event of its own."""

import time
from collections.abc import Callable

PATIENCE_S = 20.0
PAUSE_S = 0.002


def wait_until(claim: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something is true; fail when it does not come true in time."""
    until_s = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < until_s, "it did not come true in time"
        time.sleep(PAUSE_S)
