"""Whose signatures an audit believes, from a file, a command line or the store."""

import json
from pathlib import Path
from typing import Any

import pytest
from training.signed import KEYS, LEADER, commit, known, private_key, receipt, signed_header, signer

from pliska.coordinator.errors import AuditUsageError, DamagedStateError
from pliska.coordinator.records.audit_keys import (
    KEYS_FILE_BYTES_MAX,
    NOBODY_IN_PARTICULAR,
    KeyBook,
    key_given,
    read_keys,
)
from pliska.coordinator.wire import ReplyCode
from pliska.discovery import Keyring, Role, public_bytes, write_private_key
from pliska.discovery.keys import public_text
from pliska.locks import connect

TEXT = public_text(public_bytes(private_key("w1")))


def rows(**changes: Any) -> list[dict[str, Any]]:
    right = {
        "name": "w1",
        "role": "worker",
        "state": "active",
        "key_id": signer("w1").key_id,
        "reason": None,
        "public_key": TEXT,
        "revision": 4,
    }
    return [{**right, **changes}]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_exported_list_of_keys_is_believed(file: Path) -> None:
    file.write_text(json.dumps({"schema_version": 1, "keys": rows()}))
    book = read_keys(file)
    assert book.find(signer("w1").key_id) == known("w1")
    assert book.worker(signer("w1").key_id) == public_bytes(private_key("w1"))
    assert book.coordinator(signer("w1").key_id) is None
    assert book.find("ed25519:unknown") is None


def test_revoked_key_is_known_with_its_reason(file: Path) -> None:
    file.write_text(json.dumps({"keys": rows(state="revoked", reason="lost")}))
    found = read_keys(file).find(signer("w1").key_id)
    assert found is not None
    assert found.revoked == "lost"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"keys": 3}',
        json.dumps({"keys": rows(public_key="ed25519:short")}),
        json.dumps({"keys": rows(role="king")}),
        json.dumps({"keys": rows(state="tired")}),
        json.dumps({"keys": [{}]}),
        '{"keys": [' * 5000,
        " " * KEYS_FILE_BYTES_MAX + "{}",
    ],
)
def test_file_that_is_no_list_of_keys_is_the_users_mistake(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(AuditUsageError, match="pliska key list -o json"):
        read_keys(file)


def test_missing_file_is_the_users_mistake(file: Path) -> None:
    with pytest.raises(AuditUsageError, match="cannot read the keys"):
        read_keys(file)


def test_key_on_the_command_line_says_its_role_and_no_name(tmp_path: Path) -> None:
    write_private_key(tmp_path / "w1.pem", private_key("w1"))
    for text in (f"worker={TEXT}", f"worker={tmp_path / 'w1.pem'}"):
        key = key_given(text)
        assert (key.key_id, key.role) == (signer("w1").key_id, Role.WORKER)
        assert key.holder == NOBODY_IN_PARTICULAR
    assert KeyBook([key]).header(signed_header("w1")).worker == "w1"


@pytest.mark.parametrize("text", [TEXT, f"publisher={TEXT}", f"=   {TEXT}", "", "worker"])
def test_key_without_a_role_is_refused(text: str) -> None:
    with pytest.raises(AuditUsageError, match="coordinator=KEY or worker=KEY"):
        key_given(text)


def test_store_says_whose_keys_count_and_which_are_revoked() -> None:
    backend = connect("memory:")
    keyring = Keyring(backend)
    keyring.enroll("w1", Role.WORKER, public_bytes(private_key("w1")))
    keyring.revoke("w1", "lost")
    book = KeyBook.of_enrolled(keyring.list())
    backend.close()
    assert book.find(signer("w1").key_id) == known("w1", revoked="lost")


def test_signature_of_the_wrong_role_counts_for_nothing() -> None:
    assert KEYS.receipt(receipt("w1", ReplyCode.BUSY, "")).worker == "w1"
    workers_only = KeyBook([known("w1"), known(LEADER)])
    with pytest.raises(DamagedStateError):
        workers_only.receipt(receipt("w1", ReplyCode.BUSY, ""))
    with pytest.raises(DamagedStateError):
        workers_only.commit(commit(5).signed, "toy")
    coordinators_only = KeyBook([known("w1", Role.COORDINATOR)])
    with pytest.raises(DamagedStateError):
        coordinators_only.header(signed_header("w1"))
