"""The checker finds what it is there to find: each rule broken in a small history of its own."""

from math import inf

import pytest
from chaos.checker import check
from chaos.history import Event


def event(kind: str, at_s: float, **fields: object) -> Event:
    return {"kind": kind, "who": "a", "at_s": at_s, **fields}


def session(lease_s: float = 10.0, sent_s: float = 0.0) -> Event:
    return event("session", sent_s, session="s", sent_s=sent_s, lease_s=lease_s)


def handle(
    id_: str, token: int, asked_s: float, granted_s: float, until_s: float, recipe: str = "mutex"
) -> list[Event]:
    """An acquire that was seen to hold until `until_s`."""
    return [
        event("asked", asked_s, handle=id_, recipe=recipe, name="locks/m", session="s"),
        event("granted", granted_s, handle=id_, token=token),
        event("looked", until_s, handle=id_, held=True, from_s=until_s, to_s=until_s),
    ]


def resized(size: int, at_s: float) -> Event:
    return event("resized", at_s, name="locks/m", size=size, from_s=at_s, to_s=at_s)


def broken(token: int, at_s: float) -> Event:
    return event("broken", at_s, name="locks/m", tokens=[token], from_s=at_s, to_s=at_s)


def at_barrier(id_: str, asked_s: float, passed_s: float, until_s: float) -> list[Event]:
    """A member that passed."""
    asked, *rest = handle(id_, int(passed_s * 10), asked_s, passed_s, until_s, "barrier")
    return [{**asked, "name": "barriers/b"}, *rest]


def in_vain(id_: str, asked_s: float, ended_s: float, recipe: str, name: str) -> list[Event]:
    """A wait that ran out of time."""
    return [
        event("asked", asked_s, handle=id_, recipe=recipe, name=name, session="s"),
        event("refused", ended_s, handle=id_, why="AcquireTimeoutError"),
    ]


def renewals(from_s: int, to_s: int) -> list[Event]:
    """A session that lives."""
    return [
        event("renewal", second / 2, session="s", sent_s=second / 2)
        for second in range(2 * from_s, 2 * to_s)
    ]


def lost(id_: str, at_s: float) -> Event:
    return event("lost", at_s, handle=id_)


GOOD: list[list[Event]] = [
    [],
    [session(), *handle("a", 1, 1, 2, 3), *handle("b", 2, 1, 4, 5)],
    [session(), *handle("a", 1, 1, 2, 5, "read"), *handle("b", 2, 1, 3, 5, "read")],
    [
        session(),
        *handle("a", 1, 1, 2, 5, "write"),
        event("downgraded", 3, handle="a", from_s=2.5),
        *handle("b", 2, 1, 3, 5, "read"),
    ],
    [session(), *handle("a", 1, 1, 2, 4.5), broken(1, 4), *handle("b", 2, 1, 4.1, 5), lost("a", 5)],
    [
        session(),
        resized(2, 0),
        *handle("a", 1, 1, 2, 9, "semaphore"),
        *handle("b", 2, 1, 2.5, 9, "semaphore"),
        resized(1, 3),
    ],
    [
        event("write", 1, register="r", token=2, revision=1),
        event("write", 2, register="r", token=2, revision=2),
    ],
    [session(), *at_barrier("a", 1, 2, 3), *at_barrier("b", 1.5, 2.1, 3)],
    [session(1.0), *renewals(0, 20), *in_vain("a", 1, 20, "barrier", "barriers/b")],
    # Whoever waits without a living session, waits for nothing.
    [session(1.0), *renewals(0, 18), *in_vain("a", 1, 20, "mutex", "locks/m")],
    [
        session(1.0),
        *renewals(0, 20),
        *at_barrier("a", 1, 2, 19),
        *at_barrier("b", 1, 2.1, 19),
        *in_vain("c", 3, 20, "barrier", "barriers/b"),
        *in_vain("d", 3, 20, "barrier", "barriers/b"),
    ],
    [
        session(),
        event("outage", 3, from_s=2.9, to_s=3.1),
        *in_vain("a", 1, 3, "barrier", "barriers/b"),
        *at_barrier("b", 3.5, 4, 5),
    ],
    # A grant that was never seen to hold is none.
    [
        session(),
        *handle("a", 1, 1, 2, 4),
        event("asked", 1, handle="b", recipe="mutex", name="locks/m", session="s"),
        event("granted", 3, handle="b", token=2),
    ],
    # What may have been broken or not, and whoever had no store to hear it from.
    [session(), *handle("a", 1, 1, 2, 9), {**broken(1, 4), "to_s": inf}, *handle("b", 2, 1, 5, 6)],
    [session(), *handle("a", 1, 1, 2, 3), broken(1, 4), event("outage", 9, from_s=3, to_s=9)],
    # A grant that was broken before its owner knew of it.
    [
        session(),
        broken(1, 4),
        *handle("a", 1, 1, 4.2, 4.5),
        *handle("b", 2, 1, 4.3, 5),
        lost("a", 5),
    ],
]


