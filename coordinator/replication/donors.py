"""The other coordinators of a job, as the place where one looks for what it lacks.

Found in the store, asked all of them at once or one after the other; what they
give is checked by its digest, so none of them need be right. Implements
`recovery.Sources` for a thread, while the sockets belong to an event loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import torch

from pliska.coordinator import routes
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import CoordinatorError, DamagedStateError, MissingObjectError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.log_entry import HEAD_BYTES_MAX, LogEntry, LogHead, first_part
from pliska.coordinator.replication.donor_client import DonorClient
from pliska.coordinator.replication.following import Place, place_of
from pliska.coordinator.training.state_manifest import StateManifest
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire import Download, Resource, Signer, WireError
from pliska.locks import StoreError

ResultT = TypeVar("ResultT")

HEADS_AT_ONCE = 64
"""Records that are fetched with the one that is asked for: the next ones back will be too."""
CHECKPOINTS_MAX = 1000
"""Checkpoints that are believed to be at one donor."""


class Donors:
    """The other coordinators of one job."""

    def __init__(
        self,
        directory: JobDirectory,
        own: Endpoint,
        signer: Signer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Find them when they are needed; nothing is sent yet.

        Args:
            directory: Where they stand.
            own: This coordinator, which is not asked.
            signer: Its key.
            loop: Where the sockets live.
        """
        self._directory = directory
        self._own = own
        self._signer = signer
        self._loop = loop
        self._clients: dict[Endpoint, DonorClient] = {}
        self._heads: dict[bytes, LogHead] = {}
        self._running: set[Future[Any]] = set()
        self._is_abandoned = False

    # What a thread calls: it blocks until the event loop has the answer.

    def head(self, place: Place) -> LogHead:
        """Fetch record and annex of a version, and keep some before it at hand.

        Raises:
            MissingObjectError: Nobody has it.
        """
        head = self._heads.pop(place.digest, None)
        if head is None:
            found = self._ask(self._fetch_heads(place))
            self._heads = {each.commit.digest: each for each in found}
            head = self._heads.pop(place.digest)
        return head

    def entry(self, head: LogHead, dimension: int) -> LogEntry:
        """Fetch the aggregate to a head.

        Raises:
            MissingObjectError: Nobody has it.
        """
        return self._ask(self._fetch_entry(head, dimension))

    def checkpoints(self) -> Collection[Place]:
        """List the checkpoints that others have; those that do not answer have none."""
        return self._ask(self._list_checkpoints())

    def state(self, commit: Commit) -> TrainingState:
        """Fetch the state after a commit.

        Raises:
            MissingObjectError: Nobody has it.
        """
        return self._ask(self._fetch_state(commit))

    def abandon(self) -> None:
        """Let every call fail from now on: this coordinator ends. From the event loop."""
        self._is_abandoned = True
        for future in tuple(self._running):
            future.cancel()

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()

    def _ask(self, answering: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self._is_abandoned:
            answering.close()
            raise MissingObjectError("this coordinator is about to end")
        future = asyncio.run_coroutine_threadsafe(answering, self._loop)
        self._running.add(future)
        try:
            return future.result()
        except CancelledError as error:
            raise MissingObjectError("this coordinator is about to end") from error
        finally:
            self._running.discard(future)

    # On the event loop.

    async def clients(self) -> list[DonorClient]:
        """Find the others that are there now, the leader first.

        Raises:
            StoreError: The store does not answer.
        """
        found = await asyncio.to_thread(self._directory.coordinators)
        others = [each for each in found if each.certificate != self._own.certificate]
        for gone in self._clients.keys() - set(others):
            await self._clients.pop(gone).close()
        for endpoint in others:
            if endpoint not in self._clients:
                self._clients[endpoint] = DonorClient(endpoint, self._directory.job, self._signer)
        return [self._clients[endpoint] for endpoint in others]

    async def _fetch_heads(self, place: Place) -> list[LogHead]:
        path = f"{_path(routes.HEADS, place)}&{routes.COUNT}={HEADS_AT_ONCE}"

        async def fetch(client: DonorClient) -> list[LogHead]:
            return _along_chain(await client.get(path), place)

        return await self._first(f"the record of version {place.version}", fetch)

    async def _fetch_entry(self, head: LogHead, dimension: int) -> LogEntry:
        record = head.commit.record
        resource = Resource(
            _path(routes.AGGREGATE, place_of(head.commit)), record.aggregate_digest, 4 * dimension
        )
        payload = await self._download(f"the aggregate of version {record.version}", resource)
        return LogEntry.joined(head, torch.frombuffer(payload, dtype=torch.float32))

    async def _fetch_state(self, commit: Commit) -> TrainingState:
        place = place_of(commit)
        what = f"the checkpoint of version {place.version}"

        async def fetch(client: DonorClient) -> StateManifest:
            content = await client.get(_path(routes.MANIFEST, place))
            return StateManifest.from_bytes(content, commit.record.state_digest)

        manifest = await self._first(what, fetch)
        resource = Resource(_path(routes.STATE, place), manifest.root, manifest.payload_len)
        payload = await self._download(what, resource)
        return TrainingState(manifest.tensors_of(memoryview(payload)), manifest.settings_table())

    async def _list_checkpoints(self) -> frozenset[Place]:
        found: set[Place] = set()
        with contextlib.suppress(StoreError):
            for client in await self.clients():
                with contextlib.suppress(WireError, CoordinatorError):
                    found |= _places(await client.get(routes.CHECKPOINTS))
        return frozenset(found)

    async def _first(
        self, what: str, fetch: Callable[[DonorClient], Awaitable[ResultT]]
    ) -> ResultT:
        """Ask one after the other until one has it."""
        reasons = []
        try:
            for client in await self.clients():
                try:
                    return await fetch(client)
                except (WireError, CoordinatorError) as error:
                    reasons.append(f"{client.name}: {error}")
        except StoreError as error:
            reasons.append(str(error))
        raise _nobody_has(what, "; ".join(reasons))

    async def _download(self, what: str, resource: Resource) -> bytearray:
        """Fetch from all at once."""
        payload = bytearray(resource.payload_len)
        try:
            await Download(resource, memoryview(payload)).fetch(await self.clients())
        except (WireError, StoreError) as error:
            raise _nobody_has(what, str(error)) from error
        return payload


def _nobody_has(what: str, reasons: str) -> MissingObjectError:
    return MissingObjectError(
        f"no other coordinator gives {what}: {reasons or 'there is no other coordinator'}"
    )


def _path(kind: str, place: Place) -> str:
    version = f"{routes.VERSION_NUMBER}={place.version}"
    return f"{kind}?{version}&{routes.DIGEST}={place.digest.hex()}"


def _along_chain(content: bytes, place: Place) -> list[LogHead]:
    """Read heads that follow each other back from a place; the first is that of the place."""
    heads: list[LogHead] = []
    rest = memoryview(content)
    while rest or not heads:
        part, rest = first_part(rest, HEAD_BYTES_MAX)
        heads.append(LogHead.from_bytes(part, place.digest))
        place = Place(place.version - 1, heads[-1].commit.record.previous)
    return heads


def _places(content: bytes) -> set[Place]:
    """Read a donor's list of checkpoints."""
    try:
        pairs = [line.split(" ") for line in content.decode().splitlines()[:CHECKPOINTS_MAX]]
        return {Place(int(version), bytes.fromhex(digest)) for version, digest in pairs}
    except ValueError as error:
        raise DamagedStateError(f"a list of checkpoints cannot be read: {error}") from error
