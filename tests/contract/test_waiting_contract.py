"""Rules on rows of another device: the call waits for it as little as it can, the report does.

The device is an imitation: its tensors live on the CPU, say that they do not, and
every copy to the CPU and every number that is asked for is noted.
"""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from pliska.aggregation import Rule, rule_named, rule_names

THERE = torch.device("meta")
COORDINATE_WISE = ["mean", "coordinate-median", "trimmed-mean", "meamed", "sign-vote"]
BY_DISTANCE = ["krum", "multi-krum", "geometric-median", "centered-clipping", "mda", "caf", "cge"]
MIXED: list[tuple[str, list[Any]]] = [
    ("trimmed-mean", ["nnm"]),
    ("multi-krum", ["arc", "nnm"]),
    ("coordinate-median", [{"name": "bucketing", "s": 2}]),
    ("bulyan", []),
    ("multi-bulyan", []),
]


class Far(Tensor):
    """A tensor of the imitated device."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        far: Far = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, near.size(), strides=near.stride(), dtype=near.dtype, device=THERE
        )
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(cls, *arguments: object) -> None:
        raise AssertionError(f"nothing is done outside of the device: {arguments[0]}")


class Device(TorchDispatchMode):
    """Does what is asked of `Far` tensors, and counts who waits for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(
        self, function: Any, types: object, arguments: Any = (), options: Any = None
    ) -> Any:
        given, options = [*tree_flatten((arguments, options))[0]], dict(options or {})
        is_there = any(isinstance(each, Far) for each in given)
        target = options.get("device")
        stays = is_there if target is None else torch.device(target) == THERE
        if target is not None:
            options["device"] = torch.device("cpu")
        is_number = function is torch.ops.aten._local_scalar_dense.default
        self.waits += is_there and (is_number or not stays)
        made = function(*tree_map(_near, arguments), **tree_map(_near, options))
        return tree_map(_far, made) if stays and not is_number else made


def _near(value: Any) -> Any:
    return value.near if isinstance(value, Far) else value


def _far(value: Any) -> Any:
    return Far(value) if isinstance(value, Tensor) else value


@pytest.fixture
def device() -> Iterator[Device]:
    with Device() as device:
        yield device


def rows() -> Tensor:
    return torch.randn(11, 60, generator=torch.Generator().manual_seed(1))


def test_the_imitation_counts_what_makes_one_wait(device: Device) -> None:
    far = Far(torch.ones(3))
    assert (far + torch.ones(3)).device == far[1:].device == torch.zeros_like(far).device == THERE
    assert device.waits == 0
    assert far.sum().item() == 3
    assert bool(far.all())
    assert far.cpu().tolist() == [1, 1, 1]
    assert device.waits == 3


@pytest.mark.parametrize("name", COORDINATE_WISE)
def test_coordinate_wise_rules_wait_for_the_gate_and_for_nothing_else(
    name: str, device: Device
) -> None:
    result = rule_named(name, f=2)(Far(rows()))
    assert device.waits == 1
    assert result.report
    assert device.waits > 1


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_rules_that_decide_by_distances_wait_for_these_and_not_for_the_aggregate(
    name: str, device: Device
) -> None:
    result = rule_named(name, f=2)(Far(rows()))
    assert device.waits <= 3  # the gate's lengths, a sample to find a centre, the products
    before = device.waits
    assert result.report
    assert device.waits == before


@pytest.mark.parametrize(("name", "pre"), MIXED)
def test_what_is_mixed_waits_for_the_gate_and_distances_only(
    name: str, pre: list[Any], device: Device
) -> None:
    rule_named(name, f=2 if pre != MIXED[2][1] else 1, pre=pre)(Far(rows()))
    assert device.waits <= 3


@pytest.mark.parametrize(
    "name", [name for name in rule_names() if name not in ("monna", "fltrust")]
)
def test_aggregate_and_report_are_those_of_the_cpu(name: str, device: Device) -> None:
    rule = rule_named(name, f=2)
    far, near = rule(Far(rows())), rule(rows())
    assert far.vector.device == THERE
    assert torch.allclose(far.vector.cpu(), near.vector, atol=1e-6)
    for one, other in zip(far.report, near.report, strict=True):
        assert (one.worker, one.verdict, one.reason) == (other.worker, other.verdict, other.reason)
        assert one.score == pytest.approx(other.score, rel=1e-5)


@pytest.fixture(params=rule_names())
def rule(request: pytest.FixtureRequest) -> Rule:
    return rule_named(request.param, f=2)


def test_a_result_keeps_no_row_alive_and_is_reported_on_once(rule: Rule) -> None:
    given = [row.clone() for row in rows()]
    kept = [weakref.ref(row) for row in given]
    trusted = {"reference": given[0].clone()} if "reference" in rule.uses else {}
    result = rule(given, **trusted)
    del given, trusted
    gc.collect()
    alive = [ref() for ref in kept if ref() is not None]
    assert alive == []
    assert len(result.report) == 11
    assert result.report is result.report
