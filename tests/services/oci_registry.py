"""An OCI registry for tests: Debian's `docker-registry`, as a process of its own.

The binary is the one on PATH, or the one that `PLISKA_TEST_REGISTRY_BINARY`
names, or comes from Debian.
"""

import json
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services import debian
from services.missing import ServiceMissingError
from services.process import ServiceProcess, free_ports

HOW_TO_GET = (
    "no OCI registry here: put `docker-registry` (or the distribution project's `registry`) on "
    "PATH, or name it by PLISKA_TEST_REGISTRY_BINARY; on Debian the tests fetch it themselves "
    "when they run as root (apt-get install docker-registry)"
)


@dataclass(frozen=True, slots=True)
class OciRegistry:
    """A running registry."""

    host_port: str
    directory: Path
    process: ServiceProcess

    @property
    def log(self) -> str:
        """What it has logged, requests included."""
        return self.process.log.read_text(encoding="utf-8")


def binary() -> Path:
    """The program to start, brought to Debian when it is not there.

    Raises:
        ServiceMissingError: There is none, and we may not fetch it.
    """
    named = (
        os.environ.get("PLISKA_TEST_REGISTRY_BINARY")
        or shutil.which("docker-registry")
        or shutil.which("registry")
    )
    if named:
        return Path(named)
    if not debian.can_install():
        raise ServiceMissingError(HOW_TO_GET)
    return debian.registry_binary()


def start(
    directory: Path, program: Path, address: str = "127.0.0.1", **settings: Any
) -> OciRegistry:
    """Start a registry.

    Args:
        directory: Empty, for its data, configuration and log.
        program: See `binary`.
        address: Where it listens.
        settings: Further sections of its configuration, such as `auth`.
    """
    (port,) = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    configuration = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        **settings,
        "http": {**settings.get("http", {}), "addr": f"{address}:{port}"},
    }
    file = directory / "config.yml"  # YAML reads JSON
    file.write_text(json.dumps(configuration), encoding="utf-8")
    process = ServiceProcess(
        "docker-registry",
        [str(program), "serve", str(file)],
        directory,
        lambda: _listens(address, port),
    )
    process.wait_until_ready()
    return OciRegistry(f"{address}:{port}", directory, process)


def _listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0
