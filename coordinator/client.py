"""Typed calls to one coordinator: what workers, the command line and the demo use.

It finds the leader in the store, connects to the certificate that stands there,
and turns replies into values. It retries nothing: the caller knows whether that
makes sense.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pliska.coordinator import routes
from pliska.coordinator.answers import (
    Newest,
    NothingNewer,
    Version,
    donors_in,
    header_in,
    lease_in,
    lease_of,
    object_in,
    reply_in,
    version_in,
)
from pliska.coordinator.directory import JobDirectory, Leader, Sighting
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import ProtocolError
from pliska.coordinator.replication.donor_client import DonorClient
from pliska.coordinator.wire import Buffer, ClientResponse, Reply, ReplyCode, Signer, WireError
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.limits import BODY_BYTES_PER_S_MIN, MIB
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
    "Sighting",
    "Version",
    "job_snapshot",
    "parameters_path",
]

CALL_TIMEOUT_S = 10.0
PUSH_TIMEOUT_S = 20.0
"""A leader may receive from a thousand workers at once; whether it hangs, heartbeats tell."""
HELD_BYTES_MAX = 16 * MIB
"""What the systems of both sides may hold of what was sent and not read yet."""
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


class CoordinatorClient:
    """Calls to one coordinator about one job. Belongs to one event loop.

    Every call raises `TransportError` when no answer came, and `ProtocolError`
    when it is nonsense.
    """

    def __init__(self, endpoint: Endpoint, job: str) -> None:
        """Prepare to connect; nothing is sent yet."""
        self.endpoint = endpoint
        self.job = job
        self._asked_at = 0.0
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
        reply = reply_in(challenge)
        if reply.code is not ReplyCode.ACCEPTED:
            return reply
        hello = Hello(
            protocol=PROTOCOL,
            job=self.job,
            worker=worker,
            incarnation=incarnation,
            key_id=signer.key_id,
            nonce=header_in(challenge, routes.NONCE, bytes.fromhex),
            manifest_digest=manifest_digest,
            donor=EMPTY if donor is None else donor.to_bytes(),
        )
        response = await self._post("hello", body=signer.sign(hello).to_bytes())
        reply = reply_in(response)
        if reply.code is not ReplyCode.ACCEPTED or reply.epoch is None:
            return reply
        token = header_in(response, routes.TOKEN, str)
        return Membership(token, header_in(response, routes.LEASE_S, float), reply.epoch)

    def silent_s(self) -> float:
        """Return how long ago the last call began: each one keeps its member's lease."""
        return asyncio.get_running_loop().time() - self._asked_at

    async def heartbeat(self, membership: Membership) -> Reply:
        """Keep the membership alive while there is nothing else to say."""
        return reply_in(await self._post("heartbeat", membership))

    async def leave(self, membership: Membership) -> Reply:
        """End the membership, so that no round waits for this worker."""
        return reply_in(await self._post("leave", membership))

    async def members(self, membership: Membership) -> dict[str, int | None]:
        """Return the live workers, each with the lease of its next gradient if it has one."""
        response = await self._get("members", membership)
        workers = object_in(response.body).get("workers")
        if not isinstance(workers, dict):
            raise ProtocolError("the coordinator's list of workers is malformed")
        return {worker: lease_of(lease) for worker, lease in workers.items()}

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
            return NothingNewer(lease_in(response))
        if response.status != 200:
            return reply_in(response)
        if len(response.body) != len(into):
            raise ProtocolError(f"{len(response.body)} bytes of parameters, expected {len(into)}")
        return version_in(response)

    async def newest(self, membership: Membership) -> Newest | Reply:
        """Ask for the last committed version without its parameters."""
        response = await self._get("newest", membership)
        if response.status != 200:
            return reply_in(response)
        return Newest(version_in(response), donors_in(response))

    async def push(self, frame: Iterable[Buffer]) -> Reply:
        """Send one gradient message; see `wire.gradient_frame`.

        What both systems hold of it has time at the lowest pace that the leader allows.
        """
        parts = [memoryview(part) for part in frame]
        held = min(sum(part.nbytes for part in parts), HELD_BYTES_MAX)
        timeout_s = PUSH_TIMEOUT_S + held / BODY_BYTES_PER_S_MIN
        return reply_in(await self._post("gradients", body=parts, timeout_s=timeout_s))

    async def status(self) -> dict[str, Any]:
        """Return the coordinator's snapshot of itself and, where it leads, of the job."""
        response = await self._http.request("GET", routes.STATUS, timeout_s=CALL_TIMEOUT_S)
        return object_in(response.body)

    async def _get(
        self,
        action: str,
        membership: Membership,
        timeout_s: float = CALL_TIMEOUT_S,
        into: memoryview | None = None,
    ) -> ClientResponse:
        self._asked_at = asyncio.get_running_loop().time()
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
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> ClientResponse:
        self._asked_at = asyncio.get_running_loop().time()
        return await self._http.request(
            "POST",
            routes.job_path(self.job, action),
            headers={} if membership is None else {routes.TOKEN: membership.token},
            body=body,
            timeout_s=timeout_s,
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
