from collections import Counter
from random import Random

import pytest

from pliska.discovery.balancing import (
    POLICIES,
    BalancingState,
    least_in_flight,
    policy_named,
    power_of_two_choices,
    round_robin,
    smooth_weighted,
)
from pliska.discovery.errors import ServiceUsageError
from pliska.discovery.instance import Instance

NOBODY: dict[str, int] = {}


def instances(**weights: int) -> list[Instance]:
    return [
        Instance(service="s", id=name, address="h", weight=weight)
        for name, weight in sorted(weights.items())
    ]


def chosen(policy: str, among: list[Instance], turns: int, seed: int = 1) -> str:
    state, random, ids = BalancingState(), Random(seed), ""
    for _ in range(turns):
        choice = POLICIES[policy](among, NOBODY, state, random)
        state, ids = choice.state, ids + choice.instance.id
    return ids


def test_round_robin_goes_around_in_the_order_of_ids() -> None:
    assert chosen("round-robin", instances(a=1, b=9, c=1), 7) == "abcabca"


def test_round_robin_goes_on_where_it_was_when_instances_come_and_go() -> None:
    choice = round_robin(instances(a=1, c=1), NOBODY, BalancingState("b"), Random(1))
    assert choice.instance.id == "c"
    choice = round_robin(instances(a=1, b=1), NOBODY, BalancingState("c"), Random(1))
    assert choice.instance.id == "a"


def test_smooth_weighting_spreads_in_proportion_without_bursts() -> None:
    # The sequence of nginx's documentation of the algorithm, for weights 5, 1 and 1.
    assert chosen("weighted", instances(a=5, b=1, c=1), 14) == "aabacaa" * 2


def test_smooth_weighting_forgets_who_has_gone() -> None:
    choice = smooth_weighted(
        instances(b=1), NOBODY, BalancingState("a", {"a": -9, "b": 4}), Random(1)
    )
    assert choice.state.credits == {"b": 4}


def test_least_in_flight_takes_the_least_loaded_for_its_weight() -> None:
    among = instances(a=1, b=4, c=1)
    choice = least_in_flight(among, {"a": 1, "b": 3, "c": 9}, BalancingState(), Random(1))
    assert (choice.instance.id, choice.reason) == ("b", "3 in flight, the least of 3")


def test_least_in_flight_leaves_equals_to_chance() -> None:
    counts = Counter(chosen("least-in-flight", instances(a=1, b=1), 400))
    assert 120 < counts["a"] < 280


def test_power_of_two_takes_the_less_loaded_of_two() -> None:
    in_flight = {"a": 5, "b": 0}
    choice = power_of_two_choices(instances(a=1, b=1), in_flight, BalancingState(), Random(1))
    assert (choice.instance.id, choice.reason) == ("b", "0 in flight against 5 of a")


def test_power_of_two_never_takes_the_most_loaded_of_several() -> None:
    among, random = instances(a=1, b=1, c=1), Random(3)
    taken = {
        power_of_two_choices(among, {"a": 9}, BalancingState(), random).instance.id
        for _ in range(200)
    }
    assert taken == {"b", "c"}


def test_power_of_two_evens_out_the_load_far_better_than_chance() -> None:
    among = [Instance(service="s", id=f"i{n:02}", address="h") for n in range(50)]
    in_flight: Counter[str] = Counter()
    random = Random(7)
    for _ in range(5_000):
        choice = power_of_two_choices(among, in_flight, BalancingState(), random)
        in_flight[choice.instance.id] += 1
    # By chance alone the fullest of 50 would have about 100 + 2.3 standard deviations, 123.
    assert max(in_flight.values()) < 106


@pytest.mark.parametrize("policy", POLICIES)
def test_the_only_instance_is_always_chosen(policy: str) -> None:
    assert chosen(policy, instances(a=3), 3) == "aaa"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_makes_the_same_choices(policy: str) -> None:
    among = instances(a=1, b=2, c=3)
    assert chosen(policy, among, 30, seed=5) == chosen(policy, among, 30, seed=5)


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(ServiceUsageError, match="choose of power-of-two, round-robin"):
        policy_named("best")
