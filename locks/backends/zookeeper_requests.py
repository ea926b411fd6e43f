"""ZooKeeper's requests and their answers as bytes, in the way that the backend asks.

Each class writes one request and reads its answer; there is no I/O. Operations
are kazoo's own classes; what kazoo lacks is here: many reads in one, watches
that stay, answers with a zxid. They need a server of version 3.6 or newer.
Used by the ZooKeeper backend's link, plan and watcher.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kazoo.exceptions import EXCEPTIONS, KazooException
from kazoo.protocol.serialization import (
    Create,
    Create2,
    GetChildren,
    GetData,
    MultiHeader,
    SetData,
    int_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

EPHEMERAL_FLAG = 1
SEQUENCE_FLAG = 2
CONTAINER_FLAG = 4
ANY_WATCH = 3
PERSISTENT_RECURSIVE = 1
ERROR_TYPE = -1

Result = object
"""What one operation answered; an exception of kazoo's when it failed."""


class Created(NamedTuple):
    """What a creation answered that was asked for by itself."""

    path: str
    stat: ZnodeStat


class Operation(Protocol):
    """One of kazoo's requests that may be part of several in one: compared and hashed by value."""

    @property
    def type(self) -> int:
        """ZooKeeper's number for it."""

    def serialize(self) -> bytes:
        """Write it."""


class CreateContainer(Create2):  # type: ignore[misc] # kazoo has no types
    """Create a node that the server removes some time after its last child has gone."""

    type = 19


class Answered(NamedTuple):
    """An answer as it came.

    Attributes:
        zxid: The last transaction that the server had applied when it answered.
        error: ZooKeeper's number; 0 when all is well.
        frame: The bytes, those of the header too.
        offset: Where the header ends.
    """

    zxid: int
    error: int
    frame: bytes
    offset: int

    def refusal(self) -> KazooException | None:
        """What the server says is wrong."""
        return EXCEPTIONS[self.error]() if self.error else None

    def check(self) -> None:
        """Raise what the server says is wrong."""
        error = self.refusal()
        if error is not None:
            raise error


class Request(Protocol):
    """What is sent to the server in one frame."""

    @property
    def type(self) -> int:
        """ZooKeeper's number for it."""

    def serialize(self) -> bytes:
        """Write it."""

    def read(self, answered: Answered) -> object:
        """Read its answer; raise kazoo's exception for an error."""


class Reply(NamedTuple):
    """Results in the order of the operations.

    Attributes:
        zxid: The last transaction that the server had applied when it answered.
        results: An exception stands where an operation failed.
    """

    zxid: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class One:
    """One operation by itself; a refusal is its result."""

    operation: Operation

    @property
    def type(self) -> int:
        """See `Request`."""
        return self.operation.type

    def serialize(self) -> bytes:
        """See `Request`."""
        return self.operation.serialize()

    def read(self, answered: Answered) -> Reply:
        """See `Request`."""
        result: Result = answered.refusal()
        if result is None:
            result, _ = _result(self.type, answered.frame, answered.offset)
        return Reply(answered.zxid, (result,))


@dataclass(frozen=True, slots=True)
class _Several:
    """Several operations in one request."""

    operations: Sequence[Operation]

    def serialize(self) -> bytes:
        """Write the operations, each after its header."""
        parts = [
            bytes(MultiHeader(operation.type, False, -1).serialize() + operation.serialize())
            for operation in self.operations
        ]
        return b"".join([*parts, bytes(MultiHeader(-1, True, -1).serialize())])

    def read(self, answered: Answered) -> Reply:
        """See `Request`."""
        answered.check()
        return Reply(answered.zxid, tuple(_results(answered.frame, answered.offset)))


class ReadMany(_Several):
    """Several `GetData` and `GetChildren`, all of one moment."""

    type = 22


class Transaction(_Several):
    """Several changes and checks, applied together or not at all."""

    type = 14


class Close:
    """End the session and the connection."""

    type = -11

    def serialize(self) -> bytes:
        """See `Request`."""
        return b""

    def read(self, answered: Answered) -> None:
        """See `Request`."""
        answered.check()


@dataclass(frozen=True, slots=True)
class _OfPath:
    """A request that is about one path, and answered by a zxid."""

    path: str

    def serialize(self) -> bytes:
        """See `Request`."""
        return bytes(write_string(self.path))

    def read(self, answered: Answered) -> int:
        """See `Request`."""
        answered.check()
        return answered.zxid


class Sync(_OfPath):
    """Have the server catch up: what is read behind it has seen all that was acknowledged."""

    type = 9


class AddWatch(_OfPath):
    """Watch a node and all below it until the watch is removed.

    Changes after the zxid of its answer are announced.
    """

    type = 106

    def serialize(self) -> bytes:
        """See `Request`."""
        return bytes(write_string(self.path) + int_struct.pack(PERSISTENT_RECURSIVE))


class RemoveWatch(_OfPath):
    """Remove whatever watches are set on a path."""

    type = 18

    def serialize(self) -> bytes:
        """See `Request`."""
        return bytes(write_string(self.path) + int_struct.pack(ANY_WATCH))


def _results(frame: bytes, offset: int) -> Iterator[Result]:
    while True:
        header, offset = MultiHeader.deserialize(frame, offset)
        if header.done:
            return
        result, offset = _result(header.type, frame, offset)
        yield result


def _result(kind: int, frame: bytes, offset: int) -> tuple[Result, int]:
    if kind == ERROR_TYPE:
        (code,) = int_struct.unpack_from(frame, offset)
        return EXCEPTIONS[code](), offset + int_struct.size
    if kind == Create.type:
        path, offset = read_string(frame, offset)
        return path, offset
    if kind in (Create2.type, CreateContainer.type):
        path, offset = read_string(frame, offset)
        stat, offset = _stat(frame, offset)
        return Created(path, stat), offset
    if kind == SetData.type:
        return _stat(frame, offset)
    if kind == GetData.type:
        data, offset = read_buffer(frame, offset)
        stat, offset = _stat(frame, offset)
        return (bytes(data or b""), stat), offset
    if kind == GetChildren.type:
        return _names(frame, offset)
    return True, offset  # a check or a delete: done, and nothing more to say


def _stat(frame: bytes, offset: int) -> tuple[ZnodeStat, int]:
    stat = ZnodeStat._make(stat_struct.unpack_from(frame, offset))
    return stat, offset + stat_struct.size


def _names(frame: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(frame, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(frame, offset)
        names.append(name)
    return names, offset
