"""A collector that stops itself, as SIGSTOP does, amid the removal of a tensor.

Run as a process: python -m registry_chaos.stopping_sweeper STORE ARTIFACTS before|after
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from pliska.coordinator.registry import Registry, RegistryConflictError, Retention, sweeps
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect

ANNOUNCED_FOR = timedelta(seconds=1.5)
MARGIN = timedelta(seconds=0.5)
"""Shorter than in production, since a test waits until the announcement is over."""
QUIET_S = 0.2
"""Pause before the stop: other threads leave the store's database unlocked by then."""
SPARED = 3
"""Ends with this when it was told that its sweep is over."""


class StoppingStorage(LocalStorage):
    """Stops the process once, before or after a tensor was moved away."""

    def __init__(self, directory: Path, when: str) -> None:
        super().__init__(directory)
        self._when = when

    def move(self, name: str, target: str) -> bool:
        self._may_stop("before", name)
        is_moved = super().move(name, target)
        self._may_stop("after", name)
        return is_moved

    def _may_stop(self, when: str, name: str) -> None:
        if when == self._when and "/tensors/" in name:
            self._when = ""
            time.sleep(QUIET_S)
            os.kill(os.getpid(), signal.SIGSTOP)


def main(store: str, artifacts: str, when: str) -> int:
    """Collect all but the newest version."""
    sweeps.ANNOUNCED_FOR, sweeps.MARGIN = ANNOUNCED_FOR, MARGIN
    registry = Registry(connect(store), StoppingStorage(Path(artifacts), when))
    try:
        registry.housekeeping("ann").collect(Retention(keep_last=1, history=1))
    except RegistryConflictError as error:
        sys.stderr.write(f"{error}\n")
        return SPARED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
