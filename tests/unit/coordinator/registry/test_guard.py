"""Guards: what they mean, what they refuse, and that they never pass on a guess."""

import math
import random

import pytest

from pliska.coordinator.registry import Finding, RegistryUsageError, parse_guard
from pliska.coordinator.registry.guard import DEPTH_MAX, GUARD_CHARACTERS_MAX, TOKENS_MAX

METRICS = {"error_rate": 0.005, "p99_ms": 110.0, "stable.p99_ms": 100.0, "zero": 0.0}


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("error_rate < 0.01", Finding.PASS),
        ("error_rate >= 0.01", Finding.FAIL),
        ("error_rate < 0.01 and p99_ms <= stable.p99_ms * 1.2", Finding.PASS),
        ("error_rate < 0.01 and p99_ms <= stable.p99_ms * 1.05", Finding.FAIL),
        ("error_rate > 1 or p99_ms == 110", Finding.PASS),
        ("not error_rate > 1", Finding.PASS),
        ("not not error_rate > 1", Finding.FAIL),
        ("(error_rate < 1 or p99_ms < 1) and zero != 1", Finding.PASS),
        ("p99_ms - stable.p99_ms < 11", Finding.PASS),
        ("-p99_ms < -100", Finding.PASS),
        ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20 and 8 / 4 / 2 == 1", Finding.PASS),
        ("10 - 4 - 3 == 3", Finding.PASS),
        ("error_rate < 1e-2", Finding.PASS),
        ("false_positives < 1", Finding.INCONCLUSIVE),
        ("false_positives < 1 and error_rate > 1", Finding.FAIL),
        ("false_positives < 1 or error_rate < 1", Finding.INCONCLUSIVE),
        ("not (false_positives < 1 and error_rate > 1)", Finding.INCONCLUSIVE),
        ("p99_ms / zero < 1", Finding.INCONCLUSIVE),
        ("error_rate < 1e999", Finding.INCONCLUSIVE),
        ("p99_ms * 1e308 * 1e308 < 1 or zero == 0", Finding.INCONCLUSIVE),
    ],
)
def test_a_guard_means_what_it_says(text: str, finding: Finding) -> None:
    assert parse_guard(text).judge(METRICS)[0] is finding


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_missing(value: float) -> None:
    guard = parse_guard("error_rate < 0.01 or error_rate > 0")
    finding, said = guard.judge({"error_rate": value})
    assert (finding, said) == (Finding.INCONCLUSIVE, "error_rate=missing")


def test_it_says_which_numbers_it_saw() -> None:
    guard = parse_guard("error_rate < 0.01 and other < 1")
    assert guard.judge(METRICS)[1] == "error_rate=0.005, other=missing"
    assert (guard.names, guard.compares) == (("error_rate", "other"), False)
    assert parse_guard("a < stable.a").compares


@pytest.mark.parametrize(
    "text",
    [
        "",
        "error_rate",
        "0.01",
        "error_rate <",
        "< 1",
        "error_rate < 1 <",
        "1 < 2 < 3",
        "error_rate = 1",
        "error_rate < 1 and",
        "error_rate < 1 error_rate < 2",
        "and < 1",
        "not 1",
        "(a < 1",
        "a < 1)",
        "(a < 1) + 1 < 2",
        "a and b",
        "a < 1 and b",
        "__import__('os').system('true') < 1",
        "a.b[0] < 1",
        "a < 1; b < 2",
        "a < '1'",
        "lambda: 1",
        "a ** 2 < 1",
        "a < 1 \0",
        "ä < 1",
        "1.2.3 < 1",
    ],
)
def test_what_is_no_guard_is_refused(text: str) -> None:
    with pytest.raises(RegistryUsageError, match="guard"):
        parse_guard(text)


@pytest.mark.parametrize(
    ("at_limit", "above"),
    [
        ("(" * DEPTH_MAX + "a < 1" + ")" * DEPTH_MAX, "(" * (DEPTH_MAX + 1) + "a < 1)"),
        (
            "a < 1" + " " * (GUARD_CHARACTERS_MAX - 5),
            "a < 1" + " " * (GUARD_CHARACTERS_MAX - 4),
        ),
        ("a < 1" + "+1" * ((TOKENS_MAX - 4) // 2), "a < 1" + "+1" * (TOKENS_MAX // 2)),
        ("n" * 100 + " < 1", "n" * 101 + " < 1"),
        ("not " * DEPTH_MAX + "a < 1", "not " * (DEPTH_MAX + 1) + "a < 1"),
    ],
)
def test_limits_are_included(at_limit: str, above: str) -> None:
    parse_guard(at_limit)
    with pytest.raises(RegistryUsageError):
        parse_guard(above)


@pytest.mark.parametrize("seed", range(50))
def test_guards_of_numbers_agree_with_python(seed: int) -> None:
    chance = random.Random(seed)

    def number(depth: int) -> str:
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(["a", "b", "3", "0.5"])
        sign = chance.choice("+-*")
        return f"({number(depth - 1)} {sign} {number(depth - 1)})"

    def truth(depth: int) -> str:
        if depth == 0 or chance.random() < 0.3:
            sign = chance.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"{number(2)} {sign} {number(2)}"
        if chance.random() < 0.2:
            return f"not ({truth(depth - 1)})"
        return f"({truth(depth - 1)} {chance.choice(['and', 'or'])} {truth(depth - 1)})"

    text = truth(3)
    metrics = {"a": float(chance.randint(-3, 3)), "b": float(chance.randint(-3, 3))}
    expected = eval(text, {}, dict(metrics))  # noqa: S307 - our own text, to compare with
    found = parse_guard(text).judge(metrics)[0]
    assert found is (Finding.PASS if expected else Finding.FAIL), (seed, text)


@pytest.mark.parametrize("seed", range(50))
def test_a_missing_metric_never_makes_a_guard_pass(seed: int) -> None:
    chance = random.Random(seed)
    parts = [f"{chance.choice('abc')} {chance.choice('<>')} {chance.randint(-2, 2)}"]
    parts += [f"{chance.choice(['and', 'or', 'and not', 'or not'])} {chance.choice('abc')} > 0"
              for _ in range(4)]  # fmt: skip
    guard = parse_guard(" ".join(parts))
    missing = chance.choice(guard.names)
    metrics = {name: 1.0 for name in guard.names if name != missing}
    assert guard.judge(metrics)[0] is not Finding.PASS, (seed, guard.text)
