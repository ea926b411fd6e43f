"""Gives what one coordinator has of a job to who lacks it: records, aggregates, states, parameters.

A leader, a standby and a coordinator that only holds a log do it alike, to
visitors with an enrolled key. What is given never changes while it is read, so a
slow reader holds up no round. Nothing is decided here: whoever fetches checks
all of it. Belongs to one event loop.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pliska.coordinator import routes
from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.commit import GENESIS
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.replication.following import Place
from pliska.coordinator.replication.ranges import answer_range
from pliska.coordinator.replication.reception import receive, refused
from pliska.coordinator.replication.sealed import Sealed
from pliska.coordinator.visitors import Visitors
from pliska.coordinator.wire import ReplyCode, Request, Response
from pliska.discovery import Role

HEADS_MAX = 256
"""Records that are given at once."""
HEADS_BYTES_MAX = 32 * 2**20
"""They have at most so many bytes, but for the first."""
OPEN_MAX = 4
"""Resources that are kept open for readers; the one that was not read for longest is closed."""
OPEN_S = 30.0
"""A resource that nobody reads for so long is closed."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

FindParameters = Callable[[bytes], Awaitable[bytes | None]]
"""From the digest of parameters to their bytes, where this coordinator has them."""


class _AbsentError(CoordinatorError):
    """The reader asked for something that is not here."""


@dataclass(slots=True)
class _Open:
    sealed: Sealed
    read_at: float


