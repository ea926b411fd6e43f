"""From a key file and the name of a job to a running worker."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch

from pliska.aggregation import AttackName, rule_named
from pliska.coordinator.client import JobDirectory
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job
from pliska.discovery import Enrolled, Role, key_id, load_private_key, public_bytes
from pliska.trainer.adversary import Adversary
from pliska.trainer.donation import Door, donate
from pliska.trainer.errors import NoCoordinatorError, UnknownWorkerError
from pliska.trainer.gradient_source import ByzantineSource, GradientSource, HonestSource
from pliska.trainer.worker import Worker, WorkerOptions

JOB_PAUSE_S = 0.2
"""Pause before the store is asked again for a job that no coordinator has started yet."""


@dataclass(frozen=True, slots=True)
class Attacking:
    """How a worker lies, for drills."""

    attack: AttackName
    scale: float | None
    accomplices: frozenset[str]


async def start_worker(
    store: str,
    job_name: str,
    key: Path,
    leader_timeout_s: float,
    attacking: Attacking | None,
    door: Door | None = None,
) -> int:
    """Run a worker until its job is finished and return the last version.

    One thread computes: a machine runs as many workers as it has cores, and the
    same bytes come out wherever they run.

    Raises:
        KeyFileError: The key cannot be read.
        UnknownWorkerError: The key is not enrolled as a worker's.
        NoCoordinatorError: No coordinator started or led the job in time.
        WorkerRefusedError: The coordinator refuses this worker for good.
        ListenError: It cannot donate where it is to.
        JobFileError: A function that the job names cannot be used here.
    """
    torch.set_num_threads(1)
    private_key = load_private_key(key)
    identity = key_id(public_bytes(private_key))
    directory = await asyncio.to_thread(JobDirectory.at, store, job_name)
    with contextlib.closing(directory.backend):
        enrolled = await asyncio.to_thread(directory.keyring.find, identity)
        name = _worker_name(enrolled, key, identity)
        job = await _find_job(directory, leader_timeout_s)
        computation = await asyncio.to_thread(Computation, job)
        async with donate(door, name, identity, directory) as donation:
            worker = Worker(
                name=name,
                directory=directory,
                computation=computation,
                source=_source(computation, name, attacking),
                signer=Signer(private_key, identity),
                options=WorkerOptions(leader_timeout_s),
                donation=donation,
            )
            return await worker.run()


def _worker_name(enrolled: Enrolled | None, key: Path, identity: str) -> str:
    if enrolled is None:
        raise UnknownWorkerError(
            f"the key in {key} ({identity}) is not enrolled: `pliska key enroll NAME {key}`"
        )
    if not enrolled.is_active:
        raise UnknownWorkerError(f"the key in {key} is revoked: {enrolled.reason}")
    if enrolled.role is not Role.WORKER:
        raise UnknownWorkerError(
            f"the key in {key} is enrolled as {enrolled.role} {enrolled.name!r}, not as a worker"
        )
    return enrolled.name


async def _find_job(directory: JobDirectory, timeout_s: float) -> Job:
    """Read the job's definition, waiting for the coordinator that writes it."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                job = await asyncio.to_thread(directory.definition)
                if job is not None:
                    return job
                await asyncio.sleep(JOB_PAUSE_S)
    except TimeoutError as error:
        raise NoCoordinatorError(
            f"job {directory.job!r} is not in the store {directory.backend.address}: "
            "start a coordinator with its job file"
        ) from error


def _source(computation: Computation, name: str, attacking: Attacking | None) -> GradientSource:
    if attacking is None:
        return HonestSource(computation)
    job = computation.job
    rule = rule_named(job.rule.name, **job.rule.parameters)
    adversary = Adversary(attacking.attack, attacking.scale, job.seed, rule)
    return ByzantineSource(computation, name, adversary, attacking.accomplices | {name})
