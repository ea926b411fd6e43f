"""The horizon in the store: it only grows, and only the leader moves it."""

from collections.abc import Callable

import pytest
from training.leadership import Lead

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.horizon import raise_horizon, read_horizon
from pliska.locks import GrantLostError


def test_it_only_grows(lead_toy: Callable[..., Lead]) -> None:
    lead = lead_toy()
    leadership = lead.campaign()
    assert read_horizon(lead.directory) == 0
    assert raise_horizon(lead.directory, leadership, 0) == 0
    assert raise_horizon(lead.directory, leadership, 10) == 10
    assert raise_horizon(lead.directory, leadership, 4) == 10
    assert raise_horizon(lead.directory, leadership, 20) == 20
    assert read_horizon(lead.directory) == 20


def test_a_leader_that_was_replaced_moves_nothing(lead_toy: Callable[..., Lead]) -> None:
    old, new = lead_toy("c1"), lead_toy("c2")
    stale = old.campaign()
    raise_horizon(old.directory, stale, 10)
    # As after a pause: the candidacy is gone from the store, and nobody has told its holder.
    old.directory.backend.delete(stale._candidacy.key)
    new.campaign()
    with pytest.raises(GrantLostError):
        raise_horizon(old.directory, stale, 30)
    assert read_horizon(new.directory) == 10


@pytest.mark.parametrize("value", [b"", b"ten", b"-1", b"1" * 21])
def test_a_record_that_is_no_version_is_refused(
    lead_toy: Callable[..., Lead], value: bytes
) -> None:
    lead = lead_toy()
    lead.directory.backend.create(lead.directory.horizon_key, value)
    with pytest.raises(DamagedStateError, match="does not hold a version"):
        read_horizon(lead.directory)
