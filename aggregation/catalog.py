"""Rules and pre-aggregators by the name that a job file gives them.

The only place that knows all of them; a new one is a file of its own and one
line here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.bucketing import Bucketing
from pliska.aggregation.bulyan import Bulyan, MultiBulyan
from pliska.aggregation.caf import CAF
from pliska.aggregation.centered_clipping import CenteredClipping
from pliska.aggregation.cge import CGE
from pliska.aggregation.clipping import ARC, Clipping
from pliska.aggregation.coordinate_median import CoordinateMedian
from pliska.aggregation.dnc import DnC
from pliska.aggregation.errors import ParameterError, UnknownNameError, suggestion
from pliska.aggregation.fltrust import FLTrust
from pliska.aggregation.foolsgold import FoolsGold
from pliska.aggregation.geometric_median import GeometricMedian
from pliska.aggregation.krum import Krum
from pliska.aggregation.mda import MDA
from pliska.aggregation.meamed import MeaMed
from pliska.aggregation.mean import Mean
from pliska.aggregation.monna import MoNNA
from pliska.aggregation.multi_krum import MultiKrum
from pliska.aggregation.nnm import NNM
from pliska.aggregation.preaggregation import Chain, PreAggregator
from pliska.aggregation.sign_vote import SignVote
from pliska.aggregation.smea import SMEA
from pliska.aggregation.trimmed_mean import TrimmedMean

RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        Mean,
        CoordinateMedian,
        TrimmedMean,
        MeaMed,
        Krum,
        MultiKrum,
        Bulyan,
        MultiBulyan,
        GeometricMedian,
        CenteredClipping,
        MDA,
        SMEA,
        CAF,
        MoNNA,
        CGE,
        DnC,
        FLTrust,
        FoolsGold,
        SignVote,
    )
}

PRE_AGGREGATORS: dict[str, type[PreAggregator]] = {
    pre.name: pre for pre in (NNM, Bucketing, Clipping, ARC)
}

T = TypeVar("T", bound=Rule | PreAggregator)


def rule_names() -> tuple[str, ...]:
    """Return the names that `rule_named` knows."""
    return tuple(RULES)


def pre_names() -> tuple[str, ...]:
    """Return the names that `pre` of `rule_named` knows."""
    return tuple(PRE_AGGREGATORS)


def rule_named(name: str, *, pre: object = (), **parameters: Any) -> Rule:
    """Return the rule with this name and these parameters.

    Example: `rule_named("multi-krum", f=2, pre=["nnm"])`. Whether n workers are
    enough is for `Rule.check(n)` to say.

    Args:
        name: One of `rule_names()`.
        pre: What comes before the rule, in order: a list of names, or of
            tables with a `name` and parameters, such as
            `{"name": "bucketing", "s": 2}`.
        **parameters: Of the rule.

    Raises:
        UnknownNameError: There is no such rule or pre-aggregator.
        ParameterError: A parameter is unknown, missing or has an impossible value.
    """
    rule = _made("rule", RULES, name, parameters)
    return rule.after(Chain(tuple(_pre_aggregators(pre))))


def _pre_aggregators(entries: object) -> list[PreAggregator]:
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ParameterError(f'pre must be a list such as ["nnm"], not {entries!r}')
    made = []
    for entry in entries:
        table = {"name": entry} if isinstance(entry, str) else entry
        name = table.get("name") if isinstance(table, Mapping) else None
        if not isinstance(name, str):
            raise ParameterError(
                f"each entry of pre must be a name or a table with a name, not {entry!r}"
            )
        parameters = {key: value for key, value in table.items() if key != "name"}
        made.append(_made("pre-aggregator", PRE_AGGREGATORS, name, parameters))
    return made


def _made(kind: str, catalog: Mapping[str, type[T]], name: str, parameters: dict[str, Any]) -> T:
    if name not in catalog:
        raise UnknownNameError(kind, name, tuple(catalog))
    made = catalog[name]
    known = {field.name: field for field in fields(made) if field.name != "pre"}
    for parameter in parameters:
        if parameter not in known:
            raise ParameterError(
                f"{name} has no parameter {parameter!r}{suggestion(parameter, tuple(known))}"
            )
    for parameter, field in known.items():
        if field.default is MISSING and parameter not in parameters:
            raise ParameterError(f"{name} needs a value for {parameter!r}")
    return made(**parameters)
