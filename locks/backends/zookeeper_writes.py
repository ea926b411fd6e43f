"""Carries out transactions on ZooKeeper: reads what it must, tries, and explains a refusal.

`zookeeper_plan` decides; this does the input and output, makes missing
directories, and tries again when somebody else was in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.protocol.states import ZnodeStat

from pliska.locks.backends.base import Change, Check, Delete, Record, Revision
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_plan import (
    Layout,
    Seen,
    Step,
    check_refusal,
    keys_to_read,
    lacks_directory,
    needs_reading,
    newest_known,
    plan,
    refused,
)
from pliska.locks.backends.zookeeper_reads import DIRECTORY, read_nodes
from pliska.locks.backends.zookeeper_requests import (
    CONTAINER_FLAG,
    CreateContainer,
    Created,
    Operation,
    Reply,
)
from pliska.locks.errors import ConflictError, LockUsageError

ATTEMPTS_MAX = 50
TRANSACTION_BYTES_MAX = 900 * 1024
"""ZooKeeper breaks the connection over a request of 1 MiB (its `jute.maxbuffer`)."""
OPERATION_BYTES_MAX = 1_800
"""What a check or a change may take besides its value: three times a path, and headers."""

_REFUSALS = (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """A transaction that was applied.

    Attributes:
        revision: When.
        seen: What was read before it.
        read: What was read right after it, if that was wished and answered.
    """

    revision: Revision
    seen: Seen
    read: Reply | None = None

    def record_before(self, key: str) -> Record:
        """The record that an `Unmodified` check passed for."""
        node = self.seen[key]
        if node is None:
            raise ConflictError(f"{key!r} does not exist")
        return node.record(key)


class Writer:
    """Applies transactions. Safe to use from any thread."""

    def __init__(self, link: ZookeeperLink, layout: Layout) -> None:
        """Use `link` for reading and for making directories."""
        self._link = link
        self._layout = layout

    def apply(
        self,
        link: ZookeeperLink,
        checks: Sequence[Check],
        changes: Sequence[Change],
        is_own: Callable[[str], bool],
        until_s: float,
        reads: Sequence[Operation] = (),
    ) -> Applied:
        """Apply all or nothing.

        Args:
            link: Where the transaction goes; ephemeral records belong to its session.
            checks: What must hold.
            changes: What to do.
            is_own: Whether a key is that of a record of our own sessions, which is
                deleted without a look.
            until_s: When to give up.
            reads: What to read on `link` once it is applied.

        Raises:
            See `Backend.transact`.
        """
        _check_size(checks, changes)
        seen: Seen = {}
        if needs_reading(checks, changes, is_own):
            seen = self._read(checks, changes, until_s)
        for _ in range(ATTEMPTS_MAX):
            steps = plan(checks, changes, seen, self._layout)
            operations = [step.operation for step in steps]
            read: Reply | None = None
            if reads:
                reply, read = link.transact_and_read(operations, reads, until_s)
            else:
                reply = link.transact(operations, until_s)
            refusal = refused(reply.results)
            if refusal is None:
                return Applied(_revision(reply), seen, read)
            index, error = refusal
            seen = self._after_refusal(steps[index], error, checks, changes, until_s)
        raise ConflictError(f"{changes[0].key!r} kept changing: read it and decide again")

    def _after_refusal(
        self,
        step: Step,
        error: KazooException,
        checks: Sequence[Check],
        changes: Sequence[Change],
        until_s: float,
    ) -> Seen:
        """Make another attempt possible, or raise why there can be none."""
        if not isinstance(error, _REFUSALS):
            raise self._link.failure(error)
        if lacks_directory(step, error):
            self.make_directory(directory_of(step.key), until_s)
            return self._read(checks, changes, until_s) if checks else {}
        seen = self._read(checks, changes, until_s)
        check_refusal(step, error, seen)
        return seen

    def _read(self, checks: Sequence[Check], changes: Sequence[Change], until_s: float) -> Seen:
        keys = [key for key in keys_to_read(checks, changes) if key or self._layout.root]
        paths = [self._layout.path(key) for key in keys]
        nodes = read_nodes(self._link, paths, until_s, since=newest_known(checks))
        return dict(zip(keys, nodes, strict=True))

    def make_directory(self, key: str, until_s: float) -> None:
        """Make the directory and those above it. The server removes them when they are empty."""
        path = self._layout.path(key)
        ends = [end for end, character in enumerate(f"{path}/") if character == "/" and end > 0]
        paths = [path[:end] for end in ends]
        nodes = read_nodes(self._link, paths, until_s)
        missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
        if not missing:
            return
        reply = self._link.transact(
            [
                CreateContainer(each, DIRECTORY, self._layout.acl, CONTAINER_FLAG)
                for each in missing
            ],
            until_s,
        )
        refusal = refused(reply.results)
        # Somebody else may make or remove one just now: the next attempt sees it.
        if refusal is not None and not isinstance(refusal[1], _REFUSALS):
            raise self._link.failure(refusal[1])


def _check_size(checks: Sequence[Check], changes: Sequence[Change]) -> None:
    values = sum(len(change.value) for change in changes if not isinstance(change, Delete))
    size = values + OPERATION_BYTES_MAX * (len(checks) + len(changes))
    if size > TRANSACTION_BYTES_MAX:
        raise LockUsageError(
            f"a transaction of about {size} bytes is too large for ZooKeeper, which takes "
            f"{TRANSACTION_BYTES_MAX}: write its records one by one"
        )


def _revision(reply: Reply) -> Revision:
    """The transaction's own zxid, which every node that it wrote shows."""
    for result in reply.results:
        stat = result.stat if isinstance(result, Created) else result
        if isinstance(stat, ZnodeStat):
            return Revision(stat.mzxid)
    return Revision(reply.zxid)