class Donor:
    """What one coordinator gives of one job."""

    def __init__(
        self,
        archive: Archive,
        visitors: Visitors,
        find_parameters: FindParameters,
        now: Callable[[], float],
    ) -> None:
        """Give from here on.

        Args:
            archive: What lies on this coordinator's storage.
            visitors: Who may come.
            find_parameters: Finds a version that is in memory.
            now: Seconds on a monotonic clock.
        """
        self.visitors = visitors
        self._archive = archive
        self._find_parameters = find_parameters
        self._now = now
        self._open: dict[tuple[str, int, bytes], _Open] = {}
        self._opening = asyncio.Lock()

    def spared(self) -> frozenset[int]:
        """Return the versions whose checkpoints are being read. From any thread."""
        opened = list(self._open.items())
        since = self._now() - OPEN_S
        return frozenset(
            version
            for (kind, version, _), each in opened
            if kind == routes.STATE and each.read_at > since
        )

    async def answer(self, action: str, request: Request) -> Response | None:
        """Answer a request for one of the donor's actions; None where it is none of them."""
        if request.method == "POST":
            return await receive(self.visitors, action, request)
        actions: dict[str, tuple[frozenset[Role], Callable[[Request], Awaitable[Response]]]] = {
            routes.HEADS: (_COORDINATORS, self._heads),
            routes.CHECKPOINTS: (_COORDINATORS, self._checkpoints),
            routes.MANIFEST: (_COORDINATORS, self._manifest),
            routes.AGGREGATE: (_COORDINATORS, self._range),
            routes.STATE: (_COORDINATORS, self._range),
            routes.PARAMETERS: (_ANYBODY, self._range),
        }
        if action not in actions:
            return None
        roles, give = actions[action]
        visitor = self.visitors.with_token(request.headers.get(routes.TOKEN, ""))
        if visitor is None or visitor.role not in roles:
            return refused(Refusal(ReplyCode.NOT_MEMBER, "this needs a visit with a fitting key"))
        try:
            return await give(request)
        except CoordinatorError as error:
            return refused(Refusal(ReplyCode.WRONG_BASE, str(error)))

    async def _heads(self, request: Request) -> Response:
        """Give records with their annexes, from one back along the chain, as many as go."""
        place = _place(request)
        count = min(_number(request, routes.COUNT, 1), HEADS_MAX)
        return _content(await asyncio.to_thread(self._read_heads, place, count))

    def _read_heads(self, place: Place, count: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while len(parts) < 2 * count and place.digest != GENESIS:
            try:
                head = self._archive.log.head(place.version, place.digest)
            except CoordinatorError:
                if parts:
                    break
                raise
            content = head.to_bytes()
            size += len(content)
            if parts and size > HEADS_BYTES_MAX:
                break
            parts += [len(content).to_bytes(4), content]
            place = Place(place.version - 1, head.commit.record.previous)
        return b"".join(parts)

    async def _checkpoints(self, _request: Request) -> Response:
        """Name the complete checkpoints, newest first: version and record digest, one a line."""
        lines = await asyncio.to_thread(self._list_checkpoints)
        return _content("\n".join(lines).encode())

    def _list_checkpoints(self) -> list[str]:
        checkpoints = self._archive.checkpoints
        found = map(checkpoints.checkpoint, checkpoints.places())
        return [f"{each.version} {each.record_digest.hex()}" for each in found]

    async def _manifest(self, request: Request) -> Response:
        place = _place(request)
        folder = self._archive.checkpoints.place(place.version, place.digest)
        stored = await asyncio.to_thread(self._archive.checkpoints.stored, folder)
        return _content(stored.manifest.to_bytes())

    async def _range(self, request: Request) -> Response:
        """Give a part of a resource."""
        return await answer_range(await self._opened(request), request)

    async def _opened(self, request: Request) -> Sealed:
        kind = request.path.rpartition("/")[2]
        place = _place(request)
        key = (kind, place.version, place.digest)
        async with self._opening:  # many readers of one resource open it once
            self._close_unread()
            if key not in self._open:
                sealed = await self._seal(kind, place)
                while len(self._open) >= OPEN_MAX:
                    del self._open[min(self._open, key=lambda each: self._open[each].read_at)]
                self._open[key] = _Open(sealed, self._now())
                asyncio.get_running_loop().call_later(OPEN_S, self._close_unread)
            self._open[key].read_at = self._now()
            return self._open[key].sealed

    async def _seal(self, kind: str, place: Place) -> Sealed:
        if kind == routes.PARAMETERS:
            parameters = await self._find_parameters(place.digest)
            if parameters is None:
                raise _AbsentError("these parameters are not in memory here")
            return await asyncio.to_thread(Sealed.of_bytes, parameters)
        if kind == routes.AGGREGATE:
            return await asyncio.to_thread(self._seal_aggregate, place)
        folder = self._archive.checkpoints.place(place.version, place.digest)
        stored = await asyncio.to_thread(self._archive.checkpoints.stored, folder)
        return Sealed(stored.leaves, stored.manifest.payload_len, stored.read_range)

    def _seal_aggregate(self, place: Place) -> Sealed:
        log = self._archive.log
        entry = log.read(place.version, place.digest)
        whole = Sealed.of_bytes(entry.aggregate.numpy().tobytes())

        def read(offset: int, count: int) -> bytes:
            return log.aggregate_range(place.version, place.digest, offset, count)

        return Sealed(whole.leaves, whole.payload_len, read)

    def _close_unread(self) -> None:
        since = self._now() - OPEN_S
        for key in [key for key, each in self._open.items() if each.read_at <= since]:
            del self._open[key]


_COORDINATORS = frozenset({Role.COORDINATOR})
_ANYBODY = frozenset({Role.COORDINATOR, Role.WORKER})


def _place(request: Request) -> Place:
    """Read which version is asked for; parameters are named by their own digest."""
    digest = request.query.get(routes.DIGEST, "")
    if _DIGEST.fullmatch(digest) is None:
        raise _AbsentError("name a digest of 64 hexadecimal digits")
    return Place(_number(request, routes.VERSION_NUMBER, 0), bytes.fromhex(digest))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise _AbsentError(f"{name} is not a version or count")
    return int(text)


def _content(content: bytes) -> Response:
    return Response(200, {"content-type": "application/octet-stream"}, content)
