"""What one leadership writes down for later audits, off the path of its rounds.

Gradients as they came, receipts of those that were not counted, evidence: all on
threads of its own. Rows are written from where they lie, so the driver waits for
the writing before it gives rows back: a disk that is too slow slows the rounds
and never fills the memory. A failure to write down is logged and stops no round;
only what is durable convicts.

The decisions are elsewhere: who is drawn in `recomputation`, what convicts in
`evidence`. Called by `intake` and `driver`, on one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from pliska.aggregation import GradientBuffer
from pliska.coordinator.docket import Docket
from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.publisher import Published
from pliska.coordinator.recomputer import Drawn, Recomputer
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import (
    Equivocation,
    Evidence,
    claimed_charge,
    conviction_of,
    is_equivocation,
    paired,
)
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.records.payloads import PayloadStore
from pliska.coordinator.records.receipts import KeptReceipt, ReceiptStore
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rounds.recomputation import drawn
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire import GradientHeader, Signed, Signer, Verified, WireError, peek
from pliska.coordinator.wire.encoding import encode
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.job_tables import STALENESS_MAX

log = logging.getLogger(__name__)

ParametersT = ParamSpec("ParametersT")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

REMEMBERED_MAX = 4096
"""Headers that were counted, receipts and evidence that are remembered, so many of each."""
BASES_MAX = STALENESS_MAX + 1
"""Commit records that are remembered: no gradient that counts is based on an older version."""


class AuditTrail:
    """The notes of one leadership."""

    def __init__(self, job: Job, storage: Storage, signer: Signer, docket: Docket) -> None:
        """Begin to write down.

        Args:
            job: Says what is kept and computed again.
            storage: Where it goes.
            signer: The coordinator's key.
            docket: Is told of each conviction and its evidence once that is durable, and
                of each receipt.
        """
        self._job = job
        self._storage = storage
        self._docket = docket
        self._payloads = PayloadStore(storage, job.name)
        self._receipts = ReceiptStore(storage, job.name)
        self._evidence = EvidenceStore(storage, job.name)
        self._recomputer = Recomputer(job, signer)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._of_rows: set[asyncio.Future[None]] = set()
        self._others: set[asyncio.Future[None]] = set()
        self._noted: dict[tuple[str, str, int], None] = {}
        self._counted: dict[tuple[str, int], Signed] = {}
        self._commits: dict[int, bytes] = {}

    def wants_receipt(self, worker: str, round_number: int) -> bool:
        """Whether no receipt is kept yet for this worker's gradient of this round."""
        return ("receipt", worker, round_number) not in self._noted

    def keep_payload(self, header: GradientHeader, payload: memoryview) -> None:
        """Write a verified payload from where it lies; it stays there until `rows_are_free`."""
        if self._job.audit.keep_rounds:
            write = self._payloads.write
            self._start(self._of_rows, write, header.round, header.payload_root, payload)

    def keep_receipt(self, header: Verified[GradientHeader], receipt: bytes) -> None:
        """Keep what a worker was told about a gradient that no record will name.

        Where another one of its gradients was counted in its place, it is accused.
        """
        message = header.message
        self.equivocated(self._counted.get((message.worker, message.round)), header)
        if self._is_new("receipt", message.worker, message.round):
            kept = KeptReceipt(header.signed, Signed.from_bytes(receipt))
            self._start(self._others, self._receipts.write, message.round, kept)
            self._docket.note(kept)

    def equivocated(self, first: Signed | None, second: Verified[GradientHeader]) -> None:
        """Accuse a worker that signed two gradients for one slot."""
        message = second.message
        if first is None or not is_equivocation(peek(first, GradientHeader).claim, message):
            return
        if self._is_new("equivocation", message.worker, message.round):
            self._accuse(Equivocation(*paired(first, second.signed)))

    async def rows_are_free(self) -> None:
        """Wait until no row is read any more."""
        if self._of_rows:
            await asyncio.wait(self._of_rows)

    def committed(
        self,
        commit: Commit,
        headers: tuple[Signed, ...],
        standings: Mapping[str, Standing],
        base: Published,
        buffer: GradientBuffer,
    ) -> None:
        """Draw who is computed again, and forget gradients that are kept no longer.

        Args:
            commit: The round; its rows are still in place.
            headers: Of its contributions.
            standings: Before it.
            base: The version that the round began with.
            buffer: Holds the rows.
        """
        audit, round_number = self._job.audit, commit.record.round
        if audit.recompute:
            # In bytes, since a record in memory takes several times as much.
            _remember(self._commits, commit.record.version, commit.signed.to_bytes(), BASES_MAX)
        claims = {signed: peek(signed, GradientHeader).claim for signed in headers}
        for signed, claim in claims.items():
            _remember(self._counted, (claim.worker, claim.round), signed)
        if audit.keep_rounds:
            # What a round counts late was made for an earlier one.
            late = 0 if commit.record.mode == Mode.SYNCHRONOUS else STALENESS_MAX
            oldest = max(0, round_number - audit.keep_rounds + 1 - late)
            self._start(self._others, self._payloads.prune, oldest)
        chosen = frozenset(drawn(commit, standings, audit.recompute))
        if not chosen:
            return
        rows = {row.worker: row.values for row in buffer.filled() if row.worker in chosen}
        for signed, claim in claims.items():
            if claim.worker in rows:
                copied = rows[claim.worker].numpy().copy()
                parameters = self._parameters(claim, base)
                if parameters is not None:
                    self._examine(Drawn(commit, signed, claim, copied, parameters))

    async def close(self) -> None:
        """Finish what is being written; what waits to be computed again is given up."""
        await asyncio.to_thread(self._recomputer.close)
        while running := self._of_rows | self._others:
            await asyncio.wait(running)
        self._thread.shutdown()

    def _parameters(
        self, claim: GradientHeader, base: Published
    ) -> Callable[[], NDArray[np.float32]] | None:
        """Say how to get at the parameters that a gradient was computed at."""
        if claim.base_digest == base.digest:
            return lambda: np.frombuffer(base.parameters, dtype="<f4")
        kept = self._commits.get(claim.base_version)
        if kept is None:
            reason = f"not computed again: version {claim.base_version} is too long ago"
            log.warning("worker=%s round=%d reason=%s", claim.worker, claim.round, reason)
            return None
        commit = Commit.unverified(kept)  # this leader's own word, or what it built on
        return lambda: recover(self._job, commit, self._storage).model.parameters().numpy()

    def _examine(self, gradient: Drawn) -> None:
        submitted = self._recomputer.submit(gradient)
        if submitted is None:
            return

        async def judge() -> None:
            evidence = await asyncio.wrap_future(submitted)
            if evidence is not None:
                self._accuse(evidence)

        self._follow(self._others, asyncio.ensure_future(judge()))

    def _accuse(self, evidence: Evidence) -> None:
        """Make evidence durable, then convict."""
        charged = claimed_charge(evidence)
        conviction = conviction_of(evidence, charged)

        async def write_and_convict() -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._evidence.write, evidence, charged.round)
            log.warning("worker=%s reason=%s", charged.offender, conviction.reason)
            self._docket.convict(conviction, encode(evidence))

        self._follow(self._others, asyncio.ensure_future(write_and_convict()))

    def _start(
        self,
        group: set[asyncio.Future[None]],
        work: Callable[ParametersT, object],
        *arguments: ParametersT.args,
        **options: ParametersT.kwargs,
    ) -> None:
        """Do something on the trail's thread."""

        async def run() -> None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, lambda: work(*arguments, **options))

        self._follow(group, asyncio.ensure_future(run()))

    def _follow(self, group: set[asyncio.Future[None]], running: asyncio.Future[None]) -> None:
        """Remember what runs, and log what fails."""
        group.add(running)
        running.add_done_callback(group.discard)
        running.add_done_callback(_log_failure)

    def _is_new(self, what: str, worker: str, round_number: int) -> bool:
        """Note something about a worker's round; False where it was noted before."""
        noted = (what, worker, round_number)
        is_new = noted not in self._noted
        _remember(self._noted, noted, None)
        return is_new


def _remember(
    memory: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int = REMEMBERED_MAX
) -> None:
    """Remember something in the place of what was remembered first."""
    memory[key] = value
    if len(memory) > most:
        del memory[next(iter(memory))]


def _log_failure(done: "asyncio.Future[None]") -> None:
    if done.cancelled():
        return
    error = done.exception()
    if isinstance(error, CoordinatorError | WireError | OSError):
        log.error("reason=%s", f"not written down for audits: {error}")
    elif error is not None:
        log.error("reason=%s", "an audit failed", exc_info=error)
