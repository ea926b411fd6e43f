"""A coordinator that is killed after it has logged one version and before it has committed it.

dying_coordinator.py JOB-FILE STORE STORAGE KEY VERSION
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from pliska.coordinator import daemon
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import load_job


class DeadlyStorage(LocalStorage):
    """Kills the process once an entry of one version is durable."""

    def __init__(self, directory: str, version: int) -> None:
        super().__init__(Path(directory))
        self._deadly = f"/log/{version:012d}-"

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        super().write(name, chunks)
        if self._deadly in name:
            os.kill(os.getpid(), signal.SIGKILL)


def main(job_file: str, store: str, storage: str, key: str, version: str) -> None:
    daemon.open_storage = lambda address: DeadlyStorage(address, int(version))
    options = daemon.CoordinatorOptions(name="dying", store=store, storage=storage, key=Path(key))
    asyncio.run(daemon.run_coordinator(load_job(job_file), options))


if __name__ == "__main__":
    main(*sys.argv[1:])
