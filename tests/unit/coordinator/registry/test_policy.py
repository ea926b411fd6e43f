"""Promote and roll back as data: every rule by an example, and random histories.

The slow, obvious definition that random histories are compared with is the one
of the design: "previous" is the newest older entry of the history whose version
differs, is READY, and was not itself rolled back from.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from pliska.coordinator.registry import (
    HistoryEntry,
    MoveKind,
    PromoteRequest,
    RollbackRequest,
    State,
    VersionRecord,
)
from pliska.coordinator.registry.digest import NO_DIGEST
from pliska.coordinator.registry.policy import (
    Decision,
    Verdict,
    decide,
    previous_entries,
    standing_entries,
)

Make = Callable[..., VersionRecord]


@dataclass
class Story:
    """An alias whose moves are decided and applied, with no store."""

    make: Make
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)

    def add(self, *numbers: int, **more: object) -> None:
        for number in numbers:
            self.versions[number] = self.make(number, **more)

    def promote(self, version: int, **more: object) -> Decision:
        request = PromoteRequest(model="digits", alias="prod", version=version, actor="ann", **more)
        return self._apply(MoveKind.PROMOTE, decide(self.history, self.versions, request))

    def rollback(self, *, quarantine: bool = True, **more: object) -> Decision:
        request = RollbackRequest(model="digits", alias="prod", actor="ann", reason="worse", **more)
        decision = decide(self.history, self.versions, request)
        if decision.verdict is Verdict.MOVE and quarantine:
            self.quarantine(self.history[-1].to_version)
        return self._apply(MoveKind.ROLLBACK, decision)

    def quarantine(self, version: int) -> None:
        self.versions[version] = replace(self.versions[version], state=State.QUARANTINED)

    @property
    def path(self) -> list[int]:
        return [entry.to_version for entry in self.history]

    def _apply(self, kind: MoveKind, decision: Decision) -> Decision:
        if decision.verdict is Verdict.MOVE:
            self.history.append(
                HistoryEntry(
                    namespace="default",
                    model="digits",
                    alias="prod",
                    gen=len(self.history) + 1,
                    kind=kind,
                    from_version=self.history[-1].to_version if self.history else None,
                    to_version=decision.version,
                    manifest_digest=NO_DIGEST,
                    op_id="op",
                    actor="ann",
                    reason="",
                    at="",
                    prev_hash=NO_DIGEST,
                )
            )
        return decision


@pytest.fixture
def story(version_record: Make) -> Story:
    story = Story(version_record)
    story.add(1, 2, 3, 4)
    return story


def test_a_second_rollback_does_not_return_the_bad_version(story: Story) -> None:
    for version in (1, 2, 3):
        story.promote(version)
    story.rollback()
    story.rollback()
    assert story.path == [1, 2, 3, 2, 1]


def test_it_does_not_either_when_nothing_is_quarantined(story: Story) -> None:
    for version in (1, 2, 3):
        story.promote(version)
    story.rollback(quarantine=False)
    story.rollback(quarantine=False)
    assert story.path == [1, 2, 3, 2, 1]
    assert story.rollback(quarantine=False).verdict is Verdict.REFUSED


def test_rolling_back_twice_around_a_promotion_skips_what_was_left(story: Story) -> None:
    for version in (1, 2):
        story.promote(version)
    story.rollback()
    story.promote(3)
    story.rollback()
    assert story.path == [1, 2, 1, 3, 1]


def test_a_version_promoted_again_after_a_rollback_counts_again(story: Story) -> None:
    for version in (1, 2):
        story.promote(version)
    story.rollback(quarantine=False)
    story.promote(2)
    story.promote(3)
    story.rollback()
    assert story.path == [1, 2, 1, 2, 3, 2]


def test_a_promotion_of_an_older_version_is_no_rollback(story: Story) -> None:
    for version in (1, 2, 1):
        story.promote(version)
    story.rollback()
    assert story.path == [1, 2, 1, 2]


def test_previous_skips_versions_that_are_not_ready(story: Story) -> None:
    for version in (1, 2, 3):
        story.promote(version)
    story.quarantine(2)
    assert story.rollback().version == 1


def test_steps_count_versions_that_could_be_returned_to(story: Story) -> None:
    for version in (1, 2, 3, 4):
        story.promote(version)
    story.quarantine(3)
    assert story.rollback(steps=2).version == 1


def test_steps_then_one_more_does_not_come_forward_again(story: Story) -> None:
    for version in (1, 2, 3, 4):
        story.promote(version)
    story.rollback(steps=2, quarantine=False)
    story.rollback()
    assert story.path == [1, 2, 3, 4, 2, 1]


def test_more_steps_than_versions_is_refused_and_says_how_many_there_are(story: Story) -> None:
    for version in (1, 2, 3):
        story.promote(version)
    decision = story.rollback(steps=3)
    assert decision.verdict is Verdict.REFUSED
    assert "2 of the 3" in decision.reason


def test_to_names_any_ready_version(story: Story) -> None:
    for version in (1, 2, 3):
        story.promote(version)
    assert story.rollback(to=4).version == 4
    assert story.rollback().version == 2
    assert story.path == [1, 2, 3, 4, 2]


def test_to_a_version_that_is_there_already_stays(story: Story) -> None:
    story.promote(1)
    assert story.rollback(to=1).verdict is Verdict.STAY
    assert story.promote(1).verdict is Verdict.STAY
    assert story.path == [1]


@pytest.mark.parametrize("state", [State.PENDING, State.QUARANTINED])
def test_only_ready_versions_may_be_pointed_at(story: Story, state: State) -> None:
    story.promote(1)
    story.add(9, state=state)
    for decision in (story.promote(9), story.rollback(to=9)):
        assert decision.verdict is Verdict.REFUSED
        assert state in decision.reason


def test_what_was_trained_from_a_quarantined_version_may_not_be_pointed_at(story: Story) -> None:
    story.add(5, parent=4)
    story.add(6, parent=5)
    for version in (6, 1):
        story.promote(version)
    story.quarantine(4)
    assert story.promote(6).verdict is Verdict.REFUSED
    assert story.rollback(to=6).verdict is Verdict.REFUSED
    assert story.rollback().verdict is Verdict.REFUSED
    assert "version 4" in story.promote(6).reason


def test_what_is_not_there_is_not_found(story: Story) -> None:
    assert story.rollback().verdict is Verdict.NOT_FOUND
    assert story.promote(99).verdict is Verdict.NOT_FOUND
    story.promote(1)
    assert story.rollback(to=99).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize("expect_gen", [0, 1, 3])
def test_an_unexpected_generation_is_a_conflict(story: Story, expect_gen: int) -> None:
    story.promote(1)
    story.promote(2)
    assert story.promote(3, expect_gen=expect_gen).verdict is Verdict.CONFLICT
    assert story.rollback(expect_gen=expect_gen).verdict is Verdict.CONFLICT
    assert story.promote(3, expect_gen=2).verdict is Verdict.MOVE


def test_the_generation_tells_two_visits_of_a_version_apart(story: Story) -> None:
    for version in (1, 2, 1):
        story.promote(version)
    assert story.promote(3, expect_gen=1).verdict is Verdict.CONFLICT


def test_generation_zero_means_that_there_is_no_alias(story: Story) -> None:
    assert story.promote(1, expect_gen=1).verdict is Verdict.CONFLICT
    assert story.promote(1, expect_gen=0).verdict is Verdict.MOVE


def previous_by_the_book(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord]
) -> int | None:
    """Return the version that the design's sentence names, entry by entry."""
    for entry in reversed(history[:-1]):
        was_rolled_back_from = any(
            later.kind is MoveKind.ROLLBACK and later.from_version == entry.to_version
            for later in history[entry.gen :]
        )
        if (
            entry.to_version != history[-1].to_version
            and versions[entry.to_version].state is State.READY
            and not was_rolled_back_from
        ):
            return entry.to_version
    return None


