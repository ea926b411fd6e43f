"""Rules by the name that a job file gives them.

The only place that knows all rules; a new rule is a file of its own and one
line here.
"""

from dataclasses import MISSING, fields
from typing import Any

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.coordinate_median import CoordinateMedian
from pliska.aggregation.errors import ParameterError, UnknownNameError, suggestion
from pliska.aggregation.krum import Krum
from pliska.aggregation.mean import Mean
from pliska.aggregation.multi_krum import MultiKrum
from pliska.aggregation.trimmed_mean import TrimmedMean

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Mean, CoordinateMedian, TrimmedMean, Krum, MultiKrum)
}


def rule_names() -> tuple[str, ...]:
    """Return the names that `rule_named` knows."""
    return tuple(RULES)


def rule_named(name: str, **parameters: Any) -> Rule:
    """Return the rule with this name and these parameters.

    Example: `rule_named("multi-krum", f=2)`. Whether n workers are enough is
    for `Rule.check(n)` to say.

    Raises:
        UnknownNameError: There is no such rule.
        ParameterError: A parameter is unknown, missing or has an impossible value.
    """
    if name not in RULES:
        raise UnknownNameError("rule", name, rule_names())
    rule = RULES[name]
    known = {field.name: field for field in fields(rule)}
    for parameter in parameters:
        if parameter not in known:
            raise ParameterError(
                f"{name} has no parameter {parameter!r}{suggestion(parameter, tuple(known))}"
            )
    for parameter, field in known.items():
        if field.default is MISSING and parameter not in parameters:
            raise ParameterError(f"{name} needs a value for {parameter!r}")
    return rule(**parameters)
