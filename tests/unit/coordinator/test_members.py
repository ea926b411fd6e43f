"""Joining, tokens and leases of workers at the leader."""

import itertools

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.members import Members
from pliska.coordinator.routes import DONORS_MAX

LIFE = b"1" * 16


def members(members_max: int = 10) -> Members:
    counter = itertools.count(1)
    return Members(5.0, members_max, lambda size: next(counter).to_bytes(size, "big"))


def test_a_new_incarnation_takes_the_place_of_the_old_one_and_voids_its_token() -> None:
    here = members()
    old = here.join("w1", LIFE, "key", 0.0)
    new = here.join("w1", b"2" * 16, "key", 0.0)
    assert old is not None
    assert new is not None
    assert here.with_token(old.token) is None
    assert here.with_token(new.token) == new
    assert here.present() == {"w1": b"2" * 16}


def test_the_same_incarnation_joining_again_keeps_its_sequence() -> None:
    here = members()
    here.join("w1", LIFE, "key", 0.0)
    here.use_seq("w1", 7)
    here.use_seq("w1", 3)
    again = here.join("w1", LIFE, "key", 0.0)
    reborn = here.join("w1", b"2" * 16, "key", 0.0)
    assert again is not None
    assert again.seq == 7
    assert reborn is not None
    assert reborn.seq == 0


def test_a_silent_worker_is_gone_after_its_lease_and_a_heard_one_stays() -> None:
    here = members()
    here.join("w1", LIFE, "key", 0.0)
    here.join("w2", LIFE, "key", 0.0)
    here.hear("w2", 3.0)
    assert here.expire(5.0) == ()
    assert here.expire(5.1) == ("w1",)
    assert set(here.present()) == {"w2"}


def test_a_token_does_not_show_in_the_representation() -> None:
    member = members().join("w1", LIFE, "key", 0.0)
    assert member is not None
    assert member.token not in repr(member)


def test_a_full_job_takes_no_further_worker_but_a_known_one_comes_back() -> None:
    here = members(members_max=1)
    assert here.join("w1", LIFE, "key", 0.0) is not None
    assert here.join("w2", LIFE, "key", 0.0) is None
    assert here.join("w1", b"2" * 16, "key", 0.0) is not None


def test_workers_that_donate_are_named_in_turn_and_never_to_themselves() -> None:
    here = members()
    for number in range(7):
        name = f"w{number}"
        donor = Endpoint(name, "127.0.0.1", 1 + number, "", "key") if number else None
        here.join(name, LIFE, "key", 0.0, donor)
    first = [each.name for each in here.donors("w0")]
    then = [each.name for each in here.donors("w0")]
    assert len(first) == len(then) == DONORS_MAX
    assert set(first) | set(then) == {f"w{number}" for number in range(1, 7)}
    for number in range(1, 7):
        assert f"w{number}" not in {each.name for each in here.donors(f"w{number}")}
    here.leave("w3")
    assert "w3" not in {each.name for _ in range(3) for each in here.donors("w0")}


def test_nobody_is_named_where_nobody_donates() -> None:
    here = members()
    here.join("w1", LIFE, "key", 0.0)
    assert here.donors("w2") == ()
