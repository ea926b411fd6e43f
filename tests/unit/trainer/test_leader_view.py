"""A worker's view of who leads, kept true by a watch."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from pliska.coordinator.client import Endpoint, JobDirectory, Leader, Sighting
from pliska.locks import (
    Election,
    Leadership,
    Record,
    Revision,
    Session,
    StoreUnavailableError,
    Update,
)
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore
from pliska.trainer.errors import NoCoordinatorError
from pliska.trainer.leader_view import LeaderView, following

PATIENCE_S = 20.0
IDLE_S = 0.3


def leader(epoch: int) -> Leader:
    return Leader(epoch, Endpoint(f"c{epoch}", "127.0.0.1", epoch, "", "key"))


def sighting(epoch: int | None, version: int = 0) -> Sighting:
    return Sighting(None if epoch is None else leader(epoch), version, Revision(version))


async def test_view_never_goes_back_to_an_older_leader() -> None:
    view = LeaderView("toy")
    view.take(sighting(7))
    view.take(sighting(6))
    assert await view.find(4, PATIENCE_S) == leader(7)
    view.take(sighting(None))
    view.take(sighting(6))
    finding = asyncio.create_task(view.find(4, PATIENCE_S))
    await asyncio.sleep(0)
    view.take(sighting(8))
    assert await finding == leader(8)


async def test_an_older_leader_supersedes_nobody() -> None:
    view = LeaderView("toy")
    view.take(sighting(7))
    waiting = asyncio.create_task(view.superseded(leader(7)))
    for older in (sighting(6), sighting(None), sighting(7)):
        view.take(older)
        await asyncio.sleep(0)
        assert not waiting.done()
    view.take(sighting(8))
    await waiting


async def test_job_whose_rounds_are_done_needs_no_leader() -> None:
    view = LeaderView("toy")
    view.take(sighting(None, version=3))
    finding = asyncio.create_task(view.find(4, PATIENCE_S))
    await asyncio.sleep(0)
    assert not finding.done()
    view.take(sighting(None, version=4))
    assert await finding is None


async def test_time_in_which_the_store_is_silent_does_not_count() -> None:
    view = LeaderView("toy")
    finding = asyncio.create_task(view.find(4, 0.01))
    await asyncio.sleep(0.05)
    assert not finding.done()
    view.take(sighting(None))
    view.miss("no answer")
    await asyncio.sleep(0.05)
    assert not finding.done()
    view.take(sighting(None))
    with pytest.raises(NoCoordinatorError, match=r"nobody has led job 'toy' for 0\.01 s"):
        await finding


def test_silence_is_logged_once_for_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    view = LeaderView("toy")
    for _ in range(3):
        view.miss("no answer")
    assert len(caplog.records) == 1
    view.take(sighting(1))
    view.miss("no answer")
    assert len(caplog.records) == 2


class Ailing(MemoryBackend):
    """A client of a store that counts what it asks, and does not always get an answer."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked = 0
        self.is_silent = threading.Event()

    def get(self, *arguments: Any, **options: Any) -> Record | None:
        self.asked += 1
        if self.is_silent.is_set():
            raise StoreUnavailableError("no answer")
        return super().get(*arguments, **options)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def backend(store: MemoryStore) -> Ailing:
    return Ailing(store)


@pytest.fixture
def directory(backend: Ailing) -> JobDirectory:
    return JobDirectory(backend, "toy")


Lead = Callable[[str], Awaitable[Leadership]]


@pytest.fixture
def lead(store: MemoryStore, directory: JobDirectory) -> Iterator[Lead]:
    """Campaigns for the job's leadership, through a client of its own."""
    session = Session.open(MemoryBackend(store))

    async def campaign(name: str) -> Leadership:
        endpoint = Endpoint(name, "127.0.0.1", 1, "", "key").to_bytes()
        election = Election(session, directory.election, name, endpoint)
        return await asyncio.to_thread(election.campaign, 5.0)

    yield campaign
    session.close()


async def test_a_new_leader_is_heard_of_and_nothing_is_asked_meanwhile(
    directory: JobDirectory, backend: Ailing, lead: Lead
) -> None:
    async with asyncio.timeout(PATIENCE_S), following(directory) as view:
        leadership = await lead("c1")
        first = await view.find(4, PATIENCE_S)
        assert first is not None
        assert first.endpoint.name == "c1"
        waiting = asyncio.create_task(view.superseded(first))
        await asyncio.sleep(IDLE_S)  # until what the campaign changed has been read
        asked = backend.asked
        await asyncio.sleep(IDLE_S)
        assert backend.asked == asked
        await asyncio.to_thread(leadership.resign)
        await lead("c2")
        await waiting
        second = await view.find(4, PATIENCE_S)
        assert second is not None
        assert (second.endpoint.name, second.epoch > first.epoch) == ("c2", True)


async def test_a_leader_that_goes_without_a_successor_leads_no_more(
    directory: JobDirectory, lead: Lead
) -> None:
    async with asyncio.timeout(PATIENCE_S), following(directory) as view:
        leadership = await lead("c1")
        assert await view.find(4, PATIENCE_S) is not None
        await asyncio.to_thread(leadership.resign)
        assert await view._wait(lambda now: now.leader is None) is None


async def test_what_happened_while_the_store_was_silent_is_made_up_for(
    directory: JobDirectory, backend: Ailing, lead: Lead
) -> None:
    async with asyncio.timeout(PATIENCE_S), following(directory) as view:
        leadership = await lead("c1")
        first = await view.find(4, PATIENCE_S)
        assert first is not None
        backend.is_silent.set()
        await asyncio.to_thread(leadership.resign)
        await lead("c2")
        await asyncio.sleep(IDLE_S)
        assert await view.find(4, PATIENCE_S) == first
        assert backend.asked < 50
        backend.is_silent.clear()
        await view.superseded(first)


async def test_an_entry_that_is_damaged_ends_nothing(
    directory: JobDirectory, store: MemoryStore, lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(LeaderView, "miss", lambda _view, reason: missed.put_nowait(reason))
    async with asyncio.timeout(PATIENCE_S), following(directory) as view:
        leadership = await lead("c1")
        first = await view.find(4, PATIENCE_S)
        assert first is not None
        key = directory.leader_paths[0]
        MemoryBackend(store).transact([], [Update(key, b"no leader")])
        assert key in await missed.get()
        assert await view.find(4, PATIENCE_S) == first
        await asyncio.to_thread(leadership.resign)


async def test_neither_a_thread_nor_a_watch_is_left(
    directory: JobDirectory, store: MemoryStore
) -> None:
    async with following(directory) as view:
        assert "pliska-leader-view" in threads()
        assert set(directory.leader_paths) <= set(store._listeners)
        with pytest.raises(NoCoordinatorError):
            await view.find(4, 0.05)
    assert "pliska-leader-view" not in threads()
    assert not store._listeners


async def test_a_cancelled_worker_leaves_nothing_either(
    directory: JobDirectory, store: MemoryStore
) -> None:
    has_begun = asyncio.Event()

    async def work() -> None:
        async with following(directory) as view:
            has_begun.set()
            await view.find(4, PATIENCE_S)

    working = asyncio.create_task(work())
    await has_begun.wait()
    assert "pliska-leader-view" in threads()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert "pliska-leader-view" not in threads()
    assert not store._listeners


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
