"""When a round has enough copies: a stated number is strict, "auto" bends, and says so."""

from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.replication.replication import PATIENCE_S, Replica, ReplicaState, judge

FOLLOWING, LAGGING = ReplicaState.FOLLOWING, ReplicaState.LAGGING
AWAY, SHARED = ReplicaState.AWAY, ReplicaState.SHARED
NOW = 100.0
LONG_AGO = NOW - PATIENCE_S


def replica(name: str, state: ReplicaState, version: int = 0, followed_at: float = NOW) -> Replica:
    return Replica(name, state, version, followed_at)


def test_a_stated_number_is_strict() -> None:
    holds, behind = replica("c2", FOLLOWING, 7), replica("c3", FOLLOWING, 6)
    assert judge(7, [holds, behind], 1, NOW).is_enough
    verdict = judge(7, [holds, behind], 2, NOW)
    assert not verdict.is_enough
    assert verdict.reason == "version 7 waits for 1 of 2 replicas: c3 has version 6"
    nobody = judge(7, [], 1, NOW)
    assert not nobody.is_enough
    assert nobody.reason == "version 7 waits for 1 of 1 replicas: no standby is there"
    assert judge(7, [], 0, NOW).is_enough


def test_auto_asks_for_one_where_a_standby_follows() -> None:
    verdict = judge(7, [replica("c2", FOLLOWING, 6)], "auto", NOW)
    assert (verdict.is_enough, verdict.in_force) == (False, 1)
    verdict = judge(7, [replica("c2", FOLLOWING, 7), replica("c3", LAGGING, 2)], "auto", NOW)
    assert (verdict.is_enough, verdict.in_force) == (True, 1)
    assert verdict.reason == "also at c2"


def test_auto_goes_on_alone_and_says_so() -> None:
    verdict = judge(7, [], "auto", NOW)
    assert (verdict.is_enough, verdict.in_force) == (True, 0)
    assert verdict.reason == "on this disk only: no standby is there"
    lost = Replica("c2", AWAY, 5, LONG_AGO, "cannot connect")
    verdict = judge(7, [lost], "auto", NOW)
    assert (verdict.is_enough, verdict.in_force) == (True, 0)
    assert verdict.reason == "on this storage only: c2 does not answer: cannot connect"


def test_auto_waits_a_while_for_a_standby_that_does_not_follow() -> None:
    for state in (AWAY, LAGGING):
        assert not judge(7, [replica("c2", state, 3, LONG_AGO + 0.1)], "auto", NOW).is_enough
        assert judge(7, [replica("c2", state, 3, LONG_AGO)], "auto", NOW).is_enough
    lagging = Replica("c2", LAGGING, 3, NOW, "begins")
    assert "c2 is at version 3, begins" in judge(7, [lagging], "auto", NOW).reason


def test_a_standby_with_the_same_storage_is_no_copy() -> None:
    shares = replica("c2", SHARED, 7)
    assert judge(7, [shares], "auto", NOW).is_enough
    assert judge(7, [shares], "auto", NOW).in_force == 0
    assert not judge(7, [shares], 1, NOW).is_enough
    assert "c2 shares this storage" in judge(7, [shares], 1, NOW).reason


REPLICAS = st.lists(
    st.builds(
        Replica,
        name=st.sampled_from(["c2", "c3", "c4"]),
        state=st.sampled_from(ReplicaState),
        version=st.integers(5, 8),
        followed_at=st.floats(NOW - 2 * PATIENCE_S, NOW),
    ),
    max_size=4,
)


@given(REPLICAS, st.one_of(st.just("auto"), st.integers(0, 3)))
def test_enough_means_that_so_many_others_hold_it(
    replicas: list[Replica], wanted: int | str
) -> None:
    verdict = judge(7, replicas, wanted, NOW)  # type: ignore[arg-type]
    holding = sum(each.state is FOLLOWING and each.version >= 7 for each in replicas)
    assert verdict.is_enough == (holding >= verdict.in_force)
    assert verdict.reason
    if wanted == "auto":
        follows = any(each.state is FOLLOWING for each in replicas)
        assert verdict.in_force <= 1
        assert verdict.in_force == 1 or not follows
    else:
        assert verdict.in_force == wanted
