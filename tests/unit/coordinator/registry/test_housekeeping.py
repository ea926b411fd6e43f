"""What a person marks, pins and lets go of; what that means for aliases and nodes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import (
    Lineage,
    NotFoundError,
    RefusedError,
    Registry,
    RegistryUsageError,
    Retention,
    ServedModel,
    State,
)
from pliska.coordinator.registry.names import Reference
from pliska.coordinator.registry.sweeps import ANNOUNCED_FOR
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect


@pytest.fixture
def three(desk: Any) -> Any:
    """Return a registry with versions 1 to 3, to all of which `prod` pointed, 3 the last."""
    desk.register(1, 2, 3)
    desk.promote(1, 2, 3)
    return desk


def keep(desk: Any) -> Any:
    return desk.registry.housekeeping("bob")


def state(desk: Any, version: int) -> State:
    return desk.registry.versions("digits")[version - 1].state


@pytest.mark.parametrize(
    ("before", "act", "after", "changed"),
    [
        ((), "quarantine", State.QUARANTINED, True),
        ((), "deprecate", State.DEPRECATED, True),
        ((), "reinstate", State.READY, False),
        (("deprecate",), "quarantine", State.QUARANTINED, True),
        (("deprecate",), "deprecate", State.DEPRECATED, False),
        (("deprecate",), "reinstate", State.READY, True),
        (("quarantine",), "quarantine", State.QUARANTINED, False),
        (("quarantine",), "reinstate", State.READY, True),
    ],
)
def test_a_state_is_changed_once(
    three: Any, before: tuple[str, ...], act: str, after: State, changed: bool
) -> None:
    for each in before:
        getattr(keep(three), each)("digits", 2, "why")
    marking = getattr(keep(three), act)("digits", 2, "why")
    assert (marking.version.state, marking.changed) == (after, changed)
    assert state(three, 2) is after
    assert len(three.registry.marks(marking.version)) == 1 + len(before) + changed


def test_a_quarantine_is_not_weakened_in_passing(three: Any) -> None:
    keep(three).quarantine("digits", 2, "poisoned")
    with pytest.raises(RefusedError, match="reinstate it first"):
        keep(three).deprecate("digits", 2, "old")
    assert state(three, 2) is State.QUARANTINED


def test_a_quarantined_version_is_no_target_and_neither_are_its_descendants(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    desk.register(1, 2)
    desk.registry.register("digits", tensors(3), actor="ann", lineage=Lineage(parent=2))
    desk.promote(1)
    keep(desk).quarantine("digits", 2, "poisoned")
    for version in (2, 3):
        with pytest.raises(RefusedError, match="QUARANTINED") as refused:
            desk.registry.promote(desk.promotion(version, allow_deprecated=True))
        assert refused.value.exit_code == 7
    keep(desk).reinstate("digits", 2, "was the camera")
    desk.promote(3)


def test_a_deprecated_version_is_a_target_where_that_is_asked_for(three: Any) -> None:
    keep(three).deprecate("digits", 1, "old")
    with pytest.raises(RefusedError, match="--allow-deprecated"):
        three.promote(1)
    three.registry.promote(three.promotion(1, allow_deprecated=True))
    assert three.pointed_at() == 1


@pytest.mark.parametrize("act", ["quarantine", "deprecate"])
def test_previous_passes_a_marked_version_over(three: Any, act: str) -> None:
    getattr(keep(three), act)("digits", 2, "why")
    three.registry.rollback(three.rollback())
    assert three.pointed_at() == 1


def test_whoever_serves_a_quarantined_version_goes_on_until_the_alias_moves(
    three: Any, serve: Callable[..., ServedModel[bytes]]
) -> None:
    served = serve()
    keep(three).quarantine("digits", 3, "poisoned")
    three.promote(1, alias="stage")
    assert (served.current.version, served.current.stale) == (3, "")
    assert three.pointed_at() == 3
    three.registry.rollback(three.rollback())
    assert served.wait_for_gen(4, 20.0)
    assert served.current.version == 2


@pytest.mark.parametrize("act", ["quarantine", "deprecate", "reinstate", "pin"])
def test_what_is_not_there_or_not_whole_is_not_marked(three: Any, act: str) -> None:
    def marks(model: str, version: int) -> None:
        getattr(keep(three), act)(model, version, "why")

    with pytest.raises(NotFoundError):
        marks("digits", 9)
    with pytest.raises(NotFoundError):
        marks("other", 1)
    with pytest.raises(RegistryUsageError):
        marks("../digits", 1)
    keep(three).collect(Retention(keep_last=1, history=1))
    with pytest.raises(RefusedError, match="DELETED"):
        marks("digits", 1)


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 1001, "\x1b[2J"])
def test_a_reason_is_one_printable_line(three: Any, reason: str) -> None:
    with pytest.raises(RegistryUsageError):
        keep(three).quarantine("digits", 1, reason)


def test_a_pin_is_said_once_and_taken_away(three: Any) -> None:
    pinned = keep(three).pin("digits", 1, "paper")
    assert (pinned.reason, pinned.actor) == ("paper", "bob")
    assert keep(three).pin("digits", 1, "other") == pinned
    assert three.registry.pins("digits") == (pinned,)
    collected = keep(three).collect(Retention(keep_last=1, history=1))
    assert {fate.version.version: fate.reason for fate in collected.fates}[1] == "pinned: paper"
    assert keep(three).unpin("digits", 1)
    assert not keep(three).unpin("digits", 1)
    with pytest.raises(NotFoundError):
        keep(three).unpin("digits", 9)
    with pytest.raises(NotFoundError):
        three.registry.pins("other")


PREPARE = """
import struct
from pathlib import Path
from pliska.coordinator.registry import PromoteRequest, Registry, Retention, Tensor
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect

