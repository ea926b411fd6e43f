import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.discovery.enrolled import Enrolled, KeyState, Role
from pliska.discovery.errors import (
    KeyConflictError,
    KeyringFormatError,
    KeyringUsageError,
    KeyRotationError,
    NotEnrolledError,
    RevokedKeyError,
)
from pliska.discovery.keyring import REASON_LENGTH_MAX, Keyring
from pliska.discovery.keys import key_id, new_private_key, public_bytes, public_text
from pliska.discovery.rotation import sign_rotation
from pliska.locks import Backend, connect


@pytest.fixture
def backend() -> Backend:
    return connect("memory:")


@pytest.fixture
def keyring(backend: Backend) -> Keyring:
    return Keyring(backend)


def new_public_key() -> bytes:
    return public_bytes(new_private_key())


def records(backend: Backend) -> list[tuple[str, bytes]]:
    listings = [backend.list(directory) for directory in ("keyring/keys", "keyring/names")]
    return [(record.key, record.value) for listing in listings for record in listing.records]


def test_an_enrolled_key_is_found_by_id_and_by_name(keyring: Keyring) -> None:
    public = new_public_key()
    enrolled = keyring.enroll("w1", Role.WORKER, public)
    assert enrolled.public_key == public
    assert enrolled.key_id == key_id(public)
    assert enrolled.is_active
    assert enrolled.revision > 0
    assert keyring.find(key_id(public)) == enrolled
    assert keyring.named("w1") == enrolled


def test_two_keyrings_on_one_store_see_the_same_keys(backend: Backend) -> None:
    enrolled = Keyring(backend).enroll("c1", Role.COORDINATOR, new_public_key())
    assert Keyring(backend).list() == (enrolled,)


def test_keys_are_listed_in_the_order_of_enrolment_and_by_role(keyring: Keyring) -> None:
    first = keyring.enroll("w2", Role.WORKER, new_public_key())
    second = keyring.enroll("c1", Role.COORDINATOR, new_public_key())
    third = keyring.enroll("w1", Role.WORKER, new_public_key())
    assert keyring.list() == (first, second, third)
    assert keyring.list(Role.WORKER) == (first, third)
    assert keyring.list(Role.PUBLISHER) == ()


@pytest.mark.parametrize(
    "unknown",
    ["", "w1", "ed25519:" + "0" * 32, "ed25519:..", "../keys", "a/b", "é", "\0", "x" * 999],
)
def test_an_unknown_or_malformed_name_or_id_is_simply_not_found(
    keyring: Keyring, unknown: str
) -> None:
    assert keyring.find(unknown) is None
    assert keyring.named(unknown) is None


@pytest.mark.parametrize("name", ["w", "W1", "rack-3.gpu_0", "7", "x" * 63])
def test_ordinary_names_can_be_enrolled(keyring: Keyring, name: str) -> None:
    assert keyring.enroll(name, Role.WORKER, new_public_key()).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "-w", "a b", "a/b", "a:b", "é", "w\n", "x" * 64])
def test_a_malformed_name_is_refused_and_nothing_is_stored(
    backend: Backend, keyring: Keyring, name: str
) -> None:
    with pytest.raises(KeyringUsageError, match="cannot be a name"):
        keyring.enroll(name, Role.WORKER, new_public_key())
    assert records(backend) == []


def test_a_malformed_key_is_refused(backend: Backend, keyring: Keyring) -> None:
    with pytest.raises(KeyringUsageError, match="31 bytes"):
        keyring.enroll("w1", Role.WORKER, b"x" * 31)
    assert records(backend) == []


def test_a_name_has_one_active_key(backend: Backend, keyring: Keyring) -> None:
    keyring.enroll("w1", Role.WORKER, new_public_key())
    before = records(backend)
    with pytest.raises(KeyConflictError, match="w1 is already enrolled with another key"):
        keyring.enroll("w1", Role.WORKER, new_public_key())
    assert records(backend) == before


def test_a_key_has_one_name(backend: Backend, keyring: Keyring) -> None:
    enrolled = keyring.enroll("w1", Role.WORKER, new_public_key())
    before = records(backend)
    with pytest.raises(KeyConflictError, match="already enrolled, as worker w1"):
        keyring.enroll("w2", Role.COORDINATOR, enrolled.public_key)
    with pytest.raises(KeyConflictError, match="already enrolled, as worker w1"):
        keyring.enroll("w1", Role.WORKER, enrolled.public_key)
    assert records(backend) == before


