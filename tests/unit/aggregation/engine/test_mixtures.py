import numpy as np
import pytest
import torch

from pliska.aggregation import NNM, TrimmedMean, order_statistics, points
from pliska.aggregation.engine import mixtures
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.mixtures import Mixture
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.engine.threads import SPAN_COLUMNS
from pliska.aggregation.engine.tile_sort import TILE_COLUMNS


def means_of_sets(m: int, n: int) -> np.ndarray:
    random = np.random.default_rng(100 * m + n)
    matrix = np.zeros((m, n))
    for row in matrix:
        chosen = random.permutation(n)[: random.integers(1, n + 1)]
        row[chosen] = 1 / len(chosen)
    return matrix


@pytest.mark.parametrize(
    ("m", "n"),
    [
        (1, 1),
        (3, 5),
        (4, 8),
        (9, 16),
        (16, 16),
        (17, 33),
        (64, 64),
        (65, 65),
        (66, 40),
        (101, 128),
        (128, 70),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mixed_rows_are_averaged_as_if_they_had_been_built(
    target: Host, m: int, n: int, dtype: torch.dtype
) -> None:
    d = 700
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n)).to(dtype)
    matrix = means_of_sets(m, n)
    mixture = Mixture.of(matrix)
    assert mixture is not None
    band = range(m // 4, m - m // 4)
    out = torch.full((d,), 9.0)
    columns = slice(5, d)
    sums = mixtures.select_mean(target, tuple(rows), mixture, Selection(m, band), columns, out)
    mixed = (torch.from_numpy(matrix) @ rows.double()).float().double()[:, 5:]
    kept = mixed.sort(dim=0).values[band.start : band.stop]
    assert torch.allclose(out[5:].double(), kept.mean(dim=0), rtol=0, atol=1e-6)
    assert out[:5].tolist() == [9] * 5
    gaps = rows.double()[:, 5:] - out[5:].double()
    assert np.allclose(sums.distances, gaps.square().sum(dim=1), rtol=1e-6)
    if not Selection(m, band).is_whole:
        inside = (mixed >= kept[0]) & (mixed <= kept[-1])
        assert abs(sums.kept - inside.sum(dim=1).numpy()).max() <= 2  # float32 rounds once more


@pytest.mark.parametrize(("m", "count"), [(9, 5), (70, 40), (70, 69)])
def test_the_nearest_of_mixed_rows_are_averaged(target: Host, m: int, count: int) -> None:
    d, n = 300, m + 6
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    matrix = means_of_sets(m, n)
    mixture = Mixture.of(matrix)
    assert mixture is not None
    out = torch.empty(d)
    selection = Nearest(m, count)
    sums = mixtures.select_mean(target, tuple(rows), mixture, selection, slice(0, d), out)
    mixed = torch.from_numpy(matrix) @ rows.double()
    ordered = mixed.sort(dim=0).values
    gaps = (mixed - (ordered[(m - 1) // 2] + ordered[m // 2]) / 2).abs()
    nearest = mixed.gather(0, gaps.argsort(dim=0)[:count])
    assert torch.allclose(out.double(), nearest.mean(dim=0), rtol=0, atol=1e-5)
    assert sums.kept.sum() == count * d


def test_several_spans_and_pieces_fit_together(target: Host) -> None:
    d = SPAN_COLUMNS + 5 * TILE_COLUMNS + 3
    rows = torch.randn(8, d, generator=torch.Generator().manual_seed(1))
    mixture = Mixture.of(np.eye(8))
    assert mixture is not None
    out = torch.empty(d)
    selection = Selection(8, range(2, 6))
    mixtures.select_mean(target, tuple(rows), mixture, selection, slice(0, d), out)
    expected = rows.double().sort(dim=0).values[2:6].mean(dim=0)
    assert torch.equal(out, expected.float())


def test_mean_of_equal_rows_is_that_row_to_the_bit(target: Host) -> None:
    row = torch.randn(700, generator=torch.Generator().manual_seed(2))
    mixture = Mixture.of(np.full((6, 12), 1 / 12))
    assert mixture is not None
    out = torch.empty(700)
    selection = Selection(6, range(1, 5))
    mixtures.select_mean(target, (row,) * 12, mixture, selection, slice(0, 700), out)
    assert torch.equal(out, row)


def test_rows_of_different_weights_are_not_read_as_means() -> None:
    assert Mixture.of(np.array([[0.5, 0.5], [0.25, 0.75]])) is None


def test_large_rows_are_mixed_by_the_kernel_and_small_ones_give_the_same(
    target: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = order_statistics.COMPILED_ELEMENTS_MIN // 9 + 1
    rows = torch.randn(9, d, generator=torch.Generator().manual_seed(3))
    rule = NNM() | TrimmedMean(f=2)
    fast = rule(rows)
    monkeypatch.setattr(points, "mixed_mean", lambda *_: None)
    slow = rule(rows)
    assert torch.allclose(fast.vector, slow.vector, atol=2e-6)
    weights = [[entry.weight for entry in result.report] for result in (fast, slow)]
    assert weights[0] == pytest.approx(weights[1], abs=1e-5)
