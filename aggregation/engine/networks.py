"""Comparator networks: which minima and maxima put the wanted ranks of n values on known wires.

Pure combinatorics on wire numbers; `band_kernel` turns a network into machine
code, `many_bands` into a table, and `blocked_networks` runs it with NumPy. Two
merge sorts are compared for every band of ranks and the one with fewer minima
and maxima is taken.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pliska.aggregation.engine.merge_sort import (
    GROUP_MAX,
    Halves,
    Pair,
    Part,
    cleaned_at_the_ends,
    in_groups,
    merged_to_the_end,
    two_lists,
    two_sorted_lists,
)


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
    if (cleaned := _sorted_but_for_the_band(n, band)) is not None:
        candidates.append(cleaned)
    return min(candidates, key=lambda network: network.cost)


def merging_network(n: int, band: range) -> Network:
    """Return a network that merges groups which are sorted, and collects a band of ranks.

    Args:
        n: Number of values, more than a group has. The wires of each `GROUP_MAX` one after the
            other are ascending, and those from n on, which fill the last group up, hold
            infinity.
        band: Not empty, within 0..n.

    Returns:
        A network without groups, on all wires.
    """
    merge, halves = _merged_groups(n)
    cleaning = list(merge)
    ways = [(merge, merged_to_the_end(merge, halves, band))]
    if (kept := cleaned_at_the_ends(cleaning, halves, band)) is not None:
        ways.append((cleaning, kept))
    candidates = [_of_groups(n, pairs, kept, are_ordered=False) for pairs, kept in ways]
    return min(candidates, key=lambda network: len(network.merge))


def ordered_merging_network(n: int, ranks: Sequence[int]) -> Network:
    """Return what `merging_network` does for these ranks; `kept` lists their wires in order."""
    merge, halves = _merged_groups(n)
    return _of_groups(n, merge, merged_to_the_end(merge, halves, ranks), are_ordered=True)


def _merged_groups(n: int) -> tuple[list[Pair], Halves]:
    """Merge groups of sorted wires until two lists are left."""
    groups = [list(range(i, i + GROUP_MAX)) for i in range(0, n, GROUP_MAX)]
    merge: list[Pair] = []
    return merge, two_lists(groups, merge)


def _of_groups(n: int, merge: list[Pair], kept: Sequence[int], are_ordered: bool) -> Network:
    wires = in_groups(n)
    needed = _without_padding(merge, range(n, wires))
    return _pruned(wires, [], needed, kept, are_ordered)


def _sorted_to_the_end(n: int, ranks: Sequence[int], are_ordered: bool) -> Network:
    parts, merge, halves = two_sorted_lists(n)
    kept = merged_to_the_end(merge, halves, ranks)
    return _pruned(n, parts, merge, kept, are_ordered)


def _sorted_but_for_the_band(n: int, band: range) -> Network | None:
    parts, merge, halves = two_sorted_lists(n)
    kept = cleaned_at_the_ends(merge, halves, band)
    return None if kept is None else _pruned(n, parts, merge, kept, are_ordered=False)


def _without_padding(pairs: Iterable[Pair], infinite: Iterable[int]) -> list[Pair]:
    """Leave out the pairs whose maximum is known to lie where it belongs: it is infinity."""
    known = set(infinite)
    left = []
    for low, high in pairs:
        if high not in known:
            left.append((low, high))
            if low in known:
                known.symmetric_difference_update((low, high))
    return left


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
            keeps_low, keeps_high = (wire in read or wire in wanted for wire in (low, high))
            left.append(Exchange(low, high, keeps_low, keeps_high))
            read.update((low, high))
        return tuple(reversed(left))

    after = prune(merge)
    groups = [(tuple(wires), prune(pairs)) for wires, pairs in reversed(list(parts))]
    return Network(n, tuple(reversed(groups)), after, tuple(kept))
