from dataclasses import replace
from typing import Any

import pytest

from pliska.coordinator.commands.model_training import TrainingRollback
from pliska.coordinator.records.rollback import EXCLUDED_MAX
from pliska.coordinator.registry import RegistryUsageError
from pliska.coordinator.rollback_order import RollbackOrder
from pliska.coordinator.wire.limits import NAME_BYTES_MAX, WHY_CHARACTERS_MAX

RIGHT = TrainingRollback(
    model="digits",
    job=None,
    to=None,
    to_round=4,
    exclude=("w1",),
    actor="ann",
    reason="poison",
    timeout_s=60,
)
NAMES = tuple(f"w{number:03d}" for number in range(EXCLUDED_MAX + 1))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"to": 3, "to_round": None},
        {"reason": "ü" * WHY_CHARACTERS_MAX},
        {"exclude": NAMES[:-1]},
        {"exclude": ("w" * NAME_BYTES_MAX,)},
    ],
)
def test_what_passes_the_command_passes_the_store(change: dict[str, Any]) -> None:
    wish = replace(RIGHT, **change)
    wish.check()
    order = RollbackOrder(
        number=1, target=4, actor=wish.actor, reason=wish.reason, excluded=wish.exclude
    )
    assert RollbackOrder.from_bytes(order.to_bytes()) == order


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"to": 3}, "say where to"),
        ({"to_round": None}, "say where to"),
        ({"reason": ""}, "--reason: give 1 to 200"),
        ({"reason": "x" * (WHY_CHARACTERS_MAX + 1)}, "--reason: give 1 to 200"),
        ({"reason": "two\nlines"}, "printable"),
        ({"reason": "\ud800"}, "printable"),
        ({"actor": "\x1b[31m"}, "the actor"),
        ({"exclude": NAMES}, "at most 64 workers"),
        ({"exclude": ("",)}, "no worker has such a name"),
        ({"exclude": ("w 1",)}, "no worker has such a name"),
        ({"exclude": ("wü",)}, "no worker has such a name"),
        ({"exclude": ("w" * (NAME_BYTES_MAX + 1),)}, "no worker has such a name"),
    ],
)
def test_what_no_order_can_hold_is_a_mistake_in_usage(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(RegistryUsageError, match=reason):
        replace(RIGHT, **change).check()
