"""Checks and changes as operations of a Consul transaction. Pure: no I/O, no randomness.

Consul binds a check to the index of a pair's last write. That is all that
`Unmodified` asks. `Existing` asks for the creation: it is sent as if the
record had never been written again, which is so for contenders; when that
fails, the caller reads the record and sends it anew, bound to the last write
of the same creation. What is known of last writes is called pins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliska.locks.backends.base import (
    Absent,
    Change,
    Check,
    Create,
    Existing,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.backends.consul_pair import written
from pliska.locks.errors import ConflictError, LockError, SessionLostError, StoreUnavailableError

OPERATIONS_MAX = 64

Pins = Mapping[str, Revision]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and the check or change that it is for."""

    subject: Check | Change
    body: Mapping[str, Any]

    def error(self, reason: str) -> LockError:
        """What it means that Consul refused this operation."""
        if self.body["Verb"] == "lock":
            if "session" in reason:
                return SessionLostError(f"the session has ended, open a new one: {reason}")
            if "lock delay" in reason:
                return StoreUnavailableError(
                    f"{reason}: the session that held it ended less than a lock-delay ago"
                )
        return ConflictError(reason)


def operations(
    prefix: str, checks: Sequence[Check], changes: Sequence[Change], pins: Pins, flags: int
) -> list[Operation]:
    """All that Consul has to do, in order.

    Args:
        prefix: What keys begin with in Consul.
        checks: Must hold before the changes.
        changes: Applied in order, each on what those before it left.
        pins: Last writes to bind `Existing`, `Update` and `Delete` to.
        flags: See `consul_pair.written`.
    """
    checked = {check.key for check in checks if not isinstance(check, Absent)}
    made = [
        Operation(check, {**body, "Key": prefix + check.key})
        for check in checks
        for body in [_check(check, pins)]
    ]
    for change in changes:
        bodies = _change(change, flags, change.key in checked, pins.get(change.key))
        made += [Operation(change, {**body, "Key": prefix + change.key}) for body in bodies]
        checked.discard(change.key)
    return made


def unbound_keys(checks: Sequence[Check], changes: Sequence[Change]) -> list[str]:
    """The keys whose existence takes an operation of its own unless a pin proves it."""
    checked = {check.key for check in checks}
    return [
        change.key
        for change in changes
        if not isinstance(change, Create) and change.key not in checked
    ]


def _check(check: Check, pins: Pins) -> dict[str, Any]:
    match check:
        case Absent():
            return {"Verb": "check-not-exists"}
        case Unmodified(_, modified):
            return {"Verb": "check-index", "Index": modified}
        case Existing(key, created):
            return {"Verb": "check-index", "Index": pins.get(key, created)}


def _change(
    change: Change, flags: int, is_checked: bool, pin: Revision | None
) -> Iterator[dict[str, Any]]:
    if isinstance(change, Create):
        if change.session_id is None:
            yield {"Verb": "cas", "Index": 0, **written(change.value, flags)}
        else:
            yield {"Verb": "check-not-exists"}
            yield {"Verb": "lock", "Session": change.session_id, **written(change.value, flags)}
        return
    pair = written(change.value, flags) if isinstance(change, Update) else {}
    verb = "set" if isinstance(change, Update) else "delete"
    if pin is not None and not is_checked:
        yield {"Verb": "cas" if verb == "set" else "delete-cas", "Index": pin, **pair}
        return
    if not is_checked:
        # A set creates and a delete ignores what is not there; a get fails.
        yield {"Verb": "get"}
    yield {"Verb": verb, **pair}
