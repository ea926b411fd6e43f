import numpy as np
import pytest
import torch

from pliska.aggregation import order_statistics
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows
from pliska.aggregation.weighted_band import mass_median, mass_trimmed_mean

FIRST, D = 3, 2003


def values(n: int, kind: str, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    if kind == "ties":
        return torch.randint(-2, 3, (n, D), generator=generator).to(dtype)
    return torch.randn(n, D, generator=generator).to(dtype)


def both_ways(
    rule: object, rows: torch.Tensor, *arguments: object, monkeypatch: pytest.MonkeyPatch
) -> tuple[BandMean, BandMean]:
    """Reduce by the kernel, and as where there is none."""
    assert callable(rule)
    monkeypatch.setattr(order_statistics, "COMPILED_ELEMENTS_MIN", 0)
    fast = rule(Rows(tuple(rows), D - FIRST), *arguments)
    monkeypatch.setattr(order_statistics, "host_for", lambda _: None)
    slow = rule(Rows(tuple(rows), D - FIRST), *arguments)
    monkeypatch.undo()
    return fast, slow


@pytest.mark.parametrize("n", [1, 2, 5, 8, 17, 64, 65, 130])
@pytest.mark.parametrize("kind", ["ties", "no ties"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", ["median", "trimmed", "mean"])
def test_kernel_and_torch_agree(
    target: Host,
    n: int,
    kind: str,
    dtype: torch.dtype,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = values(n, kind, dtype)
    masses = [1.0] * n if kind == "ties" else np.random.default_rng(n).uniform(0.2, 3, n).tolist()
    if rule == "median":
        fast, slow = both_ways(mass_median, rows, masses, monkeypatch=monkeypatch)
    else:
        cut = 0.0 if rule == "mean" else sum(masses) * 0.3
        fast, slow = both_ways(mass_trimmed_mean, rows, masses, cut, monkeypatch=monkeypatch)
    assert torch.allclose(fast.vector, slow.vector, rtol=1e-6, atol=1e-7)
    assert torch.allclose(fast.kept, slow.kept, rtol=1e-9, atol=1e-9)
    assert torch.allclose(fast.distances, slow.distances, rtol=1e-5, atol=1e-9)
