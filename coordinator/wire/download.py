"""Fetches bytes whose hash-tree root is known, in spans, from donors that need not be trusted.

A donor answers for a resource with the leaves of its hash tree, joined, and the
payload behind them, in ranges. Each chunk is checked before it counts, so a
donor can do no more than waste a span. One that fails or lies is left out, and
its span goes to another one; what has arrived stays, also from one call of
`fetch` to the next. Called by whoever joins: a worker, a standby, a new leader.
How a donor is reached is its own matter; limits on time are its own too.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.errors import DigestError, NoDonorError, WireError
from pliska.coordinator.wire.limits import CHUNK_BYTES
from pliska.coordinator.wire.thread import in_thread

SPAN_BYTES = 4 * CHUNK_BYTES
"""What is asked of a donor at once."""
STREAMS_PER_DONOR = 2
"""Spans that one donor sends at the same time: one is on its way while another is checked."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What is to be fetched.

    Attributes:
        path: As donors know it.
        root: Of the hash tree over the payload, from a source that is trusted.
        payload_len: Bytes of the payload.
    """

    path: str
    root: bytes
    payload_len: int

    @property
    def leaves_len(self) -> int:
        """Bytes of the leaves that lie before the payload."""
        return hash_tree.LEAF_BYTES * hash_tree.leaf_count(self.payload_len)


class Donor(Protocol):
    """Somebody who may have the resource."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    async def read(self, resource: Resource, offset: int, into: memoryview) -> None:
        """Fill `into` with the bytes of leaves and payload from `offset` on.

        Raises:
            WireError: It has no such resource, or it did not come.
        """
        ...


class SpanPlan:
    """Which spans are still to be fetched. Pure: no clock, no I/O."""

    def __init__(self, payload_len: int) -> None:
        """Begin with nothing fetched."""
        starts = range(0, payload_len, SPAN_BYTES)
        self._waiting = [(start, min(start + SPAN_BYTES, payload_len)) for start in starts][::-1]
        self._missing = set(self._waiting)

    @property
    def is_done(self) -> bool:
        """Whether every span has arrived."""
        return not self._missing

    @property
    def missing_bytes(self) -> int:
        """How many bytes have not arrived."""
        return sum(end - start for start, end in self._missing)

    def take(self) -> tuple[int, int] | None:
        """Return the next span that nobody fetches, as (start, end); None where none is left."""
        return self._waiting.pop() if self._waiting else None

    def give_back(self, span: tuple[int, int]) -> None:
        """Let another donor fetch a span that was taken."""
        self._waiting.append(span)

    def arrived(self, span: tuple[int, int]) -> None:
        """Note that a span is there and checked."""
        self._missing.discard(span)


class Download:
    """One resource on its way into memory. Belongs to one event loop."""

    def __init__(self, resource: Resource, into: memoryview) -> None:
        """Begin with nothing fetched.

        Args:
            resource: What is fetched.
            into: `payload_len` bytes; complete once `fetch` has returned.
        """
        self.resource = resource
        self.given: dict[str, int] = {}
        """Bytes of the payload by the name of the donor that they came from."""
        self._into = into
        self._plan = SpanPlan(resource.payload_len)
        self._verifier: hash_tree.ChunkVerifier | None = None
        self._changed = asyncio.Condition()

    @property
    def missing_bytes(self) -> int:
        """How many bytes have not arrived."""
        return self._plan.missing_bytes

    async def fetch(self, donors: Sequence[Donor]) -> None:
        """Fetch what is missing; when it returns, all of it is there and checked.

        Raises:
            NoDonorError: No donor is left; the message says what became of each.
                Call it again with others: what has arrived is kept.
        """
        failed: dict[int, WireError] = {}
        streams = [
            self._stream(number, donor, failed)
            for number, donor in enumerate(donors)
            for _ in range(STREAMS_PER_DONOR)
        ]
        async with asyncio.TaskGroup() as group:
            for stream in streams:
                group.create_task(stream)
        if not self._plan.is_done or self._verifier is None:
            reasons = "; ".join(f"{donors[each].name}: {error}" for each, error in failed.items())
            raise NoDonorError(
                f"{self.missing_bytes} bytes of {self.resource.path} could not be fetched: "
                f"{reasons or 'nobody is there to ask'}"
            )

    async def _stream(self, number: int, donor: Donor, failed: dict[int, WireError]) -> None:
        """Fetch spans from one donor until none is missing, or it fails."""
        try:
            await self._learn_leaves(donor)
            while number not in failed:
                span = await self._next_span()
                if span is None:
                    return
                await self._fetch_span(donor, span)
        except WireError as error:
            failed.setdefault(number, error)

    async def _next_span(self) -> tuple[int, int] | None:
        """Return a span to fetch, waiting for one that a failing donor gives back."""
        async with self._changed:
            while True:
                span = self._plan.take()
                if span is not None or self._plan.is_done:
                    return span
                await self._changed.wait()

    async def _learn_leaves(self, donor: Donor) -> None:
        if self._verifier is not None:
            return
        leaves = bytearray(self.resource.leaves_len)
        await donor.read(self.resource, 0, memoryview(leaves))
        self._verifier = hash_tree.ChunkVerifier(
            bytes(leaves), self.resource.root, self.resource.payload_len
        )

    async def _fetch_span(self, donor: Donor, span: tuple[int, int]) -> None:
        start, end = span
        # Not into the caller's memory at once: what is not checked must not look like it.
        landing = memoryview(bytearray(end - start))
        arrived = False
        try:
            await donor.read(self.resource, self.resource.leaves_len + start, landing)
            await in_thread(self._take_in, start, landing)
            arrived = True
            self.given[donor.name] = self.given.get(donor.name, 0) + end - start
        finally:
            async with self._changed:
                if arrived:
                    self._plan.arrived(span)
                else:
                    self._plan.give_back(span)
                self._changed.notify_all()

    def _take_in(self, start: int, landing: memoryview) -> None:
        """Check the chunks of a span and copy them to their place."""
        if self._verifier is None:
            raise DigestError("chunks are checked against leaves that are not there")
        for index, chunk in enumerate(hash_tree.chunks(landing), start // CHUNK_BYTES):
            self._verifier.check(index, chunk)
        self._into[start : start + len(landing)] = landing
