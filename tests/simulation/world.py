"""A job in a simulated world: coordinators and workers that run the code of the product.

Everything that a process has is simulated (time, threads, network, disk, store);
everything that it does is not. Faults are drawn from the seed.
"""

import asyncio
import contextlib
import math
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch._dynamo  # noqa: F401 - or torch would import it amid a run, and draw names from its seed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from simulation.disk import Disk, DiskStorage, SimulatedStorage
from simulation.network import Network, SimulatedClient, SimulatedServer, Weather
from simulation.scenario import Scenario
from simulation.shared_disk import SharedDisk, loss
from simulation.store import SimulatedBackend, Troubles
from simulation.strands import (
    THREADING,
    SimulatedClock,
    SimulatedExecutor,
    patient_result,
    stand_still,
)
from simulation.virtual_loop import Process, VirtualLoop

from pliska.aggregation import AttackName
from pliska.coordinator import routes
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.duty import Duty
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.means import Means
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.horizon import read_horizon
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.server import Server
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.transport import Handler, Request, Response
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import Change, Check, Create, Revision, Update
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore
from pliska.trainer.adversary import Adversary
from pliska.trainer.gradient_source import ByzantineSource, GradientSource, HonestSource
from pliska.trainer.worker import Worker, WorkerOptions

SESSION_S = 2.0
STOP_S_MAX = 3 * SESSION_S
"""Longest stop amid an access to a disk: others lead and go on for some rounds meanwhile."""
OFTEN = 20
"""So much likelier is a stop where a checkpoint is written, or removed."""
WORKER_LEASE_S = 4.0
LATE_S = 5.0
"""Who is started less than this before another one finishes may not be known to it as a standby."""


def key_of(name: str) -> Ed25519PrivateKey:
    """Return the key of a process; the same in every run."""
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def signer_of(name: str) -> Signer:
    """Return what a process signs with."""
    private = key_of(name)
    return Signer(private, key_id(public_bytes(private)))


@dataclass(frozen=True, slots=True)
class Failure:
    """How a process ended that failed."""

    error: str


class WatchedStore(MemoryStore):
    """A store that remembers the commit record that its tip named, whenever that moved."""

    def __init__(
        self, clock: SimulatedClock, key: str, record_of: Callable[[bytes], bytes]
    ) -> None:
        super().__init__(clock)
        self.committed: list[bytes] = []
        self._key = key
        self._record_of = record_of

    def transact(self, checks: Sequence[Check], changes: Sequence[Change]) -> Revision:
        """See `MemoryStore.transact`."""
        revision = super().transact(checks, changes)
        self.committed += [
            self._record_of(change.value)
            for change in changes
            if isinstance(change, Create | Update) and change.key == self._key
        ]
        return revision


@dataclass
class Run:
    """What a run left behind.

    Attributes:
        committed: Every commit record that the store ever named, in order.
        shown: Every version that was handed out, with the digest of its parameters.
        ended: What each process came to.
        came_late: The coordinators that were started when another one was about to finish, or
            stopped until the others had gone home.
        disks: Of the coordinators; one and the same where they share it.
        horizon: Up to which version nobody needs aggregates, by the store's word.
        deaths: At writes, in words.
        steps: How many the loop took.
    """

    job: Job
    coordinators: tuple[str, ...]
    workers: tuple[str, ...]
    committed: list[bytes]
    shown: list[tuple[int, str]]
    ended: dict[str, Any]
    came_late: frozenset[str]
    disks: dict[str, Disk]
    horizon: int
    deaths: list[str]
    steps: int


