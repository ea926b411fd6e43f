from pliska.discovery.instance import Instance
from pliska.discovery.service_store import ServiceListing
from pliska.discovery.service_view import (
    ServiceSnapshot,
    Standing,
    after_answer,
    after_silence,
    unknown,
)
from pliska.locks import Revision

A = Instance(service="s", id="a", address="h")
B = Instance(service="s", id="b", address="h")


def listing(revision: int, *instances: Instance) -> ServiceListing:
    return ServiceListing(instances, Revision(revision))


def known(*instances: Instance) -> ServiceSnapshot:
    return after_answer(10.0, unknown(0.0, "s"), listing(1, *instances))


def test_before_the_first_answer_nothing_is_known() -> None:
    before = unknown(5.0, "s")
    assert (before.standing, before.is_stale, before.age_s(7.0)) == (Standing.UNKNOWN, True, 2.0)
    silent = after_silence(before, "away")
    assert (silent.standing, silent.reason) == (Standing.UNKNOWN, "away")


def test_an_answer_is_confirmed_and_a_new_generation() -> None:
    snapshot = known(A)
    assert (snapshot.standing, snapshot.reason, snapshot.generation) == (
        Standing.CONFIRMED,
        "",
        1,
    )
    assert not snapshot.is_stale
    again = after_answer(12.0, snapshot, listing(2, A))
    assert (again.generation, again.age_s(12.0)) == (1, 0.0)
    assert after_answer(12.0, snapshot, listing(2, A, B)).generation == 2


def test_silence_keeps_the_list_and_lets_its_age_grow() -> None:
    silent = after_silence(known(A), "away")
    assert silent.instances == (A,)
    assert (silent.standing, silent.reason, silent.is_stale) == (Standing.UNREACHABLE, "away", True)
    assert silent.age_s(25.0) == 15.0
    assert after_silence(silent, "away") is silent
    assert after_answer(30.0, silent, listing(3, A)).standing is Standing.CONFIRMED


def test_an_empty_answer_keeps_the_list_and_says_so() -> None:
    emptied = after_answer(20.0, known(A), listing(2))
    assert (emptied.instances, emptied.standing) == ((A,), Standing.EMPTIED)
    assert emptied.reason == "the store lists no instance of s any more"
    assert emptied.age_s(20.0) == 10.0
    assert after_answer(21.0, emptied, listing(3)) is emptied
    assert after_answer(22.0, emptied, listing(4, B)).instances == (B,)


def test_a_service_that_never_had_instances_is_simply_empty() -> None:
    snapshot = known()
    assert (snapshot.instances, snapshot.standing) == ((), Standing.CONFIRMED)
