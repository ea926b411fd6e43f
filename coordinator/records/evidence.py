"""Evidence that convicts by signatures alone, and what it says.

    equivocation     a worker signed two different gradients for one slot
    fork             a coordinator signed two commit records for one version
    miscomputation   a gradient is not that of the worker's batch

The first two convict whoever signed, whoever shows them. The third is a
coordinator's signed word; what it says can be computed again by anybody who has
the job's code and data, since it binds the gradient through the worker's own
signature. Evidence is one canonical message: no byte of it can be changed.

Pure. Where evidence lies is `evidence_store`; who is asked for keys, `audit_keys`.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, ClassVar

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.commit import RECORD_BYTES_MAX, Commit
from pliska.coordinator.records.standing import Conviction
from pliska.coordinator.wire.encoding import Digest, Length, Name, decode, encode
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.limits import WHY_CHARACTERS_MAX
from pliska.coordinator.wire.messages import GradientHeader
from pliska.coordinator.wire.signing import Signed, peek

EVIDENCE_BYTES_MAX = 2 * RECORD_BYTES_MAX + 4096
"""Largest evidence that is read."""


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two headers that one worker signed for one slot, in the order of their bytes."""

    wire_type: ClassVar[str] = "pliska/equivocation/1"

    first: Signed
    second: Signed


@dataclass(frozen=True, slots=True)
class Fork:
    """Two records that one coordinator signed for one version, in the order of their bytes."""

    wire_type: ClassVar[str] = "pliska/fork/1"

    first: Signed
    second: Signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a coordinator found when it computed a gradient again.

    Attributes:
        record_digest: Of the commit record that counted the gradient.
        payload_root: Of the gradient, as its header has it.
        recomputed_root: Of what the batch really gives.
        deviation: Distance between the two, as a share of the length of the latter.
        tolerance: What the job allows.
        computed_with: Software and processor of the one who computed it again.
    """

    wire_type: ClassVar[str] = "pliska/finding/1"

    job: Name
    round: int
    worker: Name
    record_digest: Digest
    payload_root: Digest
    recomputed_root: Digest
    deviation: float
    tolerance: float
    computed_with: Annotated[str, Length(0, 256)]


@dataclass(frozen=True, slots=True)
class Miscomputation:
    """A worker's signed header, and a coordinator's signed `Finding` about it."""

    wire_type: ClassVar[str] = "pliska/miscomputation/1"

    header: Signed
    finding: Signed


Evidence = Equivocation | Fork | Miscomputation

KINDS: dict[str, type[Evidence]] = {
    "equivocation": Equivocation,
    "fork": Fork,
    "miscomputation": Miscomputation,
}
"""The kinds of evidence by name."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What evidence proves.

    Attributes:
        offender: The worker's name, or a coordinator's key id.
        round: The round that it is about.
    """

    kind: str
    job: str
    offender: str
    round: int
    reason: str

    @property
    def is_against_worker(self) -> bool:
        """Whether a worker is the offender, and not a coordinator."""
        return self.kind != "fork"


def paired(first: Signed, second: Signed) -> tuple[Signed, Signed]:
    """Put two signed messages into the order that evidence has them in."""
    low, high = sorted((first, second), key=Signed.to_bytes)
    return low, high


def kind_of(evidence: Evidence) -> str:
    """Return the name of the evidence's kind."""
    return next(name for name, kind in KINDS.items() if isinstance(evidence, kind))


def digest_of(evidence: Evidence) -> bytes:
    """Return the SHA-256 of the evidence's bytes, its name in records and files."""
    return sha256(encode(evidence)).digest()


def read_evidence(data: bytes, kind: str) -> Evidence:
    """Read evidence of one kind; what it claims is not checked here.

    Raises:
        DamagedStateError: The bytes are no such evidence.
    """
    try:
        return decode(KINDS[kind], data, EVIDENCE_BYTES_MAX)
    except WireError as error:
        raise DamagedStateError(f"not evidence of {kind}: {error}") from error


