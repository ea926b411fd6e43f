"""Whoever is stopped amid a sweep, or a registration, and wakes much later spoils nothing.

It is stopped at each access to the storage and the store in turn, for longer than its
announcement holds. Meanwhile others register, promote, collect and pack.
"""

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from simulation.disk import Disk, DiskStorage

from pliska.coordinator.registry import (
    IntegrityError,
    PromoteRequest,
    Reference,
    Registry,
    RegistryConflictError,
    Retention,
    State,
    Tensor,
)
from pliska.coordinator.registry.packing import pack_cold
from pliska.coordinator.registry.removal import KEPT_FOR
from pliska.coordinator.registry.roots import UPLOAD_AGE_MAX
from pliska.coordinator.registry.sweeps import ANNOUNCED_FOR
from pliska.locks import Backend
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore

ACCESSES_MAX = 400
SIZE = 400
KEEP_ONE = Retention(keep_last=1, history=1)


def content(number: int) -> dict[str, bytes]:
    """Tensors that shrink, of which one is the same in all versions."""
    return {"head": bytes([number]) * SIZE, "shared": b"\7" * SIZE}


class Pause:
    """Stops whoever passes at its n-th access, once; meanwhile something else happens."""

    def __init__(self, at: int, meanwhile: Callable[[], None]) -> None:
        self._left = at
        self._meanwhile = meanwhile

    @property
    def was_made(self) -> bool:
        return self._left < 0

    def pass_by(self) -> None:
        self._left -= 1
        if self._left == -1:
            self._meanwhile()


class PausingStorage(DiskStorage):
    """A hold on a disk that may stop before each access."""

    def __init__(self, disk: Disk, pause: Pause) -> None:
        super().__init__(disk)
        self._pause = pause

    def _require_access(self, _name: str) -> None:
        self._pause.pass_by()


class PausingBackend(MemoryBackend):
    """A client of the store that may stop before each request."""

    def __init__(self, store: MemoryStore, pause: Pause) -> None:
        super().__init__(store)
        self._pause = pause

    def open_store(self) -> MemoryStore:
        self._pause.pass_by()
        return super().open_store()


class Office:
    """A registry of the model `digits`, whom several use, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.store, self.disk = MemoryStore(), Disk()
        self.now = datetime.fromisoformat("2031-05-04T03:02:01+00:00")
        self.registry = self.opened(MemoryBackend(self.store), DiskStorage(self.disk))
        self.acknowledged: dict[int, int] = {}

    def opened(self, backend: Backend, storage: DiskStorage) -> Registry:
        return Registry(backend, storage, now=lambda: self.now)

    def paused(self, pause: Pause) -> Registry:
        """Open the registry as somebody does who will be stopped."""
        return self.opened(PausingBackend(self.store, pause), PausingStorage(self.disk, pause))

    def register(self, number: int, registry: Registry | None = None) -> int:
        """Register some content; return which version has it."""
        tensors = {
            name: Tensor.of_bytes("F32", (SIZE // 4,), each)
            for name, each in content(number).items()
        }
        registry = registry or self.registry
        version = registry.register("digits", tensors, actor="ann").version.version
        self.acknowledged[version] = number
        return version

    def use(self, number: int) -> None:
        """Register some content and let an alias point at it: from then on nothing may take it."""
        self.registry.promote(
            PromoteRequest(model="digits", alias="prod", version=self.register(number), actor="ann")
        )

    def collect(self) -> None:
        self.registry.housekeeping("bob").collect(KEEP_ONE)

    def pack(self) -> None:
        pack_cold(self.registry.namespace, "bob", timedelta(0))

    def expect_all_sound(self) -> None:
        """Check that what the alias points at and all that stands as READY can be loaded."""
        ready = [each for each in self.registry.versions("digits") if each.state is State.READY]
        assert self.registry.log("digits", "prod")[-1].to_version in {
            each.version for each in ready
        }
        for each in ready:
            loaded = self.registry.load(Reference("digits", version=each.version))
            assert dict(loaded.tensors) == content(self.acknowledged[each.version])
        # Whatever was interrupted, the next one puts in order.
        self.now += KEPT_FOR
        self.collect()
        inspection = self.registry.inspector(reads_every_byte=True).inspect()
        assert (inspection.problems, inspection.garbage) == ((), ())
        assert not self.registry.namespace.blobs.moved()


Act = Callable[[Office], None]


def registers(office: Office) -> None:
    office.use(1)


def collects_and_registers(office: Office) -> None:
    office.collect()
    office.use(1)


def registers_and_packs(office: Office) -> None:
    office.use(1)
    office.register(9)
    office.pack()


def packs_registers_and_packs(office: Office) -> None:
    """Let what was just packed be in use, and so unpacked."""
    office.pack()
    office.use(1)
    office.pack()


def collects_what_is_not_registered_yet(office: Office) -> None:
    """Take whatever lies there for an upload of which nothing was heard for long."""
    office.now += UPLOAD_AGE_MAX + timedelta(seconds=1)
    office.use(1)
    office.collect()


def play(act: Callable[[Office, Registry], object], before: Act, meanwhile: Act) -> int:
    """Let somebody act who is stopped one access later each time; return how often that was."""
    for at in range(ACCESSES_MAX):
        office = Office()
        for number in (1, 2, 3):
            office.register(number)
        before(office)

        def others(office: Office = office) -> None:
            office.now += 2 * ANNOUNCED_FOR
            meanwhile(office)

        pause = Pause(at, others)
        with contextlib.suppress(RegistryConflictError):
            act(office, office.paused(pause))
        if not pause.was_made:
            return at
        office.expect_all_sound()
    raise AssertionError(f"it never came to its end in {ACCESSES_MAX} accesses")


def collect(_office: Office, registry: Registry) -> None:
    registry.housekeeping("ann").collect(KEEP_ONE)


def pack(_office: Office, registry: Registry) -> None:
    # A version may be gone when its manifest is about to be read.
    with contextlib.suppress(IntegrityError):
        pack_cold(registry.namespace, "ann", timedelta(0))


def register(office: Office, registry: Registry) -> None:
    office.register(4, registry)


def nothing(_office: Office) -> None:
    """Leave the three versions as they are."""


def packs(office: Office) -> None:
    office.pack()


def packs_and_registers(office: Office) -> None:
    """Let a packed version be in use, so that it is to be unpacked."""
    office.pack()
    office.use(1)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (nothing, registers),
        (nothing, collects_and_registers),
        (nothing, registers_and_packs),
        (packs, packs_registers_and_packs),
    ],
)
def test_collector_that_is_paused_anywhere_takes_nothing_that_others_rely_on(
    before: Act, meanwhile: Act
) -> None:
    assert play(collect, before, meanwhile) > 20


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (nothing, collects_and_registers),
        (nothing, packs_registers_and_packs),
        (packs_and_registers, collects_and_registers),
        (packs_and_registers, packs_registers_and_packs),
    ],
)
def test_packer_that_is_paused_anywhere_loses_no_tensor(before: Act, meanwhile: Act) -> None:
    assert play(pack, before, meanwhile) > 20


def test_registration_that_is_paused_anywhere_has_its_files_when_it_is_acknowledged() -> None:
    assert play(register, nothing, collects_what_is_not_registered_yet) > 10