def opened(directory):
    return Registry(connect(f"embedded:{directory}"), LocalStorage(directory / "registry"))

def prepare(directory):
    registry = opened(directory)
    for number in (1, 2, 3):
        tensor = Tensor.of_bytes("F32", (1,), struct.pack("<f", number))
        registry.register("digits", {"head": tensor}, actor="ann")
    registry.promote(PromoteRequest(model="digits", alias="prod", version=2, actor="ann"))
"""


def reopened(directory: Path) -> Registry:
    """Open it when the announcement of a collection that died is over."""
    return Registry(
        connect(f"embedded:{directory}"),
        LocalStorage(directory / "registry"),
        now=lambda: datetime.now(UTC) + ANNOUNCED_FOR + timedelta(seconds=60),
    )


def test_a_collection_killed_at_any_system_call_is_finished_by_the_next(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    source = PREPARE + (
        "def act(directory):\n"
        "    opened(directory).housekeeping('ann').collect(Retention(keep_last=1))\n"
    )
    seen = set()
    for directory in crash_at_every_step(source):
        registry = reopened(directory)
        seen.add(registry.versions("digits")[0].state)
        inspection = registry.inspector(reads_every_byte=True).inspect()
        assert inspection.problems == ()
        for reference in ("digits@prod", "digits:3"):
            registry.load(Reference.parse(reference))
        registry.housekeeping("bob").collect(Retention(keep_last=1))
        states = [record.state for record in registry.versions("digits")]
        assert states == [State.DELETED, State.READY, State.READY]
        assert registry.inspector(reads_every_byte=True).inspect().garbage == ()
    assert {State.READY, State.DELETED} <= seen


def test_a_quarantine_killed_at_any_system_call_happened_whole_or_not_at_all(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    source = PREPARE + (
        "def act(directory):\n"
        "    opened(directory).housekeeping('ann').quarantine('digits', 1, 'poisoned')\n"
    )
    seen = set()
    for directory in crash_at_every_step(source):
        registry = reopened(directory)
        record = registry.versions("digits")[0]
        seen.add(record.state)
        assert len(registry.marks(record)) == (2 if record.state is State.QUARANTINED else 1)
        registry.housekeeping("bob").quarantine("digits", 1, "poisoned")
        assert len(registry.marks(registry.versions("digits")[0])) == 2
    assert seen == {State.READY, State.QUARANTINED}
