"""The mode of a leadership follows the store, and the policy writes it there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from training.leadership import PATIENCE_S, Lead

from pliska.aggregation import rule_named
from pliska.coordinator import mode_control
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.mode_control import ModeControl
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.round_state import RoundState
from pliska.coordinator.rounds.turns import Turns
from pliska.locks import StoreUnavailableError

WORKERS = ("w1", "w2", "w3", "w4")


class Rounds:
    """Stands for the rounds: it remembers what it was asked for."""

    def __init__(self) -> None:
        present = dict.fromkeys(WORKERS, b"1" * 16)
        self.state = RoundState(round=1, expected=4, since=0.0, present=present)
        self.asked = asyncio.Event()

    def request(self, setting: ModeSetting) -> None:
        self.state = replace(self.state, setting=setting, requested=setting)
        self.asked.set()

    def take(self, slow: str = "") -> None:
        """Let a round pass."""
        turns = Turns()
        for worker in WORKERS:
            turns = turns.followed_by(worker, 10.0 if worker in slow.split() else 1.0)
        self.state = replace(self.state, round=self.state.round + 1, turns=turns)


@pytest.fixture
def lead(lead_toy: Callable[..., Lead]) -> Lead:
    more = '[mode]\npolicy = "auto"\npatience = 3'
    return lead_toy(workers=4, quorum=3, rule='name = "trimmed-mean", f = 1', more=more)


@contextlib.asynccontextmanager
async def controlled(
    lead: Lead, rounds: Rounds, directory: JobDirectory | None = None
) -> AsyncIterator[ModeControl]:
    rule = rule_named(lead.job.rule.name, **lead.job.rule.parameters)
    control = ModeControl(
        lead.job,
        directory or lead.directory,
        lead.campaign(),
        Gatherings.of_job(lead.job, rule, 8),
        lambda: rounds.state,
        rounds.request,
    )
    running = asyncio.create_task(control.run())
    try:
        yield control
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until_in(rounds: Rounds, mode: Mode) -> None:
    """Wait until the rounds are asked for this mode."""
    async with asyncio.timeout(PATIENCE_S):
        while rounds.state.setting.mode is not mode:
            rounds.asked.clear()
            await rounds.asked.wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode_control, "CHECK_S", 0.005)


async def test_mode_that_stands_in_the_store_is_asked_for(lead: Lead) -> None:
    rounds = Rounds()
    async with controlled(lead, rounds):
        asked = lead.directory.switch_mode(lead.job, Mode.ASYNCHRONOUS, "ann")
        await asyncio.wait_for(rounds.asked.wait(), PATIENCE_S)
    assert rounds.state.requested == asked == ModeSetting(Mode.ASYNCHRONOUS, 1, "ann")


async def test_policy_writes_the_mode_after_patience_and_goes_back_when_all_are_prompt(
    lead: Lead,
) -> None:
    rounds = Rounds()
    async with controlled(lead, rounds):
        for _ in range(2):
            rounds.take(slow="w1")
            await asyncio.sleep(0.05)
        assert lead.directory.mode(lead.job).mode is Mode.SYNCHRONOUS
        for _ in range(3):
            rounds.take(slow="w1")
            await asyncio.sleep(0.05)
        await until_in(rounds, Mode.HYBRID)
        asked = lead.directory.mode(lead.job)
        assert asked.reason == "policy: 1 of 4 workers are stragglers"
        for _ in range(5):
            rounds.take()
            await asyncio.sleep(0.05)
        await until_in(rounds, Mode.SYNCHRONOUS)
    assert lead.directory.mode(lead.job).mode_epoch == 2


async def test_deposed_leaders_policy_writes_nothing(lead: Lead) -> None:
    rounds = Rounds()
    async with controlled(lead, rounds):
        lead.session.close()
        for _ in range(8):
            rounds.take(slow="w1")
            await asyncio.sleep(0.02)
    assert lead.directory.mode(lead.job).mode_epoch == 0


class Flaky(JobDirectory):
    troubles = 0

    def mode(self, job: object) -> ModeSetting:
        type(self).troubles += 1
        if self.troubles < 4:
            raise StoreUnavailableError("no answer")
        return super().mode(job)  # type: ignore[arg-type]


async def test_store_that_does_not_answer_leaves_the_mode_as_it_is(lead: Lead) -> None:
    rounds = Rounds()
    directory = Flaky(lead.directory.backend, lead.job.name)
    async with controlled(lead, rounds, directory):
        lead.directory.switch_mode(lead.job, Mode.HYBRID, "ann")
        await asyncio.wait_for(rounds.asked.wait(), PATIENCE_S)
    assert Flaky.troubles >= 4
    assert rounds.state.setting.mode is Mode.HYBRID
