import pytest
import torch

from pliska.aggregation import (
    ARC,
    NNM,
    BoundError,
    Bucketing,
    Chain,
    Clipping,
    MultiKrum,
    ParameterError,
    TrimmedMean,
)


def test_a_bar_puts_one_before_the_other() -> None:
    rule = ARC() | NNM() | MultiKrum(f=2)
    assert rule.title == "arc | nnm | multi-krum"
    assert rule == MultiKrum(f=2, pre=Chain((ARC(), NNM())))
    assert (ARC() | (NNM() | MultiKrum(f=2))) == rule
    assert ((ARC() | NNM()) | MultiKrum(f=2)) == rule
    assert hash(rule) == hash(ARC() | NNM() | MultiKrum(f=2))


def test_f_is_the_rules_unless_it_is_said_twice() -> None:
    assert (NNM(f=2) | MultiKrum(f=2)).check(7) is None
    with pytest.raises(ParameterError, match="nnm bears f = 1, but multi-krum f = 2"):
        NNM(f=1) | MultiKrum(f=2)
    with pytest.raises(ParameterError, match="f must be a whole number"):
        NNM(f=-1)


def test_bounds_are_counted_from_the_rule_backwards() -> None:
    rule = Bucketing(s=2) | NNM() | TrimmedMean(f=2)
    assert rule.rows_min == 9
    with pytest.raises(BoundError, match=r"ceil\(n / 2\) buckets"):
        rule.check(8)


def test_order_matters() -> None:
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(1))
    rows[0] *= 100
    first = (Clipping(tau=1) | NNM() | TrimmedMean(f=2))(rows).vector
    second = (NNM() | Clipping(tau=1) | TrimmedMean(f=2))(rows).vector
    assert not torch.allclose(first, second)


def test_refused_rows_lower_the_f_of_all() -> None:
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(2))
    rule = NNM(f=2) | TrimmedMean(f=2)
    found = rule(rows, rejected={"3": "late"}).vector
    left = rows[[0, 1, 2, 4, 5, 6, 7, 8]]
    assert torch.equal(found, (NNM() | TrimmedMean(f=1))(left).vector)
