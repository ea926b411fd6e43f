import math
from collections.abc import Callable

import pytest
import torch

from pliska.aggregation import Rule, ShapeError, distances, order_statistics, rule_named
from pliska.aggregation import rows as rows_module
from pliska.aggregation.engine import fixed_point, sorted_columns
from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.fixed_point import aggregate_in_fixed_point
from pliska.aggregation.rows import Rows

D = 40_011


def gradients(seed: int = 1) -> torch.Tensor:
    return torch.randn(9, D, generator=torch.Generator().manual_seed(seed))


def _sorted(rows: Rows, selection: Selection, columns: slice, vector: torch.Tensor) -> torch.Tensor:
    return sorted_columns.select_mean(rows.tensors, selection, columns, vector)


@pytest.fixture
def move_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Work as on another device: no kernels, sorts for networks, sums in another order."""

    def move() -> None:
        monkeypatch.setattr(rows_module, "host_for", lambda _: None)
        monkeypatch.setattr(distances, "host_for", lambda _: None)
        monkeypatch.setattr(order_statistics, "host_for", lambda _: None)
        monkeypatch.setattr(order_statistics, "_uncompiled", _sorted)
        monkeypatch.setattr(fixed_point, "BLOCK_ELEMENTS", 5000)

    return move


@pytest.mark.parametrize(
    "rule",
    [
        rule_named(name, f=2)
        for name in ("trimmed-mean", "coordinate-median", "krum", "multi-krum", "geometric-median")
    ]
    + [rule_named("mean")],
    ids=lambda rule: rule.name,
)
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_bytes_are_the_same_elsewhere(
    rule: Rule, scale: float, move_elsewhere: Callable[[], None]
) -> None:
    here = aggregate_in_fixed_point(rule, gradients() * scale)
    move_elsewhere()
    there = aggregate_in_fixed_point(rule, gradients() * scale)
    assert here.vector.numpy().tobytes() == there.vector.numpy().tobytes()
    assert [e.verdict for e in here.report] == [e.verdict for e in there.report]


@pytest.mark.parametrize("name", ["trimmed-mean", "multi-krum"])
def test_result_is_that_of_ordinary_numbers_to_the_grid(name: str) -> None:
    rule = rule_named(name, f=2)
    fixed, ordinary = aggregate_in_fixed_point(rule, gradients()), rule(gradients())
    assert torch.allclose(fixed.vector, ordinary.vector, atol=4e-6)


def test_products_and_distances_are_exact_whole_numbers() -> None:
    steps = torch.randint(
        -(2**21) + 1, 2**21, (4, 3001), generator=torch.Generator().manual_seed(3)
    )
    grid = 2.0**-30
    values = (steps * grid).to(torch.float32)
    products = fixed_point.exact_products(tuple(values), grid, slice(1, 3001))
    exact = [
        [sum(x * y for x, y in zip(a, b, strict=True)) for b in steps[:, 1:].tolist()]
        for a in steps[:, 1:].tolist()
    ]
    assert products == exact
    assert fixed_point.distances_of(products, grid).diagonal().tolist() == [0.0] * 4


def test_rounding_is_to_even_and_huge_values_are_cut_to_what_fits() -> None:
    row = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30])
    most = 2**21 - 1
    assert fixed_point.snapped(row, 1.0).tolist() == [0, 2, 2, 0, -2, most, -most]


def test_minority_of_huge_rows_does_not_make_the_grid_coarse() -> None:
    assert fixed_point.grid_of([1.0, 1.0, 1.0, 1e30, 1e30]) == fixed_point.grid_of([1.0])
    assert fixed_point.grid_of([0.0, 0.0]) == 1.0


def test_row_that_is_not_finite_is_refused() -> None:
    bad = gradients()
    bad[4, 7] = math.nan
    bad[5, 8] = math.inf
    result = aggregate_in_fixed_point(rule_named("krum", f=2), bad)
    assert [e.verdict for e in result.report][4:6] == ["refused", "refused"]
    assert result.vector.isfinite().all()


def test_too_many_or_too_wide_rows_are_refused() -> None:
    rule = rule_named("mean")
    assert len(aggregate_in_fixed_point(rule, torch.zeros(64, 3)).report) == 64
    with pytest.raises(ShapeError, match="64 rows, not 65"):
        aggregate_in_fixed_point(rule, torch.zeros(65, 3))
    with pytest.raises(ShapeError, match="float32"):
        aggregate_in_fixed_point(rule, torch.zeros(3, 3, dtype=torch.float64))
