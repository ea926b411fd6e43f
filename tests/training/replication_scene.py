"""A store, leaders that commit by hand, and one standby with a storage of its own.

The leader is the one of the unit tests' conftest: it makes rounds without workers.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

from training.leadership import PATIENCE_S, ArrivingBody

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.identity import load_identity
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.records.log_entry import LogEntry, LogHead
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.following import Place
from pliska.coordinator.replication.standby import Standby, StandbyMeans
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire import Reply
from pliska.locks import Election, Session, connect


class Elsewhere:
    """What another coordinator has, for who asks."""

    def __init__(self, archive: Archive | None = None) -> None:
        self.archive = archive
        self.asked: list[str] = []

    def head(self, place: Place) -> LogHead:
        self.asked.append(f"head {place.version}")
        if self.archive is None:
            raise MissingObjectError("nobody is there")
        return self.archive.log.head(place.version, place.digest)

    def entry(self, head: LogHead, dimension: int) -> LogEntry:
        commit = head.commit
        self.asked.append(f"entry {commit.record.version} of {dimension}")
        if self.archive is None:
            raise MissingObjectError("nobody is there")
        return self.archive.log.read(commit.record.version, commit.digest)

    def checkpoints(self) -> Collection[Place]:
        return ()

    def state(self, commit: Commit) -> TrainingState:
        raise MissingObjectError(f"no checkpoint of version {commit.record.version}")


class Scene:
    """A store, leaders that come and go, and one standby with a storage of its own."""

    def __init__(self, lead: Any, job: Any, folder: Path) -> None:
        self.lead, self.job, self.folder = lead, job, folder
        self.directory = JobDirectory(connect(f"memory:{folder}"), job.name)
        self.directory.publish(job)
        self.signer = load_identity(folder / "coordinator.pem", self.directory.keyring).signer
        self.leader_storage = LocalStorage(folder / "leader")
        self.storage = LocalStorage(folder / "standby")
        self.archive = Archive(self.storage, job)
        self.sources = Elsewhere()
        self.spared: list[int] = []
        self.sessions: list[Session] = []
        self.head: Commit | None = None
        self.new_leader()
        self.standby = self.new_standby(self.storage)

    def new_standby(self, storage: LocalStorage) -> Standby:
        means = StandbyMeans(
            self.job, self.directory, storage, self.sources, lambda: tuple(self.spared)
        )
        return Standby(means)

    def new_leader(self) -> None:
        """Depose the leader, if there is one, and let another one go on from the commit."""
        for session in self.sessions:
            session.close()
        session = Session.open(self.directory.backend)
        self.sessions.append(session)
        endpoint = Endpoint("c1", "127.0.0.1", 1, "", self.signer.key_id)
        election = Election(session, self.directory.election, "c1", endpoint.to_bytes())
        self.leadership = election.campaign(timeout_s=5.0)
        self.committer = Committer(
            self.directory, self.leadership, self.directory.commit(), self.signer
        )
        before = getattr(self, "leader", None)
        self.leader = self.lead(
            self.job, self.leader_storage, self.leadership.epoch, signer=self.signer
        )
        if before is not None:
            for version in range(1, self.head.record.version + 1 if self.head else 1):
                self.leader.run_round(before.salts[version])
            self.leader.head = self.head
        self.leader.salts = dict(before.salts) if before is not None else {}

    def round(self, salt: str = "") -> Commit:
        """Let the leader make a round and log it; it is not committed."""
        commit: Commit = self.leader.run_round(salt)
        self.leader.salts[commit.record.version] = salt
        return commit

    def commit(self, commit: Commit) -> None:
        self.committer.commit(commit)
        self.head = commit

    def body(self, commit: Commit) -> bytes:
        log = UpdateLog(self.leader_storage, self.job.name)
        return b"".join(log.read(commit.record.version, commit.digest).pieces())

    async def send(self, commit: Commit) -> Reply:
        return await self.standby.receive(ArrivingBody(self.body(commit)))

    async def follows(self, version: int, standby: Standby | None = None) -> None:
        """Wait until the standby has reached a version."""
        async with asyncio.timeout(PATIENCE_S):
            reached = (standby or self.standby).status
            while reached()["version"] != version:  # noqa: ASYNC110 - nothing to wait on
                await asyncio.sleep(0.005)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.standby.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self.standby._warm is None:  # noqa: ASYNC110 - nothing to wait on
                    await asyncio.sleep(0.005)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def on_disk(self) -> list[int]:
        return [each.version for each in self.archive.log.entries()]

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.directory.backend.close()
