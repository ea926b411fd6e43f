"""The committed rounds of a job, read back from the update log.

`committed_history` starts from the tip in the store, whose signature is checked, and
goes back along the chain of digests to the first round: what is not there, or not the
record that its successor names, is an error, never a gap.
`logged_chain` has only the files: it finds the chain that was committed among
the entries that are there. Neither rebuilds a model: that is `recovery`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError, ForkedChainError, StorageError
from pliska.coordinator.records.chain import break_in_chain
from pliska.coordinator.records.commit import GENESIS, Commit
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.address import open_storage


@dataclass(frozen=True, slots=True)
class LoggedChain:
    """What the files say was committed. No signature is checked yet.

    Attributes:
        commits: Oldest first, linked by their digests, up to the newest.
        missing: Why the chain does not reach back to the first round, or not up
            to the head that was asked for; None where it does.
        others: Entries that are not on the chain: leaders that lost their
            leadership before they could commit them.
        damaged: Why, by name of an entry that cannot be read.
    """

    commits: tuple[Commit, ...]
    missing: str | None
    others: tuple[Commit, ...]
    damaged: Mapping[str, str]


def logged_chain(log: UpdateLog, head: bytes | None) -> LoggedChain:
    """Find the committed chain among the entries of a log.

    Args:
        log: Of one job.
        head: Digest of the newest record, where the store could be asked. Without
            it the newest entry is taken: of two for one version, the one of the
            later leader, which would have built on the other had that been
            committed. That the newest one was committed at all, only the store
            can say.

    Raises:
        StorageError: The disk failed.
    """
    found: dict[bytes, Commit] = {}
    damaged: dict[str, str] = {}
    for name in log.names():
        try:
            commit = log.claimed(name)
        except (DamagedStateError, StorageError) as error:
            damaged[name] = str(error)
        else:
            found[commit.digest] = commit
    start = head if head is not None else _newest(found.values())
    commits, missing = _linked(found, start)
    on_chain = {commit.digest for commit in commits}
    others = tuple(commit for digest, commit in found.items() if digest not in on_chain)
    return LoggedChain(commits, missing, others, damaged)


def committed_history(directory: JobDirectory, storage: str) -> tuple[Commit, ...]:
    """Return the commits from the first to the last one. Blocks on store and disk.

    Args:
        directory: The job in the store.
        storage: Address of the storage that its coordinators share.

    Raises:
        ForkedChainError: The records do not form one chain.
        CoordinatorError: A record is missing or damaged, or the tip is signed by a stranger.
        LockError: The store does not answer.
    """
    newest = directory.commit()
    if newest is None:
        return ()
    tip = Tip.verified(newest.value, directory.job, directory.signer_key)
    log = UpdateLog(open_storage(storage), directory.job)
    commits: list[Commit] = []  # newest first
    version, digest = tip.version, tip.digest
    while digest != GENESIS:
        commit = log.head(version, digest).commit
        if commits:
            _require_chain(commit, commits[-1])
        commits.append(commit)
        version, digest = version - 1, commit.record.previous
    _require_chain(None, commits[-1])
    return tuple(reversed(commits))


def _newest(commits: Iterable[Commit]) -> bytes:
    newest = max(commits, key=lambda each: (each.record.version, each.record.epoch), default=None)
    return GENESIS if newest is None else newest.digest


def _linked(found: Mapping[bytes, Commit], head: bytes) -> tuple[tuple[Commit, ...], str | None]:
    """Follow the digests back from the head; say what is missing on the way."""
    commits: list[Commit] = []  # newest first
    digest = head
    while digest != GENESIS:
        commit = found.get(digest)
        if commit is None:
            after = f"before version {commits[-1].record.version}" if commits else "of the head"
            return tuple(reversed(commits)), f"the entry {after}, {digest.hex()[:16]}, is missing"
        commits.append(commit)
        digest = commit.record.previous
    return tuple(reversed(commits)), None


def _require_chain(previous: Commit | None, commit: Commit) -> None:
    broken = break_in_chain(previous, commit.record)
    if broken is not None:
        raise ForkedChainError(f"the log of {commit.record.job} is not one chain: {broken}")
