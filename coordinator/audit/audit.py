"""Whether a job's files are what its coordinators and workers signed: everything, from files alone.

From the first record to the newest: signatures, links, epochs; beside each record
its aggregate, the workers' headers and the standings that follow from it; then
whatever else the job keeps (`files`). Nothing is repaired, and nothing is
believed because it lies here. What the numbers add up to is `replay`'s to check.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from pliska.coordinator.audit.document import read_document
from pliska.coordinator.audit.files import FileAudit
from pliska.coordinator.audit.proof import Proof, is_of, require_answer
from pliska.coordinator.audit.report import AuditReport
from pliska.coordinator.errors import DamagedStateError, ForkedChainError
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.chain import break_in_chain, break_in_restoring
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import Fork, charge, paired
from pliska.coordinator.records.history import logged_chain
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.rounds.reputation import changes, exclude, judge
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.job_tables import Reputation

RECORDS, ANNEXES, AGGREGATES = "commit records", "annexes", "aggregates"
HEADERS, RECEIPTS, STANDINGS = "workers' headers", "receipts in annexes", "standings"


def verify_job(
    storage: Storage,
    job: str,
    keys: KeyBook,
    head: Commit | Tip | None = None,
    reputation: Reputation | None = None,
) -> AuditReport:
    """Check a job's files. Blocks on the disk; reads all of them.

    Args:
        storage: Holds them.
        job: The job's name.
        keys: Whose signatures count.
        head: The newest commit, or the tip that names it, where the store could be asked.
        reputation: The job's settings; without them standings are not checked.

    Raises:
        StorageError: The disk failed.
    """
    report = AuditReport(job)
    log = UpdateLog(storage, job)
    chain = logged_chain(log, None if head is None else head.digest)
    for problem in (*chain.damaged.values(), *((chain.missing,) if chain.missing else ())):
        report.fail(RECORDS, problem)
    _check_records(chain.commits, job, keys, report, is_whole=chain.missing is None)
    _check_others(chain.commits, chain.others, job, keys, report)
    annexes = _check_contents(chain.commits, log, keys, report)
    if reputation is None:
        report.notes.append("standings are not checked: the job file was not found")
    else:
        _check_standings(chain.commits, annexes, reputation, report)
    FileAudit(storage, job, keys, chain.commits, report).run()
    if chain.commits:
        report.version, report.head = chain.commits[-1].record.version, chain.commits[-1].digest
    if head is None and chain.commits:
        report.notes.append(
            f"only the store can say whether version {report.version} was committed: "
            "it was not asked"
        )
    return report


def _check_records(
    commits: Iterable[Commit], job: str, keys: KeyBook, report: AuditReport, *, is_whole: bool
) -> None:
    """Check signatures and links, from the first record to the newest."""
    previous: Commit | None = None
    is_linked = is_whole
    revoked: dict[str, int] = {}
    by_version: dict[int, Commit] = {}
    for commit in commits:
        with report.checking(RECORDS):
            broken = break_in_chain(previous, commit.record) if is_linked else None
            by_version[commit.record.version] = commit
            rollback = commit.record.rollback
            if broken is None and rollback is not None and rollback.target in by_version:
                broken = break_in_restoring(by_version[rollback.target], commit.record)
            previous, is_linked = commit, True
            if broken is not None:
                raise ForkedChainError(f"the log of {job} is not one chain: {broken}")
            keys.commit(commit.signed, job)
        key = keys.find(commit.signed.key_id)
        if key is not None and key.revoked:
            revoked[key.key_id] = revoked.get(key.key_id, 0) + 1
    for key_id, count in revoked.items():
        found = keys.find(key_id)
        reason = found.revoked if found else ""
        report.notes.append(f"{count} records are signed by {key_id}, since revoked: {reason}")


def _check_others(
    commits: Iterable[Commit],
    others: Iterable[Commit],
    job: str,
    keys: KeyBook,
    report: AuditReport,
) -> None:
    """Look at entries off the chain: a leader may lose a version, but not sign two."""
    signed_for = {(each.record.epoch, each.record.version): each for each in commits}
    for commit in others:
        slot = (commit.record.epoch, commit.record.version)
        with report.checking("entries never committed"):
            keys.commit(commit.signed, job)
            rival = signed_for.setdefault(slot, commit)
            if rival is not commit:
                report.forks.append(Fork(*paired(rival.signed, commit.signed)))
                raise ForkedChainError(
                    f"{commit.signed.key_id} signed two records for version {slot[1]} in "
                    f"epoch {slot[0]}: {rival.digest.hex()[:16]} and {commit.digest.hex()[:16]}"
                )


def _check_contents(
    commits: Iterable[Commit], log: UpdateLog, keys: KeyBook, report: AuditReport
) -> dict[int, Annex]:
    """Check what lies beside each record; return the annexes that are as they should be."""
    annexes: dict[int, Annex] = {}
    shrunk = 0
    for commit in commits:
        version, digest = commit.record.version, commit.digest
        with report.checking(ANNEXES):
            annexes[version] = log.head(version, digest).annex
        if log.has(version, digest):
            with report.checking(AGGREGATES):
                log.read(version, digest)
        else:
            shrunk += 1
        if version in annexes:
            _check_headers(commit, annexes[version], keys, report)
            _check_convictions(commit, annexes[version], keys, report)
            for kept in annexes[version].receipts:
                with report.checking(RECEIPTS):
                    require_answer(kept, keys)
    if shrunk:
        report.notes.append(f"{shrunk} aggregates are not kept any more")
    return annexes


def _check_headers(commit: Commit, annex: Annex, keys: KeyBook, report: AuditReport) -> None:
    """Check that each contribution has its worker's signature."""
    record = commit.record
    headers = []
    for signed in annex.headers:
        with report.checking(HEADERS):
            headers.append(keys.header(signed))
    for contribution in record.contributions:
        if not any(is_of(header, contribution, record.job) for header in headers):
            report.fail(
                HEADERS,
                f"version {record.version} counts a gradient of {contribution.worker} "
                "that it has not signed",
            )


