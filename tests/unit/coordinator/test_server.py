"""From requests to answers, at a standby and at a leader."""

import asyncio
import json
from collections.abc import Callable

import pytest
from training.leadership import PATIENCE_S, ArrivingBody, Lead

from pliska.coordinator import routes
from pliska.coordinator.server import Server
from pliska.coordinator.wire import Reply, ReplyCode, Request, Response, TooLargeError


@pytest.fixture
def lead(lead_toy: Callable[..., Lead]) -> Lead:
    lead = lead_toy(quorum=2)
    lead.begin()
    return lead


@pytest.fixture
def server(lead: Lead) -> Server:
    server = Server(lambda: {"role": "leader"})
    server.lead(lead.leading)
    return server


async def ask(
    server: Server,
    method: str,
    action: str,
    body: bytes = b"",
    token: str = "",
    query: dict[str, str] | None = None,
) -> Response:
    path = action if action.startswith("/") else routes.job_path("toy", action)
    headers = {routes.TOKEN: token}
    request = Request(method, path, query or {}, headers, ArrivingBody(body), "1.2.3.4")
    return await server.handle(request)


def code(response: Response) -> ReplyCode:
    assert response.body is not None
    return Reply.from_json(bytes(response.body)).code


async def joined(server: Server, lead: Lead, worker: str) -> str:
    response = await ask(server, "POST", "hello", lead.hello(worker))
    assert code(response) is ReplyCode.ACCEPTED
    assert response.headers[routes.LEASE_S] == "60.0"
    return response.headers[routes.TOKEN]


async def test_standby_sends_everybody_to_look_for_the_leader() -> None:
    server = Server(lambda: {"role": "standby"})
    for method, action in [("POST", "hello"), ("POST", "gradients"), ("GET", "model")]:
        assert code(await ask(server, method, action)) is ReplyCode.STALE_EPOCH
    status = await ask(server, "GET", routes.STATUS)
    assert status.body is not None
    assert json.loads(bytes(status.body)) == {"role": "standby"}


async def test_leader_of_another_job_is_not_the_leader_of_this_one(server: Server) -> None:
    response = await ask(server, "POST", routes.job_path("other", "challenge"))
    assert code(response) is ReplyCode.STALE_EPOCH


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v1/jobs/toy"),
        ("GET", "/v1/jobs/toy/model/extra"),
        ("POST", "/v1/jobs/toy/train"),
        ("GET", "/v1/jobs/toy/gradients"),
        ("POST", routes.STATUS),
        ("DELETE", "/v1/jobs/toy/model"),
        ("GET", "/v2/jobs/toy/model"),
    ],
)
async def test_what_is_not_there_is_not_found_and_counted(
    server: Server, lead: Lead, method: str, path: str
) -> None:
    response = await ask(server, method, path)
    assert response.status == 404
    assert code(response) is ReplyCode.SCHEMA
    assert lead.leading.tally.totals() == {"SCHEMA": 1}


async def test_challenge_and_hello_give_a_token_that_opens_the_rest(
    server: Server, lead: Lead
) -> None:
    challenge = await ask(server, "POST", "challenge")
    nonce = bytes.fromhex(challenge.headers[routes.NONCE])
    response = await ask(server, "POST", "hello", lead.hello("w1", nonce=nonce))
    token = response.headers[routes.TOKEN]
    assert code(await ask(server, "POST", "heartbeat", token=token)) is ReplyCode.ACCEPTED
    members = await ask(server, "GET", "members", token=token)
    assert members.body is not None
    assert json.loads(bytes(members.body)) == {"workers": {"w1": None}}
    assert code(await ask(server, "POST", "leave", token=token)) is ReplyCode.ACCEPTED
    assert code(await ask(server, "POST", "heartbeat", token=token)) is ReplyCode.NOT_MEMBER
    assert not lead.leading.members.present()


@pytest.mark.parametrize(
    ("method", "action"),
    [("POST", "heartbeat"), ("POST", "leave"), ("GET", "members"), ("GET", "model")],
)
async def test_without_a_token_nothing_opens_and_it_is_counted(
    server: Server, lead: Lead, method: str, action: str
) -> None:
    for token in ("", "0" * 64):
        assert code(await ask(server, method, action, token=token)) is ReplyCode.NOT_MEMBER
    assert lead.leading.tally.totals() == {"NOT_MEMBER": 2}


