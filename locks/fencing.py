"""Fencing tokens, and a store that shows what they are for.

A lock cannot stop a holder that was frozen and does not know that its lease
ran out. What it guards can: it remembers the largest token it has seen and
refuses a smaller one. See M. Kleppmann, "How to do distributed locking" (2016).
"""

from typing import NewType

from pliska.locks.backends.base import (
    RECORD_BYTES_MAX,
    Absent,
    Backend,
    Create,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.errors import ConflictError, LockUsageError, StaleTokenError, StoreFormatError

FencingToken = NewType("FencingToken", int)
"""Strictly increasing for one name, over crashes, restarts and forced releases."""

_TOKEN_BYTES = 8


class FencedStore:
    """Named values that only the newest holder may write.

    The reference for anything that takes guarded writes: a write carries the
    token of the grant it is made under. The same token may write again; a
    smaller one than was ever accepted for that name is refused.
    """

    def __init__(self, backend: Backend, directory: str) -> None:
        self._backend = backend
        self._directory = directory

    def write(self, name: str, value: bytes, token: FencingToken) -> Revision:
        """Replace the value called `name`.

        Raises:
            StaleTokenError: A holder with a larger token has written.
            LockUsageError: The value is too large for one record.
        """
        if len(value) > RECORD_BYTES_MAX - _TOKEN_BYTES:
            raise LockUsageError(f"the value of {name!r} has {len(value)} bytes, too many")
        key = self._key(name)
        stored = token.to_bytes(_TOKEN_BYTES, "big") + value
        while True:
            record = self._backend.get(key)
            newest = 0 if record is None else _token_of(record)
            if token < newest:
                raise StaleTokenError(
                    f"{name!r} was written under token {newest}; token {token} is stale: the lock "
                    "it came from is held by somebody else by now"
                )
            try:
                if record is None:
                    return self._backend.transact([Absent(key)], [Create(key, stored)])
                check = Unmodified(key, record.modified)
                return self._backend.transact([check], [Update(key, stored)])
            except ConflictError:
                continue  # somebody wrote in between: compare with their token

    def read(self, name: str) -> tuple[FencingToken, bytes] | None:
        """The value called `name` and the token it was written under; None when absent."""
        record = self._backend.get(self._key(name))
        return None if record is None else (_token_of(record), record.value[_TOKEN_BYTES:])

    def _key(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _token_of(record: Record) -> FencingToken:
    if len(record.value) < _TOKEN_BYTES:
        raise StoreFormatError(f"{record.key!r} holds no fencing token: it is not a fenced value")
    return FencingToken(int.from_bytes(record.value[:_TOKEN_BYTES], "big"))
