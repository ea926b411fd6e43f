"""What `pliska audit` and `pliska why` read from: a job's files, and whose signatures count.

The store is asked for keys, the job file and the newest record, unless a file of
keys is given: then nothing but files is read.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.audit.document import read_document
from pliska.coordinator.audit.proof import Proof
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import (
    AuditUsageError,
    DamagedStateError,
    NotKeptError,
    UnknownJobError,
)
from pliska.coordinator.records.audit_keys import KeyBook, read_keys
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import Evidence, digest_of
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.records.history import LoggedChain, logged_chain
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.records.receipts import KeptReceipt, ReceiptStore, about
from pliska.coordinator.records.recent_rounds import RECENT_MAX
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.storage.joined_storage import JoinedStorage
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import Job, load_job
from pliska.locks import Address, connect

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
RoundArgument = Annotated[int, typer.Argument(metavar="ROUND", min=1, help="Number of the round.")]
StorageOption = Annotated[
    str | None,
    typer.Option(
        envvar="PLISKA_STORAGE",
        metavar="PATH",
        help="Where the job's coordinators keep their files; several are joined by commas. "
        "Default: beside an embedded store.",
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What `pliska key list -o json` wrote. The store is not asked then.",
    ),
]
JobFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The job file, where none is kept with the job's files."),
]


@dataclass(frozen=True, slots=True)
class AuditSource:
    """One job's files and what is known of it otherwise.

    Attributes:
        head: The tip of the chain; None where the store was not asked.
        job: The job's settings; None where nobody has them.
    """

    name: str
    storage: Storage
    keys: KeyBook
    head: Tip | None
    job: Job | None

    @classmethod
    def open(
        cls, name: str, store: str, storage: str | None, keys: Path | None, job_file: Path | None
    ) -> "AuditSource":
        """Open what the options name.

        Raises:
            UnknownJobError: There is no such job.
            AuditUsageError: An option does not make sense.
            LockError: The store, where it is asked, does not answer.
        """
        opened = _open_existing(storage or _beside(store))
        given = None if job_file is None else load_job(job_file)
        if keys is not None:
            return cls(name, opened, read_keys(keys), None, given or _kept_job(opened, name))
        with closing(connect(store)) as backend:
            directory = JobDirectory(backend, name)
            job = given or directory.definition()
            book = KeyBook.of_enrolled(directory.keyring.list())
            record = directory.commit()
        if job is None:
            raise UnknownJobError(f"the store {store} has no job {name!r}: name it with --store")
        if record is None:
            raise NotKeptError(f"no round of {name} is committed yet")
        return cls(name, opened, book, Tip.verified(record.value, name, book.coordinator), job)

    @property
    def log(self) -> UpdateLog:
        """The job's log."""
        return UpdateLog(self.storage, self.name)

    def chain(self) -> LoggedChain:
        """Find the committed chain among the files."""
        return logged_chain(self.log, None if self.head is None else self.head.digest)

    def require_job(self) -> Job:
        """Return the job's settings.

        Raises:
            AuditUsageError: Nobody has them.
        """
        if self.job is None:
            raise AuditUsageError(
                f"no sound job file of {self.name} is kept with its files: name it with --job-file"
            )
        return self.job

    def commits_at(self, round_number: int) -> tuple[Commit | None, Commit, Sequence[Commit]]:
        """Return the one before a round's commit, it, its signature checked, and all after it.

        Raises:
            NotKeptError: There is no such round on the chain.
            DamagedStateError: No coordinator signed it.
        """
        commits = self.chain().commits
        for position, commit in enumerate(commits):
            if commit.record.round == round_number:
                self.keys.commit(commit.signed, self.name)
                before = commits[position - 1] if position else None
                return before, commit, commits[position + 1 :]
        newest = commits[-1].record.round if commits else 0
        raise NotKeptError(
            f"no committed round {round_number} of {self.name} is in these files; "
            f"the newest is {newest}"
        )

    def receipts_at(self, commit: Commit, after: Sequence[Commit]) -> tuple[KeptReceipt, ...]:
        """Return the receipts of a round: of this storage, and of later records' annexes.

        Args:
            commit: Of the round.
            after: The commits after it, oldest first.
        """
        round_number = commit.record.round
        found = list(ReceiptStore(self.storage, self.name).of_round(round_number))
        for later in (commit, *after[: RECENT_MAX + 1]):
            found += self.log.head(later.record.version, later.digest).annex.receipts
        return about(round_number, found)

    def evidence(self) -> list[Evidence]:
        """Collect the evidence that convictions rest on, and what no record has taken in yet."""
        found: dict[bytes, Evidence] = {}
        for commit in self.chain().commits:
            if commit.record.convictions:
                annex = self.log.head(commit.record.version, commit.digest).annex
                for piece in annex.evidence:
                    document = read_document(piece)
                    if not isinstance(document, Proof):
                        found[digest_of(document)] = document
        stored = EvidenceStore(self.storage, self.name)
        for name in stored.names():
            kept = stored.read(name)
            found[kept.digest] = kept.evidence
        return list(found.values())

    def led_by(self, commit: Commit) -> str:
        """Say which coordinator led a round, and so has what only a leader keeps."""
        key_id = commit.signed.key_id
        key = self.keys.find(key_id)
        name = f"{key.holder} ({key_id})" if key is not None else key_id
        return (
            f"{name} led round {commit.record.round}: what it alone keeps is in its storage; "
            "name several as --storage A,B"
        )


def _kept_job(storage: Storage, name: str) -> Job | None:
    """Read the job file that is kept; what is wrong with it is for `verify` to tell."""
    with suppress(NotKeptError, DamagedStateError, JobFileError):
        return KeptJob(storage, name).read()
    return None


def _beside(store: str) -> str:
    directory = Address.parse(store).local_directory
    if directory is None:
        raise AuditUsageError(f"the store {store} has no directory of its own: give --storage")
    return str(directory / "storage")


def _open_existing(address: str) -> Storage:
    """Open storage that is there, several as one; an audit makes no directory."""
    if "," in address:
        return JoinedStorage([_open_existing(each) for each in address.split(",")])
    path = Path(address.removeprefix("file:"))
    if "://" not in address and not path.is_dir():
        raise UnknownJobError(f"there are no files in {path}: name the storage with --storage")
    return open_storage(address)
