"""What the newest committed rounds settled: which gradients, on which versions.

Where gradients may be older than the round that counts them, no number can say
whether one was counted already: only the chain of commit records can. A gradient
of round r can be counted in rounds r to r + `STALENESS_MAX`, so as many of the
newest records decide, and a new leader reads them back from its log: a retry is
answered alike before and after a failover, and never counted twice. Where
records are missing, the gradients that they could have counted are too old.
"""

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pliska.aggregation.report import Verdict
from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.records.commit import FILTER, GENESIS, Commit, CommitRecord
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.wire.job_tables import STALENESS_MAX

log = logging.getLogger(__name__)

RECENT_MAX = STALENESS_MAX + 1
"""So many of the newest records are remembered."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the gradient in a slot.

    Attributes:
        round: That counted it.
        root: Of the gradient.
        is_counted: False where it was refused for its content.
    """

    round: int
    root: bytes
    is_counted: bool


@dataclass(frozen=True, slots=True)
class _Past:
    """What is remembered of one record: with many workers, whole ones take much memory.

    Attributes:
        slots: Of the gradients that it names: round that each was made for, and worker.
        lags: Of those that were counted.
        accepted: Whose gradients passed the Lipschitz filter, where that decided.
    """

    version: int
    round: int
    slots: tuple[tuple[int, str], ...]
    lags: tuple[int, ...]
    accepted: tuple[str, ...]

    @classmethod
    def of(cls, record: CommitRecord) -> "_Past":
        is_filtered = record.rule == FILTER
        kept = (each.worker for each in record.contributions if each.verdict == Verdict.KEPT)
        return cls(
            version=record.version,
            round=record.round,
            slots=tuple((record.round - each.lag, each.worker) for each in record.contributions),
            lags=tuple(each.lag for each in record.contributions if each.is_counted),
            accepted=tuple(kept) if is_filtered else (),
        )


class RecentRounds:
    """The newest committed rounds of one job.

    Attributes:
        restored: The version of the last rollback, if it is remembered: gradients on
            versions before it count no more.
    """

    def __init__(self, version: int, parameters_digest: bytes) -> None:
        """Begin at a version with no records before it.

        Args:
            version: The committed version.
            parameters_digest: Of its parameters.
        """
        self._past: deque[_Past] = deque()
        self.restored: int | None = None
        self._digests = {version: parameters_digest}
        self._settled: dict[tuple[int, str], Settled] = {}

    def add(self, record: CommitRecord) -> None:
        """Take in the record that follows."""
        if record.rollback is not None:
            self._past.clear()
            self._settled.clear()
            self._digests = {record.version: record.parameters_digest}
            self.restored = record.version
            return
        past = _Past.of(record)
        self._past.append(past)
        self._digests[record.version - 1] = record.base_digest
        self._digests[record.version] = record.parameters_digest
        for slot, each in zip(past.slots, record.contributions, strict=True):
            self._settled[slot] = Settled(record.round, each.payload_root, each.is_counted)
        if len(self._past) > RECENT_MAX:
            self._forget(self._past.popleft())

    def _forget(self, past: _Past) -> None:
        self._digests.pop(past.version - 1, None)
        for slot in past.slots:
            if self._settled[slot].round == past.round:
                del self._settled[slot]

    def digest_of(self, version: int) -> bytes | None:
        """Return the digest of a version's parameters; None where it is too long ago."""
        return self._digests.get(version)

    def settled(self, round_number: int, worker: str) -> Settled | None:
        """Say what became of a worker's gradient for a round; None where nothing is settled."""
        return self._settled.get((round_number, worker))

    def accepted(self, count: int) -> tuple[str, ...]:
        """Return whose gradients passed the Lipschitz filter last, at most so many, oldest first.

        Rounds that a rule decided are left out: there nobody stands alone.
        """
        newest = (worker for past in reversed(self._past) for worker in reversed(past.accepted))
        return tuple(islice(newest, count))[::-1]

    def lags(self) -> tuple[int, ...]:
        """Return the lags of all gradients that were counted."""
        return tuple(lag for past in self._past for lag in past.lags)


def read_recent_rounds(head: Commit | None, first: bytes, update_log: UpdateLog) -> RecentRounds:
    """Read the newest records back from the log, along the chain.

    Args:
        head: The last commit; None before the first round.
        first: Digest of the parameters at the head.
        update_log: Holds the records before it.

    Raises:
        DamagedStateError: A record is not the one that its successor names.
        StorageError: The disk failed.
    """
    records = [] if head is None else [head.record, *_before(head.record, update_log)]
    if not records:
        return RecentRounds(0, first)
    oldest = records[-1]
    recent = RecentRounds(oldest.version - 1, oldest.base_digest)
    for record in reversed(records):
        recent.add(record)
    return recent


def _before(record: CommitRecord, update_log: UpdateLog) -> Iterator[CommitRecord]:
    for _ in range(RECENT_MAX - 1):
        if record.previous == GENESIS or record.rollback is not None:
            return  # a gradient on what a rollback undid counts no more
        try:
            record = update_log.head(record.version - 1, record.previous).commit.record
        except MissingObjectError as error:
            log.warning("version=%d reason=%s", record.version - 1, f"not remembered: {error}")
            return
        yield record
