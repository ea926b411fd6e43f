"""Typed calls to one coordinator: what workers, the command line and the demo use.

It finds the leader in the store, connects to the certificate that stands there,
and turns replies into values. It retries nothing: the caller knows whether that
makes sense.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from pliska.coordinator import routes
from pliska.coordinator.directory import JobDirectory, Leader
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError, ProtocolError
from pliska.coordinator.replication.donor_client import DonorClient
from pliska.coordinator.wire import Buffer, ClientResponse, Reply, ReplyCode, Signer, WireError
from pliska.coordinator.wire.encoding import U64_MAX
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.messages import EMPTY, PROTOCOL, Hello
from pliska.coordinator.wire.tls import client_context

__all__ = [
    "CoordinatorClient",
    "DonorClient",
    "Endpoint",
    "JobDirectory",
    "Leader",
    "Membership",
    "Newest",
    "NothingNewer",
    "ProtocolError",
    "Version",
    "job_snapshot",
    "parameters_path",
]

ValueT = TypeVar("ValueT")

CALL_TIMEOUT_S = 10.0
STATUS_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Membership:
    """What joining gave.

    Attributes:
        token: Secret that stands for the worker from now on.
        lease_s: The worker is given up after this long without a call.
    """

    token: str
    lease_s: float
    epoch: int

    def __repr__(self) -> str:
        """Leave the token out, so that it cannot reach a log."""
        return f"Membership(epoch={self.epoch}, lease_s={self.lease_s})"


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version as it was downloaded; its parameters are in the caller's memory.

    Attributes:
        mode_epoch: Of the mode in force; a gradient is signed for it.
        digest: Root of the hash tree that the parameters must have.
        is_final: No round follows.
        lease: Of the batch that the worker is to compute on; None where it has
            none yet.
    """

    version: int
    epoch: int
    mode_epoch: int
    digest: bytes
    is_final: bool
    lease: int | None


@dataclass(frozen=True, slots=True)
class Newest:
    """The last committed version, and who gives its parameters beside the coordinators.

    Attributes:
        donors: Workers. They may lag, lie or be gone: whoever fetches checks.
    """

    version: Version
    donors: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class NothingNewer:
    """There is no newer version yet.

    Attributes:
        lease: Of the batch that the worker is to compute on, where it wanted one
            and has one.
    """

    lease: int | None


class CoordinatorClient:
    """Calls to one coordinator about one job. Belongs to one event loop.

    Every call raises `TransportError` when no answer came, and `ProtocolError`
    when it is nonsense.
    """

    def __init__(self, endpoint: Endpoint, job: str) -> None:
        """Prepare to connect; nothing is sent yet."""
        self.endpoint = endpoint
        self.job = job
        self._http = HttpClient(
            endpoint.address,
            client_context(endpoint.certificate),
            reply_bytes_max=STATUS_BYTES_MAX,
        )

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close its connections."""
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.close()

    async def join(
        self,
        worker: str,
        incarnation: bytes,
        signer: Signer,
        manifest_digest: bytes,
        donor: Endpoint | None = None,
    ) -> Membership | Reply:
        """Prove the worker's key and become a member.

        Args:
            worker: Its name.
            incarnation: 16 bytes that this process drew.
            signer: Its key.
            manifest_digest: Of the model that it has built.
            donor: Where it gives parameters to others; None where it does not.

        Returns:
            The membership, or the reply that says why there is none.
        """
        challenge = await self._post("challenge")
        reply = _reply(challenge)
        if reply.code is not ReplyCode.ACCEPTED:
            return reply
        hello = Hello(
            protocol=PROTOCOL,
            job=self.job,
            worker=worker,
            incarnation=incarnation,
            key_id=signer.key_id,
            nonce=_header(challenge, routes.NONCE, bytes.fromhex),
            manifest_digest=manifest_digest,
            donor=EMPTY if donor is None else donor.to_bytes(),
        )
        response = await self._post("hello", body=signer.sign(hello).to_bytes())
        reply = _reply(response)
        if reply.code is not ReplyCode.ACCEPTED or reply.epoch is None:
            return reply
        token = _header(response, routes.TOKEN, str)
        return Membership(token, _header(response, routes.LEASE_S, float), reply.epoch)

    async def heartbeat(self, membership: Membership) -> Reply:
        """Keep the membership alive."""
        return _reply(await self._post("heartbeat", membership))

    async def leave(self, membership: Membership) -> Reply:
        """End the membership, so that no round waits for this worker."""
        return _reply(await self._post("leave", membership))

    async def members(self, membership: Membership) -> dict[str, int | None]:
        """Return the live workers, each with the lease of its next gradient if it has one."""
        response = await self._get("members", membership)
        workers = _object(response.body).get("workers")
        if not isinstance(workers, dict):
            raise ProtocolError("the coordinator's list of workers is malformed")
        return {worker: _lease(lease) for worker, lease in workers.items()}

    async def model(
        self,
        membership: Membership,
        after: int,
        wait_s: float,
        into: memoryview,
        *,
        wants_lease: bool = False,
    ) -> Version | NothingNewer | Reply:
        """Download the last committed version if it is newer than `after`.

        Args:
            membership: From `join`.
            after: A version; -1 for any.
            wait_s: How long the coordinator may wait for a newer one.
            into: 4 d bytes that the parameters are received in.
            wants_lease: Wait no longer once the worker has a lease.

        Returns:
            The version, or that there is no newer one yet, or a reply that says
            why there is none for this caller.
        """
        path = f"model?{routes.AFTER}={after}&{routes.WAIT_S}={wait_s}"
        if wants_lease:
            path += f"&{routes.LEASE}={routes.WANTED}"
        response = await self._get(path, membership, timeout_s=wait_s + CALL_TIMEOUT_S, into=into)
        if response.status == 204:
            return NothingNewer(_data_lease(response))
        if response.status != 200:
            return _reply(response)
        if len(response.body) != len(into):
            raise ProtocolError(f"{len(response.body)} bytes of parameters, expected {len(into)}")
        return _version(response)

    async def newest(self, membership: Membership) -> Newest | Reply:
        """Ask for the last committed version without its parameters."""
        response = await self._get("newest", membership)
        if response.status != 200:
            return _reply(response)
        return Newest(_version(response), _donors(response))

    async def push(self, frame: Iterable[Buffer]) -> Reply:
        """Send one gradient message; see `wire.gradient_frame`."""
        response = await self._post("gradients", body=frame)
        return _reply(response)

    async def status(self) -> dict[str, Any]:
        """Return the coordinator's snapshot of itself and, where it leads, of the job."""
        response = await self._http.request("GET", routes.STATUS, timeout_s=CALL_TIMEOUT_S)
        return _object(response.body)

    async def _get(
        self,
        action: str,
        membership: Membership,
        timeout_s: float = CALL_TIMEOUT_S,
        into: memoryview | None = None,
    ) -> ClientResponse:
        return await self._http.request(
            "GET",
            routes.job_path(self.job, action),
            headers={routes.TOKEN: membership.token},
            timeout_s=timeout_s,
            into=into,
        )

    async def _post(
        self,
        action: str,
        membership: Membership | None = None,
        body: Buffer | Iterable[Buffer] = b"",
    ) -> ClientResponse:
        return await self._http.request(
            "POST",
            routes.job_path(self.job, action),
            headers={} if membership is None else {routes.TOKEN: membership.token},
            body=body,
            timeout_s=CALL_TIMEOUT_S,
        )


