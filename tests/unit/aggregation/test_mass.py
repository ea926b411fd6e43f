import math
from typing import Any

import pytest
import torch

from pliska.aggregation import CoordinateMedian, MassError, ParameterError, VotingMass
from pliska.aggregation.mass import faulty_mass, require_honest_majority


def test_masses_are_capped_at_a_multiple_of_the_median_and_average_one() -> None:
    masses = VotingMass({"a": 1, "b": 1, "c": 1e9}, cap=2).among(["a", "b", "c"])
    assert masses == (0.75, 0.75, 1.5)


def test_a_worker_without_mass_is_named() -> None:
    with pytest.raises(ParameterError, match="worker 'z' has a row but no voting mass"):
        VotingMass({"a": 1}).among(["a", "z"])


@pytest.mark.parametrize("mass", [0, -9, math.nan, math.inf])
def test_only_positive_finite_masses_count(mass: float) -> None:
    # Flower's weights 10 and -9 on rows of 1 and 2 answer -8.
    with pytest.raises(ParameterError, match="the mass of worker 'a' must be a positive number"):
        VotingMass({"a": mass})


@pytest.mark.parametrize("cap", [0.5, -1, math.nan, math.inf])
def test_a_cap_below_one_is_refused(cap: float) -> None:
    with pytest.raises(ParameterError, match="cap must be"):
        VotingMass({"a": 1}, cap=cap)


def test_the_heaviest_f_count_as_faulty() -> None:
    assert faulty_mass([1, 3, 2], 2) == 5
    require_honest_majority("krum", [3, 1, 1, 1.01], 1)
    with pytest.raises(MassError, match="heaviest f=1 workers hold 50% of the voting mass"):
        require_honest_majority("krum", [3, 1, 1, 1], 1)


def test_masses_that_are_no_voting_mass_are_a_users_mistake() -> None:
    rows: Any = torch.randn(5, 3)
    for masses in ([1.0] * 5, {"a": 1.0}, 1.0):
        given: Any = masses
        with pytest.raises(ParameterError, match=r"masses must be a VotingMass\("):
            CoordinateMedian(f=1)(rows, masses=given)
