import pytest

from pliska.aggregation import (
    ARC,
    Bucketing,
    CoordinateMedian,
    Krum,
    Mean,
    MultiKrum,
    ParameterError,
    TrimmedMean,
    UnknownNameError,
    pre_names,
    rule_named,
    rule_names,
)


def test_every_rule_has_its_name() -> None:
    assert len(set(rule_names())) == len(rule_names()) == 19
    for name in rule_names():
        assert rule_named(name, f=1).name == name


def test_every_pre_aggregator_has_its_name() -> None:
    assert pre_names() == ("nnm", "bucketing", "clipping", "arc")
    pre = ["nnm", "bucketing", {"name": "clipping", "tau": 2}, "arc"]
    assert rule_named("mean", pre=pre).title == "nnm | bucketing | clipping | arc | mean"


def test_pre_aggregators_come_in_order_with_their_parameters() -> None:
    rule = rule_named("krum", f=2, pre=["arc", {"name": "bucketing", "s": 3}])
    assert rule == ARC() | Bucketing(s=3) | Krum(f=2)
    assert rule_named("krum", f=2, pre=[]) == Krum(f=2)


def test_f_may_be_a_fraction_or_auto() -> None:
    assert rule_named("krum", f=0.2) == Krum(f=0.2)
    assert rule_named("krum", f="auto") == Krum(f="auto")


@pytest.mark.parametrize(
    ("pre", "error", "message"),
    [
        ("nnm", ParameterError, "pre must be a list such as"),
        ([3], ParameterError, "each entry of pre must be a name or a table with a name, not 3"),
        ([{"s": 2}], ParameterError, "a table with a name"),
        (["nmn"], UnknownNameError, "no pre-aggregator named 'nmn'; did you mean 'nnm'"),
        (["clipping"], ParameterError, "clipping needs a value for 'tau'"),
        ([{"name": "nnm", "k": 2}], ParameterError, "nnm has no parameter 'k'"),
        ([{"name": "nnm", "f": 1}], ParameterError, "nnm bears f = 1, but krum f = 2"),
    ],
)
def test_mistakes_before_a_rule_are_named(
    pre: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rule_named("krum", f=2, pre=pre)


def test_parameters_reach_the_rule() -> None:
    assert rule_named("multi-krum", f=2, m=3) == MultiKrum(f=2, m=3)
    assert rule_named("krum", f=2, variant="kappa") == Krum(f=2, variant="kappa")
    assert rule_named("trimmed-mean", f=2) == TrimmedMean(f=2)
    assert rule_named("coordinate-median", f=0) == CoordinateMedian(f=0)
    assert rule_named("mean") == Mean()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("multikrum", "multi-krum"),
        ("median", "coordinate-median"),
        ("trimmed_mean", "trimmed-mean"),
    ],
)
def test_unknown_rule_suggests_a_known_one(name: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"no rule named '{name}'; did you mean '{meant}'"):
        rule_named(name, f=1)


def test_unknown_parameter_suggests_a_known_one() -> None:
    with pytest.raises(ParameterError, match="no parameter 'varient'; did you mean 'variant'"):
        rule_named("krum", f=1, varient="kappa")


def test_missing_parameter_is_named() -> None:
    with pytest.raises(ParameterError, match="krum needs a value for 'f'"):
        rule_named("krum")


def test_mistakes_end_a_command_with_the_code_for_usage() -> None:
    assert UnknownNameError.exit_code == ParameterError.exit_code == 2
