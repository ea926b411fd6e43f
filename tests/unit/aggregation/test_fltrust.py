import pytest
import torch

from pliska.aggregation import FLTrust, ParameterError


def slow(rows: torch.Tensor, trusted: torch.Tensor) -> torch.Tensor:
    cosines = torch.nn.functional.cosine_similarity(rows, trusted[None], dim=1).clamp(min=0)
    scaled = rows * (trusted.norm() / rows.norm(dim=1))[:, None]
    return (cosines[:, None] * scaled).sum(dim=0) / cosines.sum()


@pytest.mark.parametrize("seed", range(5))
def test_trust_is_the_cosine_and_length_the_references(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(8, 30, generator=generator).double() * 100
    trusted = torch.randn(30, generator=generator).double()
    found = FLTrust(f=3)(rows, reference=trusted)
    assert torch.allclose(found.vector, slow(rows, trusted))
    assert float(found.vector.norm()) <= float(trusted.norm()) * (1 + 1e-9)


def test_where_nobody_is_trusted_the_aggregate_is_zero_and_not_the_mean() -> None:
    # FLPoison falls back to equal weights here.
    rows = -torch.ones(4, 3)
    result = FLTrust(f=1)(rows, reference=torch.ones(3))
    assert result.vector.tolist() == [0, 0, 0]
    assert [entry.weight for entry in result.report] == [0, 0, 0, 0]
    assert {entry.verdict for entry in result.report} == {"outvoted"}


def test_rows_of_zeros_are_not_trusted() -> None:
    rows = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert FLTrust(f=1)(rows, reference=torch.tensor([1.0, 0.0])).vector.tolist() == [1, 0]


def test_all_but_one_may_lie() -> None:
    generator = torch.Generator().manual_seed(1)
    trusted = torch.randn(50, generator=generator)
    rows = torch.vstack([-1e30 * trusted.expand(6, -1), 3 * trusted[None]])
    assert torch.allclose(FLTrust(f=6)(rows, reference=trusted).vector, trusted, atol=1e-5)


def test_reference_is_asked_for() -> None:
    with pytest.raises(ParameterError, match="fltrust needs a trusted row"):
        FLTrust(f=1)(torch.ones(3, 2))
