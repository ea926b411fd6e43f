"""Tells a forked child from the process that made a handle.

A forked child inherits connections, leases and locks as bytes in memory but
not as rights: using them would corrupt the parent's. Every client and handle
of this package asks here first.
"""

import os

from pliska.locks.errors import ForkedProcessError


class HomeProcess:
    """Remembers the process it was made in."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise `ForkedProcessError` in any other process."""
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                f"this handle belongs to process {self._pid} and was used in its forked child "
                f"{os.getpid()}: connect and open a session in the child"
            )
