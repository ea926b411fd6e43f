"""The tip of a job's chain: what stands in the store of the round that was committed last.

A commit record grows with the workers of its round, and stores hold small values
only. So the record lies in the log, on the leader's disk and on its standbys'; the
store holds its digest, which decides that this one counts, and the few numbers that
many ask for. Signed by the leader, so that who has no log may believe those too.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.rollback import ROLLBACKS_MAX, Undone
from pliska.coordinator.wire.encoding import Digest, Length, Name
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.signing import KeyLookup, Signed, peek, verify

TIP_BYTES_MAX = 16 * 1024
"""Largest tip that is read; one with `ROLLBACKS_MAX` rollbacks fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """The newest committed record, named by its digest.

    Attributes:
        digest: Of the record; the rest is what the record says too.
        undone: All rollbacks up to it, oldest first.
    """

    wire_type: ClassVar[str] = "pliska/tip/1"

    job: Name
    epoch: int
    round: int
    version: int
    mode_epoch: int
    parameters_digest: Digest
    digest: Digest
    undone: Annotated[tuple[Undone, ...], Length(0, ROLLBACKS_MAX)] = ()

    @classmethod
    def of(cls, commit: Commit) -> "Tip":
        """Name a commit."""
        record = commit.record
        return cls(
            job=record.job,
            epoch=record.epoch,
            round=record.round,
            version=record.version,
            mode_epoch=record.mode_epoch,
            parameters_digest=record.parameters_digest,
            digest=commit.digest,
            undone=record.undone,
        )

    @classmethod
    def verified(cls, data: bytes, job: str, key_lookup: KeyLookup) -> "Tip":
        """Read a signed tip and check its signature.

        Args:
            data: From the store.
            job: The job that it must be of.
            key_lookup: Knows the keys of coordinators, also of those that have been
                revoked since.

        Raises:
            DamagedStateError: The bytes are no tip of this job, or not signed by a
                key that the lookup knows.
        """
        try:
            tip = verify(Signed.from_bytes(data, TIP_BYTES_MAX), cls, key_lookup).message
        except WireError as error:
            raise DamagedStateError(
                f"the commit of {job} in the store is refused: {error}"
            ) from error
        if tip.job != job:
            raise DamagedStateError(f"the commit in the store is of the job {tip.job}, not {job}")
        return tip

    @classmethod
    def claimed(cls, data: bytes) -> "Tip":
        """Read what a signed tip claims, its signature not checked: to show it, no more.

        Raises:
            DamagedStateError: The bytes are no tip.
        """
        try:
            return peek(Signed.from_bytes(data, TIP_BYTES_MAX), cls).claim
        except WireError as error:
            raise DamagedStateError(f"no commit in the store: {error}") from error

    @property
    def training_epoch(self) -> int:
        """How often the job was rolled back."""
        return len(self.undone)
