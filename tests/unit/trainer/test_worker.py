"""A worker against real leaderships over TLS."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import ClassVar

import numpy as np
import pytest
from training.leadership import PATIENCE_S, Lead

from pliska.coordinator.client import (
    CoordinatorClient,
    JobDirectory,
    Leader,
    Membership,
    Newest,
    Version,
)
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import ProtocolError
from pliska.coordinator.replication.parameter_donor import ParameterDonor
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import (
    Buffer,
    Float32Codec,
    GradientHeader,
    Reply,
    ReplyCode,
    Signed,
    peek,
    seal,
)
from pliska.coordinator.wire.tls import self_signed
from pliska.locks import Election, Leadership, Session, StoreUnavailableError
from pliska.trainer import base_version
from pliska.trainer.donation import Donation, Door, donate
from pliska.trainer.errors import NoCoordinatorError, WorkerRefusedError
from pliska.trainer.gradient_source import HonestSource
from pliska.trainer.leader_view import LeaderView
from pliska.trainer.recovery import ParameterRecovery
from pliska.trainer.worker import Worker, WorkerOptions

LeadToy = Callable[..., Lead]


def worker_of(
    lead: Lead,
    name: str,
    directory: JobDirectory | None = None,
    timeout_s: float = PATIENCE_S,
    donation: Donation | None = None,
) -> Worker:
    computation = Computation(lead.job)
    return Worker(
        name=name,
        directory=directory or lead.directory,
        computation=computation,
        source=HonestSource(computation),
        signer=lead.signer(name),
        options=WorkerOptions(timeout_s),
        donation=donation,
    )


async def test_workers_train_a_job_to_its_end(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=4, workers=2, quorum=2)
    async with lead.serving(), lead.running() as running, asyncio.timeout(PATIENCE_S):
        workers = [worker_of(lead, name).run() for name in ("w1", "w2")]
        assert await asyncio.gather(*workers) == [4, 4]
        assert await running is Phase.FINISHED
        assert not lead.leading.members.present()
        replies = lead.leading.tally.totals()
    assert replies["ACCEPTED"] == 8
    assert set(replies) <= {"ACCEPTED", "BUSY"}


async def test_worker_that_joins_fetches_large_parameters_in_parts(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_version, "WHOLE_BYTES_MAX", 0)
    fetched: list[int] = []
    fetch = ParameterRecovery.fetch

    async def noted(self: ParameterRecovery, newest: Newest) -> None:
        await fetch(self, newest)
        fetched.append(newest.version.version)

    monkeypatch.setattr(ParameterRecovery, "fetch", noted)
    lead = lead_toy(count=3, workers=2, quorum=2)
    async with lead.serving(), lead.running() as running, asyncio.timeout(PATIENCE_S):
        workers = [worker_of(lead, name).run() for name in ("w1", "w2")]
        assert await asyncio.gather(*workers) == [3, 3]
        assert await running is Phase.FINISHED
    assert fetched[:2] == [0, 0]


async def test_worker_that_joins_recovers_from_another_worker_where_no_coordinator_gives(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pliska.trainer.recovery")
    lead = lead_toy(count=3, workers=2, quorum=2)

    async def nothing(_digest: bytes) -> None:
        return None

    monkeypatch.setattr(lead, "_parameters", nothing)
    holds = asyncio.Event()
    hold = ParameterDonor.hold

    def noted(self: ParameterDonor, digest: bytes, parameters: memoryview) -> None:
        hold(self, digest, parameters)
        holds.set()

    monkeypatch.setattr(ParameterDonor, "hold", noted)
    door, key = Door("127.0.0.1", "127.0.0.1"), lead.signer("w1").key_id
    async with lead.serving(), lead.running() as running, asyncio.timeout(PATIENCE_S):
        async with donate(door, "w1", key, lead.directory) as donation:
            giving = asyncio.create_task(worker_of(lead, "w1", donation=donation).run())
            await holds.wait()
            monkeypatch.setattr(base_version, "WHOLE_BYTES_MAX", 0)
            assert await worker_of(lead, "w2").run() == 3
            assert await giving == 3
        assert await running is Phase.FINISHED
    size = 4 * Computation(lead.job).dimension
    assert f"version=0 bytes=w1:{size} reason=recovered" in caplog.text


async def test_worker_leaves_a_coordinator_that_leads_in_another_epoch(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=2, workers=1, quorum=1, rule='name = "mean", f = 0')
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        newest = lead.directory.leader()
        assert newest is not None
        worker, later = worker_of(lead, "w1"), Leader(newest.epoch + 1, newest.endpoint)
        assert await worker._follow(later, LeaderView("toy")) is None


async def test_worker_gives_up_when_nobody_leads_for_too_long(lead_toy: LeadToy) -> None:
    lead = lead_toy()
    with pytest.raises(NoCoordinatorError, match=r"nobody has led job 'toy' for 0\.2 s"):
        await worker_of(lead, "w1", timeout_s=0.2).run()


async def test_worker_whose_key_is_revoked_is_told_so(lead_toy: LeadToy) -> None:
    lead = lead_toy()
    worker = worker_of(lead, "w1")
    lead.directory.keyring.revoke("w1", "stolen")
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        with pytest.raises(WorkerRefusedError, match="KEY_REVOKED"):
            await worker.run()


class Hiccup(JobDirectory):
    """A directory whose store does not answer the first time."""

    troubles: ClassVar[list[StoreUnavailableError]] = []

    def leader(self) -> Leader | None:
        if self.troubles:
            raise self.troubles.pop()
        return super().leader()


async def test_store_that_does_not_answer_for_a_moment_is_asked_again(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1, workers=1, quorum=1, rule='name = "mean"')
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        Hiccup.troubles.append(StoreUnavailableError("no answer"))
        directory = Hiccup(lead.directory.backend, "toy")
        assert await worker_of(lead, "w1", directory).run() == 1


async def test_worker_that_comes_when_all_is_over_learns_it_from_the_store(
    lead_toy: LeadToy,
) -> None:
    lead = lead_toy(count=1, workers=1, quorum=1, rule='name = "mean"')
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        assert await worker_of(lead, "w1").run() == 1
    lead.grant.resign()
    async with asyncio.timeout(PATIENCE_S):
        assert await worker_of(lead, "late").run() == 1


@contextlib.asynccontextmanager
async def hanging_leader(lead: Lead) -> AsyncIterator[Leadership]:
    """Lead in the election with an address that takes connections and never answers."""
    open_connections: list[asyncio.StreamWriter] = []

    async def swallow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_connections.append(writer)

    listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    certificate = self_signed(["127.0.0.1"], datetime.now(UTC)).certificate_pem
    endpoint = Endpoint("hangs", "127.0.0.1", port, certificate, lead.identity.key_id)
    session = Session.open(lead.directory.backend)
    leadership = Election(session, lead.directory.election, "hangs", endpoint.to_bytes()).campaign()
    try:
        yield leadership
    finally:
        session.close()
        listener.close()
        for writer in open_connections:
            writer.transport.abort()


async def test_worker_leaves_a_leader_that_hangs_once_another_one_leads(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1, workers=1, quorum=1, rule='name = "mean"')
    loop = asyncio.get_running_loop()
    async with hanging_leader(lead) as leadership, asyncio.timeout(PATIENCE_S):
        working = asyncio.create_task(worker_of(lead, "w1").run())
        await asyncio.sleep(0.1)
        leadership.resign()
        async with lead.serving(), lead.running():
            led = loop.time()
            assert await working == 1
            assert loop.time() - led < 5.0  # a request for a newer version is held open for 10 s


async def test_gradient_that_was_sent_to_a_leader_that_is_gone_counts_once(
    lead_toy: LeadToy,
) -> None:
    first = lead_toy(count=2, workers=2, quorum=2)
    async with first.serving(), first.running():
        working = asyncio.create_task(worker_of(first, "w1").run())
        await first.join("w2")
        await first.status(lambda now: now["workers"][0]["slot"] == "filled")
    first.grant.resign()
    second = lead_toy("c2", count=2, workers=2, quorum=2)
    second.signer("w2")
    async with second.serving(), second.running(), asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(working, worker_of(second, "w2").run()) == [2, 2]
        assert second.leading.tally.of_worker("w1")["ACCEPTED"] == 2


async def test_lost_goodbye_does_not_keep_a_worker_from_its_end(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_client: CoordinatorClient, _membership: Membership) -> Reply:
        raise ProtocolError("the answer was lost")

    monkeypatch.setattr(CoordinatorClient, "leave", lost)
    lead = lead_toy(count=1, workers=1, quorum=1, rule='name = "mean"')
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        assert await worker_of(lead, "w1").run() == 1


async def test_damaged_download_is_not_computed_on(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1, workers=1, quorum=1, rule='name = "mean"')
    async with lead.serving(), lead.running(), asyncio.timeout(PATIENCE_S):
        right = lead.leading.publisher.published
        damaged = type(right)(0, right.digest, right.parameters[:-1] + b"?", is_final=False)
        await lead.leading.publisher.publish(damaged)
        worker = worker_of(lead, "w1")
        before = worker._base._parameters.copy()
        working = asyncio.create_task(worker.run())
        await lead.status(lambda now: now["phase"] == "collecting")
        await asyncio.sleep(0.3)
        assert np.array_equal(worker._base._parameters, before)
        assert "ACCEPTED" not in lead.leading.tally.totals()
        await lead.leading.publisher.publish(right)
        assert await working == 1


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        (ReplyCode.ACCEPTED, True),
        (ReplyCode.STALE_ROUND, True),
        (ReplyCode.NONFINITE, True),
        (ReplyCode.WRONG_BASE, False),
    ],
)
async def test_whether_a_worker_waits_for_a_newer_version_after_each_reply(
    lead_toy: LeadToy, code: ReplyCode, waits: bool
) -> None:
    worker = worker_of(lead_toy(), "w1")
    assert worker._waits_after(Reply(code=code, reason="so", retry_after_s=0.7)) == waits


async def test_reply_that_will_not_change_ends_the_worker(lead_toy: LeadToy) -> None:
    worker = worker_of(lead_toy(), "w1")
    for code in (ReplyCode.OLD_INCARNATION, ReplyCode.KEY_REVOKED, ReplyCode.SCHEMA):
        with pytest.raises(WorkerRefusedError, match=code):
            worker._waits_after(Reply(code=code, reason="so"))


@pytest.mark.parametrize(
    ("mode", "buffers"), [("hybrid", 0), ("asynchronous", 0), ("asynchronous", 1)]
)
async def test_workers_train_a_job_to_its_end_in_every_mode(
    lead_toy: LeadToy, mode: str, buffers: int
) -> None:
    more = f'[mode]\nstart = "{mode}"\n[asynchronous]\nbuffers = {buffers}'
    times = {"soft_deadline_s": 0.3, "deadline_s": 3.0}
    rule = 'name = "trimmed-mean", f = 1'
    lead = lead_toy(count=12, workers=5, quorum=4, rule=rule, more=more, **times)
    async with lead.serving(), lead.running() as running, asyncio.timeout(PATIENCE_S):
        workers = [worker_of(lead, f"w{number}").run() for number in range(5)]
        assert await asyncio.gather(*workers) == [12] * 5
        assert await running is Phase.FINISHED


class Scripted:
    """A coordinator's client whose replies to gradients are written down."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.pushed: list[bytes] = []

    async def push(self, frame: Iterable[Buffer]) -> Reply:
        self.pushed.append(b"".join(bytes(piece) for piece in frame))
        return self.replies.pop(0)


