"""Whole stories through the facade: register, look, load, export, sign, and crash."""

import json
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pliska.coordinator.errors import StorageFullError
from pliska.coordinator.registry import (
    IntegrityError,
    Lineage,
    NotFoundError,
    Reference,
    RefusedError,
    Registry,
    RegistryUsageError,
    Retention,
    State,
    VersionRecord,
)
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Keyring, Role, key_id, new_private_key, public_bytes
from pliska.locks import Backend, connect

PROD = Reference.parse("digits@prod")


def test_the_same_content_is_the_same_version(desk: Any, tensors: Callable[[int], Any]) -> None:
    first = desk.registry.register("digits", tensors(1), actor="ann")
    reordered = dict(reversed(tensors(1).items()))
    again = desk.registry.register(
        "digits", reordered, actor="bob", metadata={"k": "v"}, lineage=Lineage(job="other")
    )
    assert (first.created, again.created) == (True, False)
    assert first.version == again.version
    assert first.version.registered_by == "ann"


def test_a_shared_tensor_is_stored_once(desk: Any, tmp_path: Path) -> None:
    desk.register(1, 2, 3)
    files = [p for p in (tmp_path / "artifacts/default/tensors").rglob("*") if p.is_file()]
    assert len(files) == 4


def test_registrations_of_one_content_at_once_make_one_version(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: desk.registry.register("digits", tensors(1), actor="ann"), range(8))
        )
    assert sum(registration.created for registration in made) == 1
    assert {registration.version.version for registration in made} == {1}


@pytest.mark.parametrize(
    ("text", "version"),
    [("digits", 2), ("digits@latest", 2), ("digits:1", 1), ("digits@prod", 1)],
)
def test_references_find_their_version(desk: Any, text: str, version: int) -> None:
    desk.register(1, 2, 3)
    desk.promote(2, 3)
    desk.registry.rollback(desk.rollback())
    desk.promote(1)
    assert desk.registry.resolve(Reference.parse(text)).version == version


def test_digests_find_their_version(desk: Any) -> None:
    desk.register(1, 2)
    for record in desk.registry.versions("digits"):
        for digest in (record.content_id, record.manifest_digest):
            assert desk.registry.resolve(Reference.parse(f"digits@{digest}")) == record


@pytest.mark.parametrize("text", ["other", "digits:9", "digits@stage", "digits@sha256:" + "0" * 64])
def test_a_reference_to_nothing_is_not_found(desk: Any, text: str) -> None:
    desk.register(1)
    with pytest.raises(NotFoundError) as missing:
        desk.registry.resolve(Reference.parse(text))
    assert missing.value.exit_code == 3


def test_a_loaded_model_has_the_bytes_that_were_registered(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    desk.register(1, 2)
    desk.promote(1)
    loaded = desk.registry.load(PROD)
    assert loaded.version.version == 1
    assert loaded.tensors == {n: b"".join(t.chunks()) for n, t in tensors(1).items()}


def test_what_is_exported_is_what_was_registered(desk: Any, tmp_path: Path) -> None:
    weights = {
        "w": torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16),
        "b": torch.tensor(1.5),
    }
    safetensors.torch.save_file(weights, tmp_path / "in.safetensors", {"format": "pt"})
    desk.registry.register_file("digits", tmp_path / "in.safetensors", actor="ann")
    desk.registry.export(Reference.parse("digits"), tmp_path / "out.safetensors")
    loaded = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert loaded.keys() == weights.keys()
    assert all(loaded[name].equal(weights[name]) for name in weights)
    again = desk.registry.register_file("digits", tmp_path / "out.safetensors", actor="ann")
    assert not again.created


