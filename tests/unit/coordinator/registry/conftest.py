"""A registry on the memory store and a real directory, small tensors, and versions as data."""

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import (
    PromoteRequest,
    Registry,
    RollbackRequest,
    ServedModel,
    State,
    Tensor,
    VersionRecord,
)
from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.storage.storage import LocalStorage, Storage
from pliska.locks import Backend, OutcomeUnknownError, StoreUnavailableError, connect

NOW = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)


def floats(*numbers: float) -> Tensor:
    return Tensor.of_bytes("F32", (len(numbers),), struct.pack(f"<{len(numbers)}f", *numbers))


def model_of(number: int) -> dict[str, Tensor]:
    """Return tensors of which only one depends on the number."""
    return {"head": floats(number, number + 0.5), "frozen": floats(1, 2, 3)}


class Desk:
    """A registry with the model `digits`, whose n-th version has the tensors `model_of(n)`."""

    model = "digits"

    def __init__(self, backend: Backend, storage: Storage, **more: Any) -> None:
        self.backend = backend
        self.storage = storage
        self.registry = Registry(backend, storage, **{"now": lambda: NOW, **more})

    def register(self, *numbers: int) -> None:
        for number in numbers:
            self.registry.register(self.model, model_of(number), actor="ann")

    def promote(self, *versions: int, alias: str = "prod") -> None:
        for version in versions:
            self.registry.promote(self.promotion(version, alias=alias))

    def promotion(self, version: int, alias: str = "prod", **more: object) -> PromoteRequest:
        return PromoteRequest(model=self.model, alias=alias, version=version, actor="ann", **more)

    def rollback(self, **more: object) -> RollbackRequest:
        fields = {"actor": "bob", "reason": "worse", "alias": "prod", **more}
        return RollbackRequest(model=self.model, **fields)

    def pointed_at(self, alias: str = "prod") -> int:
        return self.registry.log(self.model, alias)[-1].to_version


@pytest.fixture
def backend() -> Backend:
    return connect("memory:")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "artifacts")


@pytest.fixture
def desk(backend: Backend, storage: LocalStorage) -> Desk:
    return Desk(backend, storage)


@pytest.fixture
def serve(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ServedModel[bytes]]]:
    """Begin to serve `digits@prod` as a node; what it serves are the bytes of `head`."""
    monkeypatch.setattr("pliska.coordinator.registry.serving.POLL_S", 0.2)
    opened: list[ServedModel[bytes]] = []

    def begin(node: str = "n1", **more: Any) -> ServedModel[bytes]:
        given = {"load": lambda loaded: loaded.tensors["head"], "timeout_s": 20.0, **more}
        served = ServedModel.open(
            given.pop("registry", desk.registry),
            desk.model,
            "prod",
            node=node,
            state=given.pop("state", tmp_path / f"state-{node}"),
            **given,
        )
        opened.append(served)
        return served

    yield begin
    for served in opened:
        served.close()


@pytest.fixture
def desk_on() -> type[Desk]:
    return Desk


@pytest.fixture
def tensors() -> Callable[[int], dict[str, Tensor]]:
    return model_of


@pytest.fixture
def version_record() -> Callable[..., VersionRecord]:
    """Return a version as data, READY unless said otherwise."""

    def make(version: int, state: State = State.READY, parent: int | None = None) -> VersionRecord:
        return VersionRecord(
            namespace="default",
            model="digits",
            version=version,
            content_id=digest_of(f"content {version}".encode()),
            manifest_digest=(
                None if state is State.PENDING else digest_of(f"manifest {version}".encode())
            ),
            state=state,
            state_reason="",
            parent=parent,
            tensors=1,
            nbytes=4,
            registered_at="2031-05-04T03:02:01.000Z",
            registered_by="ann",
        )

    return make


class LosingBackend:
    """A real store whose answers to transactions get lost, as scripted.

    Each transaction takes the next word: `applied` (the answer is lost, the
    change is there), `dropped` (neither), `refused` (no connection), or `ok`.
    """

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.script: list[str] = []
        self.is_readable = True

    def __getattr__(self, name: str) -> object:
        if name in ("get", "list") and not self.is_readable:
            raise StoreUnavailableError("no connection")
        return getattr(self._inner, name)

    def transact(self, *arguments: object, **more: object) -> object:
        word = self.script.pop(0) if self.script else "ok"
        if word == "refused":
            raise StoreUnavailableError("no connection")
        if word in ("ok", "applied"):
            revision = self._inner.transact(*arguments, **more)
            if word == "ok":
                return revision
        raise OutcomeUnknownError("the connection broke")


class InterruptedBackend:
    """A real store before each of whose transactions something else may happen."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.before: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def transact(self, *arguments: object, **more: object) -> object:
        self.before()
        return self._inner.transact(*arguments, **more)

    def once(self, event: Callable[[], None]) -> None:
        """Let `event` happen before the next transaction only."""

        def happen() -> None:
            self.before = lambda: None
            event()

        self.before = happen


@pytest.fixture
def interrupted(backend: Backend) -> InterruptedBackend:
    return InterruptedBackend(backend)


@pytest.fixture
def losing(backend: Backend) -> LosingBackend:
    return LosingBackend(backend)
