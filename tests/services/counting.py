"""A client of a real store that counts what it reads."""

from pliska.locks import Backend


class CountingListings:
    """A client that counts how often a directory is read."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def list(self, *arguments: object, **named: object) -> object:
        self.count += 1
        return self._backend.list(*arguments, **named)  # type: ignore[arg-type]

    def create_and_list(self, *arguments: object, **named: object) -> object:
        self.count += 1
        return self._backend.create_and_list(*arguments, **named)  # type: ignore[arg-type]
