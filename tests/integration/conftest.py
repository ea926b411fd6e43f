"""Clients, commands and sites of their own for each test; no process is left behind."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from training.ready_processes import ReadyProcesses
from training.site import Site

from pliska.locks import Backend, connect
from services.commands import Commands, Run, Start
from services.lock_process import LockProcess, NewProcess
from services.shell import Shell
from services.zygote import PLISKA, the_zygote

TESTS = Path(__file__).parents[1]


@pytest.fixture
def store_address(tmp_path: Path) -> str:
    """The address of an empty store; a module may put another in its place."""
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
def address(store_address: str) -> str:
    """The store of the clients below; a module may put another in its place."""
    return store_address


@pytest.fixture
def backend(address: str) -> Iterator[Backend]:
    backend = connect(address)
    yield backend
    backend.close()


@pytest.fixture
def new_process(address: str) -> Iterator[NewProcess]:
    """Starts a client of locks in a process of its own, which does not outlive the test."""
    processes: list[LockProcess] = []

    def start_one(lease_s: float = 10.0) -> LockProcess:
        processes.append(LockProcess(address, lease_s))
        return processes[-1]

    yield start_one
    for process in processes:
        process.end()


@pytest.fixture
def commands(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commands]:
    """Runs the installed command on a store of its own; the module's GROUP says which."""
    commands = Commands(request.module.GROUP, tmp_path)
    yield commands
    commands.end()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs `pliska model` in an empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def start(commands: Commands) -> Start:
    return commands.start


@pytest.fixture
def run(commands: Commands) -> Run:
    return commands.run


@pytest.fixture
async def site(
    tmp_path: Path, store_address: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """Give an empty site; its processes end with the test, and their logs are shown if it fails."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for so small a job threads only cost time
    logs = tmp_path / "logs"
    zygote = the_zygote()
    ready, scripts = ReadyProcesses(zygote, PLISKA, logs), ReadyProcesses(zygote, None, logs)
    async with ready as processes, scripts:
        site = Site(tmp_path, store_address, processes, scripts)
        try:
            yield site
        finally:
            await site.close()
            for log in sorted(logs.glob("*.log")):
                # Pytest shows it if the test fails.
                sys.stdout.write(f"--- {log.name}\n{log.read_text(errors='replace')}\n")
