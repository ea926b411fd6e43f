import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from services.ready_command import ReadyCommand
from services.zygote import PLISKA

Pliska = Callable[..., subprocess.CompletedProcess[str]]


def start(directory: Path, *arguments: str) -> ReadyCommand:
    environment = {**os.environ, "PLISKA_STORE": "embedded:./store", "NO_COLOR": "1"}
    return ReadyCommand(PLISKA, arguments, cwd=directory, env=environment)


@pytest.fixture
def pliska(tmp_path: Path) -> Pliska:
    """Runs the installed command in an empty directory of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        process = start(tmp_path, *arguments)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


def keys_in(pliska: Pliska, *arguments: str) -> list[dict[str, object]]:
    done = pliska("key", "list", "-o", "json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    keys: list[dict[str, object]] = document["keys"]
    return keys


def field(output: str, name: str) -> str:
    """The value after `name` in what `pliska key new` printed."""
    return next(line.removeprefix(name).strip() for line in output.splitlines() if name in line)


def assert_one_line_error(
    done: subprocess.CompletedProcess[str], exit_code: int, *words: str
) -> None:
    assert done.returncode == exit_code, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_a_key_is_made_enrolled_listed_and_revoked(pliska: Pliska, tmp_path: Path) -> None:
    made = pliska("key", "new", "w1.pem")
    assert (made.returncode, made.stderr) == (0, "")
    assert stat.S_IMODE((tmp_path / "w1.pem").stat().st_mode) == 0o600
    assert "PRIVATE" not in made.stdout
    key_id, public_key = field(made.stdout, "key id"), field(made.stdout, "public key")

    enrolled = pliska("key", "enroll", "w1", "w1.pem")
    assert enrolled.stdout == f"enrolled worker w1 with {key_id}\n"
    (key,) = keys_in(pliska)
    assert key["public_key"] == public_key
    assert (key["name"], key["role"], key["state"], key["key_id"], key["reason"]) == (
        "w1",
        "worker",
        "active",
        key_id,
        None,
    )

    revoked = pliska("key", "revoke", "w1", "--reason", "laptop lost")
    assert revoked.stdout == f"revoked {key_id} of worker w1: laptop lost\n"
    (key,) = keys_in(pliska)
    assert (key["state"], key["reason"]) == ("revoked", "laptop lost")
    table = pliska("key", "list").stdout
    assert "KEY ID" in table
    assert "revoked" in table


def test_a_public_key_is_enrolled_from_text_without_its_file(pliska: Pliska) -> None:
    public_key = field(pliska("key", "new", "w1.pem").stdout, "public key")
    done = pliska("key", "enroll", "c1", public_key, "--role", "coordinator")
    assert done.returncode == 0
    assert [each["name"] for each in keys_in(pliska, "--role", "coordinator")] == ["c1"]
    assert keys_in(pliska, "--role", "worker") == []


def test_the_private_key_never_reaches_the_store(pliska: Pliska, tmp_path: Path) -> None:
    pliska("key", "new", "w1.pem")
    pliska("key", "enroll", "w1", "w1.pem")
    secret = (tmp_path / "w1.pem").read_text().splitlines()[1]
    stored = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert any(b"ed25519:" in content for content in stored)
    assert not any(secret[-32:].encode() in content for content in stored)


def test_a_users_mistake_is_one_line_with_its_exit_code(pliska: Pliska, tmp_path: Path) -> None:
    pliska("key", "new", "w1.pem")
    pliska("key", "new", "w2.pem")
    pliska("key", "enroll", "w1", "w1.pem")

    assert_one_line_error(pliska("key", "new", "w1.pem"), 4, "w1.pem exists")
    assert_one_line_error(pliska("key", "enroll", "w1", "w2.pem"), 4, "w1 is already enrolled")
    assert_one_line_error(pliska("key", "enroll", "w3", "w1.pem"), 4, "as worker w1")
    assert_one_line_error(pliska("key", "enroll", "w 3", "w2.pem"), 2, "cannot be a name")
    assert_one_line_error(pliska("key", "enroll", "w3", "none.pem"), 3, "no key file none.pem")
    assert_one_line_error(pliska("key", "enroll", "w3", "ed25519:abc"), 2, "not a public key")
    assert_one_line_error(pliska("key", "revoke", "w9", "--reason", "x"), 3, "'w9' is enrolled")
    assert_one_line_error(pliska("key", "revoke", "w1", "--reason", ""), 2, "give a reason")
    (tmp_path / "w2.pem").chmod(0o644)
    assert_one_line_error(pliska("key", "enroll", "w2", "w2.pem"), 5, "chmod 600 w2.pem")
    pliska("key", "revoke", "w1", "--reason", "left")
    assert_one_line_error(pliska("key", "enroll", "w1", "w1.pem"), 7, "was revoked (left)")
    store = ["--store", "nowhere:x"]
    assert_one_line_error(pliska("key", "list", *store), 2, "nowhere:x", "embedded:PATH")


def test_a_key_is_rotated_with_both_private_keys(pliska: Pliska) -> None:
    old = field(pliska("key", "new", "w1.pem").stdout, "key id")
    new = field(pliska("key", "new", "next.pem").stdout, "key id")
    pliska("key", "enroll", "w1", "w1.pem")
    wrong = pliska("key", "rotate", "w1", "--old", "next.pem", "--new", "next.pem")
    assert_one_line_error(wrong, 5, "not signed by the old key")
    done = pliska("key", "rotate", "w1", "--old", "w1.pem", "--new", "next.pem")
    assert done.stdout == f"rotated worker w1 from {old} to {new}\n"
    states = {each["key_id"]: (each["state"], each["reason"]) for each in keys_in(pliska)}
    assert states == {old: ("revoked", f"rotated to {new}"), new: ("active", None)}


def test_usage_is_explained(pliska: Pliska) -> None:
    help_text = pliska("key", "--help").stdout
    assert [
        word for word in ("new", "enroll", "list", "rotate", "revoke") if word not in help_text
    ] == []
    for command in ("new", "enroll", "list", "rotate", "revoke"):
        done = pliska("key", command, "--help")
        assert done.returncode == 0
        assert "Usage: pliska key" in done.stdout
    assert pliska("key", "revoke", "w1").returncode == 2
    assert pliska("key", "enroll", "w1", "w1.pem", "--role", "king").returncode == 2


def test_of_processes_that_enrol_one_name_one_wins(pliska: Pliska, tmp_path: Path) -> None:
    for number in range(4):
        pliska("key", "new", f"{number}.pem")
    processes = [start(tmp_path, "key", "enroll", "w1", f"{n}.pem") for n in range(4)]
    outcomes = [(each.communicate(timeout=60), each.returncode) for each in processes]
    assert sorted(code for _, code in outcomes) == [0, 4, 4, 4], outcomes
    assert len(keys_in(pliska)) == 1
