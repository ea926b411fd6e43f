"""The record in the store that says how rounds are run."""

import json

import pytest

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.mode import MODE_BYTES_MAX, Mode, ModeSetting
from pliska.coordinator.wire.limits import REASON_CHARACTERS_MAX

RIGHT = {"mode": "hybrid", "mode_epoch": 3, "reason": "ann: slow disks"}


def test_setting_survives_the_store() -> None:
    setting = ModeSetting().followed_by(Mode.HYBRID, "ann: slow disks")
    assert setting == ModeSetting(Mode.HYBRID, 1, "ann: slow disks")
    assert ModeSetting.from_bytes(setting.to_bytes()) == setting


def test_longest_reason_is_read_back_and_a_longer_one_is_cut() -> None:
    setting = ModeSetting().followed_by(Mode.HYBRID, "ö" * (REASON_CHARACTERS_MAX + 1))
    assert len(setting.reason) == REASON_CHARACTERS_MAX
    assert len(setting.to_bytes()) <= MODE_BYTES_MAX
    assert ModeSetting.from_bytes(setting.to_bytes()) == setting


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 10_000,
        json.dumps({**RIGHT, "mode": "quick"}).encode(),
        json.dumps({**RIGHT, "mode_epoch": -1}).encode(),
        json.dumps({**RIGHT, "mode_epoch": 2**64}).encode(),
        json.dumps({**RIGHT, "mode_epoch": True}).encode(),
        json.dumps({**RIGHT, "reason": "x" * (REASON_CHARACTERS_MAX + 1)}).encode(),
        json.dumps({**RIGHT, "reason": None}).encode(),
        json.dumps({"mode": "hybrid"}).encode(),
    ],
)
def test_what_is_no_setting_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(DamagedStateError, match="pliska job mode"):
        ModeSetting.from_bytes(data)
    assert ModeSetting.from_bytes(json.dumps(RIGHT).encode()).mode_epoch == 3
