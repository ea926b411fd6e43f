"""A model in a serving process that follows an alias: loaded beside, switched at once, fenced.

    served = ServedModel.open(registry, "digits", "prod", load=build, state=Path("state"))
    ...
    answer = served.current.model(inputs)

The process loads what the alias points at, tells operations when their target is
ready, and switches when the alias has moved: it acts on the alias, never on
anybody's word (see `node`). It is not a server: examples/serve.py makes one of it.
"""

import dataclasses
import logging
import socket
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Generic, Self

from pliska.coordinator.registry.accepted import AcceptedEntry
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.errors import NotServingError, RegistryUsageError
from pliska.coordinator.registry.names import check_alias, check_model, check_node
from pliska.coordinator.registry.node import Load, Node
from pliska.coordinator.registry.nodes import NodeRecord
from pliska.coordinator.registry.presence import Presence
from pliska.coordinator.registry.registry import Registry
from pliska.coordinator.registry.view import ModelT, Standing
from pliska.discovery.retry import retry_pause_s
from pliska.locks import LockError

LEASE_S = 10.0
START_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
POLL_S = 2.0
"""How often to look at the alias though nobody said that it changed."""


_log = logging.getLogger(__name__)


class WhenStale(StrEnum):
    """What a process does when it cannot know that what it serves is up to date."""

    SERVE = "serve"
    """It goes on, and says so: `Serving.stale` has the reason."""
    STOP = "stop"
    """It serves nothing: asking for the model raises `NotServingError`."""


@dataclass(frozen=True, slots=True)
class Serving(Generic[ModelT]):
    """One model to answer one request with; it stays whole whatever happens meanwhile.

    Attributes:
        model: What `load` made of it.
        version: Its number.
        manifest_digest: Its manifest.
        gen: The generation of the alias.
        is_canary: Whether it is the version that only a part of the requests gets.
        stale: Why it may be out of date; empty when it is not.
    """

    model: ModelT
    version: int
    manifest_digest: Digest
    gen: int
    is_canary: bool
    stale: str


class ServedModel(Generic[ModelT]):
    """The model that an alias points at. Make one with `open`. Safe to use from any thread."""

    def __init__(
        self,
        registry: Registry,
        record: NodeRecord,
        load: Load[ModelT],
        state: Path,
        when_stale: WhenStale,
        presence: Presence,
    ) -> None:
        """Use `open`, which waits until it serves."""
        parts = registry.namespace
        self._backend = parts.backend
        self._directory = parts.keys.alias_directory(record.model, record.alias)
        self._who = f"{record.node} of {record.model}@{record.alias}"
        self._when_stale = when_stale
        self._presence = presence
        self._accepted = AcceptedEntry(state, record.namespace, record.model, record.alias)
        self._node = Node(parts, record, load, self._accepted, presence, self._hear)
        self._changed = threading.Condition()
        self._standing: Standing[ModelT] = Standing(None, "the store has not answered yet", "")
        self._closed = threading.Event()
        self._random = SystemRandom()
        self._thread = threading.Thread(target=self._run, name="pliska-serving", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        registry: Registry,
        model: str,
        alias: str,
        *,
        load: Load[ModelT],
        state: Path,
        node: str | None = None,
        when_stale: WhenStale = WhenStale.SERVE,
        lease_s: float = LEASE_S,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Self:
        """Load what the alias points at, and follow it until `close`.

        Args:
            registry: Where the model is. Its `signatures_min` and `approvals_min`
                are what is asked of versions and of the alias.
            model: The model.
            alias: The alias.
            load: Makes a model of verified tensors, beside the one that is served;
                what it raises is the reason why an operation is called off.
            state: Directory of this process: the newest generation that was
                accepted is kept there, and older ones are refused for ever.
            node: Name of this process among those that serve; the host's name by default.
            when_stale: What to do when the lease in the store is lost, when the alias
                is refused, or when what it points at cannot be loaded.
            lease_s: How long others may still count on this process after it died.
            timeout_s: How long the first model may take.

        Raises:
            NotServingError: There was nothing to serve within `timeout_s`; the
                message says why.
            RegistryUsageError: A name is malformed.
            RefusedError: Another process of this machine uses `state`.
            StorageError: `state` cannot be used.
        """
        if node is None:
            node = socket.gethostname().lower()
        record = NodeRecord(
            registry.namespace.name, check_model(model), check_alias(alias), check_node(node), ""
        )
        presence = Presence(registry.namespace.backend, lease_s)
        served = cls(registry, record, load, state, when_stale, presence)
        try:
            is_serving = served.wait_for_gen(1, timeout_s)
        except BaseException:
            served.close()
            raise
        if is_serving:
            return served
        served.close()
        raise NotServingError(f"node {served._who} serves nothing: {served._standing.problem}")

    @property
    def current(self) -> Serving[ModelT]:
        """The model that the alias points at.

        Raises:
            NotServingError: It may be out of date, and the policy is to stop then.
        """
        return self._serving(is_canary=False)

    def draw(self, point: float) -> Serving[ModelT]:
        """Return the model for one request, by the weights of a canary where one runs.

        Args:
            point: Where the request lies, from 0 to less than 1: at random, or the
                same for requests that belong together. The lowest hundredths go to
                the canary, so whoever is given it keeps it as its share grows.

        Raises:
            NotServingError: As `current`.
            RegistryUsageError: `point` is out of its range.
        """
        if not 0 <= point < 1:
            raise RegistryUsageError(f"a point is from 0 to less than 1, not {point}")
        view = self._standing.view
        return self._serving(is_canary=view is not None and point * 100 < view.percent)

    def wait_for_gen(self, gen: int, timeout_s: float) -> bool:
        """Wait until it serves this generation of the alias, or a later one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._gen >= gen, timeout_s)

    def close(self) -> None:
        """Serve no longer, and be gone from the store. Models in use stay as they are."""
        self._closed.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        self._presence.close()
        self._accepted.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _gen(self) -> int:
        view = self._standing.view
        return 0 if view is None else view.gen

    def _serving(self, *, is_canary: bool) -> Serving[ModelT]:
        standing = self._standing
        view, stale = standing.view, self._stale(standing)
        if view is None or (stale and self._when_stale is WhenStale.STOP):
            raise NotServingError(f"node {self._who} serves nothing: {stale}")
        held = view.canary if is_canary and view.canary is not None else view.main
        return Serving(
            held.model, held.version, held.manifest_digest, view.gen, held is view.canary, stale
        )

    def _stale(self, standing: Standing[ModelT]) -> str:
        if standing.problem:
            return standing.problem
        if not self._presence.is_alive or standing.incarnation != self._presence.incarnation:
            return "its lease in the store was lost"
        return ""

    def _hear(self, standing: Standing[ModelT]) -> None:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                sighting = self._node.read()
                self._node.take(sighting)
                failures = 0
                # Looked at again even without a change: a watch may be lost.
                self._backend.wait_for_change(self._directory, sighting.revision, POLL_S)
            except LockError as error:
                failures += 1
                self._node.miss(str(error))
                self._closed.wait(retry_pause_s(failures, self._random))
            except Exception as error:  # noqa: BLE001 - without this thread nobody would ever know
                failures += 1
                _log.exception("a node's step failed: node=%s", self._who)
                self._hear(dataclasses.replace(self._standing, problem=f"internal error: {error}"))
                self._closed.wait(retry_pause_s(failures, self._random))
