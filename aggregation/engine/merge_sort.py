"""Batcher's merge sort of wires by pairs: which two are exchanged, one after the other.

The minimum of a pair goes to its first wire. Every function appends to a list of
pairs and returns wires in the order of their values. `networks` makes networks of
this, and leaves out what a band of ranks does not need.
"""

from collections.abc import Sequence
from itertools import pairwise

Pair = tuple[int, int]
Part = tuple[list[int], list[Pair]]
Halves = tuple[list[int], list[int]]


GROUP_MAX = 16
"""Values sorted together before anything is merged: as many as stay in vector registers.

The same on every CPU, so that sums are formed in the same order on all of them.
"""


def in_groups(n: int) -> int:
    """Return n filled up to a multiple of `GROUP_MAX`: the wires of whole groups."""
    return -(-n // GROUP_MAX) * GROUP_MAX


def sorting_pairs(n: int) -> tuple[list[Pair], list[int]]:
    """Return the pairs that sort n wires, in their order, and the wires by rank then."""
    pairs: list[Pair] = []
    return pairs, _sort(range(n), pairs)


def two_sorted_lists(n: int) -> tuple[list[Part], list[Pair], Halves]:
    """Sort groups of wires, then merge neighbours until at most two lists are left.

    A network of one group is split in two all the same: sorting its halves is
    the first part of sorting it.
    """
    count = -(-n // GROUP_MAX)
    bounds = [n * i // count for i in range(count + 1)]
    groups = [list(range(a, b)) for a, b in pairwise(bounds)]
    if count == 1:
        halves = (groups[0][: (n + 1) // 2], groups[0][(n + 1) // 2 :])
        pairs: list[Pair] = []
        lists = [_sort(half, pairs) for half in halves]
        return [(groups[0], pairs)], [], (lists[0], lists[1])
    parts, lists = [], []
    for group in groups:
        pairs = []
        lists.append(_sort(group, pairs))
        parts.append((group, pairs))
    merge: list[Pair] = []
    return parts, merge, two_lists(lists, merge)


def two_lists(lists: list[list[int]], merge: list[Pair]) -> Halves:
    """Append the pairs that merge neighbours of sorted lists until two are left; return them."""
    while len(lists) > 2:
        lists = [
            _merge(lists[i], lists[i + 1], merge) if i + 1 < len(lists) else lists[i]
            for i in range(0, len(lists), 2)
        ]
    return lists[0], lists[1]


def _sort(wires: Sequence[int], pairs: list[Pair]) -> list[int]:
    """Append the pairs that sort `wires`; return them from smallest to largest."""
    if len(wires) < 2:
        return list(wires)
    middle = (len(wires) + 1) // 2
    return _merge(_sort(wires[:middle], pairs), _sort(wires[middle:], pairs), pairs)


def _merge(first: list[int], second: list[int], pairs: list[Pair]) -> list[int]:
    """Append Batcher's odd-even merge of two sorted lists of any lengths; return the order.

    Knuth, The Art of Computer Programming 3, 5.3.4: merge the even and the odd
    places apart, then exchange neighbours.
    """
    if not first or not second:
        return first + second
    if len(first) == len(second) == 1:
        pairs.append((first[0], second[0]))
        return first + second
    even = _merge(first[::2], second[::2], pairs)
    odd = _merge(first[1::2], second[1::2], pairs)
    order = [even[0]]
    for i in range(max(len(odd), len(even) - 1)):
        if i < len(odd) and i + 1 < len(even):
            pairs.append((odd[i], even[i + 1]))
        order += odd[i : i + 1] + even[i + 1 : i + 2]
    return order


def merged_to_the_end(merge: list[Pair], halves: Halves, ranks: Sequence[int]) -> list[int]:
    """Append the pairs that merge two sorted lists; return the wires of these ranks."""
    order = _merge(*halves, merge)
    return [order[rank] for rank in ranks]


def cleaned_at_the_ends(merge: list[Pair], halves: Halves, band: range) -> list[int] | None:
    """Append the pairs that only take the extremes off two sorted lists, if they are apart.

    Of two ascending lists A and B the k smallest values are the minima of the
    pairs (A[i], B[k-1-i]), as in a bitonic merge (Batcher 1968); likewise at
    the other end. What is left needs no order to be summed. The pairs of the
    two ends must not share a wire.

    Returns:
        The wires of the band, in no order; None, with nothing appended, where they share one.
    """
    first, second = halves
    below, above = band.start, len(first) + len(second) - band.stop
    if not second or below + above > min(len(first), len(second)):
        return None
    dropped = set()
    for i in range(below):
        low, high = first[i], second[below - 1 - i]
        merge.append((low, high))
        dropped.add(low)
    for i in range(above):
        low, high = first[len(first) - above + i], second[len(second) - 1 - i]
        merge.append((low, high))
        dropped.add(high)
    return [wire for wire in first + second if wire not in dropped]