def _check_convictions(commit: Commit, annex: Annex, keys: KeyBook, report: AuditReport) -> None:
    """Check that each conviction rests on evidence that convicts."""
    record = commit.record
    evidence = {sha256(piece).digest(): piece for piece in annex.evidence}
    for conviction in record.convictions:
        with report.checking("convictions"):
            piece = evidence.get(conviction.evidence)
            document = None if piece is None else read_document(piece)
            if document is None or isinstance(document, Proof):
                raise DamagedStateError(
                    f"version {record.version} convicts {conviction.worker} without evidence"
                )
            charged = charge(document, keys)
            if (charged.job, charged.offender) != (record.job, conviction.worker):
                raise DamagedStateError(
                    f"version {record.version} convicts {conviction.worker} by evidence "
                    f"against {charged.offender} in {charged.job}"
                )


def _check_standings(
    commits: Iterable[Commit],
    annexes: Mapping[int, Annex],
    reputation: Reputation,
    report: AuditReport,
) -> None:
    """Check that the standings after each round follow from those before it."""
    for commit in commits:
        record = commit.record
        annex, annex_before = annexes.get(record.version), annexes.get(record.version - 1)
        if annex is None or (annex_before is None and record.version > 1):
            continue
        before: Mapping[str, Standing] = annex_before.by_worker() if annex_before else {}
        with report.checking(STANDINGS):
            after = (
                judge(before, record.round, record.contributions, record.convictions, reputation)
                if record.rollback is None
                else exclude(before, record.round, record.rollback)
            )
            if tuple(after.values()) != annex.standings or record.changes != changes(before, after):
                raise DamagedStateError(
                    f"version {record.version}: the standings are not those that follow "
                    "from the contributions"
                )
