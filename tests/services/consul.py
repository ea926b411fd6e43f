"""Consul for tests: one agent, or three servers.

The binary is the one on PATH, or the one that `PLISKA_TEST_CONSUL_BINARY`
names, or comes from Debian. The single agent keeps its data on disk, unlike
Consul's own `-dev`, so that it can be killed and started again.
"""

import http.client
import json
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services import debian
from services.missing import ServiceMissingError
from services.process import (
    START_TIMEOUT_S,
    ServiceFailedError,
    ServiceProcess,
    free_ports,
)

SESSION_TTL_MIN = "100ms"
HOW_TO_GET = (
    "no Consul here: put `consul` (1.8.7 or newer) on PATH, or name it by "
    "PLISKA_TEST_CONSUL_BINARY, or a running agent by PLISKA_TEST_CONSUL=host:port "
    "(`docker compose up -d` brings one to 127.0.0.1:8500); on Debian the tests install it "
    "themselves when they run as root"
)


@dataclass(frozen=True, slots=True)
class ConsulServer:
    """An agent and where its HTTP API is; `process` is None for one that was running before."""

    host_port: str
    process: ServiceProcess | None

    def fresh_address(self) -> str:
        """The address of an empty store on it."""
        return f"consul://{self.host_port}/pliska-test/{uuid.uuid4().hex}"

    def leader(self) -> str:
        """The address of the leading server; empty while there is none."""
        return _leader(self.host_port)


def binary() -> Path:
    """The program to start, brought to Debian when it is not there.

    Raises:
        ServiceMissingError: There is none, and we may not install it.
    """
    named = os.environ.get("PLISKA_TEST_CONSUL_BINARY") or shutil.which("consul")
    if named:
        return Path(named)
    if not debian.can_install():
        raise ServiceMissingError(HOW_TO_GET)
    return debian.consul_binary()


def start_one(
    directory: Path, program: Path, https_port: int = -1, **settings: object
) -> ConsulServer:
    """Start a server of its own.

    Args:
        directory: Empty, for its data, configuration and log.
        program: See `binary`.
        https_port: Where it speaks TLS as well; nowhere unless given.
        settings: Further entries of its configuration.
    """
    http_port, rpc_port, serf_port = free_ports(3)
    server = _start(
        directory,
        program,
        (http_port, rpc_port, serf_port),
        https_port,
        bootstrap_expect=1,
        **settings,
    )
    if "acl" in settings:  # nobody is told without a token who is registered
        server.process.wait_until_ready()
    else:
        _wait_until_registered([server])
    return server


def start_three(directory: Path, program: Path) -> list[ConsulServer]:
    """Start three servers that replicate each other."""
    ports = free_ports(9)
    triples = [(ports[i], ports[i + 1], ports[i + 2]) for i in (0, 3, 6)]
    join = [f"127.0.0.1:{serf}" for _, _, serf in triples]
    servers = [
        _start(directory / f"server-{i + 1}", program, triple, bootstrap_expect=3, retry_join=join)
        for i, triple in enumerate(triples)
    ]
    _wait_until_registered(servers)
    return servers


def _wait_until_registered(servers: Sequence[ConsulServer]) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    for server in servers:
        server.process.wait_until_ready()
        while not _is_registered(server.host_port):
            if time.monotonic() > until_s:
                raise ServiceFailedError(f"the leader does not know Consul at {server.host_port}")
            time.sleep(0.05)


def _start(
    directory: Path,
    program: Path,
    ports: tuple[int, int, int],
    https_port: int = -1,
    **settings: object,
) -> ConsulServer:
    directory.mkdir(parents=True, exist_ok=True)
    http_port, rpc_port, serf_port = ports
    config = {
        "server": True,
        "node_name": f"test-{http_port}",
        "data_dir": str(directory / "data"),
        "bind_addr": "127.0.0.1",
        "client_addr": "127.0.0.1",
        "ports": {
            "http": http_port,
            "server": rpc_port,
            "serf_lan": serf_port,
            "serf_wan": -1,
            "dns": -1,
            "grpc": -1,
            "https": https_port,
        },
        "performance": {"raft_multiplier": 1},
        "session_ttl_min": SESSION_TTL_MIN,
        "retry_interval": "1s",
        "disable_update_check": True,
        "enable_script_checks": False,
        **settings,
    }
    path = directory / "consul.json"
    path.write_text(json.dumps(config))
    host_port = f"127.0.0.1:{http_port}"
    process = ServiceProcess(
        f"Consul at {host_port}",
        [str(program), "agent", f"-config-file={path}"],
        directory,
        lambda: _leader(host_port) != "",
    )
    return ConsulServer(host_port, process)


def _is_registered(host_port: str) -> bool:
    """Whether the leading server knows this one: before, it takes no sessions from it."""
    node = f"test-{host_port.rpartition(':')[2]}"
    known = _ask(host_port, f"/v1/catalog/node/{node}")
    return isinstance(known, dict) and known.get("Node") is not None


def _leader(host_port: str) -> str:
    return str(_ask(host_port, "/v1/status/leader") or "")


def _ask(host_port: str, path: str) -> object:
    """Answer of the server, or None when it gives none."""
    connection = http.client.HTTPConnection(host_port, timeout=2)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
