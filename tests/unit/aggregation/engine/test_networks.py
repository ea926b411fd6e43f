import itertools

import numpy as np
import pytest

from pliska.aggregation.engine.merge_sort import GROUP_MAX
from pliska.aggregation.engine.networks import (
    Network,
    Selection,
    band_network,
    merging_network,
    ordered_network,
)


def run(network: Network, values: np.ndarray) -> np.ndarray:
    """Return what stands on the kept wires; what nothing reads is overwritten."""
    wires = values.copy()
    for exchange in network.exchanges:
        low, high = wires[exchange.low].copy(), wires[exchange.high].copy()
        wires[exchange.low] = np.minimum(low, high) if exchange.keeps_low else 99
        wires[exchange.high] = np.maximum(low, high) if exchange.keeps_high else -99
    return wires[list(network.kept)]


@pytest.mark.parametrize("n", range(1, 13))
def test_network_sorts_every_pattern_of_zeros_and_ones(n: int) -> None:
    # The zero-one principle (Knuth, 5.3.4): enough for all inputs.
    patterns = np.array(list(itertools.product((0, 1), repeat=n))).T
    expected = np.sort(patterns, axis=0)
    assert (run(ordered_network(n, tuple(range(n))), patterns) == expected).all()
    for start in range(n):
        for stop in range(start + 1, n + 1):
            kept = run(band_network(n, range(start, stop)), patterns)
            assert (np.sort(kept, axis=0) == expected[start:stop]).all()


@pytest.mark.parametrize("n", range(13, 65))
def test_large_networks_sort_random_columns(n: int) -> None:
    values = np.random.default_rng(n).integers(0, n, (n, 200))
    expected = np.sort(values, axis=0)
    assert (run(ordered_network(n, tuple(range(n))), values) == expected).all()
    for f in {1, n // 5, n // 4, n // 3, (n - 1) // 2}:
        kept = run(band_network(n, range(f, n - f)), values)
        assert (np.sort(kept, axis=0) == expected[f : n - f]).all()


@pytest.mark.parametrize("n", [17, 31, 32, 33, 65, 80, 100, 127, 144, 300])
def test_sorted_groups_are_merged_whatever_fills_the_last_one_up(n: int) -> None:
    values = np.random.default_rng(n).integers(0, n, (n, 100)).astype(np.float32)
    wires = np.full((-(-n // GROUP_MAX) * GROUP_MAX, 100), np.inf, np.float32)
    wires[:n] = values
    wires = np.sort(wires.reshape(-1, GROUP_MAX, 100), axis=1).reshape(wires.shape)
    expected = np.sort(values, axis=0)
    for start, stop in {(0, n), (0, 1), (n - 1, n), (n // 5, n - n // 5), (n // 2, n // 2 + 1)}:
        kept = run(merging_network(n, range(start, stop)), wires)
        assert (np.sort(kept, axis=0) == expected[start:stop]).all()


@pytest.mark.parametrize(("n", "trimmed", "median"), [(8, 24, 26), (16, 84, 90), (64, 796, 826)])
def test_networks_for_a_quarter_and_for_the_median_leave_much_out(
    n: int, trimmed: int, median: int
) -> None:
    assert band_network(n, range(n // 4, n - n // 4)).cost == trimmed
    assert band_network(n, range((n - 1) // 2, n // 2 + 1)).cost == median
    assert median < ordered_network(n, tuple(range(n))).cost


@pytest.mark.parametrize("ranks", [(0, 4, 8), (3, 4, 5), (8, 1), (5,)])
def test_ordered_network_finds_the_ranks_in_the_order_asked_for(ranks: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 9, (9, 200))
    kept = run(ordered_network(9, ranks), values)
    assert (kept == np.sort(values, axis=0)[list(ranks)]).all()


def test_whole_band_needs_no_exchange() -> None:
    selection = Selection(9, range(9))
    assert selection.is_whole
    assert selection.network().cost == 0


def test_network_is_the_same_every_time() -> None:
    band_network.cache_clear()
    first = band_network(21, range(5, 16))
    band_network.cache_clear()
    assert band_network(21, range(5, 16)) == first
