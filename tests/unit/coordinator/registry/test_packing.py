"""Cold versions take less room and are otherwise as before."""

import contextlib
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

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
from pliska.coordinator.registry.packing import Packed, pack_cold
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend

SIZE = 4000


def model_of(number: int) -> dict[str, Tensor]:
    """Return tensors that shrink, of which one is the same in all models."""
    head = Tensor.of_bytes("F32", (SIZE // 4,), bytes([number]) * SIZE)
    return {"head": head, "shared": Tensor.of_bytes("F32", (SIZE // 4,), b"\7" * SIZE)}


@pytest.fixture
def site(desk: Any) -> Any:
    """Versions 1 to 4; `prod` was at 1 and is at 2; so 3 is cold and 4 the newest."""
    for number in (1, 2, 3, 4):
        desk.registry.register("digits", model_of(number), actor="ann")
    desk.promote(1, 2)
    return desk


def pack(desk: Any, days: int = 0) -> Packed:
    return pack_cold(desk.registry.namespace, "ann", timedelta(days=days))


def files(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "artifacts/default/tensors").rglob("*") if p.is_file()]


def packed_files(tmp_path: Path) -> list[Path]:
    return [path for path in files(tmp_path) if path.suffix == ".packed"]


def test_only_what_cold_versions_alone_have_is_packed(site: Any, tmp_path: Path) -> None:
    done = pack(site)
    assert (done.versions, done.packed, done.unpacked) == (("digits:3",), 1, 0)
    assert done.saved > SIZE // 2
    (path,) = packed_files(tmp_path)
    assert path.stat().st_size == SIZE - done.saved
    assert len(files(tmp_path)) == 5
    assert pack(site) == Packed(("digits:3",), 0, 0, 0)


def test_young_versions_and_what_an_alias_ever_pointed_at_are_not_cold(site: Any) -> None:
    assert pack(site, days=1).versions == ()
    site.promote(3)
    assert pack(site).versions == ()


def test_a_packed_version_is_loaded_verified_exported_and_published_as_any_other(
    site: Any, tmp_path: Path
) -> None:
    plain = site.registry.load(Reference("digits", version=3)).tensors
    pack(site)
    assert site.registry.load(Reference("digits", version=3)).tensors == plain
    site.registry.verify(site.registry.resolve(Reference("digits", version=3)))
    site.registry.export(Reference("digits", version=3), tmp_path / "out.safetensors")
    assert not site.registry.register_file(
        "digits", tmp_path / "out.safetensors", actor="ann"
    ).created
    assert packed_files(tmp_path)
    assert site.registry.inspector(reads_every_byte=True).inspect().is_sound


def test_what_is_in_use_again_is_unpacked(site: Any, tmp_path: Path) -> None:
    pack(site)
    site.promote(3)
    assert site.pointed_at() == 3
    assert pack(site).unpacked == 1
    assert packed_files(tmp_path) == []
    assert len(files(tmp_path)) == 5


@pytest.mark.parametrize("damage", [b"", b"PLISKAZ1", b"\0" * 100])
def test_a_damaged_packed_tensor_is_refused_found_and_repaired(
    site: Any, tmp_path: Path, damage: bytes
) -> None:
    pack(site)
    (path,) = packed_files(tmp_path)
    path.write_bytes(damage or path.read_bytes()[:-1])
    with pytest.raises(IntegrityError):
        site.registry.load(Reference("digits", version=3))
    assert not site.registry.inspector(reads_every_byte=True).inspect().is_sound
    site.registry.register("digits", model_of(3), actor="ann")
    assert site.registry.load(Reference("digits", version=3)).tensors["head"] == b"\3" * SIZE
    assert site.registry.inspector(reads_every_byte=True).inspect().is_sound
    site.promote(3)
    pack(site)  # what is left of the damaged bytes goes when it is announced
    assert packed_files(tmp_path) == []


def test_a_damaged_tensor_is_not_packed(site: Any, tmp_path: Path) -> None:
    for path in files(tmp_path):
        if path.read_bytes() == b"\3" * SIZE:
            path.write_bytes(b"\4" * SIZE)
    with pytest.raises(IntegrityError):
        pack(site)
    assert packed_files(tmp_path) == []


def test_what_does_not_shrink_stays_as_it_is(desk: Any, tmp_path: Path) -> None:
    draw = random.Random(1)
    for _ in (1, 2):
        noise = Tensor.of_bytes("U8", (SIZE,), draw.randbytes(SIZE))
        desk.registry.register("digits", {"noise": noise}, actor="ann")
    assert pack(desk) == Packed(("digits:1",), 0, 0, 0)
    assert packed_files(tmp_path) == []


def test_files_are_not_exchanged_while_others_are_removed(site: Any, tmp_path: Path) -> None:
    sweep = site.registry.namespace.sweeps.begin("bob")
    with pytest.raises(RegistryConflictError, match="bob removes files"):
        pack(site)
    assert packed_files(tmp_path) == []
    sweep.end()
    assert pack(site).packed == 1


def test_tensors_are_packed_in_lots(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliska.coordinator.registry.packing.BATCH_BYTES", 2 * SIZE)
    for number in range(10, 16):
        site.registry.register("digits", model_of(number), actor="ann")
    done = pack(site)
    assert (done.packed, len(done.versions)) == (7, 7)
    for number in range(3, 10):
        assert site.registry.load(Reference("digits", version=number)).tensors


def test_every_copy_is_packed_and_either_is_enough(backend: Backend, tmp_path: Path) -> None:
    copies = [LocalStorage(tmp_path / name) for name in ("one", "two")]
    registry = Registry(backend, MirroredStorage(copies))
    for number in (1, 2):
        registry.register("digits", model_of(number), actor="ann")
    assert pack_cold(registry.namespace, "ann", timedelta(0)).packed == 1
    for copy in copies:
        (name,) = (each for each in copy.names("default/") if each.endswith(".packed"))
        content = copy.read(name, SIZE)
        copy.write(name, (content[:-1],))
        assert registry.load(Reference("digits", version=1)).tensors["head"] == b"\1" * SIZE
        copy.write(name, (content,))


def test_packing_beside_registrations_collections_and_loads_loses_nothing(
    backend: Backend, storage: LocalStorage
) -> None:
    registry = Registry(backend, storage)
    until_s = time.monotonic() + 1.5

    def repeat(act: Callable[[int], object]) -> int:
        done = 0
        while time.monotonic() < until_s:
            with contextlib.suppress(RegistryConflictError):
                act(done)
                done += 1
        return done

    def register(number: int) -> None:
        registry.register("digits", model_of(number % 200), actor="ann")

    def promote(number: int) -> None:
        registry.promote(
            PromoteRequest(
                model="digits",
                alias="prod",
                version=1 + number % 3,
                actor="ann",
                allow_schema_change=True,
            )
        )

    def load(number: int) -> None:
        for record in registry.versions("digits"):
            if record.state is State.READY:
                registry.load(Reference("digits", version=record.version))

    def exchange(number: int) -> None:
        pack_cold(registry.namespace, f"packer{number % 2}", timedelta(0))

    for number in range(3):
        register(number)
    acts = (register, promote, load, exchange, exchange, lambda _: collect(registry))
    with ThreadPoolExecutor(len(acts)) as pool:
        done = list(pool.map(repeat, acts))
    assert all(done), done
    assert registry.inspector(reads_every_byte=True).inspect().problems == ()
    load(0)


def collect(registry: Registry) -> None:
    registry.housekeeping("bob").collect(Retention())
