"""A collection of garbage that is stopped amid a removal and woken when others rely on the file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from registry_chaos.stopping_sweeper import SPARED
from registry_chaos.sweeper import tensors_of

from pliska.coordinator.registry import Reference, Registry
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend

TESTS = Path(__file__).parents[1]
SCRIPT = "registry_chaos.stopping_sweeper"


@pytest.mark.parametrize("when", ["before", "after"])
def test_sweeper_that_is_stopped_past_its_time_takes_nothing_that_was_registered_meanwhile(
    backend: Backend, tmp_path: Path, when: str
) -> None:
    artifacts = tmp_path / "artifacts"
    registry = Registry(backend, LocalStorage(artifacts))
    for number in (1, 2):
        registry.register("digits", tensors_of(number), actor="ann")
    sweeper = subprocess.Popen(
        [sys.executable, "-m", SCRIPT, backend.address, str(artifacts), when],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(sweeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        # Waits until the announcement is over, and then counts on what is there.
        again = registry.register("digits", tensors_of(1), actor="bob").version
        assert again.version == 3
        sweeper.send_signal(signal.SIGCONT)
        _, said = sweeper.communicate(timeout=20)
        assert (sweeper.returncode, said) == (
            SPARED,
            "somebody else ended this sweep; begin again\n",
        )
    finally:
        sweeper.kill()
        sweeper.wait()
    loaded = registry.load(Reference("digits", version=3))
    assert set(loaded.tensors) == set(tensors_of(1))
    assert registry.inspector(reads_every_byte=True).inspect().problems == ()
    assert registry.namespace.blobs.moved() == []