def test_revocation_counts_with_the_next_read_of_any_keyring(backend: Backend) -> None:
    enrolled = Keyring(backend).enroll("w1", Role.WORKER, new_public_key())
    other = Keyring(backend)
    revoked = Keyring(backend).revoke("w1", "laptop lost")
    assert revoked.state is KeyState.REVOKED
    assert other.find(enrolled.key_id) == revoked
    assert other.named("w1") == revoked
    assert other.list() == (revoked,)
    assert (revoked.reason, revoked.revision) == ("laptop lost", enrolled.revision)


def test_a_key_can_be_revoked_by_its_id(keyring: Keyring) -> None:
    enrolled = keyring.enroll("w1", Role.WORKER, new_public_key())
    assert keyring.revoke(enrolled.key_id, "left").key_id == enrolled.key_id


def test_the_first_reason_of_a_revocation_stays(keyring: Keyring) -> None:
    keyring.enroll("w1", Role.WORKER, new_public_key())
    keyring.revoke("w1", "laptop lost")
    assert keyring.revoke("w1", "tidying up").reason == "laptop lost"


def test_a_revoked_key_cannot_come_back(keyring: Keyring) -> None:
    public = keyring.enroll("w1", Role.WORKER, new_public_key()).public_key
    keyring.revoke("w1", "laptop lost")
    for name in ("w1", "w2"):
        with pytest.raises(RevokedKeyError, match=r"was revoked \(laptop lost\): make a new key"):
            keyring.enroll(name, Role.WORKER, public)


def test_a_name_takes_a_new_key_after_its_revocation(keyring: Keyring) -> None:
    old = keyring.enroll("w1", Role.WORKER, new_public_key())
    keyring.revoke("w1", "laptop lost")
    new = keyring.enroll("w1", Role.WORKER, new_public_key())
    assert keyring.named("w1") == new
    found = keyring.find(old.key_id)
    assert found is not None
    assert not found.is_active
    assert [each.key_id for each in keyring.list()] == [old.key_id, new.key_id]


def test_only_an_enrolled_key_can_be_revoked(keyring: Keyring) -> None:
    for unknown in ("w1", "ed25519:" + "0" * 32, "nonsense/.."):
        with pytest.raises(NotEnrolledError, match="is enrolled"):
            keyring.revoke(unknown, "why not")


@pytest.mark.parametrize("reason", ["", "two\nlines", "\x1b[31m", "x" * (REASON_LENGTH_MAX + 1)])
def test_a_reason_is_one_printable_line(keyring: Keyring, reason: str) -> None:
    keyring.enroll("w1", Role.WORKER, new_public_key())
    with pytest.raises(KeyringUsageError, match="give a reason"):
        keyring.revoke("w1", reason)
    assert keyring.revoke("w1", "x" * REASON_LENGTH_MAX).state is KeyState.REVOKED


def race(attempts: list[Callable[[], Enrolled]]) -> list[Enrolled | Exception]:
    """What came of each attempt when all began at once."""
    barrier = threading.Barrier(len(attempts))

    def run(attempt: Callable[[], Enrolled]) -> Enrolled | Exception:
        barrier.wait()
        try:
            return attempt()
        except KeyConflictError as error:
            return error

    with ThreadPoolExecutor(len(attempts)) as pool:
        return list(pool.map(run, attempts))


def test_of_many_enrolments_of_one_name_one_wins(backend: Backend) -> None:
    keys = [new_public_key() for _ in range(8)]
    outcomes = race(
        [lambda key=key: Keyring(backend).enroll("w1", Role.WORKER, key) for key in keys]
    )
    winners = [each for each in outcomes if isinstance(each, Enrolled)]
    assert len(winners) == 1
    assert Keyring(backend).list() == (winners[0],)
    assert Keyring(backend).named("w1") == winners[0]


def test_of_many_enrolments_of_one_key_one_wins(backend: Backend) -> None:
    public = new_public_key()
    names = [f"w{number}" for number in range(8)]
    outcomes = race(
        [lambda name=name: Keyring(backend).enroll(name, Role.WORKER, public) for name in names]
    )
    winners = [each for each in outcomes if isinstance(each, Enrolled)]
    assert len(winners) == 1
    assert [Keyring(backend).named(name) for name in names if name != winners[0].name] == [None] * 7


