"""The seam for stores that number records, as ZooKeeper's sequential nodes are.

The lock recipes of ZooKeeper's other clients take turns by such numbers, at the
end of the records' names. A backend of such a store offers this as
`numbered_records`. No other backend needs it.
"""

from typing import Protocol, runtime_checkable

from pliska.locks.backends.base import CALL_TIMEOUT_S, BackendSession, Record


class NumberedRecords(Protocol):
    """Adds records whose names end in a number that grows. Safe to use from any thread."""

    def create(
        self,
        directory: str,
        prefix: str,
        value: bytes,
        session: BackendSession,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Record:
        """Add a record of a session's below `directory`, called `prefix` and the next number.

        Raises:
            OutcomeUnknownError: The answer was lost; `delete` what may be there.
            SessionLostError: The session has ended.
        """

    def delete(
        self,
        directory: str,
        prefix: str,
        session: BackendSession,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """Remove all that `create` made with this prefix; False when there was nothing."""


@runtime_checkable
class NumberingBackend(Protocol):
    """A backend whose store numbers records."""

    @property
    def numbered_records(self) -> NumberedRecords:
        """The records, through the backend's connections."""
