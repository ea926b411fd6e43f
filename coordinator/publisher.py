"""The last committed version, as workers download it.

One immutable snapshot at a time: a download never mixes tensors of two
versions, and a slow one keeps its snapshot while newer versions come. Fed by
`coordinator.driver`, read by `coordinator.server`, on one event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """A committed version.

    Attributes:
        version: Count of committed rounds.
        digest: Root of the hash tree over the parameters, which the commit
            record names.
        parameters: float32 [d], little endian, in the manifest's order.
        is_final: No round follows.
    """

    version: int
    digest: bytes
    parameters: bytes
    is_final: bool


class Publisher:
    """Holds the last committed version and wakes whoever waits for a newer one."""

    def __init__(self, published: Published) -> None:
        """Begin with the version that the leader has recovered."""
        self._published = published
        self._is_closed = False
        self._recalls = 0
        self._changed = asyncio.Condition()

    @property
    def published(self) -> Published:
        """The last committed version."""
        return self._published

    async def publish(self, published: Published) -> None:
        """Replace the version and wake all who wait."""
        async with self._changed:
            self._published = published
            self._changed.notify_all()

    async def wake(self) -> None:
        """Let all who wait look whether what they wait for is there."""
        async with self._changed:
            self._changed.notify_all()

    async def recall(self) -> None:
        """Send all away who wait, so that they send their gradients again."""
        async with self._changed:
            self._recalls += 1
            self._changed.notify_all()

    async def close(self) -> None:
        """Send all away who wait: this leader publishes nothing more."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    async def newer_than(
        self, version: int, timeout_s: float, or_else: Callable[[], bool] = lambda: False
    ) -> Published | None:
        """Wait for a version above `version`; None when none came in time, or none will.

        Args:
            version: That the caller has.
            timeout_s: How long it waits at most.
            or_else: It waits no longer once this holds, looked at after each `wake`.
        """
        recalls = self._recalls
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: (
                        self._is_closed
                        or self._recalls != recalls
                        or self._published.version > version
                        or or_else()
                    )
                )
        except TimeoutError:
            return None
        return self._published if self._published.version > version else None
