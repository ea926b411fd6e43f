import datetime
from collections.abc import Mapping

import pytest

from pliska.coordinator.wire.expectations import (
    DEPTH_MAX,
    TEXT_LENGTH_MAX,
    Arguments,
    Choice,
    Expectation,
    Seconds,
    Text,
    UnexpectedValueError,
    Whole,
    WholeOrAuto,
)

WORD = Text(r"\w+", "a word")


def nested(depth: int) -> Mapping[str, object]:
    value: object = 1
    for _ in range(depth - 1):
        value = [value]
    return {"key": value}


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (Whole(1, 10), 1),
        (Whole(1, 10), 10),
        (WholeOrAuto(0, 8), 0),
        (WholeOrAuto(0, 8), 8),
        (WholeOrAuto(0, 8), "auto"),
        (Seconds(0.5, 2.0), 0.5),
        (Seconds(0.5, 2.0), 2),
        (WORD, "a" * TEXT_LENGTH_MAX),
        (Choice(("sgd", "adam")), "adam"),
        (Arguments(), {"a": [1, 2.5, "x", True, {"b": -(2**63)}], "c": 2**63 - 1}),
        (Arguments(), nested(DEPTH_MAX)),
    ],
)
def test_a_value_at_the_limit_is_accepted(expected: Expectation, value: object) -> None:
    assert expected.accept(value) == value


@pytest.mark.parametrize(
    ("expected", "value", "problem"),
    [
        (Whole(1, 10), 0, "is 0"),
        (Whole(1, 10), 11, "is 11"),
        (Whole(1, 10), True, "is true or false"),
        (Whole(1, 10), 2.0, "is a number"),
        (Whole(1, 10), "3", "is a text"),
        (Whole(1, 10), [3], "is a list"),
        (Whole(1, 10), {}, "is a table"),
        (Whole(1, 10), datetime.date(2020, 1, 1), "is a date or time"),
        (WholeOrAuto(0, 8), 9, "is 9"),
        (WholeOrAuto(0, 8), True, "is true or false"),
        (WholeOrAuto(0, 8), "one", "is 'one'"),
        (Seconds(0.5, 2.0), 2.1, "is 2.1"),
        (Seconds(0.5, 2.0), float("nan"), "is nan"),
        (Seconds(0.5, 2.0), False, "is true or false"),
        (WORD, "a" * (TEXT_LENGTH_MAX + 1), "has 1001 characters"),
        (WORD, "two words", "is 'two words'"),
        (WORD, "line\n", r"is 'line\n'"),
        (WORD, 1, "is a whole number"),
        (Choice(("sgd", "adam")), "lion", "is 'lion'"),
        (Choice(("sgd", "adam")), 1, "is a whole number"),
        (Arguments(), [], "is a list"),
        (Arguments(), {"a": [float("inf")]}, "holds inf"),
        (Arguments(), {"a": 2**63}, "holds a number beyond 64 bits"),
        (Arguments(), {"a": {"b": datetime.date(2020, 1, 1)}}, "holds a date or time"),
        (Arguments(), nested(DEPTH_MAX + 1), "is nested too deeply"),
    ],
)
def test_any_other_value_is_refused(expected: Expectation, value: object, problem: str) -> None:
    with pytest.raises(UnexpectedValueError) as caught:
        expected.accept(value)
    assert str(caught.value) == problem
