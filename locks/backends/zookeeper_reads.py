"""Reads records out of ZooKeeper's nodes, and says which nodes are only directories.

A record is a node with the record's value. The nodes above it that are no
records themselves carry `DIRECTORY` as their data. Used by the ZooKeeper
backend and its watcher.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetChildren, GetData

from pliska.locks.backends.base import Record, Revision
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_requests import Operation, Reply, Result

DIRECTORY = b"\0pliska directory"
"""Data of a node that is no record but has records below it."""

READS_MAX = 200
"""Reads in one request; what they answer stays within tens of megabytes."""


class Node(NamedTuple):
    """What one read found.

    Attributes:
        created: zxid of its creation.
        modified: zxid of the last change of its data.
        children_changed: zxid of the last creation or deletion below it.
        version: How often its data was changed.
        owner: The session whose end deletes it; 0 for none.
        has_children: Whether there are nodes below it.
    """

    data: bytes
    created: int
    modified: int
    children_changed: int
    version: int
    owner: int
    has_children: bool

    @property
    def is_directory(self) -> bool:
        """Whether it is no record."""
        return self.data == DIRECTORY

    def record(self, key: str) -> Record:
        """The record that it is."""
        session_id = f"{self.owner & (2**64 - 1):016x}" if self.owner else None
        return Record(key, self.data, Revision(self.created), Revision(self.modified), session_id)


def read_nodes(
    link: ZookeeperLink, paths: Sequence[str], until_s: float, since: int = 0
) -> list[Node | None]:
    """Read nodes, None for those that do not exist; what was acknowledged before is seen.

    Args:
        link: Where to read.
        paths: Which.
        until_s: When to give up.
        since: See `ZookeeperLink.read`.
    """
    first = link.read(_get(paths[:READS_MAX]), until_s, since)
    return [
        *(node_read(link, result) for result in first.results),
        *_read_on(link, paths[READS_MAX:], until_s),
    ]


def read_children(
    link: ZookeeperLink, path: str, likely: Sequence[str], until_s: float
) -> tuple[dict[str, Node] | None, Revision]:
    """Read the nodes below one by their names, None when it does not exist.

    Args:
        link: Where to read.
        path: The node above.
        likely: Names that are probably there: when there are no others, one request is enough.
        until_s: When to give up.

    Returns:
        The nodes, and a revision: all that happened until then is in them, and
        a node may have changed after.
    """
    reply = link.read(children_reads(path, likely), until_s)
    return children_read(link, reply, path, likely, until_s), Revision(reply.zxid)


def children_reads(path: str, likely: Sequence[str]) -> list[Operation]:
    """The operations that `children_read` takes the answers of; see `read_children`."""
    return [GetChildren(path, None), *_get([f"{path}/{name}" for name in likely])]


def children_read(
    link: ZookeeperLink, reply: Reply, path: str, likely: Sequence[str], until_s: float
) -> dict[str, Node] | None:
    """The nodes below `path`, the unlikely ones read on `link`, where `reply` came from.

    `read_children` says the rest.
    """
    names, *results = reply.results
    if isinstance(names, NoNodeError):
        return None
    if not isinstance(names, list):
        raise link.failure(names)
    nodes = {
        name: node_read(link, result)
        for name, result in zip(likely, results, strict=True)
        if name in names
    }
    others = [name for name in names if name not in nodes]
    read = _read_on(link, [f"{path}/{name}" for name in others], until_s)
    nodes.update(zip(others, read, strict=True))
    return {name: node for name, node in nodes.items() if node is not None}


def last_change(link: ZookeeperLink, path: str, until_s: float) -> int:
    """Read at which revision the record `path`, or one directly below it, changed last.

    As the server of this connection knows it, which announces on the connection whatever
    it learns later. It may be too late but never too early: a directory that comes or goes
    looks like a record, and where there is no node, any change beside it or
    beside a node above it counts.
    """
    reply = link.read_on([*_get([path]), *children_reads(path, ())], until_s)
    own = node_read(link, reply.results[0])
    if own is None:
        return _last_change_above(link, path, until_s)
    below = reply._replace(results=reply.results[1:])
    children = children_read(link, below, path, (), until_s) or {}
    records = (node for node in children.values() if not node.is_directory)
    changes = [node.modified for node in records]
    return max([own.children_changed, 0 if own.is_directory else own.modified, *changes])


def _last_change_above(link: ZookeeperLink, path: str, until_s: float) -> int:
    above = []
    while path:
        path = directory_of(path)
        above.append(path or "/")
    reply = link.read_on(_get(above), until_s)
    nearest = next(result for result in reply.results if not isinstance(result, NoNodeError))
    node = node_read(link, nearest)
    return 0 if node is None else node.children_changed


def _read_on(link: ZookeeperLink, paths: Sequence[str], until_s: float) -> list[Node | None]:
    nodes: list[Node | None] = []
    for start in range(0, len(paths), READS_MAX):
        reply = link.read_on(_get(paths[start : start + READS_MAX]), until_s)
        nodes += [node_read(link, result) for result in reply.results]
    return nodes


def _get(paths: Sequence[str]) -> list[Operation]:
    return [GetData(path, None) for path in paths]


def node_read(link: ZookeeperLink, result: Result) -> Node | None:
    """The node that a `GetData` on `link` found; None when there is none."""
    if isinstance(result, NoNodeError):
        return None
    if not isinstance(result, tuple):
        raise link.failure(result)
    data, stat = result
    return Node(
        data,
        created=stat.czxid,
        modified=stat.mzxid,
        children_changed=stat.pzxid,
        version=stat.version,
        owner=stat.ephemeralOwner,
        has_children=stat.numChildren > 0,
    )
