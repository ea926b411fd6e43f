import math

import pytest
import torch

from pliska.aggregation import (
    BoundError,
    CoordinateMedian,
    Krum,
    MultiKrum,
    ParameterError,
    TooManyBadRowsError,
    TrimmedMean,
    rule_named,
)
from pliska.aggregation.faults import faults_among, most_faults, require_faults, smallest_n


def krum(f: int) -> int:
    return 2 * f + 3


def rows_of(n: int, lies: int, size: float, seed: int = 1) -> torch.Tensor:
    rows = 1 + torch.randn(n, 50, generator=torch.Generator().manual_seed(seed))
    rows[:lies] += size
    return rows


@pytest.mark.parametrize(("n", "f"), [(4, 1), (5, 1), (10, 2), (11, 3)])
def test_a_fraction_is_rounded_up(n: int, f: int) -> None:
    # Flower's int(0.2 * 4) = 0 trims nothing.
    assert faults_among(0.2, n, krum) == f


def test_a_fraction_of_few_workers_still_trims() -> None:
    rows = torch.tensor([[1.0], [1.0], [1.0], [1000.0]])
    result = TrimmedMean(f=0.2)(rows)
    assert result.vector.item() == 1.0
    assert (result.faults.count, result.faults.reason) == (1, "0.2 of the workers, rounded up")


@pytest.mark.parametrize("n", range(1, 40))
def test_auto_never_exceeds_the_bound(n: int) -> None:
    most = most_faults(n, krum)
    assert most == 0 or krum(most) <= n
    assert krum(most + 1) > n or most + 1 > (n - 1) // 2


@pytest.mark.parametrize("lies", [0, 1, 2, 3, 4])
def test_auto_counts_the_rows_that_lie_apart(lies: int) -> None:
    result = MultiKrum(f="auto")(rows_of(12, lies, 100))
    assert result.faults.count == max(1, lies)
    assert f"auto: {lies} rows lie more than 3 times as far out" in result.faults.reason
    assert all(entry.weight == 0 for entry in result.report[:lies])


def test_auto_is_capped_even_if_more_lie_apart() -> None:
    # Of 12, Krum bears 4; six far ones are no minority that could be told apart.
    assert MultiKrum(f="auto")(rows_of(12, 6, 1e6)).faults.count <= 4


def test_refused_rows_count_for_auto() -> None:
    rows = rows_of(12, 2, 100)
    rows[5, 0] = math.nan
    result = CoordinateMedian(f="auto")(rows)
    assert result.faults.count == 3
    with pytest.raises(TooManyBadRowsError, match="more than the f=4"):
        Krum(f="auto")(rows, rejected=dict.fromkeys(["3", "4", "6", "7"], "late"))


def test_auto_needs_room_for_one_fault() -> None:
    with pytest.raises(BoundError, match=r"krum with f=1 needs .* at least 5 workers"):
        Krum(f="auto").check(4)
    Krum(f="auto").check(5)
    assert Krum(f="auto").rows_min == 5


def test_a_fraction_that_no_number_of_workers_can_bear_is_refused() -> None:
    assert smallest_n(0.4, krum) == 15
    with pytest.raises(ParameterError, match=r"bear a fraction of f = 0\.3"):
        rule_named("bulyan", f=0.3)


def test_bound_of_a_fraction_names_a_number_of_workers_that_is_enough() -> None:
    rule = Krum(f=0.25)
    with pytest.raises(BoundError) as caught:
        rule.check(4)
    rule.check(caught.value.rows_min)


@pytest.mark.parametrize("f", [-1, 0.0, 0.5, 1.0, -0.1, math.nan, "some", None, True, [1]])
def test_anything_else_is_no_f(f: object) -> None:
    with pytest.raises(ParameterError, match="f must be a whole number"):
        require_faults(f)
