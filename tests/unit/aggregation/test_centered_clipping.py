import numpy as np
import pytest
import torch
from torch import Tensor

from pliska.aggregation import NNM, CenteredClipping, GeometricMedian, ParameterError, ShapeError


def slow(rows: Tensor, start: Tensor, tau: float, iterations: int) -> Tensor:
    point = start.double()
    exact = rows.double()
    for _ in range(iterations):
        gaps = exact - point
        scale = (tau / gaps.norm(dim=1).clamp(min=1e-300)).clamp(max=1)
        point = point + (gaps * scale[:, None]).mean(dim=0)
    return point


def rows_of(seed: int) -> Tensor:
    return torch.randn(9, 30, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("tau", [0.1, 3.0, 10, 1e6])
@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_steps_on_weights_are_the_steps_in_full_space(tau: float, iterations: int) -> None:
    rows, last = rows_of(1), rows_of(2)[0]
    rule = CenteredClipping(f=2, tau=tau, iterations=iterations)
    found = rule(rows, memory={"centre": last}).vector
    assert torch.allclose(found, slow(rows, last, tau, iterations), atol=1e-12)


def test_first_round_starts_at_the_geometric_median() -> None:
    rows = rows_of(3)
    start = GeometricMedian(f=2)(rows).vector
    found = CenteredClipping(f=2, tau=0.5, iterations=2)(rows).vector
    assert torch.allclose(found, slow(rows, start, 0.5, 2), atol=1e-12)


def test_one_round_remembers_its_aggregate_for_the_next() -> None:
    rule = CenteredClipping(f=2, tau=0.1, iterations=1)
    first = rule(rows_of(4))
    assert first.memory is not None
    assert torch.equal(first.memory["centre"], first.vector)
    second = rule(rows_of(5), memory=first.memory)
    assert torch.allclose(second.vector, slow(rows_of(5), first.vector, 0.1, 1), atol=1e-12)
    first.vector.fill_(7)
    assert not (first.memory["centre"] == 7).any()


def test_memory_follows_from_the_aggregate() -> None:
    # A log of aggregates is enough to go on where another process stopped.
    rule = CenteredClipping(f=2, tau=0.1)
    result = rule(rows_of(4))
    rebuilt = rule.memory_after(result.vector)
    found = rule(rows_of(5), memory=rebuilt).vector
    assert rule.rebuilds_memory
    assert torch.equal(found, rule(rows_of(5), memory=result.memory).vector)


def test_the_same_rule_without_memory_forgets() -> None:
    rule = CenteredClipping(f=2)
    rule(rows_of(6))
    assert torch.equal(rule(rows_of(7)).vector, CenteredClipping(f=2)(rows_of(7)).vector)


def test_without_tau_half_of_the_rows_are_not_clipped() -> None:
    rows = rows_of(8)
    start = GeometricMedian(f=2)(rows).vector
    tau = float((rows - start).norm(dim=1).median())
    found = CenteredClipping(f=2, iterations=1)(rows).vector
    assert torch.allclose(found, slow(rows, start, tau, 1), atol=1e-12)
    for scale in (1e-8, 1e8):
        scaled = CenteredClipping(f=2, iterations=1)(rows * scale).vector
        assert torch.allclose(scaled / scale, found, rtol=1e-9)


def test_whole_numbers_are_as_good_as_others() -> None:
    # ByzFL refuses tau=10 and takes 10.0.
    rows = rows_of(9)
    assert torch.equal(
        CenteredClipping(f=2, tau=10)(rows).vector, CenteredClipping(f=2, tau=10.0)(rows).vector
    )


@pytest.mark.parametrize("tau", [0, -1, float("nan"), float("inf"), "10", True])
def test_tau_is_positive(tau: object) -> None:
    with pytest.raises(ParameterError, match="tau must be a positive number"):
        CenteredClipping(f=1, tau=tau)  # type: ignore[arg-type]


def test_memory_of_another_kind_is_refused() -> None:
    with pytest.raises(ParameterError, match="one vector, the last aggregate as 'centre'"):
        CenteredClipping(f=1)(rows_of(1), memory={"w": rows_of(1)[0]})
    with pytest.raises(ShapeError, match="memory 'centre' must hold 30"):
        CenteredClipping(f=1)(rows_of(1), memory={"centre": torch.zeros(4)})
    with pytest.raises(ParameterError, match="vectors by name"):
        CenteredClipping(f=1)(rows_of(1), memory=rows_of(1)[0])  # type: ignore[call-overload]
    with pytest.raises(ParameterError, match="has no use for memory"):
        GeometricMedian(f=1)(rows_of(1), memory={"centre": rows_of(1)[0]})


def test_mixing_before_it_keeps_the_start() -> None:
    rule = NNM() | CenteredClipping(f=2, tau=0.1, iterations=1)
    last = torch.full((30,), 5.0, dtype=torch.float64)
    assert float((rule(rows_of(1), memory={"centre": last}).vector - last).norm()) == pytest.approx(
        0.1, rel=0.5
    )


def test_numpy_rows_take_a_memory() -> None:
    rows = np.random.default_rng(1).normal(size=(9, 30)).astype(np.float32)
    rule = CenteredClipping(f=2)
    assert isinstance(rule(rows, memory=rule(rows).memory).vector, np.ndarray)
