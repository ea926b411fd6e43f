"""The life of a coordinator process, run within the test's."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training.leadership import PATIENCE_S, Lead
from training.toy_job import toy_job

from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.coordinator.daemon import CoordinatorOptions, Daemon
from pliska.coordinator.errors import JobConflictError
from pliska.coordinator.wire.errors import JobFileError, ListenError
from pliska.coordinator.wire.job import parse_job


@pytest.fixture
def options(tmp_path: Path) -> CoordinatorOptions:
    return CoordinatorOptions(
        name="c1",
        store=f"embedded:{tmp_path / 'store'}",
        storage=str(tmp_path / "storage"),
        key=tmp_path / "coordinator.pem",
    )


async def snapshot(options: CoordinatorOptions) -> dict[str, Any]:
    directory = JobDirectory.at(options.store, "toy")
    try:
        return await job_snapshot(directory)
    finally:
        directory.backend.close()


async def test_it_leads_until_it_is_told_to_stop_and_resigns(options: CoordinatorOptions) -> None:
    daemon = Daemon(toy_job(), options)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(daemon.run())
        while daemon.status()["role"] != "leader":  # noqa: ASYNC110 - nothing to wait on
            await asyncio.sleep(0.01)
        seen = await snapshot(options)
        assert (seen["leader"], seen["role"], seen["version"]) == ("c1", "leader", 0)
        daemon.stop()
        assert await running is None
    assert daemon.status() == {"coordinator": "c1", "job": "toy", "role": "standby"}
    after = await snapshot(options)
    assert (after["leader"], after["standbys"]) == (None, [])


async def test_stop_ends_the_wait_of_a_standby(options: CoordinatorOptions) -> None:
    daemon = Daemon(toy_job(), options)
    daemon.stop()
    async with asyncio.timeout(PATIENCE_S):
        assert await daemon.run() is None


@contextlib.asynccontextmanager
async def running(*daemons: Daemon) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(daemon.run()) for daemon in daemons]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
    finally:
        for daemon in daemons:
            daemon.stop()
        await asyncio.gather(*tasks)


async def comes_to(daemon: Daemon, **wanted: object) -> None:
    """Wait until a coordinator's status is as wanted."""
    while not wanted.items() <= daemon.status().items():  # noqa: ASYNC110 - nothing to wait on
        await asyncio.sleep(0.01)


async def test_one_that_lacks_the_committed_state_does_not_lead_until_somebody_gives_it(
    options: CoordinatorOptions, tmp_path: Path, lead_toy: Callable[..., Lead]
) -> None:
    # One round was committed by a coordinator that is gone; its storage is elsewhere.
    lead = lead_toy(workers=1, quorum=1, rule='name = "mean", f = 0')
    options = replace(options, store=f"memory:{tmp_path}")
    lead.begin()
    async with lead.running():
        await lead.join("w1")
        await lead.push("w1")
        await lead.committed(1)
    assert lead.grant.resign()
    daemon = Daemon(lead.job, replace(options, storage=str(tmp_path / "empty")))
    second = Daemon(lead.job, replace(options, name="c2", storage=str(lead.storage._root), port=0))
    async with running(daemon):
        while "cannot_lead" not in daemon.status():  # noqa: ASYNC110 - nothing to wait on
            await asyncio.sleep(0.01)
        assert "the log entry of version 1 is missing" in daemon.status()["cannot_lead"]
        told = await snapshot(options)
        assert "version 1 is missing" in told["cannot_lead"]
        async with running(second):
            await comes_to(second, role="leader")
            await comes_to(daemon, version=1)
            await comes_to(second, version=1)


async def test_taken_port_is_one_error_with_what_to_do(options: CoordinatorOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port}.*name another address or port"):
            await Daemon(toy_job(), replace(options, port=port)).run()


async def test_other_job_of_the_same_name_is_refused(options: CoordinatorOptions) -> None:
    directory = JobDirectory.at(options.store, "toy")
    directory.publish(toy_job(count=99))
    directory.backend.close()
    with pytest.raises(JobConflictError):
        await Daemon(toy_job(), options).run()


async def test_job_that_cannot_run_is_refused_before_anything_is_opened(
    options: CoordinatorOptions,
) -> None:
    text = toy_job().text.replace("training.toy_job:model", "training.toy_job:nothing")
    with pytest.raises(JobFileError, match="has no 'nothing'"):
        await Daemon(parse_job(text, "toy.toml"), options).run()
    assert os.listdir(options.key.parent) == []  # noqa: PTH208 - nothing else runs here