def charge(evidence: Evidence, keys: KeyBook) -> Charge:
    """Check evidence and say what it proves.

    Args:
        evidence: From anybody.
        keys: Whose signatures count.

    Raises:
        DamagedStateError: It proves nothing: a signature does not fit, or what was
            signed is no offence.
    """
    claimed = claimed_charge(evidence)
    match evidence:
        case Equivocation(first, second):
            keys.header(first)
            keys.header(second)
        case Fork(first, second):
            keys.commit(first, claimed.job)
            keys.commit(second, claimed.job)
        case Miscomputation(header, finding):
            keys.header(header)
            keys.statement(finding, Finding)
    return claimed


def claimed_charge(evidence: Evidence) -> Charge:
    """Say what evidence would prove if its signatures fit.

    Raises:
        DamagedStateError: What was signed is no offence.
    """
    try:
        match evidence:
            case Equivocation(first, second):
                return _equivocation(_header(first), _header(second))
            case Fork(first, second):
                return _fork(
                    Commit.unverified(first.to_bytes()), Commit.unverified(second.to_bytes())
                )
            case Miscomputation(header, finding):
                return _miscomputation(_header(header), peek(finding, Finding).claim)
    except WireError as error:
        raise DamagedStateError(f"not evidence: {error}") from error


def conviction_of(evidence: Evidence, charged: Charge) -> Conviction:
    """Return what a commit record says of evidence that was checked."""
    reason = f"convicted of {charged.kind}: {charged.reason}"
    return Conviction(
        worker=charged.offender,
        offence=charged.kind,
        evidence=digest_of(evidence),
        reason=reason[:WHY_CHARACTERS_MAX],
    )


def is_equivocation(first: GradientHeader, second: GradientHeader) -> bool:
    """Whether two headers are for one slot and not for the same gradient.

    Who restarts may compute the same gradient a little differently, and who is
    told to go back computes another one: that is no offence.
    """
    return _slot(first) == _slot(second) and first.payload_root != second.payload_root


def _header(signed: Signed) -> GradientHeader:
    return peek(signed, GradientHeader).claim


def _slot(header: GradientHeader) -> tuple[object, ...]:
    base = (header.base_version, header.base_digest, header.mode_epoch, header.lease)
    return (header.job, header.round, header.worker, header.incarnation, *base)


def _equivocation(first: GradientHeader, second: GradientHeader) -> Charge:
    if not is_equivocation(first, second):
        raise DamagedStateError("the two headers are not two different gradients for one slot")
    roots = f"{first.payload_root.hex()[:12]} and {second.payload_root.hex()[:12]}"
    reason = f"signed two different gradients for round {first.round}: {roots}"
    return Charge("equivocation", first.job, first.worker, first.round, reason)


def _fork(one: Commit, other: Commit) -> Charge:
    record = one.record
    is_one_leader = one.signed.key_id == other.signed.key_id
    are_rivals = (record.job, record.epoch, record.version) == (
        other.record.job,
        other.record.epoch,
        other.record.version,
    )
    if not (is_one_leader and are_rivals) or one.digest == other.digest:
        raise DamagedStateError("the two records are not two of one leader for one version")
    reason = (
        f"signed two records for version {record.version} in epoch {record.epoch}: "
        f"{one.digest.hex()[:12]} and {other.digest.hex()[:12]}"
    )
    return Charge("fork", record.job, one.signed.key_id, record.round, reason)


def _miscomputation(header: GradientHeader, finding: Finding) -> Charge:
    about = (finding.job, finding.worker, finding.payload_root)
    if about != (header.job, header.worker, header.payload_root):
        raise DamagedStateError("the finding is about another gradient than the header")
    if finding.deviation <= finding.tolerance:
        raise DamagedStateError(
            f"the gradient deviates by {finding.deviation:.3g}, within {finding.tolerance:g}"
        )
    reason = (
        f"its gradient of round {finding.round} is {finding.deviation:.3g} times its length "
        f"away from that of its batch; {finding.tolerance:g} is allowed"
    )
    return Charge("miscomputation", header.job, header.worker, finding.round, reason)
