import pytest

from pliska.aggregation import (
    CoordinateMedian,
    Krum,
    Mean,
    MultiKrum,
    ParameterError,
    TrimmedMean,
    UnknownNameError,
    rule_named,
    rule_names,
)


def test_every_rule_has_its_name() -> None:
    assert rule_names() == ("mean", "coordinate-median", "trimmed-mean", "krum", "multi-krum")
    for name in rule_names():
        assert rule_named(name, f=1).name == name


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
