"""Turns checks and changes into the operations of one ZooKeeper transaction. No I/O.

ZooKeeper can check a node's version only, which starts at 0 whenever the node
is made anew. So each check of a record that belongs to no session also checks
the version of its directory, and each deletion of such a record writes its
directory: a record deleted and made again in between does not pass for the old
one. (Records of a session need no such care: who made them names them
uniquely. A directory that the server removed because it was empty starts at 0
again too, but it does so no sooner than a minute after its last record went.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kazoo.exceptions import (
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.serialization import CheckVersion, Create2, SetData
from kazoo.protocol.serialization import Create as CreateNode
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import ACL

from pliska.locks.backends.base import (
    Absent,
    Change,
    Check,
    Create,
    Delete,
    Existing,
    Record,
    Unmodified,
    Update,
)
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.transactional import refusal
from pliska.locks.backends.zookeeper_reads import DIRECTORY, Node
from pliska.locks.backends.zookeeper_requests import EPHEMERAL_FLAG, Operation, Result
from pliska.locks.errors import ConflictError, LockUsageError

ANY_VERSION = -1

Seen = Mapping[str, Node | None]
"""The nodes of keys and of their directories, as they were read before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation and the key that it is about."""

    operation: Operation
    key: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How keys become nodes.

    Attributes:
        root: Path of the node that the store lives in; empty for the top.
        acl: Who may touch what we create.
    """

    root: str
    acl: tuple[ACL, ...]

    def path(self, key: str) -> str:
        """Path of the node that a key's record is."""
        return f"{self.root}/{key}" if key else self.root or "/"


def needs_reading(
    checks: Sequence[Check], changes: Sequence[Change], is_own: Callable[[str], bool]
) -> bool:
    """Whether `plan` must see nodes first.

    Args:
        checks: What must hold.
        changes: What to do.
        is_own: Whether a key is that of a record of our own sessions.
    """
    return bool(checks) or any(
        isinstance(change, Update) or (isinstance(change, Delete) and not is_own(change.key))
        for change in changes
    )


def newest_known(checks: Sequence[Check]) -> int:
    """Return the newest zxid that checks name, 0 if none does: a server may lag behind it."""
    known = [0]
    for check in checks:
        if isinstance(check, Existing):
            known.append(check.created)
        elif isinstance(check, Unmodified):
            known.append(check.modified)
    return max(known)


def keys_to_read(checks: Sequence[Check], changes: Sequence[Change]) -> list[str]:
    """The keys whose nodes `plan` wants to see."""
    keys = [operation.key for operation in (*checks, *changes)]
    return list(dict.fromkeys([*keys, *(directory_of(key) for key in keys)]))


def plan(
    checks: Sequence[Check], changes: Sequence[Change], seen: Seen, layout: Layout
) -> list[Step]:
    """Lay out the operations.

    Args:
        checks: What must hold.
        changes: What to do if it does.
        seen: Nodes read before; may be empty when nothing needed reading.
        layout: How keys become nodes.

    Raises:
        ConflictError: What was seen refuses it already.
    """
    if len(changes) == 1 and not checks and isinstance(changes[0], Create):
        return [_create_alone(changes[0], layout)]
    created = {change.key for change in changes if isinstance(change, Create)}
    steps: dict[Operation, Step] = {}
    for check in checks:
        for step in _check_steps(check, created, seen, layout):
            steps.setdefault(step.operation, step)
    changed: set[str] = set()
    result = list(steps.values())
    for change in changes:
        result += _change_steps(change, seen if change.key not in changed else {}, layout)
        changed.add(change.key)
    return result


def refused(results: Sequence[Result]) -> tuple[int, KazooException] | None:
    """Which operation the server refused, and why; None when everything was applied."""
    others = (RolledBackError, RuntimeInconsistency)
    for index, result in enumerate(results):
        if isinstance(result, KazooException) and not isinstance(result, others):
            return index, result
    return None


def lacks_directory(step: Step, error: Exception) -> bool:
    """Whether a step failed only because the directory of its key is not there."""
    is_creation = isinstance(step.operation, CreateNode | Create2)
    return is_creation and isinstance(error, NoNodeError)


def check_refusal(step: Step, error: Exception, seen: Seen) -> None:
    """Raise what a refusal means, given what was read after it; return when it may pass by now."""
    node = seen.get(step.key)
    is_record = node is not None and not node.is_directory
    if isinstance(error, NoChildrenForEphemeralsError):
        raise LockUsageError(
            f"{directory_of(step.key)!r} belongs to a session: ZooKeeper allows no record below it"
        )
    if isinstance(error, NodeExistsError) and node is not None:
        if is_record:
            raise ConflictError(f"{step.key!r} exists since revision {node.created}")
        raise LockUsageError(
            f"{step.key!r} has records below it: on ZooKeeper it must be created before them"
        )
    if isinstance(error, NotEmptyError) and is_record:
        raise LockUsageError(f"{step.key!r} has records below it: on ZooKeeper delete them first")
    if isinstance(error, NoNodeError | NotEmptyError) and not is_record:
        raise ConflictError(f"{step.key!r} does not exist")


def _check_steps(check: Check, created: set[str], seen: Seen, layout: Layout) -> list[Step]:
    node = seen.get(check.key)
    reason = refusal(check, _record(check.key, node))
    if reason is not None:
        raise ConflictError(reason)
    path = layout.path(check.key)
    if isinstance(check, Absent):
        if check.key in created or node is not None:
            return []  # the creation sees to it; and a directory cannot become a record
        return [
            Step(CreateNode(path, b"", layout.acl, 0), check.key),
            Step(DeleteNode(path, ANY_VERSION), check.key),
        ]
    if node is None:  # not for a check that was not refused
        return []
    steps = [Step(CheckVersion(path, node.version), check.key)]
    directory = _directory(check.key, seen)
    if not node.owner and directory is not None:
        above = directory_of(check.key)
        steps.append(Step(CheckVersion(layout.path(above), directory.version), above))
    return steps


def _change_steps(change: Change, seen: Seen, layout: Layout) -> list[Step]:
    key, path = change.key, layout.path(change.key)
    if isinstance(change, Create):
        # Among others only writing a node answers with the revision of the transaction.
        return [
            Step(CreateNode(path, b"", layout.acl, _flags(change)), key),
            Step(SetData(path, change.value, ANY_VERSION), key),
        ]
    if key in seen and _record(key, seen[key]) is None:
        raise ConflictError(f"{key!r} does not exist")
    if isinstance(change, Update):
        return [Step(SetData(path, change.value, ANY_VERSION), key)]
    steps = [Step(DeleteNode(path, ANY_VERSION), key)]
    node = seen.get(key)
    if node is not None and not node.owner and _directory(key, seen) is not None:
        above = directory_of(key)
        steps.append(Step(SetData(layout.path(above), DIRECTORY, ANY_VERSION), above))
    return steps


def _create_alone(change: Create, layout: Layout) -> Step:
    """By itself a creation answers with its revision."""
    path = layout.path(change.key)
    return Step(Create2(path, change.value, layout.acl, _flags(change)), change.key)


def _flags(change: Create) -> int:
    return EPHEMERAL_FLAG if change.session_id is not None else 0


def _directory(key: str, seen: Seen) -> Node | None:
    """The directory of a key when it is one of ours, which carries no record."""
    node = seen.get(directory_of(key))
    return node if node is not None and node.is_directory else None


def _record(key: str, node: Node | None) -> Record | None:
    return None if node is None or node.is_directory else node.record(key)
