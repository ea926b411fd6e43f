"""Options of the demonstration are checked before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from pliska.aggregation import AttackName, RuleUsageError
from pliska.trainer.demo.errors import DemoUsageError
from pliska.trainer.demo.options import ROUNDS_MAX, ROUNDS_MIN, DemoOptions


def test_last_workers_are_the_byzantine_ones() -> None:
    options = DemoOptions(workers=9, byzantine=2)
    assert options.worker_names == ("w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9")
    assert options.byzantine_names == ("w8", "w9")


def test_no_worker_is_byzantine_when_none_shall_be() -> None:
    assert DemoOptions(byzantine=0).byzantine_names == ()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"workers": 0}, "--workers is 0"),
        ({"workers": 65}, "--workers is 65"),
        ({"byzantine": -1}, "--byzantine is -1"),
        ({"byzantine": 4}, "--byzantine is 4: write a number from 0 to 3"),
        ({"rounds": ROUNDS_MIN - 1}, "--rounds is 19"),
        ({"rounds": ROUNDS_MAX + 1}, "--rounds is 100001"),
        ({"seed": -1}, "--seed is -1"),
        ({"session_timeout_s": 0.5}, "--session-timeout is 0.5"),
        ({"data": "cifar"}, "unknown data 'cifar'"),
        ({"attack": AttackName.NAN, "scale": 2.0}, "leave out --scale"),
        ({"rule": "mean"}, "--rule mean is what the rule is compared with"),
    ],
)
def test_option_that_cannot_work_is_named(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(DemoUsageError, match=message):
        DemoOptions(**choice)


@pytest.mark.parametrize("choice", [{"rounds": ROUNDS_MIN}, {"workers": 64, "byzantine": 30}])
def test_option_at_its_limit_is_taken(choice: dict[str, Any]) -> None:
    DemoOptions(**choice)


@pytest.mark.parametrize("choice", [{"workers": 6}, {"byzantine": 3}, {"rule": "multikrum"}])
def test_rule_that_the_numbers_do_not_allow_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(RuleUsageError):
        DemoOptions(**choice)


def test_scale_is_the_attacks_own_unless_one_is_chosen() -> None:
    assert DemoOptions().attack_scale == 10
    assert DemoOptions(scale=3.0).attack_scale == 3
    assert DemoOptions(attack=AttackName.NAN).attack_scale is None


def test_directory_of_mnist_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert DemoOptions(data="mnist:here").data_source == f"mnist:{tmp_path / 'here'}"
    assert DemoOptions().data_source == "digits"
