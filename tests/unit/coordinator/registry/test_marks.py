"""A version's state is what its marks say, and every change of it can be read later."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.registry import IntegrityError, RefusedError, State
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.marks import Mark, mark_signers, signed_mark
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import Backend

KEYS = Keys("default")
VERSION = KEYS.version("digits", 1)
MARKS = [KEYS.mark("digits", 1, number) for number in (1, 2, 3)]


@pytest.fixture
def publishers(backend: Backend) -> list[Signer]:
    """Return two enrolled publishers and a stranger."""
    signers = []
    for name in ("ann", "bob", None):
        private_key = Ed25519PrivateKey.generate()
        public_key = public_bytes(private_key)
        if name is not None:
            Keyring(backend).enroll(name, Role.PUBLISHER, public_key)
        signers.append(Signer(private_key, key_id(public_key)))
    return signers


@pytest.fixture
def marked(desk: Any) -> Any:
    """Return a registry whose first version was quarantined and reinstated."""
    desk.register(1, 2)
    keep = desk.registry.housekeeping("bob")
    keep.quarantine("digits", 1, "smells")
    keep.reinstate("digits", 1, "was the camera")
    return desk


def edit(backend: Backend, key: str, **fields: object) -> None:
    """Change fields of a stored record, in canonical form, as somebody at the store could."""
    record = backend.get(key)
    assert record is not None
    document = {**json.loads(record.value), **fields}
    value = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    backend.update(key, value, record.modified)


def record_of(desk: Any, version: int = 1) -> Any:
    return desk.registry.namespace.versions.find("digits", version).record


def test_every_change_of_state_is_kept_with_who_and_why(marked: Any) -> None:
    marks = marked.registry.marks(record_of(marked))
    assert [(mark.number, mark.state, mark.actor, mark.reason) for mark in marks] == [
        (1, State.READY, "ann", ""),
        (2, State.QUARANTINED, "bob", "smells"),
        (3, State.READY, "bob", "was the camera"),
    ]
    for before, after in itertools.pairwise(marks):
        assert after.prev_hash == before.hash
    assert record_of(marked).mark_hash == marks[-1].hash


def test_a_mark_is_read_back(marked: Any) -> None:
    for mark in marked.registry.marks(record_of(marked)):
        assert Mark.from_bytes(mark.to_bytes(), "mark") == mark


def test_the_mark_of_a_rollback_is_part_of_its_transaction(marked: Any) -> None:
    marked.promote(1, 2)
    move = marked.registry.rollback(marked.rollback())
    mark = marked.registry.marks(record_of(marked, 2))[-1]
    assert (mark.state, mark.actor, mark.op_id) == (State.QUARANTINED, "bob", move.op_id)
    assert "worse" in mark.reason


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (VERSION, {"state": "DEPRECATED"}),
        (VERSION, {"marks": 2}),
        (VERSION, {"marks": 0}),
        (VERSION, {"mark_hash": "sha256:" + "0" * 64}),
        (MARKS[2], {"reason": "other"}),
        (MARKS[2], {"version": 2}),
        (MARKS[2], {"state": "QUARANTINED"}),
        (MARKS[2], {"more": 1}),
    ],
)
def test_a_state_changed_by_hand_is_not_pointed_at(
    marked: Any, key: str, fields: dict[str, object]
) -> None:
    edit(marked.backend, key, **fields)
    for attempt in (
        lambda: marked.registry.promote(marked.promotion(1, allow_deprecated=True)),
        lambda: marked.registry.housekeeping("bob").quarantine("digits", 1, "again"),
        lambda: marked.registry.marks(record_of(marked)),
    ):
        with pytest.raises(IntegrityError) as refused:
            attempt()
        assert refused.value.exit_code == 5


def test_a_quarantine_taken_back_by_hand_is_noticed(marked: Any) -> None:
    marked.registry.housekeeping("bob").quarantine("digits", 2, "poisoned")
    edit(marked.backend, KEYS.version("digits", 2), state="READY")
    with pytest.raises(IntegrityError, match="something else than a mark"):
        marked.promote(2)


def test_an_older_mark_that_was_changed_or_removed_is_noticed(marked: Any) -> None:
    edit(marked.backend, MARKS[0], actor="mallory")
    with pytest.raises(IntegrityError, match="mark 1"):
        marked.registry.marks(record_of(marked))
    marked.backend.delete(MARKS[0])
    with pytest.raises(IntegrityError, match="mark 1"):
        marked.registry.marks(record_of(marked))


def test_a_signature_counts_for_its_mark_and_for_an_enrolled_publisher_only(
    marked: Any, publishers: list[Signer]
) -> None:
    publisher_key = marked.registry.namespace.publisher_key
    first, second, third = marked.registry.marks(record_of(marked))
    signed = signed_mark(second, publishers)
    assert mark_signers(signed, publisher_key) == {each.key_id for each in publishers[:2]}
    other = signed_mark(third, publishers[:1])
    for mark in (first, second):
        stolen = Mark(**{**_fields(mark), "signatures": other.signatures})
        assert mark_signers(stolen, publisher_key) == frozenset()


@pytest.mark.parametrize("signature", ["", "AAAA", "not base64", "AAA\n"])
def test_a_malformed_signature_counts_for_nothing(
    marked: Any, publishers: list[Signer], signature: str
) -> None:
    mark = signed_mark(marked.registry.marks(record_of(marked))[2], publishers[:1])
    mark = Mark(**{**_fields(mark), "signatures": (signature, *mark.signatures)})
    counted = mark_signers(mark, marked.registry.namespace.publisher_key)
    assert counted == {publishers[0].key_id}


def test_taking_a_quarantine_back_needs_as_many_signatures_as_a_version(
    backend: Backend,
    storage: LocalStorage,
    desk_on: Any,
    publishers: list[Signer],
    tensors: Callable[[int], Any],
) -> None:
    strict = desk_on(backend, storage, signatures_min=2)
    for publisher in publishers[:2]:
        strict.registry.register("digits", tensors(1), actor="ann", signer=publisher)
    keep = strict.registry.housekeeping("bob")
    keep.quarantine("digits", 1, "smells")
    for signers in ([], publishers[:1], [publishers[0], publishers[0]], publishers[1:]):
        with pytest.raises(RefusedError, match="2 signatures"):
            keep.reinstate("digits", 1, "was the camera", signers)
    assert record_of(strict).state is State.QUARANTINED
    keep.reinstate("digits", 1, "was the camera", publishers[:2])
    strict.promote(1)


def test_a_version_is_signed_by_one_publisher_after_the_other(
    desk: Any, desk_on: Any, storage: LocalStorage, publishers: list[Signer]
) -> None:
    desk.register(1)
    strict = desk_on(desk.backend, storage, signatures_min=2)
    for publisher in (publishers[0], publishers[0], publishers[2]):
        strict.registry.housekeeping("bob").sign("digits", 1, publisher)
        with pytest.raises(IntegrityError, match="1 signatures"):
            strict.promote(1)
    signed = strict.registry.housekeeping("bob").sign("digits", 1, publishers[1])
    assert len(signed.signatures) == 3
    strict.promote(1)


def test_nobody_signs_what_is_damaged_or_marked(
    desk: Any, publishers: list[Signer], tmp_path: Path
) -> None:
    desk.register(1, 2)
    keep = desk.registry.housekeeping("bob")
    keep.quarantine("digits", 2, "smells")
    with pytest.raises(RefusedError, match="QUARANTINED"):
        keep.sign("digits", 2, publishers[0])
    for path in (tmp_path / "artifacts/default/tensors").rglob("*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(IntegrityError, match="another digest"):
        keep.sign("digits", 1, publishers[0])
    assert record_of(desk).signatures == ()


def test_a_version_reinstated_where_that_took_no_signature_is_refused_where_it_does(
    marked: Any, desk_on: Any, storage: LocalStorage
) -> None:
    strict = desk_on(marked.backend, storage, signatures_min=1)
    with pytest.raises(IntegrityError, match="fewer than 1 signatures"):
        strict.promote(1)


def _fields(mark: Mark) -> dict[str, Any]:
    return {name: getattr(mark, name) for name in Mark.__dataclass_fields__}
