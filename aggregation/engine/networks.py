"""Comparator networks: which minima and maxima put the wanted ranks of n values on known wires.

Pure combinatorics on wire numbers; `band_kernel` turns a network into machine
code and `blocked_networks` runs it with NumPy. Two merge sorts are compared
for every band of ranks and the one with fewer minima and maxima is taken.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

GROUP_MAX = 16
"""Values sorted together before anything is merged: as many as stay in vector registers.

The same on every CPU, so that sums are formed in the same order on all of them.
"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One comparator: the minimum goes to wire `low`, the maximum to wire `high`.

    Attributes:
        low: Wire of the minimum.
        high: Wire of the maximum.
        keeps_low: Whether anything reads the minimum.
        keeps_high: Whether anything reads the maximum.
    """

    low: int
    high: int
    keeps_low: bool = True
    keeps_high: bool = True

    @property
    def cost(self) -> int:
        """Minima and maxima to compute."""
        return self.keeps_low + self.keeps_high


@dataclass(frozen=True, slots=True)
class Network:
    """Exchanges in order, after which the wires `kept` hold the wanted values.

    Attributes:
        n: Number of wires.
        groups: Wires that are sorted among themselves first, and how.
        merge: What follows, across the groups.
        kept: Wires that hold the values of the band, in no order unless the
            network sorts.
    """

    n: int
    groups: tuple[tuple[tuple[int, ...], tuple[Exchange, ...]], ...]
    merge: tuple[Exchange, ...]
    kept: tuple[int, ...]

    @property
    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of execution."""
        for _, exchanges in self.groups:
            yield from exchanges
        yield from self.merge

    @property
    def cost(self) -> int:
        """Minima and maxima to compute."""
        return sum(exchange.cost for exchange in self.exchanges)


@dataclass(frozen=True, slots=True)
class Selection:
    """A band of ranks whose values are averaged in each column.

    Attributes:
        n: Values in a column.
        band: The ranks (0 is the smallest).
    """

    n: int
    band: range

    @property
    def is_whole(self) -> bool:
        """Whether every value is averaged."""
        return len(self.band) == self.n

    @property
    def kept_of_equals(self) -> int:
        """How many rows, from the first, count as kept where all values are equal: ties do."""
        return self.n

    def network(self) -> Network:
        """Return the network that collects what is averaged."""
        return band_network(self.n, self.band)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The values nearest to the median, which are averaged in each column.

    For even n the median is the mean of the two middle values. Of values
    equally near those of earlier rows are taken.

    Attributes:
        n: Values in a column.
        count: How many are averaged.
    """

    n: int
    count: int

    @property
    def is_whole(self) -> bool:
        """Whether every value is averaged."""
        return self.count == self.n

    @property
    def kept_of_equals(self) -> int:
        """How many rows, from the first, count as kept where all values are equal."""
        return self.count


@lru_cache(maxsize=256)
def ordered_network(n: int, ranks: tuple[int, ...]) -> Network:
    """Return a network that finds these ranks; `kept` lists their wires in the same order."""
    return _sorted_to_the_end(n, ranks, are_ordered=True)


@lru_cache(maxsize=256)
def band_network(n: int, band: range) -> Network:
    """Return a network that collects the values of the ranks in `band` (0 is the smallest).

    Args:
        n: Number of values, at least 1.
        band: Not empty, within 0..n.
    """
    candidates = [_sorted_to_the_end(n, band, are_ordered=False)]
    if (cleaned := _cleaned_at_the_ends(n, band)) is not None:
        candidates.append(cleaned)
    return min(candidates, key=lambda network: network.cost)


def _sorted_to_the_end(n: int, ranks: Sequence[int], are_ordered: bool) -> Network:
    parts, merge, halves = _two_sorted_lists(n)
    order = _merge(*halves, merge)
    kept = [order[rank] for rank in ranks]
    return _pruned(n, parts, merge, kept, are_ordered)


def _cleaned_at_the_ends(n: int, band: range) -> Network | None:
    """Return the network that only takes the extremes off two sorted lists, if they are apart.

    Of two ascending lists A and B the k smallest values are the minima of the
    pairs (A[i], B[k-1-i]), as in a bitonic merge (Batcher 1968); likewise at
    the other end. What is left needs no order to be summed. The pairs of the
    two ends must not share a wire.
    """
    parts, merge, (first, second) = _two_sorted_lists(n)
    below, above = band.start, n - band.stop
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
    kept = [wire for wire in first + second if wire not in dropped]
    return _pruned(n, parts, merge, kept, are_ordered=False)


Pair = tuple[int, int]
Part = tuple[list[int], list[Pair]]


def _two_sorted_lists(n: int) -> tuple[list[Part], list[Pair], tuple[list[int], list[int]]]:
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
    while len(lists) > 2:
        lists = [
            _merge(lists[i], lists[i + 1], merge) if i + 1 < len(lists) else lists[i]
            for i in range(0, len(lists), 2)
        ]
    return parts, merge, (lists[0], lists[1])


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


def _pruned(
    n: int, parts: Iterable[Part], merge: list[Pair], kept: Sequence[int], are_ordered: bool
) -> Network:
    """Leave out what the kept values do not depend on, walking back from the end.

    Unless order is wanted, an exchange between two kept wires that nothing
    touches later only swaps values within the kept set, and can go too.
    """
    wanted = set(kept)
    read = set(kept) if are_ordered else set()

    def prune(pairs: list[Pair]) -> tuple[Exchange, ...]:
        left = []
        for low, high in reversed(pairs):
            if low not in read and high not in read and (low in wanted) == (high in wanted):
                continue
            left.append(Exchange(low, high, low in read | wanted, high in read | wanted))
            read.update((low, high))
        return tuple(reversed(left))

    after = prune(merge)
    groups = [(tuple(wires), prune(pairs)) for wires, pairs in reversed(list(parts))]
    return Network(n, tuple(reversed(groups)), after, tuple(kept))
