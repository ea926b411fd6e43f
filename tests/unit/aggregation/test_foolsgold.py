from collections.abc import Mapping

import numpy as np
import pytest
import torch

from pliska.aggregation import ARC, NNM, FoolsGold, ParameterError
from pliska.aggregation.foolsgold import says


def slow(histories: np.ndarray) -> np.ndarray:
    """The authors' program, with their steps in their order."""
    lengths = np.linalg.norm(histories, axis=1)
    cosines = histories @ histories.T / np.outer(lengths, lengths) - np.eye(len(histories))
    np.fill_diagonal(cosines, 0)
    most = cosines.max(axis=1)
    for i in range(len(most)):
        for j in range(len(most)):
            if i != j and most[i] < most[j]:
                cosines[i, j] *= most[i] / most[j]
    say = np.clip(1 - cosines.max(axis=1), 0, 1)
    say = say / say.max()
    say[say == 1] = 0.99
    with np.errstate(divide="ignore"):
        say = np.log(say / (1 - say)) + 0.5
    return np.clip(say, 0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_says_are_those_of_the_authors_program(seed: int) -> None:
    histories = np.random.default_rng(seed).normal(size=(6, 4))
    lengths = np.linalg.norm(histories, axis=1)
    cosines = torch.from_numpy(histories @ histories.T / np.outer(lengths, lengths))
    assert np.allclose(says(cosines).numpy(), slow(histories), atol=1e-9)


def test_sybils_lose_their_say_and_honest_ones_keep_it() -> None:
    generator = torch.Generator().manual_seed(1)
    rule, memory = FoolsGold(f=3), None
    for _ in range(4):
        honest = torch.randn(6, 200, generator=generator)
        sybil = torch.full((1, 200), -3.0) + 0.1 * torch.randn(3, 200, generator=generator)
        result = rule(torch.vstack([sybil, honest]), memory=memory)
        memory = result.memory
    weights = [entry.weight for entry in result.report]
    assert max(weights[:3]) == 0
    assert min(weights[3:]) == pytest.approx(1 / 6)


def test_memory_is_one_vector_for_each_worker_of_the_round() -> None:
    rows = torch.randn(4, 10, generator=torch.Generator().manual_seed(2))
    rule = FoolsGold(f=1)
    first = rule(rows, ["a", "b", "c", "d"]).memory
    assert isinstance(first, Mapping)
    second = rule(rows[:3], ["a", "b", "e"], memory=first).memory
    assert isinstance(second, Mapping)
    assert second.keys() == {"a", "b", "e"}
    assert torch.equal(second["a"], 2 * rows[0])
    assert torch.equal(second["e"], rows[2])
    assert torch.equal(first["a"], rows[0])
    assert not rule.rebuilds_memory


@pytest.mark.parametrize(("value", "d"), [(1.0, 3), (2.5, 3), (0.3, 400_000)])
def test_where_all_are_alike_the_aggregate_is_zero(value: float, d: int) -> None:
    # Their cosines come out a last bit below 1, which must not be blown up into differences.
    result = FoolsGold(f=1)(torch.full((7, d), value))
    assert not result.vector.any()


def test_only_what_keeps_workers_may_come_before() -> None:
    ARC() | FoolsGold(f=1)
    with pytest.raises(ParameterError, match="no mixing before it"):
        NNM() | FoolsGold(f=1)
