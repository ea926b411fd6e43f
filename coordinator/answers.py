"""What a coordinator's responses to workers mean: versions, leases, donors, replies.

Whatever does not fit is a `ProtocolError`; nothing here is sent or waited for.
Called by `coordinator.client`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pliska.coordinator import routes
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError, ProtocolError
from pliska.coordinator.wire import ClientResponse, Reply, WireError
from pliska.coordinator.wire.encoding import U64_MAX

ValueT = TypeVar("ValueT")


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


def version_in(response: ClientResponse) -> Version:
    """Return the version that a response names."""
    return Version(
        version=header_in(response, routes.VERSION, int),
        epoch=header_in(response, routes.EPOCH, int),
        mode_epoch=header_in(response, routes.MODE_EPOCH, int),
        digest=header_in(response, "etag", lambda tag: bytes.fromhex(tag.strip('"'))),
        is_final=header_in(response, routes.FINAL, str) == "yes",
        lease=lease_in(response),
    )


def donors_in(response: ClientResponse) -> tuple[Endpoint, ...]:
    """Return the workers that a response names as donors."""
    donors = object_in(response.body).get(routes.DONORS)
    if not isinstance(donors, list) or not all(isinstance(each, dict) for each in donors):
        raise ProtocolError("the coordinator's list of donors is malformed")
    try:
        return tuple(Endpoint.from_fields(each) for each in donors[: routes.DONORS_MAX])
    except DamagedStateError as error:
        raise ProtocolError(f"the coordinator names a donor: {error}") from error


def lease_in(response: ClientResponse) -> int | None:
    """Return the lease that a response names; None where it names none."""
    is_there = routes.DATA_LEASE in response.headers
    return lease_of(header_in(response, routes.DATA_LEASE, int)) if is_there else None


def lease_of(value: object) -> int | None:
    """Return a lease as JSON or a header has it."""
    if value is None or (type(value) is int and 0 <= value <= U64_MAX):
        return value
    raise ProtocolError(f"the coordinator names the lease {str(value)[:100]!r}")


def reply_in(response: ClientResponse) -> Reply:
    """Return the reply that a response is."""
    try:
        return Reply.from_json(response.body)
    except WireError as error:
        raise ProtocolError(
            f"the coordinator answered {response.status} without a reply: {error}"
        ) from error


def header_in(response: ClientResponse, name: str, parse: Callable[[str], ValueT]) -> ValueT:
    """Return what a header says, as `parse` reads it."""
    value = response.headers.get(name)
    if value is None:
        raise ProtocolError(f"the coordinator's response lacks the header {name}")
    try:
        return parse(value)
    except ValueError as error:
        raise ProtocolError(f"the coordinator's response has {name}: {value[:100]!r}") from error


def object_in(body: bytes | memoryview) -> dict[str, Any]:
    """Return the JSON object that a body is."""
    try:
        document = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the coordinator's response is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ProtocolError("the coordinator's response is not a JSON object")
    return document
