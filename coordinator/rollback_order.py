"""An operator's order to roll a job back, in the store: at most one is open.

`pliska model rollback --scope training` places it, in a transaction that checks that
nobody else did; whoever leads carries it out at a round boundary, or refuses it with
a reason. Its number is the training epoch that the rollback begins: the commit record
that carries it out raises the epoch to that, so it is carried out once, whoever
leads. Blocks.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError, RollbackConflictError
from pliska.coordinator.records.rollback import EXCLUDED_MAX, ROLLBACKS_MAX
from pliska.coordinator.wire.encoding import U64_MAX
from pliska.coordinator.wire.limits import NAME_BYTES_MAX, WHY_CHARACTERS_MAX
from pliska.locks import Absent, Check, ConflictError, Create, Record, Unmodified, Update

ORDER_BYTES_MAX = 64 * 1024
"""Largest order that is read."""
REFUSAL_CHARACTERS_MAX = 2000
"""Of the reason why an order was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackOrder:
    """What somebody wants.

    Attributes:
        number: The training epoch that it begins.
        target: The version whose state is to be restored.
        actor: Who wants it.
        reason: Why.
        excluded: Workers that the job is to go on without, sorted.
        refused: Why no leader will carry it out; empty while one may.
    """

    number: int
    target: int
    actor: str
    reason: str
    excluded: tuple[str, ...] = ()
    refused: str = ""

    def is_same_as(self, other: "RollbackOrder") -> bool:
        """Whether two people, or one twice, want the same for the same reason."""
        return (self.target, self.reason, self.excluded) == (
            other.target,
            other.reason,
            other.excluded,
        )

    def to_bytes(self) -> bytes:
        """Encode for the store, in JSON."""
        fields = {
            "number": self.number,
            "target": self.target,
            "actor": self.actor,
            "reason": self.reason,
            "excluded": list(self.excluded),
            "refused": self.refused,
        }
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "RollbackOrder":
        """Read what the store has.

        Raises:
            DamagedStateError: It is no order.
        """
        try:
            fields = json.loads(data[:ORDER_BYTES_MAX])
            return cls(
                number=_integer(fields["number"], ROLLBACKS_MAX),
                target=_integer(fields["target"], U64_MAX),
                actor=_text(fields["actor"], 1, WHY_CHARACTERS_MAX),
                reason=_text(fields["reason"], 1, WHY_CHARACTERS_MAX),
                excluded=_names(fields["excluded"]),
                refused=_text(fields["refused"], 0, REFUSAL_CHARACTERS_MAX),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedStateError(
                f"the job's rollback order in the store cannot be read: {error}"
            ) from error


def read_order(directory: JobDirectory) -> RollbackOrder | None:
    """Return the newest order, whatever became of it; None where there never was one.

    Raises:
        DamagedStateError: The record is no order.
        StoreError: The store does not answer.
    """
    return _order(directory.backend.get(directory.rollback_key))


def place_order(directory: JobDirectory, wanted: RollbackOrder) -> RollbackOrder:
    """Place an order, or join one that wants the same.

    Args:
        directory: The job in the store.
        wanted: Numbered one more than the training epoch that its author saw.

    Returns:
        The order that stands: one that is open, or was carried out as the last one, if
        it wants the same.

    Raises:
        RollbackConflictError: Another one is open, or came first.
        DamagedStateError: The record is no order.
        StoreError: The store does not answer.
    """
    record = directory.backend.get(directory.rollback_key)
    before = _order(record)
    if before is not None and not before.refused:
        if before.number in (wanted.number, wanted.number - 1) and before.is_same_as(wanted):
            return before
        if before.number >= wanted.number:
            raise RollbackConflictError(
                f"{directory.job}: a rollback to version {before.target} is under way already, "
                f"by {before.actor}: {before.reason}"
            )
    try:
        _put(directory, record, wanted)
    except ConflictError as error:
        raise RollbackConflictError(
            f"{directory.job}: somebody else ordered a rollback at the same time: look, and "
            "try again"
        ) from error
    return wanted


def refuse_order(
    directory: JobDirectory, order: RollbackOrder, reason: str, checks: Sequence[Check]
) -> None:
    """Note why an order will not be carried out, unless it was changed meanwhile.

    Args:
        directory: The job in the store.
        order: As it was read.
        reason: For who placed it.
        checks: What must hold, such as a leadership.

    Raises:
        StoreError: The store does not answer, or a check failed.
    """
    record = directory.backend.get(directory.rollback_key)
    if _order(record) == order:
        refused = replace(order, refused=reason[:REFUSAL_CHARACTERS_MAX])
        _put(directory, record, refused, checks)


def _put(
    directory: JobDirectory,
    before: Record | None,
    order: RollbackOrder,
    checks: Sequence[Check] = (),
) -> None:
    key, value = directory.rollback_key, order.to_bytes()
    unchanged: Check = Absent(key) if before is None else Unmodified(key, before.modified)
    change = Create(key, value) if before is None else Update(key, value)
    directory.backend.transact([*checks, unchanged], [change])


def _order(record: Record | None) -> RollbackOrder | None:
    return None if record is None else RollbackOrder.from_bytes(record.value)


def _integer(value: Any, highest: int) -> int:
    if type(value) is not int or not 1 <= value <= highest:
        raise ValueError(f"it has the number {str(value)[:40]}")
    return value


def _text(value: Any, shortest: int, longest: int) -> str:
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        raise ValueError("one of its texts is none, or has another length than it may")
    value.encode()  # half a surrogate pair cannot be written into a record
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > EXCLUDED_MAX:
        raise ValueError("its workers are no list, or too many")
    names = tuple(_text(each, 1, NAME_BYTES_MAX) for each in value)
    if not all("!" <= character <= "~" for name in names for character in name):
        raise ValueError("one of its workers has no name that a worker can have")
    if list(names) != sorted(set(names)):
        raise ValueError("its workers are not sorted")
    return names
