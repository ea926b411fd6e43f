"""A job that is switched from mode to mode under load, by the command, through a failover.

Coordinators and commands are processes; what was committed is computed again
from the gradients as they were signed.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.audit.replay import Replay
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.records.commit import CommitRecord
from pliska.coordinator.records.history import committed_history
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.model import TrainingModel

ROUNDS = 110
MODES = """
[hybrid]
buffer = 4
staleness_max = 6

[asynchronous]
buffers = BUFFERS
staleness_max = 6

[audit]
keep_rounds = 10000
"""


def define(site: Site, buffers: int) -> None:
    site.define(
        toy_job(
            count=ROUNDS,
            workers=5,
            quorum=4,
            rule='name = "trimmed-mean", f = 1',
            soft_deadline_s=0.05,
            deadline_s=3.0,
            evaluate_every=10,
            more=MODES.replace("BUFFERS", str(buffers)),
        )
    )


async def command(site: Site, mode: str) -> None:
    """Run `pliska job mode` until a round runs in the mode."""
    arguments = ["job", "mode", "toy", mode, "--timeout", "60", "--store", site.store]
    child = await site.processes.start(f"to-{mode}", arguments)
    assert await child.process.wait() == 0


async def switch(site: Site, mode: Mode) -> int:
    """Ask for a mode and wait until a round was committed in it; return the version."""
    asked = await asyncio.to_thread(site.directory.switch_mode, site.job, mode, "a test")
    return await until_committed_in(site, asked.mode_epoch)


async def until_committed_in(site: Site, mode_epoch: int) -> int:
    """Wait for a commit of this mode epoch; return its version."""
    version = site.directory.committed_version()
    while True:
        version += 1
        await site.committed(version)
        record = site.directory.commit()
        assert record is not None
        claimed = Tip.claimed(record.value)
        version = claimed.version
        if claimed.mode_epoch >= mode_epoch:
            return version


def expect_sound(chain: Sequence[CommitRecord], lag_max: dict[str, int]) -> None:
    """Check that every round is there once, and every gradient counted once."""
    assert [record.round for record in chain] == list(range(1, len(chain) + 1))
    slots = [(each.worker, r.round - each.lag) for r in chain for each in r.contributions]
    assert len(slots) == len(set(slots))
    for before, after in pairwise(chain):
        assert before.mode_epoch <= after.mode_epoch
    for record in chain:
        assert max(each.lag for each in record.contributions) <= lag_max[record.mode]


def expect_replayed(site: Site) -> None:
    """Compute every round again from the kept gradients."""
    commits = committed_history(site.directory, str(site.storage))
    replay = Replay(site.job, LocalStorage(site.storage))
    (run,) = replay.runs(commits)
    replayed = list(replay.rounds(run))
    assert len(replayed) == site.job.rounds.count
    assert [each.differences for each in replayed] == [()] * len(replayed)


def expect_learned(site: Site) -> None:
    """Compare the last model with the first."""
    evaluator = Evaluator(site.job)
    commits = committed_history(site.directory, str(site.storage))
    last = recover(site.job, commits[-1], LocalStorage(site.storage)).model
    first = TrainingModel.build(site.job)
    before, after = (
        evaluator.accuracy(model.parameters().numpy().tobytes()) for model in (first, last)
    )
    assert before < 0.7 < 0.8 < after


@pytest.mark.timeout(300)
async def test_job_is_switched_through_all_modes_and_a_failover_and_learns(site: Site) -> None:
    define(site, buffers=3)
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0)
    first = await site.leads("c1", "c2")
    for name in ("w1", "w2", "w3", "w4"):
        site.slow_worker(name, 0.02)
    site.slow_worker("w5", 0.15)
    await site.committed(10)
    await command(site, "async")
    version = await until_committed_in(site, 1)
    await site.committed(version + 10)
    # Another leader goes on in the mode that the store has.
    await site.processes.kill(site.children[first])
    version = site.directory.committed_version()
    await site.committed(version + 10)
    version = await switch(site, Mode.HYBRID)
    await site.committed(version + 10)
    status = await site.status(lambda now: "mode" in now)
    assert (status["mode"]["mode"], status["mode"]["mode_epoch"]) == ("hybrid", 2)
    await switch(site, Mode.SYNCHRONOUS)
    assert await site.finished() == [ROUNDS] * 5
    chain = site.chain()
    expect_sound(chain, {"synchronous": 0, "asynchronous": 6, "hybrid": 6})
    modes = [record.mode for record in chain]
    visited = [mode for mode, following in pairwise([*modes, ""]) if mode != following]
    assert visited == ["synchronous", "asynchronous", "hybrid", "synchronous"]
    assert {record.mode_epoch for record in chain} == {0, 1, 2, 3}
    late = [each for record in chain for each in record.contributions if each.lag]
    assert late, "the slow worker's gradients counted although they were late"
    assert all(each.damping == (1 + each.lag) ** -0.5 for each in late)
    assert len({record.epoch for record in chain}) == 2
    expect_replayed(site)
    expect_learned(site)
