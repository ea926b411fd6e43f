"""Locks among faults: every history that randomised runs leave behind keeps the safety rules.

A run is drawn from its seed; `make chaos SEED=17` plays that plan again, and
`SEEDS=1000` a thousand, several at once. Without a choice a few seeds run, as
a smoke test.
"""

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from chaos.checker import check
from chaos.run import perform_together
from chaos.schedule import (
    AMONG_PROCESSES,
    AMONG_THREADS,
    ON_A_SERVER,
    ON_SERVERS,
    Shape,
    plan,
)
from chaos.servers import Servers

from pliska.locks.turn import Enter
from services.consul import ConsulServer
from services.seeds import seeds
from services.zookeeper import ZookeeperServer, fresh_address

SMOKE_SEEDS = range(1, 5)
RUNS_AT_ONCE = int(os.environ.get("PLISKA_CHAOS_AT_ONCE", "4"))

THREADS = Shape(actors=4, threads=2, lease_s=0.3, faults=AMONG_THREADS)
PROCESSES = Shape(actors=3, threads=2, lease_s=0.4, faults=AMONG_PROCESSES)
SERVED = Shape(actors=3, threads=2, lease_s=0.8, faults=ON_A_SERVER)
REPLICATED = Shape(actors=3, threads=2, lease_s=1.0, faults=ON_SERVERS)

PACES = (1, 2, 4)
GRANTS_A_RUN_MIN = 3

BATCH_TIMEOUT_S = 900
"""For a machine that does other things as well."""

Place = Callable[[], Sequence[str]]

pytestmark = pytest.mark.timeout(BATCH_TIMEOUT_S)


def batches() -> list[range]:
    """The seeds that run at once."""
    chosen = seeds("PLISKA_CHAOS_SEEDS", SMOKE_SEEDS)
    return [chosen[begin : begin + RUNS_AT_ONCE] for begin in range(0, len(chosen), RUNS_AT_ONCE)]


def name_of(batch: range) -> str:
    return f"{batch[0]}-{batch[-1]}"


together = pytest.mark.parametrize("batch", batches(), ids=name_of)


def hold(batch: range, shape: Shape, place: Place, servers: Servers, directory: Path) -> None:
    """Play the plans of some seeds at once, and hold their histories against the rules.

    On a machine so busy that leases run out before anything happens, once more with longer ones.
    """
    for pace in PACES:
        paced = replace(shape, lease_s=shape.lease_s * pace)
        plans = [plan(seed, paced) for seed in batch]
        own = directory / f"pace-{pace}"
        own.mkdir()
        histories = perform_together(plans, place, servers, own)
        violations = {seed: check(history) for seed, history in histories.items()}
        found = {seed: each for seed, each in violations.items() if each}
        assert not found, f"seeds {name_of(batch)}, leases * {pace}, histories in {own}: {found}"
        shutil.rmtree(own)  # a thousand runs leave much to keep
        events = [event["kind"] for history in histories.values() for event in history]
        if events.count("granted") >= GRANTS_A_RUN_MIN * len(batch):
            return
    pytest.fail(f"seeds {name_of(batch)}: hardly anything happens: {Counter(events)}")


def test_a_lock_that_excludes_nobody_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.locks.mutex.exclusive", lambda _records, _position: Enter())
    plans = [plan(seed, THREADS) for seed in range(1, 7)]
    histories = perform_together(plans, lambda: [f"memory:{tmp_path}"], Servers([]), tmp_path)
    violations = [each for history in histories.values() for each in check(history)]
    assert any("S2: locks/m: mutex" in each for each in violations)


@together
def test_rules_hold_among_threads_in_memory(tmp_path: Path, batch: range) -> None:
    hold(batch, THREADS, lambda: [f"memory:{uuid.uuid4()}"], Servers([]), tmp_path)


@together
def test_rules_hold_among_processes_on_the_embedded_store(tmp_path: Path, batch: range) -> None:
    stores = tmp_path / "stores"
    hold(
        batch, PROCESSES, lambda: [f"embedded:{stores / str(uuid.uuid4())}"], Servers([]), tmp_path
    )
    shutil.rmtree(stores)


@together
def test_rules_hold_among_processes_on_zookeeper(
    tmp_path: Path, own_zookeeper: ZookeeperServer, batch: range
) -> None:
    hold(batch, SERVED, lambda: [own_zookeeper.fresh_address()], serving([own_zookeeper]), tmp_path)


@together
def test_rules_hold_among_processes_on_consul(
    tmp_path: Path, own_consul: ConsulServer, batch: range
) -> None:
    hold(batch, SERVED, lambda: [own_consul.fresh_address()], serving([own_consul]), tmp_path)


@together
def test_rules_hold_while_members_of_an_ensemble_come_and_go(
    tmp_path: Path, own_zookeeper_ensemble: Sequence[ZookeeperServer], batch: range
) -> None:
    servers = own_zookeeper_ensemble
    hold(batch, REPLICATED, lambda: [fresh_address(servers)], serving(servers), tmp_path)


@together
def test_rules_hold_while_servers_of_consul_come_and_go(
    tmp_path: Path, consul_servers: Sequence[ConsulServer], batch: range
) -> None:
    def addresses() -> Sequence[str]:
        path = consul_servers[0].fresh_address().partition(consul_servers[0].host_port)[2]
        return [f"consul://{server.host_port}{path}" for server in consul_servers]

    hold(batch, REPLICATED, addresses, serving(consul_servers), tmp_path)


def serving(servers: Sequence[ZookeeperServer | ConsulServer]) -> Servers:
    return Servers([server.process for server in servers if server.process is not None])
