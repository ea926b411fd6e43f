import pytest

from pliska.coordinator.records.rollback import (
    ROLLBACKS_MAX,
    Rollback,
    Undone,
    refuse_target,
    undoing,
)
from pliska.coordinator.wire.errors import MalformedError

UNDONE = (Undone(4, 10), Undone(2, 14))


def rollback(*excluded: str) -> Rollback:
    return Rollback(
        target=4, record_digest=bytes(32), actor="ann", reason="poison", excluded=excluded
    )


def test_versions_between_a_rollback_and_its_target_are_undone() -> None:
    by = {version: undoing(version, UNDONE) for version in range(1, 16)}
    assert [version for version in by if by[version] == UNDONE[0]] == [5, 6, 7, 8, 9]
    assert [v for v in by if by[v] == UNDONE[1]] == [3, 4, 10, 11, 12, 13]
    assert [version for version in by if by[version] is None] == [1, 2, 14, 15]


@pytest.mark.parametrize(
    ("target", "horizon", "reason"),
    [
        (0, 0, "version 0 has no record"),
        (20, 0, "is not before the last committed one, 20"),
        (21, 0, "is not before the last committed one, 20"),
        (9, 0, "is TAINTED: the rollback in version 10 undid it"),
        (13, 0, "is TAINTED: the rollback in version 14 undid it"),
        (15, 16, "is behind the horizon"),
    ],
)
def test_a_target_that_cannot_be_restored_is_refused_with_the_reason(
    target: int, horizon: int, reason: str
) -> None:
    assert reason in str(refuse_target(target, 20, 99, UNDONE, horizon))


@pytest.mark.parametrize(("target", "horizon"), [(19, 0), (16, 16), (14, 14), (2, 1)])
def test_a_kept_version_that_the_newest_follows_from_may_be_restored(
    target: int, horizon: int
) -> None:
    assert refuse_target(target, 20, 99, UNDONE, horizon) is None


def test_a_job_that_has_finished_stays_so() -> None:
    assert refuse_target(4, 20, 21, (), 0) is None
    assert "has finished" in str(refuse_target(4, 20, 20, (), 0))


def test_a_job_is_not_rolled_back_more_often_than_its_records_can_say() -> None:
    undone = tuple(Undone(1, 3 + number) for number in range(ROLLBACKS_MAX))
    assert refuse_target(1, 300, 999, undone[:-1], 0) is None
    assert "times already" in str(refuse_target(1, 300, 999, undone, 0))


@pytest.mark.parametrize(("target", "version"), [(0, 5), (4, 4), (4, 5), (5, 4)])
def test_a_rollback_that_undoes_nothing_cannot_be_stated(target: int, version: int) -> None:
    with pytest.raises(MalformedError, match="no rollback"):
        Undone(target, version)


@pytest.mark.parametrize("excluded", [("b", "a"), ("a", "a")])
def test_there_is_one_way_to_write_the_excluded_down(excluded: tuple[str, str]) -> None:
    with pytest.raises(MalformedError, match="not sorted"):
        rollback(*excluded)
