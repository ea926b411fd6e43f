"""Promotions and rollbacks from four processes, with kill -9 among them and those that serve.

Seconds in `make test`, minutes in `make chaos`: PLISKA_REGISTRY_CHAOS_S is how long on
each store, the first of PLISKA_CHAOS_SEEDS draws who is killed when.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from registry_chaos.check import check
from registry_chaos.run import run

from services.consul import ConsulServer
from services.seeds import seeds
from services.zookeeper import ZookeeperServer

LENGTH_S = float(os.environ.get("PLISKA_REGISTRY_CHAOS_S", "6"))
SEED = seeds("PLISKA_CHAOS_SEEDS", range(1, 2)).start


def hold(address: str, folder: Path, lease_s: float) -> None:
    left = run(address, folder, SEED, LENGTH_S, lease_s)
    outcomes = Counter(event["outcome"] for event in left.events if event["kind"] == "told")
    print(f"{len(left.history)} moves, {left.kills} kills, {dict(outcomes)}")  # noqa: T201
    violations = check(left)
    assert not violations, f"seed {SEED} on {address}, {folder}: {violations[:20]}"
    assert outcomes["moved"] >= 1, f"seed {SEED} on {address}: hardly anything happened"


@pytest.mark.timeout(LENGTH_S + 300)
def test_the_rules_hold_on_the_embedded_store(tmp_path: Path) -> None:
    hold(f"embedded:{tmp_path / 'store'}", tmp_path, lease_s=2.0)


@pytest.mark.timeout(LENGTH_S + 300)
def test_the_rules_hold_on_zookeeper(tmp_path: Path, zookeeper: ZookeeperServer) -> None:
    hold(zookeeper.fresh_address(), tmp_path, lease_s=2.0)


@pytest.mark.timeout(LENGTH_S + 300)
def test_the_rules_hold_on_consul(tmp_path: Path, consul: ConsulServer) -> None:
    hold(consul.fresh_address(), tmp_path, lease_s=2.0)
