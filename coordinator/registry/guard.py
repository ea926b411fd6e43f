"""Guards: what has to hold of a canary's metrics, as a small expression.

    error_rate < 0.01 and p99_ms <= stable.p99_ms * 1.2

Names are metrics of the canary; `stable.` before one means the version that it stands
beside. Comparisons of sums and products, joined by `and`, `or` and `not`. A metric
that is missing or not a finite number makes the guard inconclusive, or makes it
fail where it would whatever the metric were; it never passes on a guess. The parser
is its own; nothing is handed to Python to evaluate.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.errors import RegistryUsageError

GUARD_CHARACTERS_MAX = 1000
TOKENS_MAX = 200
DEPTH_MAX = 30
METRIC_NAME_CHARACTERS_MAX = 100
STABLE = "stable."
"""What stands before the metrics of the version that the canary is compared with."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.:]*)|(?P<mark><=|>=|==|!=|[<>+\-*/()]))"
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SUMS: Mapping[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, Callable[[float, float], float]] = {
    "*": operator.mul,
    "/": operator.truediv,
}

Metrics = Mapping[str, float]
Number = Callable[[Metrics], float | None]
"""None: not known."""
Truth = Callable[[Metrics], bool | None]


class Finding(StrEnum):
    """What a guard says of the metrics."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Guard:
    """A parsed guard. Make one with `parse_guard`.

    Attributes:
        text: As it was written.
        names: The metrics that it mentions, sorted.
    """

    text: str
    names: tuple[str, ...]
    truth: Truth

    @property
    def compares(self) -> bool:
        """Whether it mentions metrics of the stable version."""
        return any(name.startswith(STABLE) for name in self.names)

    def judge(self, metrics: Metrics) -> tuple[Finding, str]:
        """Say whether the guard holds, and with which numbers."""
        known = {
            name: metrics[name]
            for name in self.names
            if name in metrics and math.isfinite(metrics[name])
        }
        said = ", ".join(f"{name}={known.get(name, 'missing')}" for name in self.names)
        held = self.truth(known)
        if held is False:
            return Finding.FAIL, said
        if held is None or len(known) < len(self.names):
            return Finding.INCONCLUSIVE, said
        return Finding.PASS, said


def parse_guard(text: str) -> Guard:
    """Read a guard.

    Raises:
        RegistryUsageError: It is malformed, or larger than a guard may be.
    """
    if len(text) > GUARD_CHARACTERS_MAX:
        raise RegistryUsageError(f"a guard has at most {GUARD_CHARACTERS_MAX} characters")
    parser = _Parser(text)
    truth = parser.parse()
    return Guard(text, tuple(sorted(parser.names)), truth)


@dataclass(frozen=True, slots=True)
class _Value:
    """A part of a guard: a number or a truth."""

    number: Number | None = None
    truth: Truth | None = None


class _Parser:
    """Recursive descent; each method reads one level of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0
        self._depth = 0
        self.names: set[str] = set()

    def parse(self) -> Truth:
        truth = self._truth_of(self._or())
        if self._peek() is not None:
            raise self._bad("expected nothing more")
        return truth

    def _split(self) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        text, at = self._text.rstrip(), 0
        while at < len(text):
            matched = _TOKEN.match(text, at)
            if matched is None or len(tokens) == TOKENS_MAX:
                raise RegistryUsageError(
                    f"guard {text!r}: cannot read {text[at : at + 10]!r} (character {at + 1})"
                )
            kind = str(matched.lastgroup)
            tokens.append((kind, matched[kind], matched.start(kind)))
            at = matched.end()
        return tokens

    def _or(self) -> _Value:
        return self._joined(self._and, "or", _either)

    def _and(self) -> _Value:
        return self._joined(self._not, "and", _both)

    def _joined(
        self, operand: Callable[[], _Value], word: str, join: Callable[[Truth, Truth], Truth]
    ) -> _Value:
        left = operand()
        while self._takes(word):
            left = _Value(truth=join(self._truth_of(left), self._truth_of(operand())))
        return left

    def _not(self) -> _Value:
        if not self._takes("not"):
            return self._comparison()
        truth = self._truth_of(self._deeper(self._not))
        return _Value(truth=lambda metrics: _opposite(truth(metrics)))

    def _comparison(self) -> _Value:
        left = self._sum()
        sign = self._take_one_of(_COMPARISONS)
        if sign is None:
            return left
        compare = _COMPARISONS[sign]
        first, second = self._number_of(left), self._number_of(self._sum())

        def truth(metrics: Metrics) -> bool | None:
            a, b = first(metrics), second(metrics)
            return None if a is None or b is None else compare(a, b)

        return _Value(truth=truth)

    def _sum(self) -> _Value:
        return self._calculated(self._product, _SUMS)

    def _product(self) -> _Value:
        return self._calculated(self._negated, _PRODUCTS)

    def _calculated(
        self, operand: Callable[[], _Value], signs: Mapping[str, Callable[[float, float], float]]
    ) -> _Value:
        left = operand()
        while (sign := self._take_one_of(signs)) is not None:
            first, second = self._number_of(left), self._number_of(operand())
            left = _Value(number=_calculation(signs[sign], first, second))
        return left

    def _negated(self) -> _Value:
        if not self._takes("-"):
            return self._atom()
        number = self._number_of(self._deeper(self._negated))
        return _Value(number=_calculation(operator.sub, lambda _: 0.0, number))

    def _atom(self) -> _Value:
        kind, text, _ = self._peek() or ("end", "", 0)
        if kind == "number":
            self._at += 1
            constant = float(text)
            return _Value(number=lambda _: constant if math.isfinite(constant) else None)
        if kind == "name" and text not in ("and", "or", "not"):
            self._at += 1
            self.names.add(check_metric_name(text))
            return _Value(number=lambda metrics: metrics.get(text))
        if self._takes("("):
            inner = self._deeper(self._or)
            if not self._takes(")"):
                raise self._bad("expected ')'")
            return inner
        raise self._bad("expected a metric, a number or '('")

    def _deeper(self, read: Callable[[], _Value]) -> _Value:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._bad(f"nested deeper than {DEPTH_MAX}")
        value = read()
        self._depth -= 1
        return value

    def _peek(self) -> tuple[str, str, int] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _takes(self, text: str) -> bool:
        token = self._peek()
        is_there = token is not None and token[0] != "number" and token[1] == text
        self._at += is_there
        return is_there

    def _take_one_of(self, marks: Mapping[str, object]) -> str | None:
        return next((mark for mark in marks if self._takes(mark)), None)

    def _truth_of(self, value: _Value) -> Truth:
        if value.truth is None:
            raise self._bad("expected a comparison such as error_rate < 0.01 before this")
        return value.truth

    def _number_of(self, value: _Value) -> Number:
        if value.number is None:
            raise self._bad("expected a number before this, not a comparison")
        return value.number

    def _bad(self, expected: str) -> RegistryUsageError:
        token = self._peek()
        where = "at the end" if token is None else f"at {token[1]!r} (character {token[2] + 1})"
        return RegistryUsageError(f"guard {self._text!r}: {expected}, {where}")


