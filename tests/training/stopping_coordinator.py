"""A coordinator that stops itself, as SIGSTOP does, before it changes one object.

stopping_coordinator.py JOB-FILE STORE STORAGE KEY SESSION-TIMEOUT write|delete PART-OF-NAME
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from pliska.coordinator import daemon
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import load_job

QUIET_S = 0.2
"""Pause before the stop: other threads have done by then what a commit makes them do, and leave
the store's database unlocked."""


class StoppingStorage(LocalStorage):
    """Stops the process once."""

    def __init__(self, directory: str, how: str, part: str) -> None:
        super().__init__(Path(directory))
        self._how = how
        self._part = part

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        self._may_stop("write", name)
        super().write(name, chunks)

    def delete(self, name: str) -> bool:
        self._may_stop("delete", name)
        return super().delete(name)

    def _may_stop(self, how: str, name: str) -> None:
        if how == self._how and self._part in name:
            self._how = ""
            time.sleep(QUIET_S)
            os.kill(os.getpid(), signal.SIGSTOP)


def main(
    job_file: str, store: str, storage: str, key: str, timeout_s: str, how: str, part: str
) -> None:
    daemon.open_storage = lambda address: StoppingStorage(address, how, part)
    options = daemon.CoordinatorOptions(
        name="c1",
        store=store,
        storage=storage,
        key=Path(key),
        session_timeout_s=float(timeout_s),
    )
    asyncio.run(daemon.run_coordinator(load_job(job_file), options))


if __name__ == "__main__":
    main(*sys.argv[1:])
