"""Typed calls against a server whose answers the test writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest
from training.leadership import Lead

from pliska.coordinator import client, routes
from pliska.coordinator.client import (
    CoordinatorClient,
    Membership,
    NothingNewer,
    Version,
    job_snapshot,
)
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import ProtocolError
from pliska.coordinator.wire import Handler, Reply, ReplyCode, Request, Response
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.tls import self_signed, server_context
from pliska.locks import Election, Session, connect

GRADIENT = bytes(1 << 20)
MEMBERSHIP = Membership("secret", 1.0, 3)
MODEL = {
    routes.VERSION: "4",
    routes.EPOCH: "3",
    routes.MODE_EPOCH: "5",
    routes.FINAL: "no",
    "etag": '"' + "ab" * 32 + '"',
}


@contextlib.asynccontextmanager
async def answering(response: Response) -> AsyncIterator[CoordinatorClient]:
    """Give a client of a server that answers every request in one way."""

    async def handle(_request: Request) -> Response:
        return response

    async with served(handle) as caller:
        yield caller


@contextlib.asynccontextmanager
async def served(handle: Handler) -> AsyncIterator[CoordinatorClient]:
    """Give a client of a server with this handler."""
    certificate = self_signed(["127.0.0.1"], datetime.now(UTC))
    server = HttpServer(handle, server_context(certificate))
    await server.start()
    endpoint = Endpoint("c1", "127.0.0.1", server.port, certificate.certificate_pem, "ed25519:key")
    try:
        async with CoordinatorClient(endpoint, "toy") as caller:
            yield caller
    finally:
        await server.close()


async def download(response: Response) -> Version | NothingNewer | Reply:
    async with answering(response) as client:
        return await client.model(MEMBERSHIP, 3, 0.0, memoryview(bytearray(8)))


async def test_downloaded_version_is_described_by_its_headers() -> None:
    leased = {**MODEL, routes.DATA_LEASE: "9"}
    version = await download(Response(200, leased, b"12345678"))
    assert version == Version(
        version=4, epoch=3, mode_epoch=5, digest=b"\xab" * 32, is_final=False, lease=9
    )


async def test_version_of_a_worker_that_has_to_wait_for_its_lease_has_none() -> None:
    version = await download(Response(200, MODEL, b"12345678"))
    assert isinstance(version, Version)
    assert version.lease is None


async def test_no_newer_version_may_come_with_a_lease_and_a_refusal_is_its_reply() -> None:
    assert await download(Response(204)) == NothingNewer(None)
    assert await download(Response(204, {routes.DATA_LEASE: "0"})) == NothingNewer(0)
    refusal = await download(Response.of_reply(Reply(code=ReplyCode.NOT_MEMBER, reason="who?")))
    assert isinstance(refusal, Reply)
    assert refusal.code is ReplyCode.NOT_MEMBER


@pytest.mark.parametrize(
    "wrong",
    [
        {routes.VERSION: "four"},
        {routes.EPOCH: ""},
        {"etag": '"xyz"'},
        {routes.DATA_LEASE: "first"},
        {routes.DATA_LEASE: "-1"},
        {routes.DATA_LEASE: str(2**64)},
    ],
)
async def test_headers_that_make_no_sense_are_a_protocol_error(wrong: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        await download(Response(200, {**MODEL, **wrong}, b"12345678"))


async def test_missing_header_and_short_model_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="lacks the header"):
        await download(Response(200, {}, b"12345678"))
    with pytest.raises(ProtocolError, match="4 bytes of parameters, expected 8"):
        await download(Response(200, MODEL, b"1234"))


@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b"{}", b"[1]", b"\xff"])
async def test_answer_that_is_no_reply_is_a_protocol_error(
    body: bytes, lead_toy: Callable[..., Lead]
) -> None:
    signer = lead_toy().signer("w1")
    async with answering(Response(502, {}, body)) as client:
        for call in (
            client.heartbeat(MEMBERSHIP),
            client.leave(MEMBERSHIP),
            client.push([b"frame"]),
            client.join("w1", bytes(16), signer, bytes(32)),
        ):
            with pytest.raises(ProtocolError):
                await call


async def test_gradient_that_the_leader_is_slow_to_read_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PUSH_TIMEOUT_S", 0.2)

    async def handle(request: Request) -> Response:
        await asyncio.sleep(1.0)  # all of it waits in the systems' memory
        await request.body.read(2 * len(GRADIENT))
        return Response.of_reply(Reply(code=ReplyCode.ACCEPTED, reason=""))

    async with served(handle) as caller:
        reply = await caller.push([b"header", GRADIENT])
    assert reply.code is ReplyCode.ACCEPTED


async def test_list_of_members_and_status_are_checked() -> None:
    async with answering(Response(200, {}, b'{"workers": {"w1": 5, "w2": null}}')) as client:
        assert await client.members(MEMBERSHIP) == {"w1": 5, "w2": None}
        assert await client.status() == {"workers": {"w1": 5, "w2": None}}
    for wrong in (b'{"workers": 3}', b'{"workers": {"w1": "5"}}', b'{"workers": {"w1": true}}'):
        async with answering(Response(200, {}, wrong)) as client:
            with pytest.raises(ProtocolError):
                await client.members(MEMBERSHIP)
    async with answering(Response(200, {}, b"[]")) as client:
        with pytest.raises(ProtocolError):
            await client.status()


def test_token_does_not_show_in_the_representation() -> None:
    assert "secret" not in repr(MEMBERSHIP)


async def test_snapshot_of_a_job_whose_leader_does_not_answer_says_why() -> None:
    backend = connect("memory:")
    directory = JobDirectory(backend, "toy")
    assert await job_snapshot(directory) == {
        "job": "toy", "leader": None, "standbys": [], "version": 0,
        "waiting": [],
    }  # fmt: skip
    certificate = self_signed(["127.0.0.1"], datetime.now(UTC)).certificate_pem
    gone = Endpoint("c1", "127.0.0.1", 1, certificate, "ed25519:key")
    with Session.open(backend) as session:
        Election(session, directory.election, "c1", gone.to_bytes()).campaign()
        snapshot = await job_snapshot(directory)
    assert snapshot["leader"] == "c1"
    assert "cannot connect to 127.0.0.1:1" in snapshot["problem"]
