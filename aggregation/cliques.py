"""Exact search for m points that are pairwise near, in the graph of allowed pairs.

m of n points are pairwise allowed exactly if the pairs that are not can all be
covered by the other n - m points. Covers are found by a bounded search tree on
bit masks: it branches only at points with three or more forbidden pairs, so it
visits at most about 1.47^(n-m) nodes, where listing subsets would visit
C(n, m). Used by `mda`.
"""

from collections.abc import Sequence


def first_clique(forbidden: Sequence[int], m: int) -> list[int] | None:
    """Return the lexicographically first m points without a forbidden pair, or None.

    Args:
        forbidden: For each point the bit mask of the points it must not be
            with; symmetric.
        m: How many points.
    """
    n = len(forbidden)
    everyone = (1 << n) - 1
    if not has_cover(forbidden, everyone, n - m):
        return None
    chosen: list[int] = []
    candidates = everyone
    for point in range(n):
        if len(chosen) == m:
            break
        if not candidates >> point & 1:
            continue
        beside = candidates & ~forbidden[point]
        spare = beside.bit_count() - m
        if spare >= 0 and has_cover(forbidden, beside, spare):
            chosen.append(point)
            candidates = beside
        else:
            candidates &= ~(1 << point)
    return chosen


def has_cover(forbidden: Sequence[int], among: int, size: int) -> bool:
    """Say whether at most `size` points touch all forbidden pairs among these points.

    Args:
        forbidden: As in `first_clique`.
        among: Bit mask of the points that count.
        size: Points that may be taken out.
    """
    if size < 0:
        return False
    degrees = {
        point: (forbidden[point] & among).bit_count()
        for point in _points(among)
        if forbidden[point] & among
    }
    if not degrees:
        return True
    hub = max(degrees, key=lambda point: (degrees[point], -point))
    if degrees[hub] <= 2:
        return _cover_of_paths(forbidden, among) <= size
    if size * degrees[hub] < sum(degrees.values()) // 2:
        return False
    neighbours = forbidden[hub] & among
    without_hub = among & ~(1 << hub)
    return has_cover(forbidden, without_hub, size - 1) or has_cover(
        forbidden, without_hub & ~neighbours, size - degrees[hub]
    )


def _cover_of_paths(forbidden: Sequence[int], among: int) -> int:
    """Return the size of the smallest cover where every point has at most two forbidden pairs.

    Such a graph is paths and cycles: k points in a path need k // 2, in a
    cycle (k + 1) // 2.
    """
    size, left = 0, among
    while left:
        part, edges, frontier = 0, 0, left & -left
        while frontier:
            part |= frontier
            following = 0
            for point in _points(frontier):
                edges += (forbidden[point] & among).bit_count()
                following |= forbidden[point] & among
            frontier = following & ~part
        points = part.bit_count()
        is_cycle = edges == 2 * points
        size += (points + 1) // 2 if is_cycle else points // 2
        left &= ~part
    return size


def _points(mask: int) -> list[int]:
    points = []
    while mask:
        lowest = mask & -mask
        points.append(lowest.bit_length() - 1)
        mask ^= lowest
    return points