async def delivered(lead: Lead, *replies: Reply) -> tuple[Reply, list[GradientHeader]]:
    """Deliver a gradient for version 0; return the last reply and the headers that were sent."""
    worker = worker_of(lead, "w1")
    worker._base._version = Version(
        version=0, epoch=1, mode_epoch=0, digest=bytes(32), is_final=False, lease=4
    )
    worker._lease = 4
    client = Scripted(*replies)
    membership = Membership("token", 1.0, 1)
    reply = await worker._deliver(client, membership)  # type: ignore[arg-type]
    headers = []
    for frame in client.pushed:
        length = int.from_bytes(frame[:4])
        headers.append(peek(Signed.from_bytes(frame[4 : 4 + length]), GradientHeader).claim)
    return reply, headers


async def test_gradient_is_signed_again_for_the_mode_that_the_reply_names(
    lead_toy: LeadToy,
) -> None:
    told = Reply(code=ReplyCode.STALE_MODE, mode="hybrid", mode_epoch=3)
    reply, headers = await delivered(lead_toy(), told, Reply(code=ReplyCode.ACCEPTED))
    assert reply.code is ReplyCode.ACCEPTED
    assert [header.mode_epoch for header in headers] == [0, 3]
    assert headers[0].payload_root == headers[1].payload_root
    assert headers[0].round == headers[1].round == 1
    assert headers[0].seq < headers[1].seq


