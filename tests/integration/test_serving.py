"""examples/serve.py as people run it: a real process on each store, moved by the real command."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import Tensor
from pliska.coordinator.registry.tensor_file import write_tensor_file
from services.process import free_ports, stop_between_writes
from services.ready_command import ReadyCommand
from services.zygote import PLISKA

ROOT = Path(__file__).parents[2]
WAIT_MAX_S = 60.0


class Site:
    """A registry with versions 1 and 2 of `lines`, whose n-th answers n to everything."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.processes: list[ReadyCommand] = []
        self.environment = {
            **os.environ,
            "PLISKA_STORE": address,
            "PLISKA_ARTIFACTS": str(folder / "artifacts"),
            "PLISKA_ACTOR": "ann@test",
            "OMP_NUM_THREADS": "1",
        }
        for number in (1, 2):
            bias = [float(row == number) for row in range(3)]
            tensors = {
                "weight": Tensor.of_bytes("F32", (3, 2), struct.pack("<6f", *[0.0] * 6)),
                "bias": Tensor.of_bytes("F32", (3,), struct.pack("<3f", *bias)),
            }
            write_tensor_file(folder / f"m{number}.safetensors", tensors, {})
            self.run("register", "lines", folder / f"m{number}.safetensors")
        self.promote(1)

    def run(self, *words: object, code: int = 0) -> str:
        process = ReadyCommand(PLISKA, ["model", *words], cwd=self.folder, env=self.environment)
        stdout, stderr = process.communicate(timeout=WAIT_MAX_S)
        assert process.returncode == code, (words, stdout, stderr)
        return stdout

    def promote(self, version: int, *more: object, code: int = 0) -> Any:
        out = self.run("promote", "lines", version, "--alias", "prod", "-o", "json", *more,
                       code=code)  # fmt: skip
        return json.loads(out)

    def serve(self, name: str, *more: str) -> "Server":
        (port,) = free_ports(1)
        process = ReadyCommand(
            str(ROOT / "examples" / "serve.py"),
            ["lines", "prod", "--node", name, "--state", self.folder / f"state-{name}",
             "--port", port, *more],
            cwd=self.folder, env=self.environment,
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving on ")
        return Server(process, port)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


class Server:
    """One process that serves."""

    def __init__(self, process: ReadyCommand, port: int) -> None:
        self.process = process
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, body: bytes | None = b"[[0.1, 0.2]]", **headers: str) -> tuple[int, Any]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self._url, body, names)  # noqa: S310 - our own server
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture(params=["embedded", "zookeeper", "consul"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "embedded":
        address = f"embedded:{tmp_path / 'store'}"
    else:
        address = request.getfixturevalue(request.param).fresh_address()
    site = Site(tmp_path, address)
    yield site
    site.end()


def until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_MAX_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_process_follows_promotions_and_rollbacks(site: Site) -> None:
    server = site.serve("n1")
    assert server.ask() == (200, {"outputs": [1], "version": 1, "gen": 1, "stale": ""})
    moved = site.promote(2)
    assert (moved["outcome"], moved["committed"], moved["nodes"]) == ("moved", True, 1)
    assert server.ask()[1]["outputs"] == [2]
    assert server.ask(X_Pliska_Min_Gen="3")[0] == 503
    assert server.ask(b"not JSON")[0] == 400
    status = json.loads(site.run("status", "lines", "--alias", "prod", "-w", "-o", "json"))
    assert [(node["node"], node["gen"], node["phase"]) for node in status["nodes"]] == [
        ("n1", 2, "SERVING")
    ]
    site.run("rollback", "lines", "--alias", "prod", "--reason", "worse")
    assert server.ask()[1]["version"] == 1
    assert server.ask(None)[1] == {"version": 1, "gen": 3, "stale": ""}


def test_a_killed_process_comes_back_at_the_generation_that_it_knew(site: Site) -> None:
    server = site.serve("n1", "--lease", "1")
    site.promote(2)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    again = site.serve("n1", "--lease", "1")
    assert (again.ask()[1]["version"], again.ask()[1]["gen"]) == (2, 2)


def test_a_process_that_was_stopped_past_its_lease_serves_nothing_unknowing(site: Site) -> None:
    server = site.serve("n1", "--lease", "1", "--stop-when-stale")
    stop_between_writes(server.process.pid, site.environment["PLISKA_STORE"])
    assert until(
        lambda: (
            not json.loads(site.run("status", "lines", "--alias", "prod", "-o", "json"))["nodes"]
        )
    )
    assert site.promote(2)["outcome"] == "moved", "a process that is gone is not waited for"
    server.process.send_signal(signal.SIGCONT)
    code, answer = server.ask()
    assert code == 503 or answer["gen"] == 2
    assert until(lambda: server.ask()[0] == 200 and server.ask()[1]["gen"] == 2)


def test_a_port_that_is_taken_is_said(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "serve.py", "lines", "prod", "--state",
             site.folder / "state-x", "--port", str(taken.getsockname()[1])],
            cwd=site.folder, env=site.environment, capture_output=True, text=True,
            timeout=WAIT_MAX_S, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "Address already in use" in done.stderr