def test_of_many_new_keys_for_a_revoked_name_one_wins(backend: Backend) -> None:
    Keyring(backend).enroll("w1", Role.WORKER, new_public_key())
    Keyring(backend).revoke("w1", "laptop lost")
    keys = [new_public_key() for _ in range(8)]
    outcomes = race(
        [lambda key=key: Keyring(backend).enroll("w1", Role.WORKER, key) for key in keys]
    )
    winners = [each for each in outcomes if isinstance(each, Enrolled)]
    assert [each for each in Keyring(backend).list() if each.is_active] == winners
    assert len(winners) == 1


def test_of_many_revocations_one_reason_stays(backend: Backend) -> None:
    Keyring(backend).enroll("w1", Role.WORKER, new_public_key())
    outcomes = race([lambda n=n: Keyring(backend).revoke("w1", f"reason {n}") for n in range(8)])
    assert outcomes == [Keyring(backend).named("w1")] * 8


class OvertakenBackend:
    """Somebody else acts between the last read and the write of whoever uses this backend."""

    def __init__(self, backend: Backend, overtake: Callable[[], object]) -> None:
        self._backend, self._overtake = backend, overtake

    def __getattr__(self, name: str) -> Any:
        if name in ("transact", "update"):
            self._overtake()
        return getattr(self._backend, name)


def test_an_enrolment_that_was_overtaken_says_by_whom(backend: Backend, keyring: Keyring) -> None:
    public = new_public_key()
    overtaken = OvertakenBackend(backend, lambda: keyring.enroll("w1", Role.WORKER, public))
    with pytest.raises(KeyConflictError, match="w1 is already enrolled with another key"):
        Keyring(overtaken).enroll("w1", Role.WORKER, new_public_key())
    assert [each.public_key for each in keyring.list()] == [public]


def test_a_new_key_for_a_name_that_was_overtaken_is_refused(
    backend: Backend, keyring: Keyring
) -> None:
    keyring.enroll("w1", Role.WORKER, new_public_key())
    keyring.revoke("w1", "laptop lost")

    def overtake() -> None:
        keyring.enroll("w1", Role.WORKER, new_public_key())
        keyring.revoke("w1", "lost again")

    with pytest.raises(KeyConflictError, match="changed by somebody else meanwhile: try again"):
        Keyring(OvertakenBackend(backend, overtake)).enroll("w1", Role.WORKER, new_public_key())
    assert [each.reason for each in keyring.list()] == ["laptop lost", "lost again"]


def test_a_revocation_that_was_overtaken_returns_what_holds(
    backend: Backend, keyring: Keyring
) -> None:
    keyring.enroll("w1", Role.WORKER, new_public_key())
    overtaken = OvertakenBackend(backend, lambda: keyring.revoke("w1", "first"))
    assert Keyring(overtaken).revoke("w1", "second").reason == "first"


GOOD = {
    "format": 1,
    "name": "w1",
    "role": "worker",
    "public_key": public_text(bytes(32)),
    "state": "active",
    "reason": "",
}
KEY = "keyring/keys/" + key_id(bytes(32)).replace(":", ".")


def test_the_stored_form_of_a_key_is_fixed(backend: Backend, keyring: Keyring) -> None:
    keyring.enroll("w1", Role.WORKER, bytes(32))
    record = backend.get(KEY)
    assert record is not None
    assert json.loads(record.value) == GOOD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 200_000,
        b'{"format": 1}',
        json.dumps(GOOD | {"name": 7}).encode(),
        json.dumps(GOOD | {"name": "../up"}).encode(),
        json.dumps(GOOD | {"role": "root"}).encode(),
        json.dumps(GOOD | {"role": []}).encode(),
        json.dumps(GOOD | {"state": "dormant"}).encode(),
        json.dumps(GOOD | {"public_key": 3}).encode(),
        json.dumps(GOOD | {"public_key": public_text(b"\1" * 32)}).encode(),
        json.dumps(GOOD | {"reason": {}}).encode(),
    ],
)
def test_a_damaged_or_forged_record_is_an_error_and_no_key(
    backend: Backend, keyring: Keyring, value: bytes
) -> None:
    backend.create(KEY, value)
    with pytest.raises(KeyringFormatError, match="is not an enrolled key"):
        keyring.find(key_id(bytes(32)))
    with pytest.raises(KeyringFormatError):
        keyring.list()


def test_a_newer_format_is_named(backend: Backend, keyring: Keyring) -> None:
    backend.create(KEY, json.dumps(GOOD | {"format": 2}).encode())
    with pytest.raises(KeyringFormatError, match="format 2, which this version"):
        keyring.find(key_id(bytes(32)))


