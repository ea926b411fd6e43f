"""`pliska model gc|pin|diff|fsck|quarantine|…` as people run them: real processes and files."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pliska.coordinator.registry import Lineage, Registry, Retention, Tensor
from pliska.coordinator.registry.tensor_file import write_tensor_file
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.locks import connect
from services.s3 import S3Server
from services.shell import WAIT_MAX_S, Shell

ROLLBACK = ("model", "rollback", "digits", "--alias", "prod", "--reason", "accuracy fell")


def states(shell: Shell) -> list[str]:
    with shell.registry() as registry:
        return [version.state for version in registry.versions("digits")]


def tensor_files(shell: Shell, top: str = ".pliska/registry") -> dict[str, bytes]:
    return {
        path.relative_to(shell.folder / top).as_posix(): path.read_bytes()
        for path in (shell.folder / top).rglob("*")
        if path.is_file()
    }


def file_count(shell: Shell) -> int:
    folders = os.walk(shell.folder / ".pliska/registry")
    return sum(len(files) for _, _, files in folders)


def test_garbage_is_shown_first_and_removed_when_asked_for(shell: Shell) -> None:
    shell.prepare(1, 2, 3, 4, prod=[2])
    shell.run("model", "pin", "digits", 1, "--reason", "paper")
    before = tensor_files(shell)
    plan = shell.json("model", "gc", "--keep-last", 1)
    assert [(each["version"], each["goes"], each["reason"]) for each in plan["versions"]] == [
        (1, False, "pinned: paper"),
        (2, False, "what 'prod' points at"),
        (3, True, None),
        (4, False, "one of the newest 1"),
    ]
    assert tensor_files(shell) == before
    done = shell.json("model", "gc", "--keep-last", 1, "--yes")
    assert (done["files"], done["is_done"]) == (plan["files"], True)
    after = tensor_files(shell)
    assert before.keys() - after.keys() == {*plan["files"]}
    assert after.items() <= before.items()
    assert states(shell) == ["READY", "READY", "DELETED", "READY"]
    again = shell.json("model", "register", "digits", "m3.safetensors")
    assert (again["version"], again["created"]) == (5, True)


def test_a_pin_is_shown_and_taken_away(shell: Shell) -> None:
    shell.prepare(1, 2)
    shell.run("model", "pin", "digits", 1, "--reason", "paper")
    (pin,) = shell.json("model", "pins")["pins"]
    assert (pin["model"], pin["version"], pin["reason"]) == ("digits", 1, "paper")
    assert "not pinned any more" in shell.said("model", "unpin", "digits", 1)
    assert shell.json("model", "pins", "digits")["pins"] == []
    shell.run("model", "pin", "digits", 9, code=3)
    shell.run("model", "pins", "other", code=3)


def test_a_collection_killed_among_its_files_leaves_a_sound_registry(shell: Shell) -> None:
    shell.prepare(1, prod=[1])
    rows = {f"layer{i}": Tensor.of_bytes("U8", (1000,), os.urandom(1000)) for i in range(400)}
    write_tensor_file(shell.folder / "big.safetensors", rows, {})
    with shell.registry() as registry:
        registry.register_file("digits", shell.folder / "big.safetensors", actor="ann")
    shell.prepare(3)
    count = file_count(shell)
    process = shell.start("model", "gc", "--keep-last", 1, "--yes")
    deadline = time.monotonic() + WAIT_MAX_S
    while file_count(shell) > count - 10:
        assert process.poll() is None, "it finished before it could be killed"
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_MAX_S)
    assert 5 < file_count(shell) < count
    assert states(shell) == ["READY", "DELETED", "READY"]
    report = shell.json("model", "fsck", "--deep")
    assert report["is_sound"]
    assert len(report["garbage"]) > 100
    shell.run("model", "export", "digits@prod", "out.safetensors")
    shell.run("model", "gc", "--yes", code=4)


def test_a_difference_is_shown_for_people_and_for_programs(shell: Shell) -> None:
    with shell.registry() as registry:
        for number in (1, 2):
            path = shell.folder / shell.model_file(number)
            lineage = Lineage(metrics={"accuracy": 0.9 + number / 100})
            registry.register_file("digits", path, actor="ann", lineage=lineage)
    shown = shell.run("model", "diff", "digits:1", "digits:2")
    assert "1 tensors differ, 1 are the same" in shown
    assert "metrics.accuracy" in shown
    found = shell.json("model", "diff", "digits:1", "digits")
    (tensor,) = found["tensors"]
    assert (tensor["tensor"], tensor["change"]) == ("head", "changed")
    assert (tensor["l2"], tensor["largest"]) == (pytest.approx(2**0.5), 1.0)
    assert tensor["cosine"] == pytest.approx(1.0)
    assert found["metrics"] == {"accuracy": {"before": 0.91, "after": 0.92}}
    same = shell.json("model", "diff", "digits:1", "digits:1", "--exit-code")
    assert (same["tensors"], same["same_tensors"]) == ([], 2)
    process = shell.start("model", "diff", "digits:1", "digits:2", "--exit-code")
    process.communicate(timeout=WAIT_MAX_S)
    assert process.returncode == 1
    shell.run("model", "diff", "digits:1", "digits:9", code=3)


def test_what_one_copy_lacks_is_found_and_copied_from_the_other(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"PLISKA_ARTIFACTS": "here,there"})
    shell.prepare(1, 2, prod=[1])
    whole = tensor_files(shell, "here")
    assert tensor_files(shell, "there") == whole
    missing, damaged = sorted(name for name in whole if "/tensors/" in name)[:2]
    (tmp_path / "here" / missing).unlink()
    path = tmp_path / "there" / damaged
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    report = json.loads(shell.run("model", "fsck", "-o", "json", code=5))
    assert {(each["copy"], each["file"]) for each in report["problems"]} == {
        (str(tmp_path / "here"), missing)
    }
    report = json.loads(shell.run("model", "fsck", "--deep", "-o", "json", code=5))
    assert {each["copy"] for each in report["problems"]} == {
        str(tmp_path / "here"),
        str(tmp_path / "there"),
    }
    shell.run("model", "export", "digits@prod", "out.safetensors")
    report = shell.json("model", "fsck", "--deep", "--repair")
    assert {each["is_repaired"] for each in report["problems"]} == {True}
    assert tensor_files(shell, "here") == tensor_files(shell, "there") == whole
    assert shell.json("model", "fsck", "--deep")["problems"] == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a folder in a bucket, over HTTP."""
    server = S3Server.start()
    server.make_bucket("pliska")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield "s3://pliska/models"
    server.stop()


