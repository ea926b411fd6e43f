import itertools
import random

import pytest

from pliska.aggregation.cliques import first_clique, has_cover


def graph(n: int, density: float, seed: int) -> list[int]:
    lot = random.Random(seed)
    forbidden = [0] * n
    for i, j in itertools.combinations(range(n), 2):
        if lot.random() < density:
            forbidden[i] |= 1 << j
            forbidden[j] |= 1 << i
    return forbidden


def slow(forbidden: list[int], m: int) -> list[int] | None:
    for points in itertools.combinations(range(len(forbidden)), m):
        if not any(forbidden[i] >> j & 1 for i, j in itertools.combinations(points, 2)):
            return list(points)
    return None


@pytest.mark.parametrize("density", [0.0, 0.15, 0.3, 0.5, 0.8, 1.0])
def test_first_clique_is_that_of_the_listing(density: float) -> None:
    for seed in range(25):
        n = 4 + seed % 8
        forbidden = graph(n, density, seed)
        for m in range(1, n + 1):
            assert first_clique(forbidden, m) == slow(forbidden, m), f"seed={seed}, m={m}"


def test_covers_of_paths_and_cycles_are_the_known_ones() -> None:
    known = [(2, False, 1), (5, False, 2), (6, True, 3), (7, True, 4), (3, True, 2)]
    for k, is_cycle, size in known:
        edges = [(i, i + 1) for i in range(k - 1)] + ([(0, k - 1)] if is_cycle else [])
        forbidden = [0] * k
        for i, j in edges:
            forbidden[i] |= 1 << j
            forbidden[j] |= 1 << i
        assert has_cover(forbidden, (1 << k) - 1, size)
        assert not has_cover(forbidden, (1 << k) - 1, size - 1)


def test_sixty_four_points_take_no_listing() -> None:
    # C(64, 20) is 2e16.
    planted = graph(64, 0.4, 2)
    free = (1 << 44) - 1
    planted = [mask & ~free if i < 44 else mask for i, mask in enumerate(planted)]
    assert first_clique(planted, 44) == list(range(44))