def test_a_name_that_points_at_anothers_key_is_an_error(backend: Backend, keyring: Keyring) -> None:
    enrolled = keyring.enroll("w1", Role.WORKER, new_public_key())
    backend.create("keyring/names/w2", enrolled.key_id.encode())
    backend.create("keyring/names/w3", b"\xff nonsense")
    for name in ("w2", "w3"):
        with pytest.raises(KeyringFormatError, match=f"names no key of {name}"):
            keyring.named(name)


def holder(keyring: Keyring, name: str = "w1") -> tuple[Ed25519PrivateKey, Enrolled]:
    private = new_private_key()
    return private, keyring.enroll(name, Role.WORKER, public_bytes(private))


def test_a_rotation_signed_by_both_keys_changes_the_key_at_once(keyring: Keyring) -> None:
    old, enrolled = holder(keyring)
    new = new_private_key()
    rotated = keyring.rotate("w1", sign_rotation(enrolled, old, new))
    assert (rotated.name, rotated.role, rotated.public_key) == (
        "w1",
        Role.WORKER,
        public_bytes(new),
    )
    assert keyring.named("w1") == rotated
    retired = keyring.find(enrolled.key_id)
    assert retired is not None
    assert (retired.is_active, retired.reason) == (False, f"rotated to {rotated.key_id}")


def test_keys_can_be_rotated_again_but_never_back(keyring: Keyring) -> None:
    first, enrolled = holder(keyring)
    second = new_private_key()
    rotated = keyring.rotate("w1", sign_rotation(enrolled, first, second))
    with pytest.raises(RevokedKeyError, match="rotated to"):
        keyring.rotate("w1", sign_rotation(rotated, second, first))
    keyring.rotate("w1", sign_rotation(rotated, second, new_private_key()))


@pytest.mark.parametrize("which", ["old", "new", "swapped", "replayed"])
def test_a_rotation_that_one_key_did_not_sign_changes_nothing(
    keyring: Keyring, backend: Backend, which: str
) -> None:
    old, enrolled = holder(keyring)
    _, other = holder(keyring, "w2")
    new = new_private_key()
    good = sign_rotation(enrolled, old, new)
    forged = {
        "old": sign_rotation(enrolled, new_private_key(), new),
        "new": replace(good, new_signature=old.sign(b"something else")),
        "swapped": replace(good, public_key=public_bytes(new_private_key())),
        "replayed": sign_rotation(other, old, new),
    }[which]
    before = records(backend)
    with pytest.raises(KeyRotationError, match="is not signed by the"):
        keyring.rotate("w1", forged)
    assert records(backend) == before


def test_a_revoked_key_cannot_be_rotated_and_an_enrolled_one_not_be_taken(
    keyring: Keyring,
) -> None:
    old, enrolled = holder(keyring)
    taken, _ = holder(keyring, "w2")
    with pytest.raises(KeyConflictError, match="as worker w2"):
        keyring.rotate("w1", sign_rotation(enrolled, old, taken))
    keyring.revoke("w1", "lost")
    with pytest.raises(RevokedKeyError, match="was revoked"):
        keyring.rotate("w1", sign_rotation(enrolled, old, new_private_key()))
    with pytest.raises(NotEnrolledError, match="nobody is enrolled as 'w9'"):
        keyring.rotate("w9", sign_rotation(enrolled, old, new_private_key()))


def test_a_rotation_that_a_revocation_overtakes_does_not_bring_the_key_back(
    keyring: Keyring, backend: Backend
) -> None:
    old, enrolled = holder(keyring)
    overtaken = OvertakenBackend(backend, lambda: keyring.revoke("w1", "stolen"))
    with pytest.raises(KeyConflictError):
        Keyring(overtaken).rotate("w1", sign_rotation(enrolled, old, new_private_key()))
    present = keyring.named("w1")
    assert present is not None
    assert (present.is_active, present.reason) == (False, "stolen")


def test_revoking_a_name_that_is_just_rotated_revokes_its_next_key_as_well(
    keyring: Keyring, backend: Backend
) -> None:
    old, enrolled = holder(keyring)
    rotation = sign_rotation(enrolled, old, new_private_key())
    once = iter([rotation])
    overtaken = OvertakenBackend(backend, lambda: [keyring.rotate("w1", each) for each in once])
    revoked = Keyring(overtaken).revoke("w1", "stolen")
    assert revoked.public_key == rotation.public_key
    assert [key.is_active for key in keyring.list()] == [False, False]
