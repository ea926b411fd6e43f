"""Coordinators and workers among faults: each run of a seed keeps what the protocol promises.

A run is drawn from its seed and can be played again: `make sim SEED=17`.
"""

from dataclasses import replace

import pytest
from simulation.checks import violations
from simulation.faults import trouble
from simulation.playing import play_in
from simulation.scenario import Scenario, draw_scenario, small_job
from simulation.shared_disk import SharedDisk
from simulation.world import Run, World

from pliska.coordinator.records.commit import Commit
from services.seeds import seeds

SMOKE_SEEDS = range(1, 101)
PLAIN = Scenario(small_job())


def play(seed: int, scenario: Scenario) -> Run:
    """Run a seed to its end."""
    return play_in(lambda: World(scenario, seed), trouble)


@pytest.mark.parametrize("seed", seeds("PLISKA_SIMULATION_SEEDS", SMOKE_SEEDS))
def test_whatever_happens_no_round_is_lost_stolen_or_repeated(seed: int) -> None:
    scenario = draw_scenario(seed)
    run = play(seed, scenario)
    wrong = violations(run)
    assert not wrong, f"seed {seed}, {scenario}: {wrong}; deaths at writes: {run.deaths}"


def test_a_job_is_rolled_back_among_faults() -> None:
    run = play(5, replace(PLAIN, target=4))
    assert not violations(run)
    records = [Commit.unverified(value).record for value in run.committed]
    assert [each.target for each in records[-1].undone] == [4]


def test_a_seed_plays_the_same_run_again() -> None:
    first, again = play(4, PLAIN), play(4, PLAIN)
    assert (again.steps, again.deaths) == (first.steps, first.deaths)
    assert (again.committed, again.shown) == (first.committed, first.shown)


def test_the_checks_find_what_is_wrong() -> None:
    run = play(2, PLAIN)
    assert not violations(run)
    run.shown.append((3, "00" * 32))
    assert any("handed out" in each for each in violations(run))
    run.committed.append(run.committed[-1])
    assert any("chain breaks" in each for each in violations(run))
    assert any("is read 2 times in pass" in each for each in violations(run))
    run.committed.pop()
    lost = run.committed.pop(3)
    assert any("is read 0 times in pass" in each for each in violations(run))
    run.committed.insert(3, lost)
    for disk in run.disks.values():
        disk.objects.clear()
    assert any("do not lead" in each for each in violations(run))


def test_the_checks_find_what_was_taken_from_a_shared_storage() -> None:
    run = play(2, Scenario(small_job("[durable]\nkeep_rounds = 2\n"), shares_storage=True))
    assert not violations(run)
    assert run.horizon > 0
    disk = run.disks["c1"]
    assert isinstance(disk, SharedDisk)
    checkpoint, entry, record = (
        next(name for name in sorted(disk.objects) if part in name)
        for part in (f"/checkpoints/{run.horizon:012d}", "/log/", "/records/")
    )
    disk.store(entry, b"something else")
    assert f"{entry} was changed" in violations(run)
    disk.remove(entry)
    assert any(f"without {entry} versions" in each for each in violations(run))
    assert any("at the end versions" in each for each in violations(run))
    disk.remove(record)
    assert f"{record} was removed" in violations(run)
    disk.losses.clear()
    disk.store(entry, b"something else")
    for name in [name for name in disk.objects if name.startswith(checkpoint.rpartition("/")[0])]:
        disk.remove(name)
    assert any("do not follow from version 0" in each for each in violations(run))
