"""Nonces that wait for their answers."""

import itertools

from pliska.coordinator.challenges import CHALLENGE_LIFE_S, CHALLENGES_MAX, Challenges


def challenges() -> Challenges:
    counter = itertools.count(1)
    return Challenges(lambda size: next(counter).to_bytes(size, "big"))


def test_a_challenge_can_be_answered_once() -> None:
    asked = challenges()
    nonce = asked.ask(0.0)
    assert asked.is_answered(nonce, 1.0)
    assert not asked.is_answered(nonce, 1.0)


def test_a_challenge_that_was_never_asked_or_is_old_is_not_answered() -> None:
    asked = challenges()
    assert not asked.is_answered(b"x" * 32, 0.0)
    nonce = asked.ask(0.0)
    assert not asked.is_answered(nonce, CHALLENGE_LIFE_S)


def test_open_challenges_are_bounded() -> None:
    asked = challenges()
    first = asked.ask(0.0)
    for _ in range(CHALLENGES_MAX - 1):
        last = asked.ask(0.0)
    assert asked.is_answered(first, 0.0)
    second = asked.ask(0.0)
    for _ in range(CHALLENGES_MAX):
        last = asked.ask(0.0)
    assert not asked.is_answered(second, 0.0)
    assert asked.is_answered(last, 0.0)
