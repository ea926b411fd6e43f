"""From a request to whoever answers it. It decides nothing itself.

A coordinator that does not lead answers for every job that the worker must look
for the leader. Requests of members carry the access token that joining gave
them; gradients and hellos carry signatures.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from pliska.coordinator import routes
from pliska.coordinator.intake import Intake
from pliska.coordinator.joining import Joining
from pliska.coordinator.members import Member, Members
from pliska.coordinator.publisher import Published, Publisher
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import Reply, ReplyCode, Request, Response


class Leading(Protocol):
    """What the server needs of a coordinator while it leads."""

    job: str
    epoch: int
    members: Members
    joining: Joining
    intake: Intake
    publisher: Publisher
    tally: Tally

    @property
    def mode_epoch(self) -> int:
        """Of the mode in force; gradients are signed for it."""

    def heard_from(self, member: Member) -> None:
        """Renew a member's lease."""

    def leave(self, member: Member) -> None:
        """Let a member go."""


class Server:
    """The handler of one coordinator's HTTP server."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Serve as a standby until `lead` is called.

        Args:
            status: Returns the snapshot that `GET /v1/status` shows.
        """
        self._status = status
        self._leading: Leading | None = None
        self._actions: Mapping[
            tuple[str, str], Callable[[Leading, Request], Awaitable[Response]]
        ] = {
            ("POST", "challenge"): self._challenge,
            ("POST", "hello"): self._hello,
            ("POST", "heartbeat"): self._heartbeat,
            ("POST", "leave"): self._leave,
            ("GET", "members"): self._members,
            ("GET", "model"): self._model,
            ("POST", "gradients"): self._gradients,
        }

    def lead(self, leading: Leading | None) -> None:
        """Answer for the job from now on; None: stand by again."""
        self._leading = leading

    def count(self, code: ReplyCode, reason: str) -> None:
        """Count a reply that was given without asking `handle`, or by `handle` itself."""
        if self._leading is not None:
            self._leading.tally.count(code, reason)

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        if request.path == routes.STATUS and request.method == "GET":
            return _json(self._status())
        parts = request.path.split("/")
        answer = None
        if len(parts) == 5 and parts[:3] == ["", "v1", "jobs"]:
            answer = self._actions.get((request.method, parts[4]))
        if answer is None:
            return self._refuse(ReplyCode.SCHEMA, "there is nothing at this path", 404)
        leading = self._leading
        if leading is None or leading.job != parts[3]:
            return _not_led()
        return await answer(leading, request)

    def _refuse(self, code: ReplyCode, reason: str, status: int | None = None) -> Response:
        self.count(code, reason)
        response = Response.of_reply(Reply(code=code, reason=reason))
        return Response(status or response.status, response.headers, response.body)

    def _stranger(self) -> Response:
        reason = "the access token is not one of this leader's: join again"
        return self._refuse(ReplyCode.NOT_MEMBER, reason)

    async def _challenge(self, leading: Leading, _request: Request) -> Response:
        nonce = leading.joining.challenge()
        return _accepted(leading, {routes.NONCE: nonce.hex()})

    async def _hello(self, leading: Leading, request: Request) -> Response:
        message = await request.body.read(routes.HELLO_BYTES_MAX)
        outcome = await leading.joining.hello(message)
        if isinstance(outcome, Refusal):
            reply = Reply(code=outcome.code, reason=outcome.reason, epoch=leading.epoch)
            return Response.of_reply(reply)
        headers = {routes.TOKEN: outcome.token, routes.LEASE_S: str(leading.members.lease_s)}
        return _accepted(leading, headers)

    async def _heartbeat(self, leading: Leading, request: Request) -> Response:
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.heard_from(member)
        return _accepted(leading)

    async def _leave(self, leading: Leading, request: Request) -> Response:
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.leave(member)
        return _accepted(leading)

    async def _members(self, leading: Leading, request: Request) -> Response:
        if _member(leading, request) is None:
            return self._stranger()
        return _json({"workers": sorted(leading.members.present())})

    async def _model(self, leading: Leading, request: Request) -> Response:
        """Send the last committed version, or 204 if none is newer within the time asked for."""
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.heard_from(member)
        after = _number(request, routes.AFTER, -1)
        wait_s = min(_number(request, routes.WAIT_S, 0), routes.WAIT_S_MAX)
        published = await leading.publisher.newer_than(math.floor(after), max(0.0, wait_s))
        if self._leading is not leading:
            return _not_led()
        mode_epoch = str(leading.mode_epoch)
        if published is None:
            return Response(204, {routes.EPOCH: str(leading.epoch), routes.MODE_EPOCH: mode_epoch})
        return _model_response(leading.epoch, mode_epoch, published)

    async def _gradients(self, leading: Leading, request: Request) -> Response:
        return Response.of_reply(await leading.intake.receive(request.body))


def _member(leading: Leading, request: Request) -> Member | None:
    return leading.members.with_token(request.headers.get(routes.TOKEN, ""))


def _not_led() -> Response:
    reason = "this coordinator does not lead the job: look for its leader in the store"
    return Response.of_reply(Reply(code=ReplyCode.STALE_EPOCH, reason=reason))


def _accepted(leading: Leading, headers: Mapping[str, str] | None = None) -> Response:
    response = Response.of_reply(Reply(code=ReplyCode.ACCEPTED, epoch=leading.epoch))
    return Response(response.status, {**response.headers, **(headers or {})}, response.body)


def _model_response(epoch: int, mode_epoch: str, published: Published) -> Response:
    headers = {
        "etag": f'"{published.digest.hex()}"',
        "content-type": "application/octet-stream",
        routes.EPOCH: str(epoch),
        routes.MODE_EPOCH: mode_epoch,
        routes.VERSION: str(published.version),
        routes.FINAL: "yes" if published.is_final else "no",
    }
    return Response(200, headers, published.parameters)


def _number(request: Request, name: str, default: float) -> float:
    try:
        value = float(request.query.get(name, default))
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _json(document: Mapping[str, Any]) -> Response:
    body = json.dumps(document, allow_nan=False).encode()
    return Response(200, {"content-type": "application/json"}, body)
