from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pliska.aggregation import (
    NNM,
    CenteredClipping,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    MassError,
    Mean,
    ParameterError,
    TrimmedMean,
    VotingMass,
    attack_named,
    claimed_masses,
    rule_named,
)
from pliska.aggregation.rows import Rows
from pliska.aggregation.weighted_band import mass_median, mass_trimmed_mean

WEIGHTED = [Mean, CoordinateMedian, TrimmedMean, GeometricMedian, CenteredClipping]


def column(values: list[Any]) -> Rows:
    return Rows(tuple(torch.tensor([float(value)], dtype=torch.float64) for value in values), 1)


def repeated(values: list[int], masses: list[int]) -> list[int]:
    return sorted(value for value, mass in zip(values, masses, strict=True) for _ in range(mass))


votes = st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 5)), min_size=1, max_size=8)


@given(pairs=votes, data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_whole_mass_is_so_many_equal_rows(pairs: list[tuple[int, int]], data: Any) -> None:
    values, masses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    line = repeated(values, masses)
    middle = Fraction(line[(len(line) - 1) // 2] + line[len(line) // 2], 2)
    assert mass_median(column(values), masses).vector.item() == float(middle)
    cut = data.draw(st.integers(0, (len(line) - 1) // 2))
    kept = line[cut : len(line) - cut]
    found = mass_trimmed_mean(column(values), masses, cut).vector.item()
    assert found == pytest.approx(sum(kept) / len(kept), abs=1e-12)


@pytest.mark.parametrize("rule", WEIGHTED)
def test_equal_masses_change_nothing(rule: Any) -> None:
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(1))
    masses = VotingMass({str(i): 7.0 for i in range(9)})
    plain, weighted = rule(f=2)(rows), rule(f=2)(rows, masses=masses)
    assert torch.allclose(plain.vector, weighted.vector, atol=1e-6)


@pytest.mark.parametrize("rule", WEIGHTED)
def test_a_mass_of_two_is_two_rows(rule: Any) -> None:
    rows = torch.randn(7, 40, generator=torch.Generator().manual_seed(2))
    masses = VotingMass({str(i): 2.0 if i < 2 else 1.0 for i in range(7)})
    parameters = {"tau": 3.0} if rule is CenteredClipping else {}
    weighted = rule(f=0, **parameters)(rows, masses=masses).vector
    twice = rule(f=0, **parameters)(torch.vstack([rows, rows[:2]])).vector
    assert torch.allclose(weighted, twice, atol=1e-5)


@pytest.mark.parametrize("rule", WEIGHTED[1:])
@pytest.mark.parametrize("attack", ["sign-flip", "gaussian", "huge-coordinate"])
def test_f_heavy_liars_cannot_steer(rule: Any, attack: str) -> None:
    generator = torch.Generator().manual_seed(3)
    honest = 1 + torch.randn(9, 30, generator=generator)
    rows = torch.vstack([attack_named(attack)(honest, 2, generator), honest])
    masses = VotingMass({str(i): 2.0 if i < 2 else 1.0 for i in range(11)})
    vector = rule(f=2)(rows, masses=masses).vector
    assert float((vector - 1).norm()) < 8
    assert float(vector.mean()) > 0.3


def test_what_workers_claim_counts_for_nothing_but_the_cap() -> None:
    # The registry's masses are used; even a registry that believed a claim of a
    # billion samples would be held by the cap.
    registry = {str(i): 1.0 for i in range(7)}
    rows = torch.tensor([[0.0], [1], [2], [3], [4], [5], [1000]])
    honest = CoordinateMedian(f=1)(rows, masses=VotingMass(registry)).vector.item()
    claimed = claimed_masses(registry, {"6"})
    assert claimed["6"] == 1e9
    believed = CoordinateMedian(f=1)(rows, masses=VotingMass(claimed)).vector.item()
    assert (honest, believed) == (3, 4)


def test_f_workers_with_half_of_the_mass_are_refused() -> None:
    rows = torch.arange(5.0)[:, None]
    masses = VotingMass({"0": 3, "1": 3, "2": 1, "3": 1, "4": 1})
    with pytest.raises(MassError, match="heaviest f=2 workers hold 67% of the voting mass"):
        TrimmedMean(f=2)(rows, masses=masses)


def test_rules_that_count_rows_refuse_masses() -> None:
    rows = torch.arange(7.0)[:, None]
    masses = VotingMass({str(i): 1.0 for i in range(7)})
    with pytest.raises(ParameterError, match="krum has no use for masses"):
        Krum(f=1)(rows, masses=masses)
    with pytest.raises(ParameterError, match=r"nnm \| trimmed-mean mixes workers"):
        (NNM() | TrimmedMean(f=1))(rows, masses=masses)
    arc = rule_named("trimmed-mean", f=1, pre=["arc"])
    assert arc(rows, masses=masses).vector.item() == pytest.approx(3)


def test_masses_show_in_the_report() -> None:
    rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    masses = VotingMass({"0": 1, "1": 1, "2": 2, "3": 1})
    report = Mean()(rows, masses=masses).report
    assert [entry.weight for entry in report] == pytest.approx([0.2, 0.2, 0.4, 0.2])
    assert report[2].reason == "40.00% of the voting mass kept"
