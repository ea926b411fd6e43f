"""The key that a coordinator signs with."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliska.coordinator.identity import load_identity
from pliska.discovery import KeyConflictError, Keyring, Role, load_private_key, public_bytes
from pliska.locks import connect


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(connect("memory:"))


def test_missing_key_is_made_and_enrolled_as_a_coordinators(
    tmp_path: Path, keyring: Keyring
) -> None:
    path = tmp_path / "beside" / "coordinator.pem"
    identity = load_identity(path, keyring)
    assert path.stat().st_mode & 0o777 == 0o600
    enrolled = keyring.find(identity.key_id)
    assert enrolled is not None
    assert enrolled.role is Role.COORDINATOR
    assert enrolled.public_key == public_bytes(load_private_key(path))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_same_file_is_the_same_identity(tmp_path: Path, keyring: Keyring) -> None:
    path = tmp_path / "key.pem"
    assert load_identity(path, keyring).key_id == load_identity(path, keyring).key_id


def test_coordinators_with_files_of_their_own_do_not_want_one_name(
    tmp_path: Path, keyring: Keyring
) -> None:
    identities = {load_identity(tmp_path / f"{name}.pem", keyring).key_id for name in "ab"}
    assert len(identities) == 2
    assert len({each.name for each in keyring.list(Role.COORDINATOR)}) == 2


def test_coordinators_that_start_at_once_agree_on_one_key(tmp_path: Path, keyring: Keyring) -> None:
    path = tmp_path / "key.pem"
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: load_identity(path, keyring).key_id, range(8)))
    assert len(set(found)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


def test_revoked_key_and_a_workers_key_are_refused(tmp_path: Path, keyring: Keyring) -> None:
    path = tmp_path / "key.pem"
    keyring.revoke(load_identity(path, keyring).key_id, "lost")
    with pytest.raises(KeyConflictError, match="name another file with --key"):
        load_identity(path, keyring)
    other = Keyring(connect("memory:"))
    other.enroll("w1", Role.WORKER, public_bytes(load_private_key(path)))
    with pytest.raises(KeyConflictError, match="enrolled as worker 'w1'"):
        load_identity(path, other)
