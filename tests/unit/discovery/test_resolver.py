import contextlib
from collections.abc import Iterator
from random import Random

import pytest

from pliska.discovery.balancing import BalancingState, round_robin
from pliska.discovery.errors import NoInstanceError
from pliska.discovery.instance import Instance, InstanceState
from pliska.discovery.registration import register
from pliska.discovery.resolver import LocalKnowledge, Resolver, ResolverOptions, choose
from pliska.discovery.service_view import ServiceSnapshot, Standing
from pliska.locks import Backend, connect

NOTHING = LocalKnowledge({}, {}, BalancingState())


def instance(name: str, state: InstanceState = InstanceState.UP, zone: str = "") -> Instance:
    return Instance(service="scorer", id=name, address="h", state=state, zone=zone)


def snapshot(*instances: Instance, standing: Standing = Standing.CONFIRMED) -> ServiceSnapshot:
    reason = "" if standing is Standing.CONFIRMED else "the store is away"
    return ServiceSnapshot("scorer", instances, standing, reason, confirmed_s=100.0)


def reason(
    seen: ServiceSnapshot, knowledge: LocalKnowledge = NOTHING, **options: object
) -> tuple[str, str]:
    chosen = choose(
        160.0,
        seen,
        knowledge,
        ResolverOptions(policy=round_robin, **options),  # type: ignore[arg-type]
        Random(1),
    )
    return chosen.instance.id, chosen.reason


def test_only_those_that_take_work_are_chosen() -> None:
    seen = snapshot(
        instance("a", InstanceState.DRAINING), instance("b", InstanceState.FAILING), instance("c")
    )
    assert reason(seen) == ("c", "next after none")


def test_when_nobody_takes_work_the_error_says_what_they_do() -> None:
    seen = snapshot(instance("a", InstanceState.DRAINING), instance("b", InstanceState.FAILING))
    with pytest.raises(NoInstanceError, match="1 draining, 1 failing"):
        reason(seen)
    with pytest.raises(NoInstanceError, match="scorer has no instance"):
        reason(snapshot())


def test_a_stale_list_serves_and_the_reason_says_how_old_it_is() -> None:
    seen = snapshot(instance("a"), standing=Standing.UNREACHABLE)
    assert reason(seen) == ("a", "next after none; the list is 60.0 s old: the store is away")
    assert reason(seen, stale_s_max=60.0)[0] == "a"
    with pytest.raises(NoInstanceError, match=r"60\.0 s old, more than 59 s"):
        reason(seen, stale_s_max=59.0)


def test_instances_that_failed_twice_are_left_out() -> None:
    errors = LocalKnowledge({}, {"a": (150.0, 155.0)}, BalancingState())
    seen = snapshot(instance("a"), instance("b"))
    assert reason(seen, errors) == ("b", "next after none; 1 left out after errors")
    all_fail = LocalKnowledge({}, {"a": (150.0, 155.0), "b": (150.0, 155.0)}, BalancingState())
    assert reason(seen, all_fail) == ("a", "next after none; 2 of 2 fail, so none is left out")


def test_the_callers_own_zone_comes_first() -> None:
    seen = snapshot(instance("a", zone="eu"), instance("b", zone="us"))
    assert reason(seen, zone="us") == ("b", "next after none; zone us")


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = connect("memory:")
    with register(backend, instance("a")), register(backend, instance("b")):
        yield backend


def test_an_exception_inside_a_pick_counts_as_an_error_of_the_instance(backend: Backend) -> None:
    with Resolver(backend, ResolverOptions(policy=round_robin)) as resolver:
        for _ in range(4):
            with contextlib.suppress(OSError), resolver.pick("scorer") as pick:
                if pick.instance.id == "a":
                    raise OSError("refused")
        assert {resolver.resolve("scorer").id for _ in range(6)} == {"b"}


def test_work_in_flight_is_counted_until_the_pick_is_closed(backend: Backend) -> None:
    with Resolver(backend, random=Random(1)) as resolver:
        busy = resolver.pick("scorer")
        # With one in flight at one of two, the power of two choices takes the other.
        assert {resolver.resolve("scorer").id for _ in range(20)} == {
            "a" if busy.instance.id == "b" else "b"
        }
        busy.close(failed=False)
        busy.close(failed=False)
        assert {resolver.resolve("scorer").id for _ in range(50)} == {"a", "b"}


def test_a_pick_may_be_closed_after_its_resolver(backend: Backend) -> None:
    resolver = Resolver(backend)
    pick = resolver.pick("scorer")
    resolver.close()
    pick.close(failed=True)
