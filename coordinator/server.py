"""From a request to whoever answers it. It decides nothing itself.

A coordinator that does not lead answers for every job that the worker must look
for the leader, but it gives what it has of the job and takes the leader's log
entries. Requests of members carry the access token that joining gave them, those
of visitors that of their visit; gradients, hellos and visits carry signatures.
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
from pliska.coordinator.replication.donor import Donor
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import Body, Reply, ReplyCode, Request, Response
from pliska.discovery import Role


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

    def lease_of(self, worker: str) -> int | None:
        """Return the lease of a worker's next gradient; None where it has to wait for one."""

    def leases(self) -> Mapping[str, int]:
        """Return the lease of each worker that has one."""

    def heard_from(self, member: Member) -> None:
        """Renew a member's lease."""

    def leave(self, member: Member) -> None:
        """Let a member go."""


class Follower(Protocol):
    """What the server needs of a coordinator while it stands by."""

    async def standing(self, epoch: int, probe: str) -> Mapping[str, Any]:
        """Say what it holds."""

    async def receive(self, body: Body) -> Reply:
        """Take a log entry in."""


class Server:
    """The handler of one coordinator's HTTP server."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Serve the status only, until told what else.

        Args:
            status: Returns the snapshot that `GET /v1/status` shows.
        """
        self._status = status
        self._job: str | None = None
        self._donor: Donor | None = None
        self._leading: Leading | None = None
        self._standby: Follower | None = None
        self._actions: Mapping[
            tuple[str, str], Callable[[Leading, Request], Awaitable[Response]]
        ] = {
            ("POST", "challenge"): self._challenge,
            ("POST", "hello"): self._hello,
            ("POST", "heartbeat"): self._heartbeat,
            ("POST", "leave"): self._leave,
            ("GET", "members"): self._members,
            ("GET", "model"): self._model,
            ("GET", "newest"): self._newest,
            ("POST", "gradients"): self._gradients,
        }

    def lead(self, leading: Leading | None) -> None:
        """Answer for the job from now on; None: no longer."""
        self._leading = leading

    def give(self, job: str, donor: Donor) -> None:
        """Give what this coordinator has of a job from now on, whether it leads or not."""
        self._job = job
        self._donor = donor

    def stand_by(self, standby: Follower | None) -> None:
        """Take a leader's log entries from now on; None: no longer."""
        self._standby = standby

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
            if parts[3] == self._job:
                given = await self._give(parts[4], request)
                if given is not None:
                    return given
            answer = self._actions.get((request.method, parts[4]))
        if answer is None:
            return self._refuse(ReplyCode.SCHEMA, "there is nothing at this path", 404)
        leading = self._leading
        if leading is None or leading.job != parts[3]:
            return _not_led()
        return await answer(leading, request)

    async def _give(self, action: str, request: Request) -> Response | None:
        """Answer a visitor; None where it asks for something that only a leader has."""
        if self._donor is None:
            return None
        if (request.method, action) not in _REPLICATION:
            return await self._donor.answer(action, request)
        visitor = self._donor.visitors.with_token(request.headers.get(routes.TOKEN, ""))
        if visitor is None or visitor.role is not Role.COORDINATOR:
            reason = "this needs a visit with a coordinator's key"
            return Response.of_reply(Reply(code=ReplyCode.NOT_MEMBER, reason=reason))
        standby = self._standby
        if standby is None:
            reason = "this coordinator does not stand by"
            return Response.of_reply(Reply(code=ReplyCode.STALE_EPOCH, reason=reason))
        if action == routes.ENTRIES:
            return Response.of_reply(await standby.receive(request.body))
        epoch = math.floor(_number(request, routes.EPOCH_NUMBER, 0))
        return _json(await standby.standing(epoch, request.query.get(routes.PROBE, "")))

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
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.heard_from(member)
        leases = leading.leases()
        present = sorted(leading.members.present())
        return _json({"workers": {worker: leases.get(worker) for worker in present}})

    async def _model(self, leading: Leading, request: Request) -> Response:
        """Send the last committed version and the worker's lease.

        204 if no version is newer within the time asked for; a worker that wants a
        lease gets it with that as soon as it has one.
        """
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.heard_from(member)
        after = _number(request, routes.AFTER, -1)
        wait_s = min(_number(request, routes.WAIT_S, 0), routes.WAIT_S_MAX)
        wants_lease = request.query.get(routes.LEASE) == routes.WANTED
        published = await leading.publisher.newer_than(
            math.floor(after),
            max(0.0, wait_s),
            lambda: wants_lease and leading.lease_of(member.worker) is not None,
        )
        if self._leading is not leading:
            return _not_led()
        if published is None:
            lease = _lease_headers(leading, member) if wants_lease else {}
            return Response(204, {**_moment_headers(leading), **lease})
        headers = _version_headers(leading, published, member)
        return Response(200, headers, published.parameters)

    async def _newest(self, leading: Leading, request: Request) -> Response:
        """Name the last committed version, the lease, and workers that have the parameters too."""
        member = _member(leading, request)
        if member is None:
            return self._stranger()
        leading.heard_from(member)
        donors = [donor.to_fields() for donor in leading.members.donors(member.worker)]
        headers = _version_headers(leading, leading.publisher.published, member)
        named = _json({routes.DONORS: donors})
        return Response(200, {**headers, **named.headers}, named.body)

    async def _gradients(self, leading: Leading, request: Request) -> Response:
        return Response.of_reply(await leading.intake.receive(request.body))


_REPLICATION = frozenset({("POST", routes.ENTRIES), ("GET", routes.FOLLOWING)})


def _member(leading: Leading, request: Request) -> Member | None:
    return leading.members.with_token(request.headers.get(routes.TOKEN, ""))


def _not_led() -> Response:
    reason = "this coordinator does not lead the job: look for its leader in the store"
    return Response.of_reply(Reply(code=ReplyCode.STALE_EPOCH, reason=reason))


def _accepted(leading: Leading, headers: Mapping[str, str] | None = None) -> Response:
    response = Response.of_reply(Reply(code=ReplyCode.ACCEPTED, epoch=leading.epoch))
    return Response(response.status, {**response.headers, **(headers or {})}, response.body)


def _version_headers(leading: Leading, published: Published, member: Member) -> dict[str, str]:
    return {
        **_moment_headers(leading),
        **_lease_headers(leading, member),
        "etag": f'"{published.digest.hex()}"',
        "content-type": "application/octet-stream",
        routes.VERSION: str(published.version),
        routes.FINAL: "yes" if published.is_final else "no",
    }


def _moment_headers(leading: Leading) -> dict[str, str]:
    return {routes.EPOCH: str(leading.epoch), routes.MODE_EPOCH: str(leading.mode_epoch)}


def _lease_headers(leading: Leading, member: Member) -> dict[str, str]:
    lease = leading.lease_of(member.worker)
    return {} if lease is None else {routes.DATA_LEASE: str(lease)}


def _number(request: Request, name: str, default: float) -> float:
    try:
        value = float(request.query.get(name, default))
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _json(document: Mapping[str, Any]) -> Response:
    body = json.dumps(document, allow_nan=False).encode()
    return Response(200, {"content-type": "application/json"}, body)
