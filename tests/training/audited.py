"""A job trained in this process by workers moved by hand, so that there is something to audit."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from training.leadership import Lead

from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.history import logged_chain
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Reply

KEEPING = """
[audit]
keep_rounds = 100
"""


class Audited:
    """A leader whose rounds are fed with the gradients of the workers' own batches."""

    def __init__(self, lead: Lead) -> None:
        self.lead = lead
        self.computation = Computation(lead.job)

    @property
    def keys(self) -> KeyBook:
        return KeyBook.of_enrolled(self.lead.directory.keyring.list())

    @property
    def log(self) -> UpdateLog:
        return UpdateLog(self.lead.storage, self.lead.job.name)

    @property
    def files(self) -> Path:
        return self.lead.folder / "storage"

    def commits(self) -> tuple[Commit, ...]:
        return logged_chain(self.log, None).commits

    def gradient(self, worker: str) -> NDArray[np.float32]:
        """Compute the gradient of the batch that a worker holds the lease of."""
        published = self.lead.leading.publisher.published
        self.computation.parameters[:] = np.frombuffer(published.parameters, dtype="<f4")
        return self.computation.gradient(self.lead.lease(worker)).numpy()

    async def push(self, worker: str, changed: NDArray[np.float32] | None = None) -> Reply:
        gradient = self.gradient(worker) if changed is None else changed
        return await self.lead.push(worker, gradient)  # type: ignore[arg-type]

    async def round(
        self, *workers: str, lies: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        """Let these workers send their gradients, and wait for the version that they make."""
        version = self.lead.leading.publisher.published.version
        for worker in workers:
            await self.push(worker, (lies or {}).get(worker))
        await self.lead.committed(version + 1)

    async def settled(self) -> None:
        """Wait until the trail has written all down."""
        trail = self.lead.leading.intake.trail
        while running := trail._of_rows | trail._others:
            await asyncio.wait(running)


def lie(size: int, seed: int = 1) -> NDArray[np.float32]:
    """Return noise in the place of a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).numpy()
