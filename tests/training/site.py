"""A site with a real store: its coordinators are processes, its workers tasks of the test's."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from training.toy_job import toy_job

from pliska.aggregation import rule_named
from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.coordinator.records.commit import GENESIS, CommitRecord
from pliska.coordinator.records.data_leases import DataCursor, DataLeases, lease_to
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job
from pliska.discovery import (
    Role,
    key_id,
    new_private_key,
    public_bytes,
    write_private_key,
)
from pliska.trainer.demo.processes import Child, Processes
from pliska.trainer.gradient_source import Assignment, GradientSource, HonestSource
from pliska.trainer.worker import Worker, WorkerOptions

PATIENCE_S = 60.0
"""A machine that is busy with other things takes long to start a process."""


class Hold:
    """A source of gradients that waits in one round until it is told to go on."""

    def __init__(self, inner: GradientSource, round_number: int) -> None:
        self.inner = inner
        self.needs_members = inner.needs_members
        self.round_number = round_number
        self.is_reached = threading.Event()
        self.go_on = threading.Event()

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        if assignment.round == self.round_number:
            self.is_reached.set()
            assert self.go_on.wait(PATIENCE_S), "the test never went on"
        return self.inner.gradient(assignment)


class Slow:
    """A source of gradients that takes its time over each."""

    def __init__(self, inner: GradientSource, seconds: float) -> None:
        self.inner = inner
        self.needs_members = inner.needs_members
        self.seconds = seconds

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        time.sleep(self.seconds)  # it runs in a thread
        return self.inner.gradient(assignment)


class Pace:
    """A source of gradients that goes as far as it is allowed to."""

    def __init__(self, inner: GradientSource) -> None:
        self.inner = inner
        self.needs_members = inner.needs_members
        self._allowed = 0
        self._changed = threading.Condition()

    def allow(self, round_number: int) -> None:
        """Let it work on all rounds up to this one."""
        with self._changed:
            self._allowed = round_number
            self._changed.notify_all()

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        with self._changed:
            self._changed.wait_for(lambda: assignment.round <= self._allowed)
        return self.inner.gradient(assignment)


class Site:
    """One store and one job: its coordinators are processes, its workers tasks of this one."""

    def __init__(self, folder: Path, store: str, processes: Processes, scripts: Processes) -> None:
        """Make a site in an empty folder.

        Args:
            folder: For the job file, keys and storage.
            store: Address of an empty coordination store.
            processes: Starts `pliska`.
            scripts: Starts Python scripts.
        """
        self.folder = folder
        self.processes = processes
        self.scripts = scripts
        self.children: dict[str, Child] = {}
        self.store = store
        self.storage = folder / "storage"
        self.job_file = folder / "toy.toml"
        self.define(toy_job())
        self.directory = JobDirectory.at(self.store, self.job.name)
        self.keys: dict[str, Ed25519PrivateKey] = {}
        self.tasks: list[asyncio.Task[int]] = []
        self.holds: list[Hold] = []
        self.paces: list[Pace] = []

    def define(self, job: Job) -> None:
        """Write the job file."""
        self.job = job
        self.job_file.write_text(job.text)

    def enroll(self, name: str) -> Path:
        """Make a worker's key and enrol it; return its file."""
        self.keys[name] = new_private_key()
        path = self.folder / f"{name}.pem"
        write_private_key(path, self.keys[name])
        self.directory.keyring.enroll(name, Role.WORKER, public_bytes(self.keys[name]))
        return path

    def signer(self, name: str) -> Signer:
        key = self.keys[name]
        return Signer(key, key_id(public_bytes(key)))

    def own_storage(self, name: str) -> Path:
        """Where a coordinator keeps what no other one has."""
        return self.folder / f"storage-{name}"

    async def coordinator(
        self, name: str, *, session_timeout_s: float = 3.0, storage: Path | None = None
    ) -> Child:
        """Start a coordinator process; it takes a moment until it leads or stands by.

        Args:
            name: Its name.
            session_timeout_s: A leader that is silent for so long is replaced.
            storage: Its storage; the one that all share where None.
        """
        arguments = ["coordinator", "run", "--job", str(self.job_file), "--store", self.store]
        options = ["--name", name, "--session-timeout", str(session_timeout_s)]
        place = str(storage or self.storage)
        files = ["--storage", place, "--key", str(self.folder / "coordinator.pem")]
        self.children[name] = await self.processes.start(name, arguments + options + files)
        return self.children[name]

    async def script(self, name: str, *arguments: object) -> Child:
        """Start a Python script."""
        self.children[name] = await self.scripts.start(name, [str(each) for each in arguments])
        return self.children[name]

    def worker(self, name: str) -> None:
        """Start a worker in this process."""
        computation = Computation(self.job)
        self._start(name, computation, HonestSource(computation))

    def held_worker(self, name: str, round_number: int) -> Hold:
        """Start a worker in this process that waits in one round."""
        computation = Computation(self.job)
        hold = Hold(HonestSource(computation), round_number)
        self.holds.append(hold)
        self._start(name, computation, hold)
        return hold

    def slow_worker(self, name: str, seconds: float) -> None:
        """Start a worker in this process that takes so long for each gradient."""
        computation = Computation(self.job)
        self._start(name, computation, Slow(HonestSource(computation), seconds))

    def paced_worker(self, name: str) -> Pace:
        """Start a worker in this process that works on no round before it is allowed to."""
        computation = Computation(self.job)
        pace = Pace(HonestSource(computation))
        self.paces.append(pace)
        self._start(name, computation, pace)
        return pace

    def _start(self, name: str, computation: Computation, source: GradientSource) -> None:
        self.enroll(name)
        worker = Worker(
            name=name,
            directory=JobDirectory(self.directory.backend, self.job.name),
            computation=computation,
            source=source,
            signer=self.signer(name),
            options=WorkerOptions(leader_timeout_s=PATIENCE_S),
        )
        self.tasks.append(asyncio.create_task(worker.run()))

    async def finished(self) -> list[int]:
        """Wait for all workers to finish; return the versions that they ended with."""
        async with asyncio.timeout(PATIENCE_S):
            return list(await asyncio.gather(*self.tasks))

    async def committed(self, version: int) -> float:
        """Wait until the store holds this version or a newer one; return when it did."""
        return await asyncio.to_thread(self._committed, version)

    def _committed(self, version: int) -> float:
        backend, key = self.directory.backend, self.directory.commit_key
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            record = self.directory.commit()
            if record is not None and Tip.claimed(record.value).version >= version:
                return time.monotonic()
            backend.wait_for_change(
                key, record.modified if record else backend.list(key).revision, 1.0
            )
        raise AssertionError(f"version {version} was not committed in {PATIENCE_S:g} s")

    async def status(self, holds: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the job's status is as wanted, and return it."""
        snapshot: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    snapshot = await job_snapshot(self.directory)
                    if holds(snapshot):
                        return snapshot
                    self.expect_running()
                    await asyncio.sleep(0.02)
        raise AssertionError(f"the status never came to be as wanted; it is {snapshot}")

    def expect_running(self) -> None:
        """Fail when a coordinator has ended that nobody told to."""
        for child in self.children.values():
            assert child.is_running or child.may_end or child.process.returncode == 0, child.name

    async def leads(self, *names: str) -> str:
        """Wait until one of these coordinators leads; return which."""
        snapshot = await self.status(lambda now: now["leader"] in names and "round" in now)
        return str(snapshot["leader"])

    async def stands_by(self, *names: str) -> None:
        """Wait until these coordinators are candidates that do not lead."""
        await self.status(lambda now: set(names) <= set(now["standbys"]))

    async def follow(self, *names: str) -> None:
        """Wait until the leader says of these standbys that they follow it.

        From then on a round is committed once one of them has it too, where
        `durable.replicas` is "auto".
        """

        def holds(now: Mapping[str, Any]) -> bool:
            standbys = now.get("replicas", {}).get("standbys", [])
            following = {each["coordinator"] for each in standbys if each["state"] == "following"}
            return set(names) <= following

        await self.status(holds)

    def chain(self, storage: Path | None = None) -> list[CommitRecord]:
        """Return the committed records, oldest first, each found by its successor's digest."""
        record = self.directory.commit()
        assert record is not None
        log = UpdateLog(LocalStorage(storage or self.storage), self.job.name)
        keyring = self.directory.keyring

        def lookup(identity: str) -> bytes | None:
            found = keyring.find(identity)
            return found.public_key if found else None

        tip = Tip.verified(record.value, self.job.name, lookup)
        version, digest = tip.version, tip.digest
        records = []
        while digest != GENESIS:
            records.append(log.head(version, digest).commit.record)
            version, digest = version - 1, records[-1].previous
        return records[::-1]

    def undisturbed_digest(self, *workers: str) -> bytes:
        """Train the job in this process with these workers in every round; return the digest."""
        leases, cursor = [], DataCursor()
        for round_number in range(1, self.job.rounds.count + 1):
            held = lease_to(DataLeases(cursor), workers, round_number).held
            leases.append({worker: each.lease for worker, each in held.items()})
            cursor = cursor.settle(leases[-1].values())
        return self.trained_digest(leases)

    def trained_digest(self, leases: Iterable[Mapping[str, int]]) -> bytes:
        """Train the job in this process; return the digest.

        Args:
            leases: Of each round, by worker.
        """
        model, computation = TrainingModel.build(self.job), Computation(self.job)
        rule = rule_named(self.job.rule.name, **self.job.rule.parameters)
        for held in leases:
            computation.parameters[:] = model.parameters().numpy()
            rows = [computation.gradient(held[worker]) for worker in sorted(held)]
            model.apply(rule(rows, sorted(held)).vector)
        return model.parameters_digest()

    async def close(self) -> None:
        """End the workers of this process."""
        for hold in self.holds:
            hold.go_on.set()
        for pace in self.paces:
            pace.allow(10**9)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.directory.backend.close()
