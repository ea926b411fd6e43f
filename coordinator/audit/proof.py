"""What became of one worker's gradient, proved by signatures: nobody has to be trusted.

A proof holds the worker's own signed header and the signed commit record of its
round, with the record after it where there is one: so the worker sees that the
record stands in the chain that others built on. For a gradient that was not
counted there is the coordinator's signed receipt instead, and for a worker that
sent none the record itself says that it was kept out or did not come. A proof is
one canonical message: no byte of it can be changed.

Pure. `pliska audit prove` makes proofs, `pliska audit check` reads them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import ClassVar

from pliska.aggregation.report import Verdict
from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.chain import break_in_chain
from pliska.coordinator.records.commit import RECORD_BYTES_MAX, Commit, Contribution
from pliska.coordinator.records.receipts import KeptReceipt
from pliska.coordinator.wire.encoding import Name, decode
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.messages import GradientHeader, Receipt
from pliska.coordinator.wire.reply_codes import ReplyCode
from pliska.coordinator.wire.signing import Signed, peek

PROOF_BYTES_MAX = 2 * RECORD_BYTES_MAX + 2**20
"""Largest proof that is read."""


class Outcome(StrEnum):
    """What became of a worker's gradient in a round."""

    COUNTED = auto()
    OUTVOTED = auto()
    """It passed the gate, and the rule gave it no weight."""
    REFUSED = auto()
    """It never reached the rule."""
    LATE = auto()
    QUARANTINED = auto()
    ABSENT = auto()
    """The worker was there when the round opened, and nothing of it came."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What proves a worker's fate in one round.

    Attributes:
        record: The signed commit record of the round.
        successor: The one after it; None where it was the newest.
        header: The worker's signed header; None where it sent none.
        receipt: The coordinator's signed receipt; None where the record says it all.
    """

    wire_type: ClassVar[str] = "pliska/proof/1"

    worker: Name
    record: Signed
    successor: Signed | None
    header: Signed | None
    receipt: Signed | None


@dataclass(frozen=True, slots=True)
class Fate:
    """What a proof proves.

    Attributes:
        commit: The round's record, its signature checked.
        is_built_on: Whether a later record names it.
        contribution: What the record says of the gradient, where it names it.
        reason: In words.
    """

    worker: str
    commit: Commit
    is_built_on: bool
    outcome: Outcome
    contribution: Contribution | None
    reason: str


def prove(
    worker: str,
    commit: Commit,
    annex: Annex,
    successor: Commit | None,
    receipts: Iterable[KeptReceipt],
) -> Proof:
    """Put a proof together; `check` says whether it holds.

    Args:
        worker: Whose fate.
        commit: The round's.
        annex: The round's.
        successor: The commit after it.
        receipts: Kept ones of the round.

    Raises:
        NotKeptError: Nothing that is kept says anything about this worker.
    """
    record = commit.record
    following = None if successor is None else successor.signed
    if any(each.worker == worker for each in record.contributions):
        header = next((each for each in annex.headers if _claimed_worker(each) == worker), None)
        return Proof(worker, commit.signed, following, header, None)
    kept = next((each for each in receipts if each.claim.worker == worker), None)
    if kept is not None:
        return Proof(worker, commit.signed, following, kept.header, kept.receipt)
    if worker in (*record.attendance.excluded, *record.attendance.absent):
        return Proof(worker, commit.signed, following, None, None)
    raise NotKeptError(
        f"nothing is known of worker {worker!r} in round {record.round} of {record.job}: "
        "it was not there when the round opened, and sent nothing that could be verified"
    )


def read_proof(data: bytes) -> Proof:
    """Read a proof; what it claims is not checked here.

    Raises:
        DamagedStateError: The bytes are no proof.
    """
    try:
        return decode(Proof, data, PROOF_BYTES_MAX)
    except WireError as error:
        raise DamagedStateError(f"not a proof: {error}") from error


def check(proof: Proof, keys: KeyBook) -> Fate:
    """Check every signature and link of a proof, and say what it proves.

    Args:
        proof: From anybody.
        keys: Whose signatures count: the worker's own and the coordinators'.

    Raises:
        DamagedStateError: It does not hold together.
    """
    commit = keys.commit(proof.record, Commit.unverified(proof.record.to_bytes()).record.job)
    if proof.successor is not None:
        broken = break_in_chain(commit, keys.commit(proof.successor, commit.record.job).record)
        if broken is not None:
            raise DamagedStateError(f"the record after it does not follow: {broken}")
    header = None if proof.header is None else keys.header(proof.header)
    outcome, contribution, reason = _fate(proof, commit, header, keys)
    is_built_on = proof.successor is not None
    return Fate(proof.worker, commit, is_built_on, outcome, contribution, reason)


def of_verdict(verdict: str) -> Outcome:
    """Return the outcome that a record's verdict stands for."""
    match verdict:
        case Verdict.KEPT:
            return Outcome.COUNTED
        case Verdict.OUTVOTED:
            return Outcome.OUTVOTED
        case _:
            return Outcome.REFUSED


def of_receipt(receipt: Receipt) -> Outcome:
    """Return the outcome that a receipt stands for."""
    match receipt.code:
        case ReplyCode.STALE_ROUND:
            return Outcome.LATE
        case ReplyCode.QUARANTINED:
            return Outcome.QUARANTINED
        case _:
            return Outcome.REFUSED


def _fate(
    proof: Proof, commit: Commit, header: GradientHeader | None, keys: KeyBook
) -> tuple[Outcome, Contribution | None, str]:
    record, worker = commit.record, proof.worker
    contribution = next((each for each in record.contributions if each.worker == worker), None)
    if contribution is not None:
        if header is None or not is_of(header, contribution, record.job):
            raise DamagedStateError(f"no signed header of {worker} for what the record names")
        return of_verdict(contribution.verdict), contribution, contribution.reason
    if proof.receipt is not None:
        receipt = keys.receipt(proof.receipt)
        if header is None or not answers(receipt, header) or receipt.round != record.round:
            raise DamagedStateError(f"the receipt is not for this header of {worker}")
        return of_receipt(receipt), None, f"{receipt.code}: {receipt.reason}"
    if worker in record.attendance.excluded:
        return Outcome.QUARANTINED, None, "the record names it among the workers in quarantine"
    if worker in record.attendance.absent:
        return Outcome.ABSENT, None, "nothing of it had come when the round closed"
    raise DamagedStateError(f"it says nothing about worker {worker}")


def is_of(header: GradientHeader, contribution: Contribution, job: str) -> bool:
    """Whether a verified header is that of a contribution."""
    named = (header.job, header.worker, header.incarnation, header.lease, header.payload_root)
    return named == (
        job,
        contribution.worker,
        contribution.incarnation,
        contribution.lease,
        contribution.payload_root,
    )


def answers(receipt: Receipt, header: GradientHeader) -> bool:
    """Whether a receipt is for a header."""
    answered = (receipt.job, receipt.round, receipt.worker, receipt.incarnation, receipt.seq)
    asked = (header.job, header.round, header.worker, header.incarnation, header.seq)
    return answered == asked and receipt.payload_root == header.payload_root


def require_answer(kept: KeptReceipt, keys: KeyBook) -> None:
    """Check the signatures of a kept receipt, and that it is for its header.

    Raises:
        DamagedStateError: It is not.
    """
    if not answers(keys.receipt(kept.receipt), keys.header(kept.header)):
        raise DamagedStateError("a receipt is for another header than the one beside it")


def _claimed_worker(signed: Signed) -> str:
    return peek(signed, GradientHeader).claim.worker
