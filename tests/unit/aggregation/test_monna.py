import numpy as np
import pytest
import torch

from pliska.aggregation import MoNNA, ParameterError, ShapeError


def test_the_nearest_n_f_are_averaged() -> None:
    rows = torch.randn(9, 20, generator=torch.Generator().manual_seed(1))
    reference = rows[3] + 0.01
    nearest = (rows - reference).norm(dim=1).argsort()[:7]
    found = MoNNA(f=2)(rows, reference=reference)
    assert torch.allclose(found.vector, rows[nearest].mean(dim=0), atol=1e-6)
    assert [entry.margin > 0 for entry in found.report].count(True) == 7


def test_without_a_trusted_row_it_does_not_guess() -> None:
    rows = torch.zeros(5, 3)
    with pytest.raises(ParameterError, match="monna needs a trusted row: pass reference="):
        MoNNA(f=1)(rows)
    with pytest.raises(ShapeError, match="reference must hold 3 finite values"):
        MoNNA(f=1)(rows, reference=torch.zeros(4))
    with pytest.raises(ShapeError, match="finite"):
        MoNNA(f=1)(rows, reference=torch.full((3,), torch.nan))


def test_arrays_may_be_trusted_too() -> None:
    rows = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    assert np.allclose(
        MoNNA(f=1)(rows, reference=rows[0]).vector,
        MoNNA(f=1)(torch.from_numpy(rows), reference=torch.from_numpy(rows[0])).vector,
    )