def check_metric_name(name: str) -> str:
    """Return `name`. Raises `RegistryUsageError` where it cannot name a metric."""
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:]*", name) is not None
    if not is_name or len(name) > METRIC_NAME_CHARACTERS_MAX:
        raise RegistryUsageError(
            f"metric {name[:80]!r}: use 1 to {METRIC_NAME_CHARACTERS_MAX} letters, digits, '_', "
            "'.' and ':', beginning with a letter or '_'"
        )
    return name


def _calculation(
    calculate: Callable[[float, float], float], first: Number, second: Number
) -> Number:
    def number(metrics: Metrics) -> float | None:
        a, b = first(metrics), second(metrics)
        if a is None or b is None:
            return None
        try:
            result = calculate(a, b)
        except ArithmeticError:
            return None
        return result if math.isfinite(result) else None

    return number


def _both(first: Truth, second: Truth) -> Truth:
    def truth(metrics: Metrics) -> bool | None:
        truths = first(metrics), second(metrics)
        return False if False in truths else None if None in truths else True

    return truth


def _either(first: Truth, second: Truth) -> Truth:
    """Both have to be known for it to hold: no guess passes."""

    def truth(metrics: Metrics) -> bool | None:
        truths = first(metrics), second(metrics)
        return None if None in truths else True in truths

    return truth


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth
