import numpy as np
import pytest
import torch

from pliska.aggregation import SignVote
from pliska.aggregation.engine import votes
from pliska.aggregation.engine.compiler import Host


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 33, 65, 130])
def test_majority_of_signs_is_the_obvious_one(target: Host, n: int, dtype: torch.dtype) -> None:
    d = 700 + n
    generator = torch.Generator().manual_seed(n)
    rows = torch.randn(n, d, generator=generator).mul(2).trunc()  # with zeros, and so with ties
    rows *= torch.tensor([1.0, 1e-45, 1e30, -0.0])[torch.arange(d) % 4]
    rows = rows.to(dtype)
    out = torch.full((d,), 9.0)
    columns = slice(3, d)
    sums = votes.majority(target, tuple(rows), columns, out)
    part = rows.double()[:, columns]
    signs = part.sign()
    decided = signs.sum(dim=0).sign()
    assert torch.equal(out[columns].double(), decided)
    assert out[:3].tolist() == [9, 9, 9]
    assert sums.kept.tolist() == (signs == decided).sum(dim=1).tolist()
    plain = torch.randn(n, d, generator=generator).to(dtype)
    sums = votes.majority(target, tuple(plain), columns, out)
    part = plain.double()[:, columns]
    gaps = part - out[columns].double()
    assert np.allclose(sums.distances, gaps.square().sum(dim=1), rtol=1e-6)
    assert np.allclose(sums.lengths, part.square().sum(dim=1), rtol=1e-6)


def test_a_large_vote_reports_what_a_small_one_does(target: Host) -> None:
    rows = torch.randn(8, 40_000, generator=torch.Generator().manual_seed(1))
    whole = SignVote(f=2)(rows)
    parts = [SignVote(f=2)(part) for part in rows.split(20_000, dim=1)]
    assert torch.equal(whole.vector, torch.cat([part.vector for part in parts]))
    for entry, *others in zip(whole.report, *(part.report for part in parts), strict=True):
        assert entry.weight == pytest.approx(np.mean([other.weight for other in others]), rel=0.01)
