"""Checks of a rule's parameters that more than one rule has."""

import math

from pliska.aggregation.errors import ParameterError


def require_count(name: str, value: object, least: int) -> None:
    """Raise `ParameterError` unless `value` is an int of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")


def require_positive(name: str, value: object) -> None:
    """Raise `ParameterError` unless `value` is a positive finite number; 10 is as good as 10.0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ParameterError(f"{name} must be a positive number, not {value!r}")