async def job_snapshot(directory: JobDirectory) -> dict[str, Any]:
    """Return all there is to know about a job: the store's word, and its leader's where it answers.

    Returns:
        `job`, `leader` and `standbys` (names), `version` of the last commit;
        with a leader that answers also what `coordinator.status` describes.
        `problem` says why a leader did not answer; `waiting` says of each
        coordinator, where nobody leads, what it has and why it does not.
    """
    leader = await asyncio.to_thread(directory.leader)
    coordinators = await asyncio.to_thread(directory.coordinators)
    leading = leader.endpoint.name if leader else None
    names = [each.name for each in coordinators if each.name != leading]
    version = await asyncio.to_thread(directory.committed_version)
    snapshot = {"job": directory.job, "leader": leading, "standbys": names, "version": version}
    if leader is None:
        asked = await asyncio.gather(*(_own_word(each, directory.job) for each in coordinators))
        return {**snapshot, "waiting": asked}
    try:
        async with CoordinatorClient(leader.endpoint, directory.job) as client:
            return {**await client.status(), **snapshot}
    except (WireError, ProtocolError) as error:
        return {**snapshot, "problem": str(error)}


async def _own_word(endpoint: Endpoint, job: str) -> dict[str, Any]:
    """Ask a coordinator that does not lead what it has."""
    try:
        async with CoordinatorClient(endpoint, job) as client:
            told = await client.status()
    except (WireError, ProtocolError) as error:
        return {"coordinator": endpoint.name, "reason": str(error)}
    reason = told.get("cannot_lead") or told.get("reason") or told.get("role")
    version = told.get("version")
    return {"coordinator": endpoint.name, "version": version, "reason": reason}


def parameters_path(version: Version) -> str:
    """Return the path, below the job's, at which donors give a version's parameters."""
    number = f"{routes.VERSION_NUMBER}={version.version}"
    return f"{routes.PARAMETERS}?{number}&{routes.DIGEST}={version.digest.hex()}"


def _version(response: ClientResponse) -> Version:
    return Version(
        version=_header(response, routes.VERSION, int),
        epoch=_header(response, routes.EPOCH, int),
        mode_epoch=_header(response, routes.MODE_EPOCH, int),
        digest=_header(response, "etag", lambda tag: bytes.fromhex(tag.strip('"'))),
        is_final=_header(response, routes.FINAL, str) == "yes",
        lease=_data_lease(response),
    )


def _donors(response: ClientResponse) -> tuple[Endpoint, ...]:
    donors = _object(response.body).get(routes.DONORS)
    if not isinstance(donors, list) or not all(isinstance(each, dict) for each in donors):
        raise ProtocolError("the coordinator's list of donors is malformed")
    try:
        return tuple(Endpoint.from_fields(each) for each in donors[: routes.DONORS_MAX])
    except DamagedStateError as error:
        raise ProtocolError(f"the coordinator names a donor: {error}") from error


def _data_lease(response: ClientResponse) -> int | None:
    is_there = routes.DATA_LEASE in response.headers
    return _lease(_header(response, routes.DATA_LEASE, int)) if is_there else None


def _lease(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= U64_MAX):
        return value
    raise ProtocolError(f"the coordinator names the lease {str(value)[:100]!r}")


def _reply(response: ClientResponse) -> Reply:
    try:
        return Reply.from_json(response.body)
    except WireError as error:
        raise ProtocolError(
            f"the coordinator answered {response.status} without a reply: {error}"
        ) from error


def _header(response: ClientResponse, name: str, parse: Callable[[str], ValueT]) -> ValueT:
    value = response.headers.get(name)
    if value is None:
        raise ProtocolError(f"the coordinator's response lacks the header {name}")
    try:
        return parse(value)
    except ValueError as error:
        raise ProtocolError(f"the coordinator's response has {name}: {value[:100]!r}") from error


def _object(body: bytes | memoryview) -> dict[str, Any]:
    try:
        document = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the coordinator's response is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ProtocolError("the coordinator's response is not a JSON object")
    return document