@pytest.mark.parametrize("history", GOOD)
def test_a_good_history_passes(history: list[Event]) -> None:
    assert check(history) == []


BAD: dict[str, list[Event]] = {
    "S1: locks/m gave a token out twice": [
        session(),
        *handle("a", 1, 1, 2, 3),
        *handle("b", 1, 4, 5, 6),
    ],
    "S1: locks/m: b has token 1 after 2": [
        session(),
        *handle("a", 2, 1, 2, 3),
        *handle("b", 1, 4, 5, 6),
    ],
    "S1: r took token 1 at 9 after 2": [
        event("write", 2, register="r", token=1, revision=9),
        event("write", 1, register="r", token=2, revision=8),
    ],
    "S2: locks/m: mutex a held": [session(), *handle("a", 1, 1, 2, 5), *handle("b", 2, 1, 4, 6)],
    "S2: locks/m: write a held": [
        session(),
        *handle("a", 1, 1, 2, 5, "write"),
        *handle("b", 2, 1, 4, 6, "read"),
    ],
    "S2: locks/m: write b held": [
        session(),
        *handle("a", 1, 1, 2, 5, "write"),
        event("downgraded", 3, handle="a", from_s=2.5),
        *handle("b", 2, 1, 3, 5, "write"),
    ],
    "S2: locks/m: mutex a held 2..8": [
        session(),
        *handle("a", 1, 1, 2, 8),
        broken(1, 4),
        *handle("b", 2, 1, 4.1, 9),
        lost("a", 5),
    ],
    "S2: a was gone at 3 and held again at 4": [
        session(),
        *handle("a", 1, 1, 2, 4),
        event("looked", 3, handle="a", held=False, from_s=3, to_s=3),
    ],
    "S3: a claimed at 12 on a renewal sent at 1": [
        session(),
        event("renewal", 1, session="s", sent_s=1.0),
        *handle("a", 1, 1, 2, 12),
    ],
    "S3: a was robbed at 4 and told at None": [session(), *handle("a", 1, 1, 2, 3), broken(1, 4)],
    "S3: a was robbed at 3.5 and told at None": [
        session(),
        *handle("a", 1, 1, 2, 3),
        event("stolen", 3.5, session="s", from_s=3.5, to_s=3.5),
    ],
    "S3: a was robbed at 4 and told at 9": [
        session(),
        *handle("a", 1, 1, 2, 3),
        broken(1, 4),
        lost("a", 9),
    ],
    "S4: b waited in vain": [
        session(1.0),
        *renewals(0, 20),
        *handle("a", 1, 0, 0.1, 0.5),
        *in_vain("b", 1, 20, "mutex", "locks/m"),
    ],
    "semaphore locks/m: 2 leases of 1 when b came in": [
        session(),
        resized(2, 0),
        resized(1, 0.5),
        *handle("a", 1, 1, 2, 9, "semaphore"),
        *handle("b", 2, 1, 3, 9, "semaphore"),
    ],
    "barrier barriers/b: a passed with 1 of 2": [
        session(),
        *at_barrier("a", 1, 2, 3),
        *at_barrier("b", 2.5, 3, 4),
    ],
    "S4: b waited in vain with 2 at barriers/b": [
        session(1.0),
        *renewals(0, 21),
        *in_vain("a", 1, 20.5, "barrier", "barriers/b"),
        *in_vain("b", 1, 20, "barrier", "barriers/b"),
    ],
    "saw 1 after 2": [
        event("observed", 1, name="e", epoch=2),
        event("observed", 2, name="e", epoch=1),
    ],
}


@pytest.mark.parametrize("message", BAD)
def test_a_broken_rule_is_found(message: str) -> None:
    violations = check(BAD[message])
    assert any(message in violation for violation in violations), violations


def test_a_holder_that_was_stopped_need_not_know_that_it_was_robbed() -> None:
    stopped = event("paused", 5, victim="a", from_s=3.5, to_s=5.0)
    assert check([session(), *handle("a", 1, 1, 2, 3), broken(1, 4), stopped]) == []
