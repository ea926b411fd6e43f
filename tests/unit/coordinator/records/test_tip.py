"""What the store holds of the last commit: small whatever the record, and signed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.rollback import ROLLBACKS_MAX, Undone
from pliska.coordinator.records.tip import TIP_BYTES_MAX, Tip
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import new_private_key, public_bytes
from pliska.locks.backends.base import RECORD_BYTES_MAX

KEY = new_private_key()
SIGNER = Signer(KEY, "ed25519:leader")


def lookup(key_id: str) -> bytes | None:
    return public_bytes(KEY) if key_id == SIGNER.key_id else None


@pytest.fixture
def commit(lead: Callable[..., object], tiny_job: Callable[[], Job], tmp_path: Path) -> Commit:
    made: Commit = lead(tiny_job(), LocalStorage(tmp_path)).run_round()
    return made


def test_it_says_of_the_record_what_many_ask_for(commit: Commit) -> None:
    tip = Tip.of(commit)
    assert (tip.version, tip.round, tip.epoch) == (1, 1, 1)
    assert (tip.digest, tip.parameters_digest) == (commit.digest, commit.record.parameters_digest)
    assert tip.training_epoch == 0
    signed = SIGNER.sign(tip).to_bytes()
    assert Tip.claimed(signed) == Tip.verified(signed, "tiny", lookup) == tip


def test_it_fits_every_store_with_as_many_rollbacks_as_there_may_be(commit: Commit) -> None:
    undone = tuple(Undone(2**40 + 3 * n, 2**40 + 3 * n + 2) for n in range(ROLLBACKS_MAX))
    full = replace(Tip.of(commit), job="j" * 63, undone=undone)
    signed = SIGNER.sign(full).to_bytes()
    assert len(signed) <= TIP_BYTES_MAX < RECORD_BYTES_MAX
    assert Tip.verified(signed, "j" * 63, lookup) == full


def test_one_that_no_coordinator_signed_or_of_another_job_is_refused(commit: Commit) -> None:
    signed = SIGNER.sign(Tip.of(commit)).to_bytes()
    stranger = Signer(new_private_key(), "ed25519:stranger").sign(Tip.of(commit)).to_bytes()
    altered = signed[:-1] + bytes([signed[-1] ^ 1])
    for data in (stranger, altered, b"", b"nonsense", commit.to_bytes(), bytes(TIP_BYTES_MAX + 1)):
        with pytest.raises(DamagedStateError):
            Tip.verified(data, "tiny", lookup)
    with pytest.raises(DamagedStateError, match="of the job tiny, not digits"):
        Tip.verified(signed, "digits", lookup)
