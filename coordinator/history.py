"""The committed rounds of a job, read back from the store and the update log.

From the commit record in the store, whose signature is checked, back along the
chain of digests to the first round: what is not there, or not the record that
its successor names, is an error, never a gap. It rebuilds no model: that is
`recovery`. Called by whoever wants to know what was committed, such as the
demonstration.
"""

from pliska.coordinator.commit import GENESIS, Commit, break_in_chain
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import ForkedChainError
from pliska.coordinator.storage import open_storage
from pliska.coordinator.update_log import UpdateLog
from pliska.discovery import Keyring, Role


def committed_history(directory: JobDirectory, storage: str) -> tuple[Commit, ...]:
    """Return the commits from the first to the last one. Blocks on store and disk.

    Args:
        directory: The job in the store.
        storage: Address of the storage that its coordinators share.

    Raises:
        ForkedChainError: The records do not form one chain.
        CoordinatorError: A record is missing, damaged, or signed by a stranger.
        LockError: The store does not answer.
    """
    newest = directory.commit()
    if newest is None:
        return ()
    keyring = directory.keyring
    head = Commit.verified(newest.value, directory.job, lambda key_id: _public_key(keyring, key_id))
    log = UpdateLog(open_storage(storage), directory.job)
    commits: list[Commit] = []  # newest first
    version, digest = head.record.version, head.digest
    while digest != GENESIS:
        commit = log.head(version, digest).commit
        if commits:
            _require_chain(commit, commits[-1])
        commits.append(commit)
        version, digest = version - 1, commit.record.previous
    _require_chain(None, commits[-1])
    return tuple(reversed(commits))


def _require_chain(previous: Commit | None, commit: Commit) -> None:
    broken = break_in_chain(previous, commit.record)
    if broken is not None:
        raise ForkedChainError(f"the log of {commit.record.job} is not one chain: {broken}")


def _public_key(keyring: Keyring, key_id: str) -> bytes | None:
    """Find a coordinator's key; one that was revoked since still proves what it signed before."""
    enrolled = keyring.find(key_id)
    if enrolled is None or enrolled.role is not Role.COORDINATOR:
        return None
    return enrolled.public_key