@pytest.mark.parametrize("seed", range(200))
def test_previous_is_what_the_design_says_for_any_single_steps(
    version_record: Make, seed: int
) -> None:
    chance = random.Random(seed)
    story = Story(version_record)
    story.add(*range(1, 6))
    for _ in range(30):
        if chance.random() < 0.5:
            story.promote(chance.randint(1, 5))
        elif story.history:
            expected = previous_by_the_book(story.history, story.versions)
            decision = story.rollback(quarantine=chance.random() < 0.2)
            found = decision.version if decision.verdict is Verdict.MOVE else None
            assert found == expected, (seed, story.path)


@pytest.mark.parametrize("seed", range(200))
def test_rollbacks_of_every_kind_only_go_back(version_record: Make, seed: int) -> None:
    """After any history, rolling back to the end visits distinct versions, none twice."""
    chance = random.Random(seed)
    story = Story(version_record)
    story.add(*range(1, 8))
    for _ in range(25):
        kind = chance.choice(["promote", "promote", "back", "steps", "to"])
        if kind == "promote":
            story.promote(chance.randint(1, 7))
        elif kind == "to":
            story.rollback(to=chance.randint(1, 7), quarantine=chance.random() < 0.3)
        else:
            steps = chance.randint(1, 3) if kind == "steps" else 1
            story.rollback(steps=steps, quarantine=chance.random() < 0.3)
    if not story.history:
        return
    announced = [e.to_version for e in previous_entries(story.history, story.versions)]
    begin = len(story.path)
    left = [story.path[-1]]
    while story.rollback(quarantine=False).verdict is Verdict.MOVE:
        assert story.path[-1] not in left, (seed, story.path)
        left.append(story.path[-1])
    visited = story.path[begin:]
    assert visited == announced, (seed, story.path)
    assert standing_entries(story.history)[-1] == story.history[-1]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("seed", range(50))
def test_steps_go_where_so_many_single_rollbacks_go(
    version_record: Make, seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    story = Story(version_record)
    story.add(*range(1, 20))
    for _ in range(10):
        story.promote(chance.randint(1, 8))
    other = Story(version_record, dict(story.versions), list(story.history))
    decisions = [other.rollback(quarantine=False) for _ in range(steps)]
    assert story.rollback(steps=steps, quarantine=False).version == decisions[-1].version