def test_a_flipped_byte_is_refused_wherever_the_version_is_used(
    desk: Any, tmp_path: Path, tensors: Callable[[int], Any]
) -> None:
    desk.register(1)
    desk.promote(1)
    for path in (tmp_path / "artifacts/default/tensors").rglob("*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[0] ^= 1
            path.write_bytes(content)
    record = desk.registry.resolve(PROD)
    for attempt in (
        lambda: desk.registry.load(PROD),
        lambda: desk.registry.export(PROD, tmp_path / "out"),
        lambda: desk.registry.verify(record),
    ):
        with pytest.raises(IntegrityError):
            attempt()
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
    desk.registry.register("digits", tensors(1), actor="ann")
    desk.registry.verify(record)


@pytest.mark.parametrize("field", ["content_id", "manifest_digest"])
def test_a_version_record_that_names_another_content_is_refused(desk: Any, field: str) -> None:
    desk.register(1, 2)
    desk.promote(1)
    first, second = desk.backend.list("registry/default/versions/digits").records
    fields = {**json.loads(first.value), field: json.loads(second.value)[field]}
    value = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    desk.backend.update(first.key, value, first.modified)
    with pytest.raises(IntegrityError):
        desk.registry.load(PROD)
    with pytest.raises(IntegrityError):
        desk.registry.load(Reference.parse("digits:1"))


def test_lineage_is_kept_and_its_parent_must_exist(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    desk.register(1)
    lineage = Lineage(parent=1, job="digits", rounds=(1, 9), metrics={"accuracy": 0.5})
    made = desk.registry.register("digits", tensors(2), actor="ann", lineage=lineage)
    assert desk.registry.manifest(made.version).lineage == lineage
    with pytest.raises(NotFoundError, match="no version 7"):
        desk.registry.register("digits", tensors(3), actor="ann", lineage=Lineage(parent=7))
    assert len(desk.registry.versions("digits")) == 2


def test_a_metric_that_is_not_finite_registers_nothing(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    lineage = Lineage(metrics={"accuracy": math.nan})
    with pytest.raises(RegistryUsageError):
        desk.registry.register("digits", tensors(1), actor="ann", lineage=lineage)
    assert desk.registry.models() == []


def test_models_and_aliases_are_listed(desk: Any) -> None:
    assert desk.registry.models() == []
    desk.register(1, 2)
    desk.promote(1)
    desk.promote(2, alias="stage")
    pointed = {name: state.version for name, state in desk.registry.aliases("digits").items()}
    assert desk.registry.models() == ["digits"]
    assert pointed == {"prod": 1, "stage": 2}


class Publisher:
    """A key, enrolled as a publisher's unless said otherwise."""

    def __init__(self, backend: Backend, name: str, role: Role | None = Role.PUBLISHER) -> None:
        private_key = new_private_key()
        public_key = public_bytes(private_key)
        self.signer = Signer(private_key, key_id(public_key))
        self.keyring = Keyring(backend)
        if role is not None:
            self.keyring.enroll(name, role, public_key)


def strict(desk: Any, signatures_min: int) -> Registry:
    return Registry(desk.backend, desk.storage, signatures_min=signatures_min)


def test_signatures_of_enough_publishers_let_a_version_be_loaded(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    reference = Reference.parse("digits:1")
    desk.registry.register("digits", tensors(1), actor="ann")
    with pytest.raises(IntegrityError, match="0 signatures of enrolled publishers, 1 needed"):
        strict(desk, 1).load(reference)
    for count, name in enumerate(["ann", "bob"], start=1):
        signer = Publisher(desk.backend, name).signer
        for _ in range(2):
            desk.registry.register("digits", tensors(1), actor=name, signer=signer)
        strict(desk, count).load(reference)
        with pytest.raises(IntegrityError):
            strict(desk, count + 1).load(reference)


def test_the_signature_of_a_revoked_publisher_no_longer_counts(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    publisher = Publisher(desk.backend, "ann")
    desk.registry.register("digits", tensors(1), actor="ann", signer=publisher.signer)
    desk.promote(1)
    publisher.keyring.revoke("ann", "left")
    with pytest.raises(IntegrityError):
        desk.registry.load(PROD)


@pytest.mark.parametrize("role", [None, Role.WORKER, Role.COORDINATOR])
def test_nobody_but_a_publisher_can_vouch(
    desk: Any, tensors: Callable[[int], Any], role: Role | None
) -> None:
    signer = Publisher(desk.backend, "ann", role).signer
    desk.registry.register("digits", tensors(1), actor="ann", signer=signer)
    with pytest.raises(IntegrityError):
        desk.promote(1)


def test_a_signature_does_not_fit_another_version(desk: Any, tensors: Callable[[int], Any]) -> None:
    signer = Publisher(desk.backend, "ann").signer
    for number in (1, 2):
        desk.registry.register("digits", tensors(number), actor="ann", signer=signer)
    first, second = desk.backend.list("registry/default/versions/digits").records
    fields = {**json.loads(first.value), "signatures": json.loads(second.value)["signatures"]}
    value = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    desk.backend.update(first.key, value, first.modified)
    with pytest.raises(IntegrityError, match="as version 2"):
        desk.registry.load(Reference.parse("digits:1"))


@pytest.mark.parametrize("signature", ["", "AAAA", "not base64", "AAA\n"])
def test_a_malformed_signature_is_refused(desk: Any, signature: str) -> None:
    desk.register(1)
    (record,) = desk.backend.list("registry/default/versions/digits").records
    fields = {**json.loads(record.value), "signatures": [signature]}
    value = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    desk.backend.update(record.key, value, record.modified)
    with pytest.raises(IntegrityError):
        desk.registry.load(Reference.parse("digits:1"))


class FullDisk(LocalStorage):
    """A directory with room for so many files."""

    def __init__(self, directory: Path, room: int = 0) -> None:
        super().__init__(directory)
        self.room = threading.Semaphore(room)

    def write(self, name: str, chunks: Any) -> None:
        if not self.room.acquire(blocking=False):
            raise StorageFullError(f"cannot write {name}: no space left")
        super().write(name, chunks)


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_registration_that_fails_gives_its_number_up_and_its_files_are_garbage(
    backend: Backend, tmp_path: Path, desk_on: Any, tensors: Callable[[int], Any], room: int
) -> None:
    disk = FullDisk(tmp_path / "artifacts", room)
    desk = desk_on(backend, disk)
    with pytest.raises(StorageFullError):
        desk.register(1)
    (failed,) = desk.registry.versions("digits")
    assert (failed.state, failed.manifest_digest) == (State.DELETED, None)
    assert "no space left" in failed.state_reason
    assert VersionRecord.from_bytes(failed.to_bytes(), "it") == failed
    assert desk.registry.marks(failed) == ()
    with pytest.raises(RefusedError):
        desk.promote(1)
    assert desk.registry.inspector(reads_every_byte=True).inspect().is_sound
    collected = desk.registry.housekeeping("ann").collect(Retention())
    assert len(collected.files) == room
    disk.room.release(9)
    desk.register(1)
    assert [each.state for each in desk.registry.versions("digits")] == [State.DELETED, State.READY]


def test_one_that_fails_beside_one_that_goes_on_stops_it_not(
    backend: Backend, tmp_path: Path, desk_on: Any
) -> None:
    other = desk_on(backend, FullDisk(tmp_path / "full"))
    failures: list[StorageFullError] = []

    class Overlapped(LocalStorage):
        def write(self, name: str, chunks: Any) -> None:
            if not failures:
                with pytest.raises(StorageFullError) as failure:
                    other.register(1)
                failures.append(failure.value)
            super().write(name, chunks)

    desk = desk_on(backend, Overlapped(tmp_path / "artifacts"))
    desk.register(1)
    desk.registry.load(Reference.parse("digits"))
    *given_up, whole = desk.registry.versions("digits")
    assert whole.state is State.READY
    assert {each.state for each in given_up} == {State.DELETED}


PREPARE = """
import struct
from pathlib import Path
from pliska.coordinator.registry import PromoteRequest, Registry, RollbackRequest, Tensor
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect

def opened(directory):
    return Registry(connect(f"embedded:{directory}"), LocalStorage(directory / "registry"))

def tensors(number):
    return {
        "head": Tensor.of_bytes("F32", (1,), struct.pack("<f", number)),
        "frozen": Tensor.of_bytes("U8", (3,), b"abc"),
    }

def prepare(directory):
    registry = opened(directory)
    for number in (1, 2):
        registry.register("digits", tensors(number), actor="ann")
        registry.promote(
            PromoteRequest(model="digits", alias="prod", version=number, actor="ann")
        )
"""


def reopened(directory: Path) -> Registry:
    return Registry(connect(f"embedded:{directory}"), LocalStorage(directory / "registry"))


def test_a_registration_killed_at_any_system_call_is_completed_by_the_next(
    crash_at_every_step: Callable[[str], list[Path]], tensors: Callable[[int], Any]
) -> None:
    source = PREPARE + (
        "def act(directory):\n    opened(directory).register('digits', tensors(3), actor='ann')\n"
    )
    seen = set()
    for directory in crash_at_every_step(source):
        registry = reopened(directory)
        versions = registry.versions("digits")
        seen.add((len(versions), versions[-1].state))
        for record in versions:
            if record.state is State.PENDING:
                with pytest.raises(RefusedError):
                    registry.verify(record)
            else:
                registry.verify(record)
        head = tensors(3)
        for number in (3, 4):
            head["head"] = tensors(number)["head"]
            registry.register("digits", head, actor="bob")
        assert registry.models() == ["digits"]
    assert {(2, State.READY), (3, State.PENDING), (3, State.READY)} <= seen


def test_a_rollback_killed_at_any_system_call_happened_whole_or_not_at_all(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    source = PREPARE + (
        "def act(directory):\n"
        "    opened(directory).rollback(RollbackRequest(\n"
        "        model='digits', alias='prod', actor='bob', reason='worse', op_id='mine'))\n"
    )
    for directory in crash_at_every_step(source):
        registry = reopened(directory)
        history = registry.log("digits", "prod")
        states = [record.state for record in registry.versions("digits")]
        if len(history) == 2:
            assert states == [State.READY, State.READY]
        else:
            assert [entry.to_version for entry in history] == [1, 2, 1]
            assert states == [State.READY, State.QUARANTINED]
