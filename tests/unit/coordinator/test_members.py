"""Joining, tokens and leases of workers at the leader."""

import itertools

from pliska.coordinator.members import Members

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
