"""A client of a real store whose line to it can be cut: every call then fails at once."""

from collections.abc import Callable
from typing import Any

from pliska.locks import Backend, StoreUnavailableError

NO_CALLS = frozenset({"close", "follow", "forget", "open_feed", "wake"})
"""What asks the store nothing."""
WITH_PARTS = frozenset({"open_feed", "open_session"})


class Outage:
    """Stands before a backend; what is behind it stays untouched."""

    def __init__(self, backend: Backend) -> None:
        self.is_cut = False
        self.reads = 0
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return self._guarded(self._backend, name)

    def _guarded(self, target: Any, name: str) -> Any:
        value = getattr(target, name)
        if name == "service_catalog":
            return _Part(self, value)
        if not callable(value):
            return value
        return self._call(value, name)

    def _call(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self.is_cut and name not in NO_CALLS:
                raise StoreUnavailableError("the test cut the line")
            self.reads += name in ("get", "list")
            result = method(*arguments, **named)
            return _Part(self, result) if name in WITH_PARTS else result

        return call


class _Part:
    """A session, a feed or a catalog behind the same line."""

    def __init__(self, line: Outage, target: Any) -> None:
        self._line = line
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return self._line._guarded(self._target, name)
