import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import CAF


def slow(rows: np.ndarray, f: int) -> np.ndarray:
    counted = np.ones(len(rows))
    best, least = rows.mean(axis=0), np.inf
    while True:
        mean = np.average(rows, axis=0, weights=counted)
        gaps = rows - mean
        covariance = (counted[:, None] * gaps).T @ gaps / counted.sum()
        values, vectors = np.linalg.eigh(covariance)
        if values[-1] < least:
            best, least = mean, values[-1]
        if values[-1] <= 1e-12 or counted.sum() <= len(rows) - 2 * f:
            return best
        spread = (gaps @ vectors[:, -1]) ** 2
        spread[counted == 0] = 0
        counted = counted * (1 - spread / spread.max())


@given(seed=st.integers(0, 2**32 - 1), f=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_filter_on_inner_products_is_the_filter_in_full_space(seed: int, f: int) -> None:
    lot = np.random.default_rng(seed)
    rows = lot.normal(size=(8, 5))
    rows[:f] += 4 * lot.normal(size=(f, 5))
    found = CAF(f=f)(torch.from_numpy(rows)).vector.numpy()
    assert np.allclose(found, slow(rows, f), atol=1e-6), f"seed={seed}"


@given(matrix=hnp.arrays(np.int8, (5, 3)))
@settings(max_examples=20, deadline=None)
def test_any_input_has_an_answer(matrix: np.ndarray) -> None:
    # ByzFL answers None for equal rows and for f = 0.
    for f in (0, 2):
        assert torch.isfinite(CAF(f=f)(torch.from_numpy(matrix.astype(np.float32))).vector).all()
    same = torch.from_numpy(np.repeat(matrix[:1], 5, axis=0).astype(np.float32))
    assert torch.equal(CAF(f=2)(same).vector, same[0])


def test_far_rows_lose_all_weight() -> None:
    rows = torch.randn(9, 30, generator=torch.Generator().manual_seed(1))
    rows[0] = 1e38
    rows[1] = -1e30
    weights = [entry.weight for entry in CAF(f=2)(rows).report]
    assert max(weights[:2]) < 1e-20