@dataclass
class World:
    """One run.

    Attributes:
        chance_of_death: At each write to a disk.
        chance_of_stop: Before each access to a disk, for up to `STOP_S_MAX`.
        burnt: The coordinators whose machine was lost for good; another one has the name now.
        ended: What each process came to, by name; the last one of those it had.
        began_at: When each process was started last, by name.
        finished_at: When each coordinator came to the end of the job, by name.
    """

    scenario: Scenario
    seed: int
    coordinators: tuple[str, ...] = ("c1", "c2", "c3")
    workers: tuple[str, ...] = ("w1", "w2", "w3", "w4")
    weather: Weather = field(default_factory=Weather)
    chance_of_death: float = 0.0
    chance_of_stop: float = 0.0
    disks: dict[str, Disk] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    ended: dict[str, Any] = field(default_factory=dict)
    began_at: dict[str, float] = field(default_factory=dict)
    finished_at: dict[str, float] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)
    burnt: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job = self.scenario.job
        self.lots = Random(self.seed)
        self.loop = VirtualLoop(self.lots)
        self.shared_disk = SharedDisk(self._loss) if self.scenario.shares_storage else None
        self.network = Network(self.lots, self.weather)
        self.troubles = Troubles(self.lots)
        self.shown: list[tuple[int, str]] = []

    def open(self) -> None:
        """Make the store, with everybody enrolled. The run has begun (see `taking_place`)."""
        self.store = WatchedStore(
            SimulatedClock(self.loop), f"jobs/{self.job.name}/commit", self._record_of
        )
        keyring = Keyring(MemoryBackend(self.store))
        for name in self.coordinators:
            keyring.enroll(name, Role.COORDINATOR, public_bytes(key_of(name)))
        for name in self.workers:
            keyring.enroll(name, Role.WORKER, public_bytes(key_of(name)))

    def store_directory(self) -> JobDirectory:
        """Return the job's place in the store, for who is no process of this world."""
        return JobDirectory(MemoryBackend(self.store), self.job.name)

    def start(self, name: str) -> None:
        """Start a process; a coordinator has the disk that its name had before."""
        main = self._coordinate if name in self.coordinators else self._work
        self.ended.pop(name, None)
        self.began_at[name] = self.loop.time()
        process = self.processes[name] = Process(self.loop, name)
        process.start(self._run(process, main))

    def can_burn(self, name: str) -> bool:
        """Whether a commit promises to outlive the machine of this process.

        Not once others have finished: the rounds are on their disks, but nobody is there to
        give them.
        """
        is_at_work = name in self.coordinators and self.ended.get(name) is None
        return self.scenario.may_burn and not self.burnt and is_at_work and not self.finished_at

    def burn(self, name: str) -> None:
        """Lose a machine, disk included; a new one with an empty disk takes its name."""
        self.burnt.append(name)
        self.processes[name].is_dead = True
        self.disks[name] = Disk()

    def is_finished(self) -> bool:
        """Whether everybody came to the end of the job."""
        ends = [self.ended.get(name) for name in (*self.coordinators, *self.workers)]
        return not any(end is None or isinstance(end, Failure) for end in ends)

    def finish(self) -> Run:
        """End everything that is left, and say what that is."""
        for process in self.processes.values():
            process.is_dead = True
        self.loop.finish()
        committed = [Commit.unverified(record) for record in self.store.committed]
        horizon = read_horizon(self.store_directory())
        if self.shared_disk is not None:  # what is left of a run must not hold on to its world
            self.shared_disk.find_loss = lambda names: loss(names, committed, horizon)
        return Run(
            self.job,
            self.coordinators,
            self.workers,
            self.store.committed,
            self.shown,
            self.ended,
            frozenset(name for name in self.coordinators if self._came_late(name)),
            self.disks,
            horizon,
            self.deaths,
            self.loop.steps,
        )

    def _came_late(self, name: str) -> bool:
        """Whether nobody may have been there any more to give this coordinator the last rounds."""
        times = self.finished_at.values()
        others = [at for each, at in self.finished_at.items() if each != name]
        was_started = self.began_at[name] > min(times, default=math.inf) - LATE_S
        woke_at = self.processes[name].stopped_until
        return was_started or woke_at > max(others, default=math.inf) - LATE_S

    def _record_of(self, tip_bytes: bytes) -> bytes:
        """Return the record that a tip names: on a disk before the tip moves."""
        tip = Tip.claimed(tip_bytes)
        for disk in self.disks.values():
            log = UpdateLog(DiskStorage(disk), tip.job)
            with contextlib.suppress(MissingObjectError):
                return log.head(tip.version, tip.digest).commit.to_bytes()
        raise AssertionError(f"version {tip.version} was committed and is on no disk")

    async def _run(self, process: Process, main: Any) -> None:
        try:
            outcome = await main(process)
        except Exception as error:  # noqa: BLE001 - a process that fails ends; the checks see it
            outcome = Failure(repr(error))
        if not process.is_dead:
            self.ended[process.name] = outcome
            if outcome is Phase.FINISHED:
                self.finished_at[process.name] = self.loop.time()

    async def _coordinate(self, process: Process) -> Any:
        disk = self.disks.setdefault(process.name, self.shared_disk or Disk())
        clock = SimulatedClock(self.loop)
        directory = self._directory(process)
        signer = signer_of(process.name)
        server = Server(dict)
        http = SimulatedServer(self.network, self._watched(server.handle), process.name)
        await http.start()
        await asyncio.to_thread(directory.publish, self.job)
        means = Means(
            job=self.job,
            directory=directory,
            storage=SimulatedStorage(disk, process, self._may_kill, self._may_stop),
            signer=signer,
            evaluator=await asyncio.to_thread(Evaluator, self.job),
            worker_lease_s=WORKER_LEASE_S,
            now=clock.now_s,
        )
        duty = Duty(
            means=means,
            endpoint=Endpoint(
                process.name, process.name, http.port, f"{http.address}", signer.key_id
            ),
            session_timeout_s=SESSION_S,
            clock=clock,
            server=server,
            show_leads=lambda _leads: None,
        )
        return await duty.run()

    async def _work(self, process: Process) -> Any:
        computation = await asyncio.to_thread(Computation, self.job)
        worker = Worker(
            name=process.name,
            directory=self._directory(process),
            computation=computation,
            source=self._source(process.name, computation),
            signer=signer_of(process.name),
            options=WorkerOptions(),
        )
        return await worker.run()

    def _source(self, name: str, computation: Computation) -> GradientSource:
        liars = self.scenario.liars
        if name not in liars:
            return HonestSource(computation)
        return ByzantineSource(computation, name, Adversary(AttackName.SIGN_FLIP), liars)

    def _watched(self, handle: Handler) -> Handler:
        """Note every version that is handed out."""

        async def watched(request: Request) -> Response:
            response = await handle(request)
            if request.path.endswith("/model") and response.status == 200:
                version = int(response.headers[routes.VERSION])
                self.shown.append((version, response.headers["etag"].strip('"')))
            return response

        return watched

    def _directory(self, process: Process) -> JobDirectory:
        return JobDirectory(SimulatedBackend(self.store, process, self.troubles), self.job.name)

    def _loss(self, names: Collection[str]) -> str | None:
        """Say what is missing on the disk that all share."""
        committed = [Commit.unverified(record) for record in self.store.committed]
        return loss(names, committed, read_horizon(self.store_directory()))

    def _may_kill(self, process: Process, moment: str) -> None:
        if self.lots.random() < self.chance_of_death:
            self.deaths.append(f"{self.loop.time():.3f} {process.name} {moment}")
            process.kill()

    def _may_stop(self, process: Process, name: str) -> None:
        chance = self.chance_of_stop * (OFTEN if "/checkpoints/" in name else 1)
        if chance and self.lots.random() < chance:
            process.stop(self.lots.uniform(0.0, STOP_S_MAX))
            stand_still()

    @contextlib.contextmanager
    def taking_place(self) -> Iterator[None]:
        """Replace what reaches outside, for the length of a run."""
        with contextlib.ExitStack() as stack:
            for module in _modules():
                for name, stand_in in self._stand_ins().items():
                    if getattr(module, name, None) is not None and _is_real(module, name):
                        stack.enter_context(patch.object(module, name, stand_in))
            stack.enter_context(patch("concurrent.futures.Future.result", patient_result))
            stack.enter_context(patch("time.time", lambda: 2e9 + self.loop.time()))
            stack.enter_context(patch("secrets.token_bytes", self.lots.randbytes))
            stack.enter_context(
                patch("secrets.token_hex", lambda count=16: self.lots.randbytes(count).hex())
            )
            stack.enter_context(
                patch("uuid.uuid4", lambda: uuid.UUID(bytes=self.lots.randbytes(16), version=4))
            )
            yield

    def _stand_ins(self) -> dict[str, Any]:
        return {
            "threading": THREADING,
            "ThreadPoolExecutor": SimulatedExecutor,
            "SystemClock": lambda: SimulatedClock(self.loop),
            "SystemRandom": lambda: self.lots,
            "HttpClient": lambda address, _context, **_: SimulatedClient(self.network, address),
            "client_context": lambda _certificate: None,
        }


def _modules() -> list[ModuleType]:
    parts = ("pliska.coordinator", "pliska.locks", "pliska.trainer", "pliska.discovery")
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(parts)]


def _is_real(module: ModuleType, name: str) -> bool:
    """Whether the module uses the thing, rather than defines it."""
    thing = getattr(module, name)
    return getattr(thing, "__module__", None) != module.__name__
