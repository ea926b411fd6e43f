"""The walk that the README describes, step by step, in real processes of the real command.

The other use, a rule in a training loop of one's own, is in tests/test_examples.py.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.trainer.demo.processes import Child, Processes

DIGITS = (Path(__file__).parents[2] / "jobs" / "digits.toml").read_text()
POISONED = "poisoned.safetensors"
PLISKA = Path(sys.executable).with_name("pliska")
PATIENCE_S = 90.0
ROUNDS = 12


class Terminals:
    """Runs `pliska` in one folder, as in separate terminals."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._count = 0

    async def start(self, command: str) -> Child:
        """Start a command that goes on."""
        self._count += 1
        name = f"{self._count:02d}-{command.partition(' ')[0]}"
        return await self._processes.start(name, command.split())

    async def run(self, command: str, code: int = 0) -> str:
        """Run a command to its end and return what it printed."""
        child = await self.start(command)
        async with asyncio.timeout(PATIENCE_S):
            assert await child.process.wait() == code, child.log.read_text()
        return child.log.read_text()

    async def json(self, command: str) -> Any:
        return json.loads(await self.run(f"{command} -o json"))


@pytest.fixture
async def terminals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminals]:
    """Open terminals in an empty folder with the job file; close all processes at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLISKA_STORE", "embedded:./.pliska")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for so small a job threads only cost time
    write_job(DIGITS.replace("count = 120", f"count = {ROUNDS}"))
    logs = tmp_path / "logs"
    async with Processes(PLISKA, logs) as processes:
        yield Terminals(processes)
        for log in sorted(logs.glob("*.log")):
            # Pytest shows it if the test fails.
            sys.stdout.write(f"--- {log.name}\n{log.read_text(errors='replace')}\n")


def write_job(text: str) -> None:
    path = Path("jobs/digits.toml")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def has_store() -> bool:
    return Path(".pliska").exists()


def finished_model() -> Path:
    """Find the file that the finished job has left, and make a poisoned one beside the jobs."""
    (model,) = Path(".pliska/storage/jobs/digits/models").glob("*.safetensors")
    save_file({name: -10 * each for name, each in load_file(model).items()}, POISONED)
    return model


async def wait_for_workers(count: int) -> None:
    """Wait until so many workers have joined the job."""
    directory = JobDirectory.at(os.environ["PLISKA_STORE"], "digits")
    try:
        async with asyncio.timeout(PATIENCE_S):
            here = 0
            while here < count:
                await asyncio.sleep(0.05)
                workers = (await job_snapshot(directory)).get("workers", ())
                here = sum(each["is_here"] for each in workers)
    finally:
        directory.backend.close()


@pytest.mark.timeout(240)
async def test_the_walk_of_the_readme(terminals: Terminals) -> None:
    async def make_key(name: str) -> None:
        await terminals.run(f"key new {name}.pem")
        await terminals.run(f"key enroll {name} {name}.pem")

    await asyncio.gather(*(make_key(f"w{number}") for number in range(1, 9)))
    keys = (await terminals.json("key list"))["keys"]
    assert {key["name"] for key in keys} == {f"w{number}" for number in range(1, 9)}

    run = "coordinator run --job jobs/digits.toml --store embedded:./.pliska"
    coordinators = [await terminals.start(run) for _ in range(2)]
    workers = [
        await terminals.start(f"worker run --job digits --key w{number}.pem")
        for number in range(1, 7)
    ]
    await wait_for_workers(6)  # one short of the quorum: the round waits, and says so
    (job,) = (await terminals.json("status"))["jobs"]
    assert job["leader"]
    assert len(job["standbys"]) == 1
    assert job["version"] == 0
    assert job["reason"] == "waits for workers: 6 of 7 are here"
    table = await terminals.run("status --job digits")
    for word in (job["leader"], job["standbys"][0], "w6", "6 of 7", "SUSPICION"):
        assert word in table

    workers += [await terminals.start(f"worker run --job digits --key w{n}.pem") for n in (7, 8)]
    async with asyncio.timeout(PATIENCE_S):
        ended = [await child.process.wait() for child in (*workers, *coordinators)]
    assert ended == [0] * 10
    for worker in workers:
        assert f"finished at version {ROUNDS}" in worker.log.read_text()
    (job,) = (await terminals.json("status"))["jobs"]
    assert (job["leader"], job["version"]) == (None, ROUNDS)

    await terminals.run(f"model register digits {finished_model()}")
    await terminals.run("model promote digits 1 --alias prod")
    await terminals.run(f"model register digits {POISONED}")
    await terminals.run("model promote digits 2 --alias prod")
    await terminals.run("model rollback digits --alias prod --reason accuracy")
    versions = (await terminals.json("model list"))["versions"]
    assert {each["version"]: each["aliases"] for each in versions} == {1: ["prod"], 2: []}
    moves = (await terminals.json("model log digits --alias prod"))["log"]
    assert [move["kind"] for move in moves] == ["rollback", "promote", "promote"]


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("qorum = 7", "quorum = 7", 'not a key of the job file; did you mean "quorum"?'),
        ("quorum = 6", "quorum = 7", "multi-krum with f = 2 needs n >= 2f + 3"),
        ('digits:modell"', 'digits:model"', "has no 'modell'; name one of its functions"),
    ],
)
async def test_a_mistake_in_the_job_file_is_one_line_before_anything_starts(
    terminals: Terminals, wrong: str, right: str, message: str
) -> None:
    assert DIGITS.count(right) == 1
    write_job(DIGITS.replace(right, wrong))
    line = 1 + DIGITS[: DIGITS.index(right)].count("\n")
    output = await terminals.run("coordinator run --job jobs/digits.toml", code=2)
    assert output.startswith(f"error: jobs/digits.toml:{line}: ")
    assert message in output
    assert output.count("\n") == 1
    assert not has_store()