async def test_model_comes_with_its_digest_and_only_when_it_is_newer(
    server: Server, lead: Lead
) -> None:
    token = await joined(server, lead, "w1")
    response = await ask(server, "GET", "model", token=token, query={routes.AFTER: "-1"})
    published = lead.leading.publisher.published
    assert response.status == 200
    assert response.body == published.parameters
    assert response.headers["etag"] == f'"{published.digest.hex()}"'
    assert response.headers[routes.VERSION] == "0"
    assert response.headers[routes.FINAL] == "no"
    assert (await ask(server, "GET", "model", token=token, query={routes.AFTER: "0"})).status == 204


async def test_lease_comes_with_the_version_once_the_round_is_open(
    server: Server, lead: Lead
) -> None:
    token = await joined(server, lead, "w1")
    query = {routes.AFTER: "-1"}
    alone = await ask(server, "GET", "model", token=token, query=query)
    assert routes.DATA_LEASE not in alone.headers
    await lead.join("w2", "w3")
    for action in ("model", "newest"):
        leased = await ask(server, "GET", action, token=token, query=query)
        assert leased.headers[routes.DATA_LEASE] == str(lead.lease("w1"))
    members = await ask(server, "GET", "members", token=token)
    assert members.body is not None
    leases = {worker: lead.lease(worker) for worker in ("w1", "w2", "w3")}
    assert json.loads(bytes(members.body)) == {"workers": leases}


async def test_worker_without_a_lease_waits_until_its_round_opens(
    server: Server, lead: Lead
) -> None:
    token = await joined(server, lead, "w1")
    query = {routes.AFTER: "0", routes.WAIT_S: "20"}
    async with lead.running(), asyncio.timeout(PATIENCE_S / 2):
        wanted = {**query, routes.LEASE: routes.WANTED}
        waiting = asyncio.create_task(ask(server, "GET", "model", token=token, query=wanted))
        others = asyncio.create_task(ask(server, "GET", "model", token=token, query=query))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await lead.join("w2", "w3")
        answer = await waiting
        assert not others.done()  # who has its lease waits for a version
        others.cancel()
    assert answer.status == 204
    assert answer.headers[routes.DATA_LEASE] == str(lead.lease("w1"))


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "abc", "", "-5"])
async def test_numbers_that_are_none_do_no_harm(server: Server, lead: Lead, number: str) -> None:
    token = await joined(server, lead, "w1")
    query = {routes.AFTER: number, routes.WAIT_S: number}
    async with asyncio.timeout(PATIENCE_S):
        response = await ask(server, "GET", "model", token=token, query=query)
    assert response.status in (200, 204)


async def test_waiting_request_is_answered_by_the_next_version(server: Server, lead: Lead) -> None:
    token = await joined(server, lead, "w1")
    await joined(server, lead, "w2")
    await lead.join("w3")
    query = {routes.AFTER: "0", routes.WAIT_S: "20"}
    waiting = asyncio.create_task(ask(server, "GET", "model", token=token, query=query))
    async with lead.running():
        for worker in ("w1", "w2", "w3"):
            response = await ask(server, "POST", "gradients", lead.frame(worker))
            assert code(response) is ReplyCode.ACCEPTED
        response = await waiting
    assert response.headers[routes.VERSION] == "1"


async def test_request_that_waits_when_the_leadership_ends_is_sent_to_the_next_leader(
    server: Server, lead: Lead
) -> None:
    token = await joined(server, lead, "w1")
    async with lead.running():
        query = {routes.AFTER: "0", routes.WAIT_S: "20"}
        waiting = asyncio.create_task(ask(server, "GET", "model", token=token, query=query))
        await asyncio.sleep(0)
        server.lead(None)
    async with asyncio.timeout(PATIENCE_S):
        assert code(await waiting) is ReplyCode.STALE_EPOCH


async def test_oversized_hello_is_refused_before_it_is_read(server: Server) -> None:
    body = bytes(routes.HELLO_BYTES_MAX + 1)
    with pytest.raises(TooLargeError):  # the transport makes a reply of it
        await ask(server, "POST", "hello", body)
