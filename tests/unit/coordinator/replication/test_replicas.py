"""A leader's standbys over real sockets: who gets what, and what a commit waits for."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from training.leadership import PATIENCE_S
from training.replication_scene import Scene

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import NotReplicatedError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.backlog import RECENT_MAX
from pliska.coordinator.replication.donor import Donor
from pliska.coordinator.replication.probe import leave_mark
from pliska.coordinator.replication.replicas import LAST_WAIT_S, Replicas
from pliska.coordinator.replication.replication import PATIENCE_S as AUTO_PATIENCE_S
from pliska.coordinator.replication.replication import Wanted
from pliska.coordinator.replication.standby import Standby
from pliska.coordinator.server import Server
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.visitors import Visitors
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.tls import self_signed, server_context
from pliska.discovery import Role
from pliska.locks import AcquireCancelledError, Election, GrantLostError, Session, SessionLostError

OWN = Endpoint("c1", "127.0.0.1", 1, "", "")  # as the scene announces it


class Stage(Scene):
    """A scene whose standbys listen, and a leader that sends."""

    now = 100.0

    @contextlib.asynccontextmanager
    async def listening(self, name: str, standby: Standby) -> AsyncIterator[None]:
        """Let a standby follow, listen, and be a candidate."""
        certificate = self_signed(["127.0.0.1"], datetime.now(UTC))
        server = Server(dict)
        visitors = Visitors("tiny", self.directory.keyring, lambda: self.now, secrets.token_bytes)
        server.give("tiny", Donor(self.archive, visitors, standby.parameters, lambda: self.now))
        server.stand_by(standby)
        http = HttpServer(server.handle, server_context(certificate))
        await http.start()
        endpoint = Endpoint(name, "127.0.0.1", http.port, certificate.certificate_pem, "")
        running = asyncio.create_task(standby.run())
        with self._candidate(name, endpoint):
            try:
                yield
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await http.close()

    @contextlib.contextmanager
    def _candidate(self, name: str, endpoint: Endpoint) -> Iterator[None]:
        session = Session.open(self.directory.backend)
        election = Election(session, self.directory.election, name, endpoint.to_bytes())
        cancelled = threading.Event()

        def campaign() -> None:
            with contextlib.suppress(AcquireCancelledError, SessionLostError):
                election.campaign(cancelled=cancelled)

        thread = threading.Thread(target=campaign)
        thread.start()
        try:
            yield
        finally:
            cancelled.set()
            session.close()
            thread.join()

    @contextlib.asynccontextmanager
    async def sending(self, wanted: Wanted = "auto", probe: str = "") -> AsyncIterator[Replicas]:
        replicas = Replicas(
            directory=self.directory,
            own=OWN,
            signer=self.signer,
            leadership=self.leadership,
            update_log=UpdateLog(self.leader_storage, "tiny"),
            wanted=wanted,
            probe=probe,
            now=lambda: self.now,
            loop=asyncio.get_running_loop(),
        )
        running = asyncio.create_task(replicas.run(self.head))
        try:
            yield replicas
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def send(self, replicas: Replicas, commit: Commit) -> None:  # type: ignore[override]
        log = UpdateLog(self.leader_storage, "tiny")
        replicas.send(log.read(commit.record.version, commit.digest))


@pytest.fixture
def stage(lead: Any, tiny_job: Any, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(lead, tiny_job(), tmp_path)
    yield made
    made.close()


async def standing(replicas: Replicas, name: str, state: str, version: int) -> None:
    """Wait until a standby is in a state and at a version."""
    async with asyncio.timeout(PATIENCE_S):
        wanted = (name, state, version)
        while wanted not in [  # noqa: ASYNC110 - nothing to wait on
            (each["coordinator"], each["state"], each["version"])
            for each in replicas.status()["standbys"]
        ]:
            await asyncio.sleep(0.005)


async def test_a_commit_waits_until_a_standby_has_it_on_disk(stage: Stage) -> None:
    async with stage.listening("c2", stage.standby), stage.sending(1) as replicas:
        await standing(replicas, "c2", "following", 0)
        commit = stage.round()
        waiting = asyncio.create_task(asyncio.to_thread(replicas.wait, commit))
        while not replicas.status()["reason"].startswith("version 1 waits"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert not waiting.done()
        stage.send(replicas, commit)
        await waiting
        assert stage.archive.log.read(1, commit.digest).commit == commit
        assert replicas.status()["reason"] == "also at c2"
        assert replicas.followed() == [1]


async def test_a_standby_that_joins_late_gets_what_it_missed(stage: Stage) -> None:
    async with stage.sending("auto") as replicas:
        commits = [stage.round() for _ in range(RECENT_MAX + 3)]
        for commit in commits:
            stage.send(replicas, commit)
        await asyncio.to_thread(replicas.wait, commits[-1])
        assert replicas.status()["in_force"] == 0
        async with stage.listening("c2", stage.standby):
            await standing(replicas, "c2", "following", len(commits))
    assert stage.on_disk() == [commit.record.version for commit in commits]


async def test_all_have_caught_up_when_every_standby_that_is_there_has_everything(
    stage: Stage,
) -> None:
    async with stage.sending(0) as replicas:
        async with stage.listening("c2", stage.standby):
            await standing(replicas, "c2", "following", 0)
            commits = [stage.round() for _ in range(3)]
            for commit in commits[:2]:
                stage.send(replicas, commit)
            await replicas.caught_up()
            assert stage.on_disk() == [1, 2]
            stage.send(replicas, commits[2])
            await standing(replicas, "c2", "following", 3)
            await replicas.caught_up()
        # It has gone, and is seen to be gone: nobody is left to wait for,
        stage.send(replicas, stage.round())
        await replicas.caught_up()
        assert replicas.status()["standbys"] == []
        # but for one that is enrolled and may come back.
        stage.directory.keyring.enroll("c3", Role.COORDINATOR, bytes(range(32)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await replicas.caught_up()


async def test_a_stated_number_waits_for_as_long_as_it_takes(stage: Stage) -> None:
    async with stage.sending(1) as replicas:
        commit = stage.round()
        stage.send(replicas, commit)
        waiting = asyncio.create_task(asyncio.to_thread(replicas.wait, commit))
        while "no standby is there" not in replicas.status()["reason"]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        stage.now += 1000.0
        async with stage.listening("c2", stage.standby):
            await waiting
    assert stage.on_disk() == [1]


async def test_a_standby_that_left_is_not_waited_for(stage: Stage) -> None:
    async with stage.sending("auto") as replicas:
        async with stage.listening("c2", stage.standby):
            await standing(replicas, "c2", "following", 0)
        commit = stage.round()
        stage.send(replicas, commit)
        await asyncio.to_thread(replicas.wait, commit)
        assert replicas.status()["standbys"] == []
        assert "no standby is there" in replicas.status()["reason"]


async def test_a_standby_that_does_not_answer_is_waited_for_a_while(stage: Stage) -> None:
    certificate = self_signed(["127.0.0.1"], datetime.now(UTC)).certificate_pem
    endpoint = Endpoint("c2", "127.0.0.1", 9, certificate, "")  # nobody listens there
    with stage._candidate("c2", endpoint):
        async with stage.sending("auto") as replicas:
            commit = stage.round()
            stage.send(replicas, commit)
            await standing(replicas, "c2", "away", 0)
            waiting = asyncio.create_task(asyncio.to_thread(replicas.wait, commit))
            while "cannot connect" not in replicas.status()["reason"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert not waiting.done()
            stage.now += AUTO_PATIENCE_S
            await waiting
            assert replicas.status()["in_force"] == 0


async def test_a_standby_on_the_same_storage_is_no_copy(stage: Stage) -> None:
    probe = leave_mark(stage.leader_storage, "tiny", stage.leadership.epoch, b"s" * 32)
    shares = stage.new_standby(LocalStorage(stage.folder / "leader"))
    async with stage.listening("c2", shares), stage.sending("auto", probe) as replicas:
        await standing(replicas, "c2", "shared", 0)
        commit = stage.round()
        stage.send(replicas, commit)
        await asyncio.to_thread(replicas.wait, commit)
        assert replicas.status()["reason"] == "on this storage only: c2 shares this storage"
        assert replicas.followed() == []


async def test_one_who_no_longer_leads_waits_no_longer(stage: Stage) -> None:
    async with stage.sending(1) as replicas:
        commit = stage.round()
        stage.send(replicas, commit)
        waiting = asyncio.create_task(asyncio.to_thread(replicas.wait, commit))
        while not replicas.status()["reason"].startswith("version 1 waits"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        stage.sessions[-1].close()
        with pytest.raises((GrantLostError, SessionLostError)):
            await waiting


async def test_one_who_is_told_to_end_waits_a_moment_only(stage: Stage) -> None:
    async with stage.sending(1) as replicas:
        commit = stage.round()
        stage.send(replicas, commit)
        replicas.hurry()
        stage.now += LAST_WAIT_S
        with pytest.raises(NotReplicatedError, match="no standby is there"):
            await asyncio.to_thread(replicas.wait, commit)
