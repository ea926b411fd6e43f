"""The commit record: what one round did, signed by the leader and chained to the round before.

It names everything that the step depended on, so that a version can be
recomputed and its contributors proven. Each is kept in the update log with
its aggregate; which one is the last, the coordination store says (`tip`). This module
neither stores nor decides: see `update_log` and `recovery`. What makes one record follow
another is `chain`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, ClassVar

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.annex import NO_ANNEX
from pliska.coordinator.records.attendance import NOBODY_ASKED, Attendance
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.rollback import ROLLBACKS_MAX, Rollback, Undone
from pliska.coordinator.records.standing import STANDINGS_MAX, Conviction, StandingChange
from pliska.coordinator.wire.encoding import Digest, Length, Name, Unique
from pliska.coordinator.wire.errors import MalformedError, WireError
from pliska.coordinator.wire.limits import (
    MEMBERS_MAX,
    MESSAGE_BYTES_MAX,
    REASON_CHARACTERS_MAX,
)
from pliska.coordinator.wire.signing import (
    KeyLookup,
    Signed,
    Signer,
    peek,
    pre_authentication_encoding,
    verify,
)

RECORD_BYTES_MAX = MESSAGE_BYTES_MAX
"""Largest signed record that is read; `MEMBERS_MAX` contributions with the longest reasons fit."""
PARAMETERS_MAX = 64
"""Parameters of one rule."""
CONVICTIONS_MAX = 64
"""Convictions that one record takes in; more wait for the next one."""
_REFUSED = "refused"
"""`aggregation.Verdict.REFUSED`, which is not imported since that takes torch."""
FILTER = "kardam"
"""Stands for the rule in records of rounds that the Lipschitz filter decided."""
GENESIS = bytes(32)
"""Stands for the digest of the record before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What became of one worker's gradient in the round.

    Attributes:
        lease: Of the batch that it is the gradient of.
        payload_root: Root of the hash tree in the worker's signed header.
        verdict: `kept`, `outvoted` or `refused`, as the rule reports it.
        weight: Its share of the aggregate, 0 to 1.
        score: How suspicious it looked (see `aggregation.WorkerReport`).
        margin: How clearly the rule decided, in the rule's own terms.
        reason: The same for people.
        lag: Versions that the model had advanced since the one that the
            gradient was computed on; its slot's round is `round - lag`.
        damping: Factor, 0 to 1, on the gradient before the rule saw it.
        buffer: Number of the buffer that it was averaged in before the rule;
            None: a row of its own.
    """

    worker: Name
    incarnation: Unique
    lease: int
    payload_root: Digest
    verdict: Name
    weight: float
    score: float
    margin: float = 0.0
    reason: Annotated[str, Length(0, 4 * REASON_CHARACTERS_MAX)]
    lag: int = 0
    damping: float = 1.0
    buffer: int | None = None

    @property
    def is_counted(self) -> bool:
        """Whether it had its say, whatever weight the rule gave it."""
        return self.verdict != _REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """One committed round.

    Attributes:
        epoch: Of the leader that committed it (fencing token).
        version: The model version that it made, one more than the last.
        base_digest: Of the parameters before the step.
        parameters_digest: Of the parameters after it.
        state_digest: Of the whole training state after it.
        mode: How the round was run, `sync` for one.
        rule: Name of the rule, with `rule_parameters` as (name, JSON value),
            sorted by name.
        contributions: Sorted by worker.
        cursor: Which batches of the training data are done after the round.
        learning_rate: Of the step.
        seed: Of the round.
        aggregate_digest: Root of the hash tree over the aggregate's float32 bytes.
        annex_digest: Of the annex in the log: signed headers and standings.
        attendance: Who came when, and who did not.
        convictions: What evidence proved since the record before.
        changes: Workers whose standing changed, each with its reason; sorted by worker.
        rollback: What was restored, where the record is no round but a rollback.
        undone: All rollbacks up to it, oldest first.
        previous: Digest of the record before it, or `GENESIS`.
        issued_at: Seconds since 1970 by the leader's clock; advisory only.
    """

    wire_type: ClassVar[str] = "pliska/commit/1"

    job: Name
    epoch: int
    round: int
    version: int
    mode: Name
    mode_epoch: int
    base_digest: Digest
    parameters_digest: Digest
    state_digest: Digest
    rule: Name
    rule_parameters: Annotated[
        tuple[tuple[Name, Annotated[str, Length(1, 256)]], ...], Length(0, PARAMETERS_MAX)
    ]
    contributions: Annotated[tuple[Contribution, ...], Length(0, MEMBERS_MAX)]
    cursor: DataCursor
    learning_rate: float
    seed: int
    aggregate_digest: Digest
    annex_digest: Digest = NO_ANNEX.digest
    attendance: Attendance = NOBODY_ASKED
    convictions: Annotated[tuple[Conviction, ...], Length(0, CONVICTIONS_MAX)] = ()
    changes: Annotated[tuple[StandingChange, ...], Length(0, STANDINGS_MAX)] = ()
    rollback: Rollback | None = None
    undone: Annotated[tuple[Undone, ...], Length(0, ROLLBACKS_MAX)] = ()
    previous: Digest
    issued_at: float

    @property
    def training_epoch(self) -> int:
        """How often the job was rolled back."""
        return len(self.undone)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit record with its signature.

    Made by `sign`, by `verified` (from bytes that anybody may have written), by
    `expected` (from bytes whose digest a trusted record names) or by `unverified`
    (from bytes that are still to be checked).
    """

    record: CommitRecord
    signed: Signed

    @classmethod
    def sign(cls, record: CommitRecord, signer: Signer) -> "Commit":
        """Sign a record.

        Raises:
            MalformedError: A field of it is out of bounds.
        """
        return cls(record, signer.sign(record))

    @classmethod
    def verified(cls, data: bytes, job: str, key_lookup: KeyLookup) -> "Commit":
        """Read a signed record and check its signature.

        Args:
            data: What `to_bytes` returned once.
            job: The job that it must be of.
            key_lookup: Knows the keys of coordinators, also of those that have
                been revoked since: their records stay valid.

        Raises:
            DamagedStateError: The bytes are no record of this job, or not
                signed by a key that the lookup knows.
        """
        try:
            signed = Signed.from_bytes(data, RECORD_BYTES_MAX)
            record = verify(signed, CommitRecord, key_lookup).message
        except WireError as error:
            raise DamagedStateError(f"the commit record of {job} is refused: {error}") from error
        if record.job != job:
            raise DamagedStateError(f"the commit record is of the job {record.job}, not {job}")
        return cls(record, signed)

    @classmethod
    def expected(cls, data: bytes, digest: bytes) -> "Commit":
        """Read a signed record that must have this digest; the digest stands for its signature.

        Raises:
            DamagedStateError: It is no record, or another one.
        """
        commit = cls.unverified(data)
        if commit.digest != digest:
            raise DamagedStateError(
                f"another commit record than the committed one: round {commit.record.round}, "
                f"epoch {commit.record.epoch}, digest {commit.digest.hex()[:16]}"
            )
        return commit

    @classmethod
    def unverified(cls, data: bytes) -> "Commit":
        """Read a record whose signature is checked elsewhere, or nowhere yet.

        Raises:
            DamagedStateError: The bytes are no record.
        """
        try:
            signed = Signed.from_bytes(data, RECORD_BYTES_MAX)
            return cls(peek(signed, CommitRecord).claim, signed)
        except WireError as error:
            raise DamagedStateError(f"not a commit record: {error}") from error

    @property
    def digest(self) -> bytes:
        """SHA-256 of what is signed, 32 bytes: the record's name in the chain."""
        return sha256(
            pre_authentication_encoding(self.signed.payload_type, self.signed.body)
        ).digest()

    def to_bytes(self) -> bytes:
        """Return record and signature for the log."""
        return self.signed.to_bytes()


def cursor_after(cursor: DataCursor, contributions: Iterable[Contribution]) -> DataCursor:
    """Return the data cursor after a round with these contributions.

    What the rule gave no weight has had its say and is done; what was refused for
    its content has not, and its batch is leased again.

    Raises:
        MalformedError: A batch counts twice, or one that nobody can have leased.
    """
    counted = [each.lease for each in contributions if each.is_counted]
    done = cursor.done_among(counted)
    twice = [lease for lease, n in Counter(counted).items() if n > 1 or lease in done]
    if twice:
        raise MalformedError(f"the batch of lease {min(twice)} is counted twice")
    return cursor.settle(counted)
