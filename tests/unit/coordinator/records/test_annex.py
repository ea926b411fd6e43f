"""The annex is as good as signed: its record names its digest."""

from hashlib import sha256

import pytest
from training.signed import kept_receipt, signed_header

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.annex import ANNEX_BYTES_MAX, NO_ANNEX, PIECE_BYTES_MAX, Annex
from pliska.coordinator.records.commit import CONVICTIONS_MAX
from pliska.coordinator.records.receipts import RECEIPTS_BYTES_MAX, that_fit
from pliska.coordinator.records.standing import STANDINGS_MAX, Standing, StandingState
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.limits import MEMBERS_MAX, WHY_CHARACTERS_MAX

ANNEX = Annex(
    headers=(signed_header("w1"), signed_header("w2")),
    standings=(
        Standing(worker="w1", suspicion=0.25, rounds=4, outvoted=1),
        Standing(worker="w2", state=StandingState.QUARANTINE, since=3, quarantines=1),
    ),
    receipts=(kept_receipt("w3", ReplyCode.STALE_ROUND, "late"),),
)


def test_annex_comes_back_from_its_bytes() -> None:
    assert Annex.from_bytes(ANNEX.to_bytes(), ANNEX.digest) == ANNEX
    assert Annex.from_bytes(NO_ANNEX.to_bytes(), NO_ANNEX.digest) == NO_ANNEX
    assert ANNEX.by_worker()["w2"].state is StandingState.QUARANTINE


def test_annex_of_as_many_workers_as_there_may_be_is_read_back() -> None:
    why = "x" * (4 * WHY_CHARACTERS_MAX)
    full = Annex(
        headers=(signed_header("w" * 63),) * MEMBERS_MAX,
        standings=tuple(Standing(worker="w" * 128, reason=why) for _ in range(STANDINGS_MAX)),
        evidence=(bytes(PIECE_BYTES_MAX),) * CONVICTIONS_MAX,
        receipts=that_fit((kept_receipt("w" * 63, ReplyCode.STALE_ROUND, "x" * 999),) * 3000),
    )
    assert RECEIPTS_BYTES_MAX / 2 < len(full.receipts) * 2048 < 2 * RECEIPTS_BYTES_MAX
    content = full.to_bytes()
    assert Annex.from_bytes(content, full.digest) == full


def test_annex_of_another_record_is_refused() -> None:
    with pytest.raises(DamagedStateError, match="not the one that the record names"):
        Annex.from_bytes(ANNEX.to_bytes(), NO_ANNEX.digest)


@pytest.mark.parametrize("content", [b"", b"pliska", bytes(64), bytes(ANNEX_BYTES_MAX + 1)])
def test_bytes_that_are_no_annex_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedStateError, match="not an annex"):
        Annex.from_bytes(content, sha256(content).digest())
