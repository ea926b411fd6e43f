"""ZooKeeper requests that kazoo lacks: many reads in one, watches that stay, replies with a zxid.

Only bytes: each class writes one request and reads its reply, in the way
kazoo's own requests do. They need a server of version 3.6 or newer. Used by
the ZooKeeper backend's link, plan and watcher.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kazoo.exceptions import EXCEPTIONS
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

_ReplyHeader = struct.Struct(">iqi")  # xid, zxid, err

Result = object
"""What one operation answered; an exception of kazoo's when it failed."""


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


@dataclass(frozen=True, slots=True)
class Reply:
    """Results in the order of the operations.

    Attributes:
        zxid: The last transaction that the server had applied when it answered.
        results: An exception stands where an operation failed.
    """

    zxid: int
    results: tuple[Result, ...]


class _Operations:
    """Several operations in one request."""

    type: int

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations

    def serialize(self) -> bytes:
        """Write the operations, each after its header."""
        parts = [
            bytes(MultiHeader(operation.type, False, -1).serialize() + operation.serialize())
            for operation in self.operations
        ]
        return b"".join([*parts, bytes(MultiHeader(-1, True, -1).serialize())])


class ReadMany(_Operations):
    """Several `GetData` and `GetChildren` in one request; its answer is a `Reply`."""

    type = 22

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> Reply:
        """Read the answer."""
        return Reply(_zxid(reply), tuple(_results(reply, offset)))


class Transaction(_Operations):
    """Several changes and checks, applied together or not at all.

    kazoo takes the answer of a request of this type for a list, so it is a
    list with one `Reply`.
    """

    type = 14

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> list[Reply]:
        """Read the answer."""
        return [Reply(_zxid(reply), tuple(_results(reply, offset)))]


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Watch a node and all below it until the watch is removed; its answer is a zxid."""

    path: str
    type = 106

    def serialize(self) -> bytes:
        """Write the request."""
        return bytes(write_string(self.path) + int_struct.pack(PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> int:  # noqa: ARG003 - kazoo's protocol
        """Read the answer: changes after this transaction are announced."""
        return _zxid(reply)


@dataclass(frozen=True, slots=True)
class RemoveWatch:
    """Remove the watch that `AddWatch` set."""

    path: str
    type = 18

    def serialize(self) -> bytes:
        """Write the request."""
        return bytes(write_string(self.path) + int_struct.pack(ANY_WATCH))

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> bool:  # noqa: ARG003 - kazoo's protocol
        """Nothing to read."""
        return True


def _zxid(reply: bytes) -> int:
    _, zxid, _ = _ReplyHeader.unpack_from(reply, 0)
    return int(zxid)


def _results(reply: bytes, offset: int) -> Iterator[Result]:
    while True:
        header, offset = MultiHeader.deserialize(reply, offset)
        if header.done:
            return
        result, offset = _result(header.type, reply, offset)
        yield result


def _result(kind: int, reply: bytes, offset: int) -> tuple[Result, int]:
    if kind == ERROR_TYPE:
        (code,) = int_struct.unpack_from(reply, offset)
        return EXCEPTIONS[code](), offset + int_struct.size
    if kind == Create.type:
        path, offset = read_string(reply, offset)
        return path, offset
    if kind == Create2.type:
        _, offset = read_string(reply, offset)
        return _stat(reply, offset)
    if kind == SetData.type:
        return _stat(reply, offset)
    if kind == GetData.type:
        data, offset = read_buffer(reply, offset)
        stat, offset = _stat(reply, offset)
        return (bytes(data or b""), stat), offset
    if kind == GetChildren.type:
        return _names(reply, offset)
    return True, offset  # a check or a delete: done, and nothing more to say


def _stat(reply: bytes, offset: int) -> tuple[ZnodeStat, int]:
    stat = ZnodeStat._make(stat_struct.unpack_from(reply, offset))
    return stat, offset + stat_struct.size


def _names(reply: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(reply, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(reply, offset)
        names.append(name)
    return names, offset
