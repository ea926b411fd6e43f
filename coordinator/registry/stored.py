"""A record as it was read from the coordination store, ready to be compared and set.

Whoever changes it later sends `unmodified` along, so that the change is applied
only if nobody changed it since. Used by everything here that keeps records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pliska.coordinator.registry.errors import IntegrityError
from pliska.locks import Delete, Record, Revision, Unmodified, Update


class Encoded(Protocol):
    """A record that has a stored form."""

    def to_bytes(self) -> bytes:
        """Return the stored form."""


RecordT = TypeVar("RecordT", bound=Encoded)


@dataclass(frozen=True, slots=True)
class Stored(Generic[RecordT]):
    """A record, and where and in which revision it lay.

    Attributes:
        record: The record.
        key: Where it lies.
        modified: Revision to compare with when it is changed.
        created: Revision at which its key was made.
    """

    record: RecordT
    key: str
    modified: Revision
    created: Revision

    @property
    def unmodified(self) -> Unmodified:
        """The check that nobody changed it since."""
        return Unmodified(self.key, self.modified)

    def replaced_by(self, record: RecordT) -> Update:
        """Return the change that puts `record` in its place."""
        return Update(self.key, record.to_bytes())

    def removed(self) -> Delete:
        """Return the change that removes it."""
        return Delete(self.key)


def read_stored(
    found: Record, parse: Callable[[bytes, str], RecordT], key_of: Callable[[RecordT], str]
) -> Stored[RecordT]:
    """Read what the store returned.

    Args:
        found: The record, not trusted.
        parse: Reads its stored form; takes the bytes and what to call them in messages.
        key_of: Where a record lies, by what it says of itself.

    Raises:
        IntegrityError: It is malformed, or belongs under another key.
    """
    record = parse(found.value, found.key)
    if key_of(record) != found.key:
        raise IntegrityError(f"{found.key}: is another record than its place says; do not use it")
    return Stored(record, found.key, found.modified, found.created)
