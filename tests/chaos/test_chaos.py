"""Locks among faults: every history that randomised runs leave behind keeps the safety rules.

A run is drawn from its seed; `make chaos SEEDS=17` plays that plan again, and
`SEEDS=1-1000` a thousand. Without a choice a few seeds run, as a smoke test.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.checker import check
from chaos.history import Event
from chaos.run import run_processes, run_threads

from pliska.locks.turn import Enter
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

SMOKE_SEEDS = {"memory": (4, 5), "embedded": (1, 5), "zookeeper": (5,), "consul": (5,)}
LENGTH_S = 1.5

Run = Callable[[str, Path, int, float, float], list[Event]]


def seeds(store: str) -> "list[int] | range":
    chosen = os.environ.get("PLISKA_CHAOS_SEEDS", "")
    first, _, last = chosen.partition("-")
    return range(int(first), int(last or first) + 1) if chosen else list(SMOKE_SEEDS[store])


def hold(run: Run, address: str, path: Path, seed: int, lease_s: float) -> None:
    history = run(address, path, seed, lease_s, LENGTH_S)
    kinds = Counter(event["kind"] for event in history)
    violations = check(history)
    assert not violations, f"seed {seed} on {address}, history {path}: {violations}"
    assert kinds["granted"] >= 3, f"seed {seed} on {address}: hardly anything happened: {kinds}"


def test_a_lock_that_excludes_nobody_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.locks.mutex.exclusive", lambda _records, _position: Enter())
    seed = 4  # mutexes and writers
    history = run_threads(f"memory:{tmp_path}", tmp_path / "history", seed, 0.5, LENGTH_S)
    assert any("S2: locks/m: mutex" in violation for violation in check(history))


@pytest.mark.parametrize("seed", seeds("memory"))
def test_rules_hold_among_threads_in_memory(tmp_path: Path, seed: int) -> None:
    hold(run_threads, f"memory:{tmp_path}", tmp_path / "history", seed, 0.5)


@pytest.mark.parametrize("seed", seeds("embedded"))
def test_rules_hold_among_processes_on_the_embedded_store(tmp_path: Path, seed: int) -> None:
    hold(run_processes, f"embedded:{tmp_path / 'store'}", tmp_path / "history", seed, 0.7)


@pytest.mark.parametrize("seed", seeds("zookeeper"))
def test_rules_hold_among_processes_on_zookeeper(
    tmp_path: Path, zookeeper: ZookeeperServer, seed: int
) -> None:
    hold(run_processes, zookeeper.fresh_address(), tmp_path / "history", seed, 1.0)


@pytest.mark.parametrize("seed", seeds("consul"))
def test_rules_hold_among_processes_on_consul(
    tmp_path: Path, consul: ConsulServer, seed: int
) -> None:
    hold(run_processes, consul.fresh_address(), tmp_path / "history", seed, 1.0)
