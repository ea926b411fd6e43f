"""Garbage collection removes what nothing speaks for, and nothing else, come what may."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from pliska.coordinator.registry import RegistryConflictError, State
from pliska.coordinator.registry.collection import Collector
from pliska.coordinator.registry.names import Reference
from pliska.coordinator.registry.pins import Pin
from pliska.coordinator.registry.roots import Retention
from pliska.coordinator.registry.sweeps import ANNOUNCED_FOR, Sweeps

KEEP_ONE = Retention(keep_last=1, history=1)
LATER = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC) + timedelta(days=2)


def collector(desk, retention=KEEP_ONE, now=None):
    parts = desk.registry.namespace
    return Collector(dataclasses.replace(parts, now=now or parts.now), retention, "ann")


def states(desk):
    return {each.version: each.state for each in desk.registry.versions(desk.model)}


def gone(collected):
    return [fate.version.version for fate in collected.fates if fate.reason is None]


def why(collected, version):
    return next(f.reason for f in collected.fates if f.version.version == version)


def test_without_a_wish_no_version_goes(desk) -> None:
    desk.register(1, 2, 3)
    assert gone(collector(desk, Retention()).collect()) == []


def test_a_plan_changes_nothing_and_says_what_would_go(desk) -> None:
    desk.register(1, 2, 3)
    before = states(desk), desk.registry.namespace.blobs.files()
    plan = collector(desk).plan()
    assert gone(plan) == [1, 2]
    assert len(plan.files) == 4  # two manifests and two heads; the third tensor is shared
    assert plan.nbytes > 0
    assert (states(desk), desk.registry.namespace.blobs.files()) == before


def test_what_goes_is_what_was_planned_and_the_rest_can_be_loaded(desk) -> None:
    desk.register(1, 2, 3)
    plan, done = collector(desk).plan(), collector(desk).collect()
    assert done.files == plan.files
    assert states(desk) == {1: State.DELETED, 2: State.DELETED, 3: State.READY}
    desk.registry.load(Reference.parse("digits:3"))
    assert collector(desk).plan().files == ()


@pytest.mark.parametrize(
    ("moves", "kept"), [((1, 2), "what 'prod' points at"), ((2, 1, 3), "in the history of 'prod'")]
)
def test_aliases_and_their_history_are_roots(desk, moves, kept) -> None:
    desk.register(1, 2, 3, 4)
    desk.promote(*moves)
    plan = collector(desk, dataclasses.replace(KEEP_ONE, history=2)).plan()
    assert why(plan, moves[-1]) == "what 'prod' points at"
    assert kept in {why(plan, moves[-1]), why(plan, moves[-2])}
    assert why(plan, 4) == "one of the newest 1"


def test_a_pinned_version_stays_until_it_is_unpinned(desk) -> None:
    desk.register(1, 2)
    pins = desk.registry.namespace.pins
    stored = desk.registry.namespace.versions.find("digits", 1)
    pins.put(
        Pin("default", "digits", 1, "paper", "ann", "2031-05-04T03:02:01.000Z"), stored.unmodified
    )
    assert why(collector(desk).collect(), 1) == "pinned: paper"
    assert pins.remove("digits", 1)
    assert gone(collector(desk).collect()) == [1]


def test_young_versions_stay(desk) -> None:
    desk.register(1, 2)
    retention = dataclasses.replace(KEEP_ONE, age_min=timedelta(days=1))
    assert why(collector(desk, retention).plan(), 1) == "too young"
    assert gone(collector(desk, retention, lambda: LATER).plan()) == [1]


def test_the_same_content_can_be_registered_again_under_a_new_number(desk) -> None:
    desk.register(1, 2)
    collector(desk).collect()
    desk.register(1)
    assert states(desk) == {1: State.DELETED, 2: State.READY, 3: State.READY}
    desk.registry.load(Reference.parse("digits:3"))


def test_a_version_that_an_alias_came_to_point_at_meanwhile_is_put_back(desk, monkeypatch) -> None:
    desk.register(1, 2)
    sweeper = collector(desk)
    announce = Collector._announce

    def promote_first(self, stored):
        announced = announce(self, stored)
        # The move read the version before it was announced, and its transaction came first.
        ready = dataclasses.replace(announced.record, state=State.READY)
        self._parts.versions.replace(announced, ready)
        desk.promote(1)
        return announce(self, self._stored(stored.record))

    monkeypatch.setattr(Collector, "_announce", promote_first)
    assert why(sweeper.collect(), 1) == "what 'prod' points at"
    assert states(desk)[1] is State.READY
    desk.registry.load(Reference.parse("digits@prod"))


def test_an_upload_under_way_keeps_all_files_and_one_that_a_crash_left_none(desk) -> None:
    desk.register(1, 2)
    versions = desk.registry.namespace.versions
    manifest = desk.registry.manifest(versions.find("digits", 1).record)
    orphan = dataclasses.replace(manifest, tensors=manifest.tensors[:1])
    versions.reserve(orphan, "2031-05-04T03:02:01.000Z", "ann")
    collected = collector(desk).collect()
    assert [each.version for each in collected.held_by] == [3]
    assert collected.files == ()
    assert len(collector(desk, now=lambda: LATER).collect().files) == 2


def test_a_registration_that_overlaps_a_sweep_stores_its_files_again(desk, monkeypatch) -> None:
    desk.register(1, 2)
    collector_ = collector(desk)
    parts = desk.registry.namespace
    put, hit = type(parts.blobs).put_tensor, []

    def sweep_after_first(self, tensor, digest):
        put(self, tensor, digest)
        if not hit:
            hit.append(True)
            sweep = parts.sweeps.begin("bob")
            for name in self.files():
                if digest.partition(":")[2] in name:
                    self.remove(name, sweep)  # nobody refers to it yet
            sweep.end()

    monkeypatch.setattr(type(parts.blobs), "put_tensor", sweep_after_first)
    desk.register(3)
    desk.registry.load(Reference.parse("digits:3"))
    assert gone(collector_.plan()) == [1, 2]


def test_only_one_sweeps_at_a_time_and_a_dead_one_is_forgotten(desk) -> None:
    parts = desk.registry.namespace
    now = parts.now()
    parts.sweeps.begin("ann")
    with pytest.raises(RegistryConflictError, match="ann"):
        parts.sweeps.begin("bob")
    later = Sweeps(desk.backend, "default", lambda: now + ANNOUNCED_FOR)
    later.rest()
    later.begin("bob").end()


def test_while_another_sweeps_no_version_goes(desk) -> None:
    desk.register(1, 2)
    sweep = desk.registry.namespace.sweeps.begin("bob")
    with pytest.raises(RegistryConflictError, match="bob"):
        collector(desk).collect()
    assert states(desk) == {1: State.READY, 2: State.READY}
    sweep.end()
    assert gone(collector(desk).collect()) == [1]


def test_a_sweeper_whose_time_is_over_removes_nothing_more(desk) -> None:
    clock = [desk.registry.namespace.now()]
    sweep = Sweeps(desk.backend, "default", lambda: clock[0]).begin("ann")
    clock[0] += ANNOUNCED_FOR - timedelta(seconds=5)
    sweep.renew()
    clock[0] += ANNOUNCED_FOR
    with pytest.raises(RegistryConflictError, match="too long"):
        sweep.renew()


def test_a_collector_that_died_half_way_is_finished_by_the_next(desk) -> None:
    desk.register(1, 2)
    first = collector(desk)
    first._announce(desk.registry.namespace.versions.find("digits", 1))
    assert states(desk)[1] is State.DELETING
    assert gone(collector(desk, Retention()).collect()) == [1]
    assert states(desk)[1] is State.DELETED