async def test_another_batch_is_computed_for_the_lease_that_the_reply_names(
    lead_toy: LeadToy,
) -> None:
    told = Reply(code=ReplyCode.STALE_LEASE, lease=9)
    lead = lead_toy()
    reply, headers = await delivered(lead, told, Reply(code=ReplyCode.ACCEPTED))
    assert reply.code is ReplyCode.ACCEPTED
    assert [header.lease for header in headers] == [4, 9]
    computation = Computation(lead.job)
    for header in headers:
        right = seal(Float32Codec(), computation.gradient(header.lease).numpy())
        assert header.payload_root == right.root


async def test_worker_whose_lease_is_gone_asks_for_another_one(lead_toy: LeadToy) -> None:
    told = Reply(code=ReplyCode.STALE_LEASE, reason="none is leased to it yet")
    reply, headers = await delivered(lead_toy(), told)
    assert reply == told
    assert len(headers) == 1
    worker = worker_of(lead_toy(), "w2")
    worker._lease = 4
    assert worker._waits_after(told) == 0.0
    assert worker._lease is None


async def test_gradient_is_kept_and_sent_again_while_the_leader_is_busy(lead_toy: LeadToy) -> None:
    busy = Reply(code=ReplyCode.BUSY, reason="others come first", retry_after_s=0.01)
    reply, headers = await delivered(lead_toy(), busy, busy, Reply(code=ReplyCode.ACCEPTED))
    assert reply.code is ReplyCode.ACCEPTED
    assert len({header.payload_root for header in headers}) == 1
    assert len(headers) == 3
