"""How long workers take, and who is a straggler."""

from pliska.coordinator.rounds.turns import STRAGGLER_FACTOR, TURNS_MAX, Turns


def turns_of(**seconds: list[float]) -> Turns:
    turns = Turns()
    for worker, taken in seconds.items():
        for each in taken:
            turns = turns.followed_by(worker, each)
    return turns


def test_only_the_newest_turns_are_remembered() -> None:
    turns = turns_of(a=[float(number) for number in range(TURNS_MAX + 1)])
    assert len(turns.recent) == TURNS_MAX
    assert turns.seconds()[0] == 1.0


def test_straggler_takes_more_than_twice_as_long_as_the_median_worker() -> None:
    at_limit = STRAGGLER_FACTOR * 1.0
    turns = turns_of(a=[1.0], b=[1.0], c=[at_limit], d=[at_limit + 0.01])
    assert turns_of(a=[1.0], b=[1.0], c=[at_limit]).stragglers("abc") == frozenset()
    assert turns.stragglers("abd") == {"d"}


def test_one_slow_turn_among_many_makes_no_straggler() -> None:
    turns = turns_of(a=[1.0] * 5, b=[1.0, 9.0, 1.0], c=[1.0] * 5)
    assert turns.stragglers("abc") == frozenset()


def test_who_is_not_here_is_not_judged() -> None:
    turns = turns_of(a=[1.0], b=[1.0], gone=[9.0])
    assert turns.stragglers("ab") == frozenset()
    assert Turns().stragglers("ab") == frozenset()
