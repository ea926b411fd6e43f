"""When a worker says that it lives, in virtual time."""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from simulation.virtual_loop import VirtualLoop

from pliska.coordinator.client import CoordinatorClient, Endpoint, Membership
from pliska.coordinator.wire import ClientResponse, Reply, ReplyCode, TransportError
from pliska.coordinator.wire.tls import self_signed
from pliska.trainer.heartbeat import HEARTBEATS_PER_LEASE, keep_alive, poll_s

JOINED = Membership("secret", 6.0, 1)
SILENCE_S = JOINED.lease_s / HEARTBEATS_PER_LEASE
CERTIFICATE = self_signed(["127.0.0.1"], datetime.now(UTC)).certificate_pem


class Line:
    """Stands for the connections: answers each request, polls when their time is over."""

    def __init__(self, code: ReplyCode = ReplyCode.ACCEPTED) -> None:
        self.code = code
        self.is_cut = False
        self.begun: list[tuple[str, float]] = []

    async def request(self, _method: str, path: str, **_: Any) -> Any:
        loop = asyncio.get_running_loop()
        action = path.rpartition("/")[2].partition("?")[0]
        self.begun.append((action, loop.time()))
        if self.is_cut:
            raise TransportError("cut")
        if action == "gradients":
            await asyncio.sleep(3 * JOINED.lease_s)
        if action == "model":
            await asyncio.sleep(poll_s(JOINED))
            return ClientResponse(204, {}, b"")
        return ClientResponse(200, {}, Reply(code=self.code, reason="so").to_json())

    def times(self, action: str) -> list[float]:
        return [at for begun, at in self.begun if begun == action]


def client_on(line: Line) -> CoordinatorClient:
    client = CoordinatorClient(Endpoint("c1", "127.0.0.1", 1, CERTIFICATE, "key"), "toy")
    client._http = line  # type: ignore[assignment]
    return client


def in_virtual_time(coroutine: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.finish()


@contextlib.asynccontextmanager
async def kept_alive(client: CoordinatorClient) -> Any:
    beating = asyncio.create_task(keep_alive(client, JOINED))
    yield beating
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


def test_worker_that_polls_sends_no_heartbeat() -> None:
    line = Line()

    async def poll() -> None:
        client = client_on(line)
        async with kept_alive(client):
            for _ in range(20):
                await client.model(JOINED, 3, poll_s(JOINED), memoryview(b""))

    in_virtual_time(poll())
    assert len(line.times("model")) == 20
    assert not line.times("heartbeat")


def test_no_request_is_held_open_for_long_whatever_the_lease() -> None:
    assert poll_s(JOINED) == 1.5
    assert poll_s(Membership("secret", 3600.0, 1)) == 10.0


@pytest.mark.parametrize("is_sending", [False, True])
def test_worker_that_computes_or_sends_for_long_is_never_silent_for_longer(
    is_sending: bool,
) -> None:
    line = Line()

    async def work() -> None:
        client = client_on(line)
        await client.model(JOINED, 3, poll_s(JOINED), memoryview(b""))
        async with kept_alive(client):
            if is_sending:
                await client.push([b""])
            else:
                await asyncio.sleep(3 * JOINED.lease_s)

    in_virtual_time(work())
    times = [at for _, at in line.begun]
    assert len(line.times("heartbeat")) == pytest.approx(9, abs=1)
    assert max(b - a for a, b in pairwise(times)) < SILENCE_S + 0.1


@pytest.mark.parametrize("is_cut", [False, True])
def test_refused_or_lost_heartbeat_ends_it(is_cut: bool) -> None:
    line = Line(ReplyCode.NOT_MEMBER)
    line.is_cut = is_cut

    async def wait() -> None:
        async with kept_alive(client_on(line)) as beating:
            await asyncio.wait_for(beating, 2 * SILENCE_S)

    in_virtual_time(wait())
    assert len(line.times("heartbeat")) == 1
