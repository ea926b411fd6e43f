"""What every test may use: the services of `tests/services`."""

import asyncio
import os
import signal

import pytest

# Before torch is loaded, here and in the processes that tests start: there are more of them than
# cores, and a thread that spins until the others of its process have done their part takes the
# core from those others. Two processes at once were slower than one after the other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Before anything imports them: what tests share says as much of a failed assertion as tests do.
pytest.register_assert_rewrite("chaos", "registry_chaos", "services", "simulation", "training")

from services.fixtures import (  # noqa: E402, F401 - pytest finds fixtures and hooks by name here
    consul,
    consul_binary,
    consul_servers,
    oci_binary,
    oci_registry,
    own_consul,
    own_zookeeper,
    own_zookeeper_ensemble,
    pytest_runtest_makereport,
    zookeeper,
    zookeeper_ensemble,
    zookeeper_jars,
)

# A shell starts background jobs with SIGINT ignored, and their children inherit that; the
# processes that tests interrupt shall be those that a person would start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-asyncio asks for the present event loop, and Python makes one where none was ever set. It
# would stay open, and the test that runs when it is collected would be blamed.
asyncio.set_event_loop(None)
