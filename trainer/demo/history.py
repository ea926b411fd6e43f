"""The committed rounds of a job, read back from the store and the update log.

From the commit record in the store, whose signature is checked, back along the
chain of digests to the first round: what is not there, or not the record that
its successor names, is an error, never a gap.
"""

from pliska.coordinator.client import JobDirectory
from pliska.coordinator.commit import GENESIS, Commit
from pliska.coordinator.storage import Storage
from pliska.coordinator.update_log import UpdateLog
from pliska.discovery import Keyring, Role
from pliska.trainer.demo.facts import CommittedRound


def committed_rounds(directory: JobDirectory, storage: Storage) -> tuple[CommittedRound, ...]:
    """Return the rounds from the first to the last committed one. Blocks on store and disk.

    Raises:
        CoordinatorError: A record is missing, damaged, or signed by a stranger.
        LockError: The store does not answer.
    """
    newest = directory.commit()
    if newest is None:
        return ()
    keyring = directory.keyring
    head = Commit.verified(newest.value, directory.job, lambda key_id: _public_key(keyring, key_id))
    log = UpdateLog(storage, directory.job)
    rounds = []
    version, digest = head.record.version, head.digest
    while digest != GENESIS:
        record = log.read(version, digest).commit.record
        rounds.append(CommittedRound(record.round, digest.hex()))
        version, digest = version - 1, record.previous
    return tuple(reversed(rounds))


def _public_key(keyring: Keyring, key_id: str) -> bytes | None:
    enrolled = keyring.find(key_id)
    if enrolled is None or enrolled.role is not Role.COORDINATOR:
        return None
    return enrolled.public_key
