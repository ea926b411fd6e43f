"""`RobustOptimizer` in training loops of one's own."""

import pytest
import torch
from torch import nn

from pliska.aggregation import (
    BoundError,
    Bucketing,
    CenteredClipping,
    CoordinateMedian,
    Krum,
    Mean,
    TrimmedMean,
)
from pliska.trainer.errors import OptimizerUsageError
from pliska.trainer.optimizer import RobustOptimizer

ROWS = [[1.0, 10.0], [2.0, -5.0], [4.0, 0.0], [3.0, 3.0], [500.0, -900.0]]


def weight(values: list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


def backward(parameter: nn.Parameter, gradient: list[float]) -> None:
    """Make one backward pass whose gradient is exactly this."""
    (parameter * torch.tensor(gradient)).sum().backward()


def robust_sgd(*parameters: nn.Parameter, lr: float = 0.5, f: int = 1) -> RobustOptimizer:
    return RobustOptimizer(torch.optim.SGD(parameters, lr=lr), TrimmedMean(f=f))


def test_step_follows_the_rules_aggregate_of_hand_made_rows() -> None:
    parameter = weight([1.0, 2.0])
    optimizer = robust_sgd(parameter)
    for row in ROWS:
        backward(parameter, row)
    optimizer.step()
    # Without the largest and smallest of each column: (2 + 4 + 3) / 3 and (-5 + 0 + 3) / 3.
    expected = torch.tensor([1.0, 2.0]) - 0.5 * torch.tensor([3.0, -2.0 / 3.0])
    assert torch.allclose(parameter.detach(), expected)
    assert optimizer.last is not None
    assert [entry.worker for entry in optimizer.last.report] == ["0", "1", "2", "3", "4"]


def test_with_the_mean_it_is_the_plain_loop_with_averaged_losses() -> None:
    torch.manual_seed(3)
    batches = torch.randn(6, 4, 3)
    plain, robust = nn.Linear(3, 2), nn.Linear(3, 2)
    robust.load_state_dict(plain.state_dict())
    ordinary = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    wrapped = RobustOptimizer(torch.optim.SGD(robust.parameters(), lr=0.1, momentum=0.9), Mean(f=0))
    for _ in range(4):
        ordinary.zero_grad()
        for batch in batches:
            (plain(batch).square().mean() / len(batches)).backward()
            robust(batch).square().mean().backward()
        ordinary.step()
        wrapped.step()
    for one, other in zip(plain.parameters(), robust.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_parameter_that_took_no_part_in_a_pass_is_zero_in_that_row_and_in_no_other() -> None:
    always, sometimes = weight([0.0]), weight([0.0])
    optimizer = RobustOptimizer(torch.optim.SGD([always, sometimes], lr=1.0), CoordinateMedian(f=1))
    backward(always, [1.0])
    # The second pass reaches `sometimes` before `always`: its row must not be the first one's.
    ((always * 2.0).sum() + (sometimes * 20.0).sum()).backward()
    ((always * 3.0).sum() + (sometimes * 30.0).sum()).backward()
    optimizer.step()
    assert always.item() == -2.0
    assert sometimes.item() == -20.0


def test_parameter_that_no_pass_used_gets_no_step_not_even_weight_decay() -> None:
    used, unused = weight([1.0]), weight([7.0])
    inner = torch.optim.SGD([used, unused], lr=0.5, weight_decay=0.1)
    optimizer = RobustOptimizer(inner, Mean(f=0))
    backward(used, [1.0])
    optimizer.step()
    assert used.item() == pytest.approx(1.0 - 0.5 * 1.1)
    assert unused.item() == 7.0


def test_frozen_parameter_is_left_alone_and_trained_once_it_is_thawed() -> None:
    parameter, frozen = weight([1.0]), weight([1.0]).requires_grad_(False)
    optimizer = robust_sgd(parameter, frozen, f=0)
    (parameter * frozen).sum().backward()
    optimizer.step()
    assert (parameter.item(), frozen.item()) == (0.5, 1.0)
    frozen.requires_grad_(True)
    (parameter * frozen).sum().backward()
    optimizer.step()
    assert (parameter.item(), frozen.item()) == (0.0, 0.75)


def test_parameter_group_that_is_added_later_is_trained_too() -> None:
    first, second = weight([1.0]), weight([1.0])
    optimizer = robust_sgd(first, f=0)
    optimizer.add_param_group({"params": [second], "lr": 0.25})
    (first.sum() + second.sum()).backward()
    optimizer.step()
    assert first.item() == 0.5
    assert second.item() == 0.75


def test_learning_rate_scheduler_moves_the_inner_optimizer() -> None:
    parameter = weight([0.0])
    inner = torch.optim.SGD([parameter], lr=1.0)
    optimizer = RobustOptimizer(inner, Mean(f=0))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    for expected in (-1.0, -1.1, -1.11):
        backward(parameter, [1.0])
        optimizer.step()
        scheduler.step()
        assert parameter.item() == pytest.approx(expected)
    assert inner.param_groups[0]["lr"] == pytest.approx(1e-3)


def test_state_dict_continues_where_it_was_taken() -> None:
    def made(values: list[float]) -> tuple[nn.Parameter, RobustOptimizer]:
        parameter = weight(values)
        return parameter, RobustOptimizer(torch.optim.Adam([parameter], lr=0.1), Mean(f=0))

    def train(parameter: nn.Parameter, optimizer: RobustOptimizer, steps: int) -> None:
        for _ in range(steps):
            backward(parameter, [1.0, -2.0])
            optimizer.step()

    parameter, optimizer = made([0.0, 0.0])
    train(parameter, optimizer, 2)
    resumed, other = made(parameter.tolist())
    other.load_state_dict(optimizer.state_dict())
    train(parameter, optimizer, 2)
    train(resumed, other, 2)
    assert torch.equal(resumed, parameter)


def test_rule_that_remembers_starts_at_the_last_aggregate_also_after_a_resume() -> None:
    def made() -> tuple[nn.Parameter, RobustOptimizer]:
        parameter = weight([0.0, 0.0])
        clipping = CenteredClipping(f=1, tau=1.0, iterations=1)
        return parameter, RobustOptimizer(torch.optim.SGD([parameter], lr=1.0), clipping)

    def step(parameter: nn.Parameter, optimizer: RobustOptimizer, gradient: list[float]) -> None:
        for _ in range(3):
            backward(parameter, gradient)
        optimizer.step()

    parameter, optimizer = made()
    step(parameter, optimizer, [6.0, 8.0])
    resumed, other = made()
    other.load_state_dict(optimizer.state_dict())
    for each, its in ((parameter, optimizer), (resumed, other)):
        step(each, its, [-6.0, -8.0])
        assert its.last is not None
        # One step of length tau from (6, 8), against its direction.
        assert torch.allclose(its.last.vector, torch.tensor([5.4, 7.2]))


def test_memory_of_other_parameters_is_dropped() -> None:
    first, second = weight([0.0]), weight([0.0])
    clipping = CenteredClipping(f=0, tau=1.0, iterations=1)
    optimizer = RobustOptimizer(torch.optim.SGD([first, second], lr=1.0), clipping)
    backward(first, [5.0])
    optimizer.step()
    (5 * first.sum() + 7 * second.sum()).backward()
    optimizer.step()
    assert optimizer.last is not None
    assert optimizer.last.vector.tolist() == [5.0, 7.0]


def test_lots_are_drawn_anew_in_each_step() -> None:
    parameter = weight([0.0])
    rule = Bucketing(s=2) | CoordinateMedian(f=1)
    optimizer = RobustOptimizer(torch.optim.SGD([parameter], lr=0.0), rule)
    found = set()
    for _ in range(10):
        for value in range(8):
            backward(parameter, [float(2**value)])
        optimizer.step()
        assert optimizer.last is not None
        found.add(optimizer.last.vector.item())
    assert len(found) > 3


def test_rows_that_the_rule_refuses_leave_parameters_and_state_unchanged() -> None:
    parameter = weight([1.0, 2.0])
    inner = torch.optim.SGD([parameter], lr=0.5, momentum=0.9)
    optimizer = RobustOptimizer(inner, Krum(f=2))
    for row in ROWS[:3]:
        backward(parameter, row)
    with pytest.raises(BoundError, match=r"n >= 2f \+ 3"):
        optimizer.step()
    assert parameter.tolist() == [1.0, 2.0]
    assert not inner.state
    with pytest.raises(OptimizerUsageError, match="before any backward pass"):
        optimizer.step()  # the rows of the failed step are gone


def test_zero_grad_drops_the_rows() -> None:
    parameter = weight([1.0])
    optimizer = robust_sgd(parameter, f=0)
    backward(parameter, [100.0])
    optimizer.zero_grad()
    backward(parameter, [1.0])
    optimizer.step()
    assert parameter.item() == 0.5


def test_a_closure_is_refused() -> None:
    with pytest.raises(OptimizerUsageError, match="takes no closure"):
        robust_sgd(weight([1.0])).step(lambda: 0.0)
