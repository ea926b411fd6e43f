"""Sites of their own for tests of real coordinators; no process is left behind."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from training.site import Site

from pliska.trainer.demo.processes import Processes

TESTS = Path(__file__).parents[1]
PYTHON = Path(sys.executable)


@pytest.fixture
def store_address(tmp_path: Path) -> str:
    """The address of an empty store; a module may put another in its place."""
    return f"embedded:{tmp_path / 'store'}"


@pytest.fixture
async def site(
    tmp_path: Path, store_address: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """Give an empty site; its processes end with the test, and their logs are shown if it fails."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for so small a job threads only cost time
    logs = tmp_path / "logs"
    pliska = PYTHON.with_name("pliska")
    async with Processes(pliska, logs) as processes, Processes(PYTHON, logs) as scripts:
        site = Site(tmp_path, store_address, processes, scripts)
        try:
            yield site
        finally:
            await site.close()
            for log in sorted(logs.glob("*.log")):
                # Pytest shows it if the test fails.
                sys.stdout.write(f"--- {log.name}\n{log.read_text(errors='replace')}\n")
