"""Gives the parameters that a worker computes on to others that join: a donor beside coordinators.

Whoever fetches them knows their root from the leader and checks every chunk, so
a worker that gives wrong bytes, or bytes that it is just replacing, wastes a span
and no more. It gives one version, the newest that it has, to visitors with an
enrolled key. Belongs to one event loop; the payload may be hashed in a thread.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass

from pliska.coordinator import routes
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.replication.ranges import answer_range
from pliska.coordinator.replication.reception import receive, refused
from pliska.coordinator.replication.sealed import Sealed
from pliska.coordinator.visitors import Visitors
from pliska.coordinator.wire import ReplyCode, Request, Response
from pliska.discovery import Keyring

_ELSEWHERE = Refusal(ReplyCode.WRONG_BASE, "this worker does not have these parameters")
_OTHER_JOB = Refusal(ReplyCode.SCHEMA, "this worker gives parameters of its job only")
_NO_VISIT = Refusal(ReplyCode.NOT_MEMBER, "this needs a visit with an enrolled key")


@dataclass(slots=True)
class _Held:
    digest: bytes
    parameters: memoryview
    sealed: Sealed | None = None


class ParameterDonor:
    """What one worker gives of one job; `handle` is the handler of its server."""

    def __init__(self, job: str, keyring: Keyring) -> None:
        """Begin with nothing to give.

        Args:
            job: The job that visitors come for.
            keyring: Whose keys count.
        """
        self._prefix = routes.job_path(job, "")
        self._visitors = Visitors(job, keyring, time.monotonic, secrets.token_bytes)
        self._held: _Held | None = None
        self._sealing = asyncio.Lock()

    def hold(self, digest: bytes, parameters: memoryview) -> None:
        """Give this version from now on.

        Args:
            digest: Root of the hash tree over `parameters`.
            parameters: 4 d bytes that do not change before `release`.
        """
        self._held = _Held(digest, parameters)

    def release(self) -> None:
        """Give nothing any more: the memory is about to change."""
        self._held = None

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        if not request.path.startswith(self._prefix):
            return refused(_OTHER_JOB)
        action = request.path.removeprefix(self._prefix)
        if request.method == "POST":
            answer = await receive(self._visitors, action, request)
            return answer or refused(_ELSEWHERE)
        if self._visitors.with_token(request.headers.get(routes.TOKEN, "")) is None:
            return refused(_NO_VISIT)
        held = self._held
        asked = request.query.get(routes.DIGEST, "")
        if action != routes.PARAMETERS or held is None or asked != held.digest.hex():
            return refused(_ELSEWHERE)
        return await answer_range(await self._seal(held), request)

    async def _seal(self, held: _Held) -> Sealed:
        async with self._sealing:  # many readers, one hashing
            if held.sealed is None:
                held.sealed = await asyncio.to_thread(Sealed.of_bytes, held.parameters)
            return held.sealed