def test_a_bucket_and_a_directory_are_filled_from_each_other_and_swept_together(
    tmp_path: Path, bucket: str
) -> None:
    storage = open_storage(f"{tmp_path / 'here'},{bucket}")
    assert isinstance(storage, MirroredStorage)
    here, there = storage.copies
    with closing(connect("memory:")) as backend:
        registry = Registry(backend, storage)
        for number in (1, 2):
            tensors = {"head": Tensor.of_bytes("U8", (2,), bytes([number, 0]))}
            registry.register("digits", tensors, actor="ann")
        names = here.names("default/")
        assert there.names("default/") == names
        there.delete(names[0])
        there.write(names[-1], [b"no"])
        here.write(names[-2], [b"short"])
        inspector = registry.inspector(reads_every_byte=True)
        inspection = inspector.inspect()
        assert sorted(problem.copy for problem in inspection.problems) == sorted(
            [str(tmp_path / "here"), bucket, bucket]
        )
        assert inspector.repaired(inspection).is_sound
        assert inspector.inspect().problems == ()
        registry.housekeeping("ann").collect(Retention(keep_last=1))
        assert there.names("default/") == here.names("default/")
        assert len(here.names("default/")) == 2


def test_a_mark_is_signed_kept_shown_and_respected(shell: Shell) -> None:
    shell.run("key", "new", "ann.pem")
    shell.run("key", "enroll", "ann", "ann.pem", "--role", "publisher")
    for number in (1, 2):
        shell.run("model", "register", "digits", shell.model_file(number), "--sign", "ann.pem")
    shell.prepare(prod=[1, 2])
    words = ("digits", 2, "--reason", "poisoned", "--sign", "ann.pem")
    assert "prod points at it still" in shell.said("model", "quarantine", *words)
    shown = shell.json("model", "show", "digits:2")
    assert (shown["state"], shown["state_reason"]) == ("QUARANTINED", "poisoned")
    assert [(mark["state"], mark["actor"], mark["signatures"]) for mark in shown["marks"]] == [
        ("READY", "ann@test", 0),
        ("QUARANTINED", "ann@test", 1),
    ]
    assert shell.json("model", "status", "digits", "--alias", "prod")["state"] == "QUARANTINED"
    shell.run("model", "promote", "digits", 2, "--alias", "stage", code=7)
    shell.run("model", "deprecate", "digits", 2, "--reason", "old", code=7)
    strict = ("model", "reinstate", "digits", 2, "--reason", "fine", "--signatures-min", 1)
    shell.run(*strict, code=7)
    shell.run(*strict, "--sign", "ann.pem")
    shell.run("model", "promote", "digits", 2, "--alias", "stage", "--signatures-min", 1)


def test_a_deprecated_version_is_refused_and_with_the_option_warned_of(shell: Shell) -> None:
    shell.prepare(1, 2, 3, prod=[1, 2, 3])
    shell.run("model", "deprecate", "digits", 2, "--reason", "drifts")
    promote = ("model", "promote", "digits", 2, "--alias", "stage")
    shell.run(*promote, code=7)
    assert "digits:2 is DEPRECATED: drifts" in shell.said(*promote, "--allow-deprecated")
    assert shell.json(*ROLLBACK)["to_version"] == 1
    shell.run("model", "quarantine", "digits", 1, code=2)
