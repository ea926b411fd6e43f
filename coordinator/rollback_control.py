"""Carries out orders to roll a job back, for as long as this coordinator leads it.

It looks at the order in the store now and then. One that is open is checked, and the
state of its target rebuilt beside the rounds that go on meanwhile; then the round
machine is told, which takes it up at the next boundary. An order that cannot be
carried out is refused in the store, fenced by the leadership, with the reason.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import CoordinatorError, MissingObjectError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.horizon import read_horizon
from pliska.coordinator.records.log_entry import LogHead
from pliska.coordinator.records.rollback import Rollback, refuse_target
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.following import Place, place_of
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.replication.sources import Sources
from pliska.coordinator.rollback_order import RollbackOrder, read_order, refuse_order
from pliska.coordinator.rounds.restoring import Restorable
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.thread import in_thread
from pliska.locks import Leadership, LockError

log = logging.getLogger(__name__)

CHECK_S = 0.25
"""How often the order is looked at."""


class RollbackControl:
    """The rollbacks of one job under one leadership.

    Attributes:
        pruning: Held by whoever raises the horizon; `needed` does not change meanwhile.
    """

    def __init__(
        self,
        job: Job,
        directory: JobDirectory,
        leadership: Leadership,
        storage: Storage,
        sources: Sources | None,
        committed: Callable[[], Commit | None],
        begin: Callable[[Restorable], None],
    ) -> None:
        """Prepare; nothing is read before `run`.

        Args:
            job: The job.
            directory: Holds the order.
            leadership: Fences a refusal.
            storage: Holds what leads to older versions.
            sources: The other coordinators.
            committed: Returns the record that stands in the store.
            begin: Hands the target over, on the event loop.
        """
        self.pruning = threading.Lock()
        self._job = job
        self._directory = directory
        self._leadership = leadership
        self._storage = storage
        self._sources = sources
        self._committed = committed
        self._begin = begin
        self._begun = 0
        self._target: int | None = None

    @property
    def needed(self) -> tuple[int, ...]:
        """The version of which all that leads to it has to stay, if there is one."""
        return () if self._target is None else (self._target,)

    async def run(self) -> None:
        """Follow the orders until cancelled."""
        while True:
            try:
                await self._follow()
            except (LockError, CoordinatorError) as error:
                log.warning("job=%s reason=%s", self._job.name, f"not rolled back: {error}")
            await asyncio.sleep(CHECK_S)

    async def _follow(self) -> None:
        order = await in_thread(read_order, self._directory)
        head = self._committed()
        epoch = head.record.training_epoch if head is not None else 0
        if epoch >= self._begun:
            self._target = None  # what follows the rollback is in its own record
        if order is None or order.refused or order.number <= max(epoch, self._begun):
            return
        found = await in_thread(self._prepare, order, head)
        if isinstance(found, str):
            log.warning("job=%s rollback=%d refused=%s", self._job.name, order.number, found)
            refusal = (order, found, [self._leadership.guard()])
            await in_thread(refuse_order, self._directory, *refusal)
            return
        self._begun = order.number
        log.warning(
            "job=%s rollback=%d target=%d actor=%s excluded=%s reason=%s",
            self._job.name,
            order.number,
            order.target,
            order.actor,
            ",".join(order.excluded) or "-",
            order.reason,
        )
        self._begin(found)

    def _prepare(self, order: RollbackOrder, head: Commit | None) -> Restorable | str:
        """Rebuild the state of an order's target; or say why that is not done."""
        if head is None:
            return "no round is committed yet"
        record = head.record
        if order.number != record.training_epoch + 1:
            return f"it is for another training epoch than {record.training_epoch}"
        with self.pruning:
            self._target = order.target
        horizon = read_horizon(self._directory)
        rounds = self._job.rounds.count
        refusal = refuse_target(order.target, record.version, rounds, record.undone, horizon)
        if refusal is not None:
            self._target = None
            return refusal
        try:
            target = self._commit_of(order.target, head)
            model = recover(self._job, target, self._storage, self._sources).model
        except CoordinatorError as error:
            self._target = None
            return f"the state of version {order.target} cannot be rebuilt: {error}"
        rollback = Rollback(
            target=order.target,
            record_digest=target.digest,
            actor=order.actor,
            reason=order.reason,
            excluded=order.excluded,
        )
        return Restorable(rollback, target, model)

    def _commit_of(self, version: int, head: Commit) -> Commit:
        """Return the commit of an older version, along the chain."""
        place, commit = place_of(head), head
        while place.version > version:
            place = Place(place.version - 1, commit.record.previous)
            commit = self._head_of(place).commit
        return commit

    def _head_of(self, place: Place) -> LogHead:
        try:
            return UpdateLog(self._storage, self._job.name).head(place.version, place.digest)
        except MissingObjectError:
            if self._sources is None:
                raise
            return self._sources.head(place)
