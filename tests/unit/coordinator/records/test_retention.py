from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.records.retention import RetentionOptions, horizon_of, kept

CHECKPOINTS = st.lists(st.integers(1, 60), unique=True)
OPTIONS = st.builds(RetentionOptions, keep=st.integers(1, 4), keep_rounds=st.integers(0, 60))
TENS = [10, 20, 30, 40]


def options(keep: int = 1, keep_rounds: int = 0) -> RetentionOptions:
    return RetentionOptions(keep, keep_rounds)


def test_the_newest_checkpoints_can_all_be_started_from() -> None:
    assert horizon_of(45, TENS, [], options(keep=3)) == 20


def test_the_newest_rounds_keep_their_aggregates() -> None:
    assert horizon_of(45, TENS, [], options()) == 40
    assert horizon_of(45, TENS, [], options(keep_rounds=6)) == 30
    assert horizon_of(45, TENS, [], options(keep_rounds=100)) == 0


def test_a_standby_that_lags_finds_what_it_needs() -> None:
    assert horizon_of(45, TENS, [45, 37], options()) == 30


def test_without_a_checkpoint_everything_is_needed() -> None:
    assert horizon_of(45, [], [], options()) == 0
    assert kept(40, [], options()).aggregates_after == 0


def test_one_checkpoint_in_each_interval_stays_from_the_horizon_on() -> None:
    checkpoints = range(10, 400, 10)
    stays = kept(125, checkpoints, options(keep=2, keep_rounds=100))
    assert stays.checkpoints == {100, 200, 300, 380, 390}
    assert stays.aggregates_after == 100


@given(head=st.integers(0, 60), checkpoints=CHECKPOINTS, wanted=OPTIONS)
def test_the_horizon_spares_all_that_was_asked_for(
    head: int, checkpoints: list[int], wanted: RetentionOptions
) -> None:
    checkpoints = [each for each in checkpoints if each <= head]
    followed = [max(0, head - 3)]
    horizon = horizon_of(head, checkpoints, followed, wanted)
    assert horizon in {0, *checkpoints}
    assert horizon <= max(0, head - wanted.keep_rounds)
    assert horizon <= followed[0]
    assert all(horizon <= each for each in sorted(checkpoints)[-wanted.keep :])


@given(horizon=st.integers(0, 60), checkpoints=CHECKPOINTS, wanted=OPTIONS)
def test_a_storage_keeps_what_leads_from_each_kept_checkpoint_on(
    horizon: int, checkpoints: list[int], wanted: RetentionOptions
) -> None:
    stays = kept(horizon, checkpoints, wanted)
    assert set(sorted(checkpoints)[-wanted.keep :]) <= stays.checkpoints <= set(checkpoints)
    assert stays.aggregates_after <= horizon
    assert stays.aggregates_after in {0, *stays.checkpoints}
    assert all(stays.aggregates_after <= each for each in stays.checkpoints)


@given(
    horizons=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
    checkpoints=CHECKPOINTS,
    later_checkpoints=CHECKPOINTS,
    wanted=OPTIONS,
)
def test_what_may_go_once_is_never_wanted_again(
    horizons: list[int],
    checkpoints: list[int],
    later_checkpoints: list[int],
    wanted: RetentionOptions,
) -> None:
    earlier, later = horizons
    newest = max(checkpoints, default=0)
    added = [each for each in later_checkpoints if each > newest]
    old = kept(earlier, checkpoints, wanted)
    new = kept(later, [*checkpoints, *added], wanted)
    assert new.checkpoints & set(checkpoints) <= old.checkpoints
    assert new.aggregates_after >= old.aggregates_after
