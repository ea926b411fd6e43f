"""How long a job stands still when its leader is killed.

Two coordinators are processes of their own (copies of one that has loaded
torch, so that whoever was killed is soon back), the workers are tasks of this
one. The leader gets SIGKILL; what counts is the time until the next version
stands in the store. The standby follows, as it does in a job that runs.
"""

import asyncio
import tempfile
import time
from math import ceil
from pathlib import Path

from report import Figure, figure
from training.ready_processes import ReadyProcesses
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.records.tip import Tip
from services import zookeeper as zookeeper_service
from services.zygote import PLISKA, Zygote

KILLS = 50
SESSION_TIMEOUT_S = 2.0
GRACE_S = 1.0
"""A new leader may take so much longer than the session of the old one lasts."""
SHARE = 0.99


def figures(_repeats: int) -> list[Figure]:
    """Kill the leader fifty times on each store, however many samples the other parts take."""
    zygote = Zygote()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = _on("embedded store", Path(folder), f"embedded:{folder}/store", zygote)
        with tempfile.TemporaryDirectory() as folder:
            server_folder = Path(folder) / "server"
            server_folder.mkdir()
            server = zookeeper_service.start_one(server_folder, zookeeper_service.classpath())
            try:
                found += _on("ZooKeeper", Path(folder), server.fresh_address(), zygote)
            finally:
                server.process.kill()
        return found
    finally:
        zygote.end()


def _on(store: str, folder: Path, address: str, zygote: Zygote) -> list[Figure]:
    waits = asyncio.run(_kill(folder, address, zygote))
    high = sorted(waits)[ceil(SHARE * len(waits)) - 1]
    goal_s = SESSION_TIMEOUT_S + GRACE_S
    name = f"leader killed {KILLS} times, {store}: until the next version"
    return [
        figure(f"{name}, median", waits, "s"),
        figure(
            f"{name}, 99th percentile, session timeout {SESSION_TIMEOUT_S:g} s",
            [high],
            "s",
            f"at most {goal_s:g}",
            lambda value: value <= goal_s,
        ),
    ]


async def _kill(folder: Path, address: str, zygote: Zygote) -> list[float]:
    async with ReadyProcesses(zygote, PLISKA, folder / "logs") as processes:
        site = Site(folder, address, processes, processes)
        site.define(toy_job(count=1_000_000, workers=3))
        for worker in ("w1", "w2", "w3"):
            site.slow_worker(worker, 0.02)
        for name in ("c1", "c2"):
            await site.coordinator(name, session_timeout_s=SESSION_TIMEOUT_S)
        try:
            await site.committed(1)
            return [await _wait(site, f"c{number}") for number in range(3, KILLS + 3)]
        finally:
            for task in site.tasks:
                task.cancel()
            await asyncio.gather(*site.tasks, return_exceptions=True)


async def _wait(site: Site, next_name: str) -> float:
    """Kill whoever leads, and start another one; return how long the job stood still."""
    running = [name for name, child in site.children.items() if child.is_running]
    leader = await site.leads(*running)
    await site.stands_by(*(name for name in running if name != leader))
    killed_at = time.monotonic()
    await site.processes.kill(site.children[leader])
    record = site.directory.commit()
    assert record is not None
    version = Tip.claimed(record.value).version
    wait_s = await site.committed(version + 1) - killed_at
    await site.coordinator(next_name, session_timeout_s=SESSION_TIMEOUT_S)
    return wait_s
