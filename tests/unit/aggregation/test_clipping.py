import math

import pytest
import torch

from pliska.aggregation import ARC, Clipping, Krum, Mean, ParameterError, TrimmedMean


def slow_clip(rows: torch.Tensor, limit: float) -> torch.Tensor:
    lengths = rows.norm(dim=1, keepdim=True)
    return rows * (limit / lengths.clamp(min=1e-300)).clamp(max=1)


def slow_arc(rows: torch.Tensor, f: int) -> torch.Tensor:
    n = len(rows)
    k = math.floor(2 * (f / n) * (n - f))
    lengths = sorted((float(row.norm()) for row in rows), reverse=True)
    return slow_clip(rows, lengths[k])


def rows_of(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(9, 30, generator=generator).double()
    return rows * torch.rand(9, 1, generator=generator).double() * 10


@pytest.mark.parametrize("rule", [Mean(f=2), TrimmedMean(f=2), Krum(f=2)])
@pytest.mark.parametrize("seed", range(5))
def test_rule_after_clipping_is_the_rule_on_clipped_rows(rule: Krum, seed: int) -> None:
    rows = rows_of(seed)
    clipped = rule(slow_clip(rows, 20.0)).vector
    assert torch.allclose((Clipping(tau=20) | rule)(rows).vector, clipped, atol=1e-9)
    adapted = rule(slow_arc(rows, 2)).vector
    assert torch.allclose((ARC() | rule)(rows).vector, adapted, atol=1e-9)


def test_the_callers_rows_are_not_shortened() -> None:
    # ByzFL overwrites the array it is given.
    rows = rows_of(1)
    before = rows.clone()
    (Clipping(tau=0.1) | Mean())(rows)
    assert torch.equal(rows, before)


def test_lengths_do_not_count_what_is_not_measured() -> None:
    states = [
        {"w": torch.full((2,), 1.0 + i), "bn.running_mean": torch.tensor([100.0])} for i in range(3)
    ]
    vector = (Clipping(tau=50) | Mean())(states).state_dict
    assert vector["w"].tolist() == [2, 2]


def test_a_zero_row_divides_by_nothing() -> None:
    rows = torch.zeros(5, 3)
    rows[0] = 1e30
    assert (ARC() | Mean(f=1))(rows).vector.tolist() == [0, 0, 0]


@pytest.mark.parametrize("tau", [0, -1.0, math.nan, None])
def test_tau_is_positive(tau: object) -> None:
    with pytest.raises(ParameterError, match="tau must be a positive number"):
        Clipping(tau=tau)  # type: ignore[arg-type]
