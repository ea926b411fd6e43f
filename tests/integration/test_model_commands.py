"""`pliska model` as people run it: the real executable on the embedded store."""

import itertools
import json
import os
import signal
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.coordinator.registry import Tensor, TensorFile
from pliska.coordinator.registry.tensor_file import write_tensor_file
from services.shell import WAIT_MAX_S, Shell

ROLLBACK = ("model", "rollback", "digits", "--alias", "prod", "--reason", "accuracy fell")


def test_a_poisoned_version_is_promoted_and_rolled_back(shell: Shell) -> None:
    assert shell.json("model", "list") == {"schema_version": 1, "versions": []}
    lineage = {"job": "digits", "rounds": [1, 40], "rule": "multi-krum", "f": 2}
    (shell.folder / "lineage.json").write_text(json.dumps(lineage))
    printed = shell.run(
        *("model", "register", "digits", shell.model_file(1)),
        *("--lineage", "lineage.json", "--metric", "accuracy=0.97"),
    )
    assert printed == "1\n"
    shown = shell.json("model", "show", "digits:1")
    assert shown["lineage"]["metrics"] == {"accuracy": 0.97}
    assert shown["lineage"]["rule"] == "multi-krum"
    assert [tensor["dtype"] for tensor in shown["tensors"]] == ["BF16", "F32"]

    again = shell.json("model", "register", "digits", "m1.safetensors")
    assert (again["version"], again["created"]) == (1, False)
    assert shell.json("model", "register", "digits", shell.model_file(2))["created"]
    shell.promote(1, 2)

    planned = shell.json(*ROLLBACK, "--dry-run")
    assert (planned["outcome"], planned["to_version"], planned["gen"]) == ("planned", 1, 3)
    moved = shell.json(*ROLLBACK)
    assert (moved["from_version"], moved["to_version"], moved["gen"]) == (2, 1, 3)
    assert moved["quarantined"] == [2]

    log = shell.log()
    assert [(e["gen"], e["kind"], e["from"], e["to"]) for e in log] == [
        (1, "promote", None, 1),
        (2, "promote", 1, 2),
        (3, "rollback", 2, 1),
    ]
    assert [entry["status"] for entry in log] == [None, "rolled back", "current"]
    assert log[-1]["reason"] == "accuracy fell"
    assert {entry["actor"] for entry in log} == {"ann@test"}
    listed = shell.json("model", "list", "digits")["versions"]
    assert [(v["version"], v["state"], v["aliases"]) for v in listed] == [
        (1, "READY", ["prod"]),
        (2, "QUARANTINED", []),
    ]

    shell.run("model", "promote", "digits", 2, "--alias", "prod", code=7)
    shell.run(*ROLLBACK, code=7)
    assert shell.log() == log
    shell.run("model", "export", "digits@prod", "out.safetensors")
    with TensorFile(shell.folder / "out.safetensors") as out:
        assert b"".join(out.tensors["head"].chunks()) == struct.pack("<2f", 1, -1)
        assert out.metadata == {"format": "pt"}
    assert "digits:1" in shell.run("model", "verify", "digits", "--deep")


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a store that no test changes: versions 1 and 2, `prod` at 2, generation 2."""
    shell = Shell(tmp_path_factory.mktemp("promoted"))
    shell.register(1, 2)
    shell.promote(1, 2)
    (shell.folder / "pickle.safetensors").write_bytes(b"\x80\x04\x95" + b"\0" * 60)
    (shell.folder / "bad.json").write_text('{"jbo": "digits"}')
    return shell


PROMOTE = ("model", "promote", "digits")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((*PROMOTE, 2, "--alias", "prod"), 0),
        ((*PROMOTE, 0, "--alias", "prod"), 2),
        ((*PROMOTE, 1, "--alias", "Prod"), 2),
        ((*PROMOTE, 1, "--alias", "latest"), 2),
        ((*PROMOTE, 1), 2),
        (("model", "rollback", "digits", "--alias", "prod"), 2),
        ((*ROLLBACK, "--to", 1, "--steps", 2), 2),
        (("model", "show", "../digits"), 2),
        (("model", "list", "digits", "-n", "a/b"), 2),
        (("model", "register", "fresh", "m1.safetensors", "--metric", "loss=nan"), 2),
        (("model", "register", "digits", "m1.safetensors", "--lineage", "bad.json"), 2),
        (("model", "export", "digits", "m1.safetensors"), 2),
        (("model", "list", "--store", "memory:"), 2),
        ((*PROMOTE, 9, "--alias", "prod"), 3),
        (("model", "show", "other"), 3),
        (("model", "log", "digits", "--alias", "stage"), 3),
        (("model", "log", "digits", "-n", "other"), 3),
        (("model", "register", "digits", "none.safetensors"), 3),
        ((*PROMOTE, 1, "--alias", "prod", "--expect-gen", 1), 4),
        ((*ROLLBACK, "--expect-gen", 3), 4),
        (("model", "register", "digits", "pickle.safetensors"), 5),
        ((*PROMOTE, 1, "--alias", "prod", "--signatures-min", 1), 5),
        ((*ROLLBACK, "--steps", 2), 7),
    ],
)
def test_the_exit_code_says_what_went_wrong_and_nothing_changes(
    promoted: Shell, words: tuple[object, ...], code: int
) -> None:
    promoted.run(*words, code=code)


def test_after_all_of_them_the_store_is_as_it_was(promoted: Shell) -> None:
    assert [entry["to"] for entry in promoted.log()] == [1, 2]
    listed = promoted.json("model", "list")["versions"]
    assert [(v["model"], v["version"], v["state"]) for v in listed] == [
        ("digits", 1, "READY"),
        ("digits", 2, "READY"),
    ]


def test_a_flipped_byte_stops_verify_export_promote_and_rollback(shell: Shell) -> None:
    shell.register(1, 2)
    shell.promote(1, 2)
    shown = shell.json("model", "show", "digits:1")
    digest = next(t["digest"] for t in shown["tensors"] if t["name"] == "head")
    name = digest.removeprefix("sha256:")
    path = shell.folder / ".pliska/registry/default/tensors" / name[:2] / name
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    assert "--deep" in shell.said("model", "verify", "digits"), "lengths are right"
    report = shell.run("model", "verify", "digits", "--deep", "-o", "json", code=5)
    assert [check["is_sound"] for check in json.loads(report)["checks"]] == [False, True]
    shell.run("model", "export", "digits:1", "out.safetensors", code=5)
    assert not (shell.folder / "out.safetensors").exists()
    shell.run(*ROLLBACK, code=5)
    shell.run(*PROMOTE, 1, "--alias", "prod", code=5)
    assert [entry["to"] for entry in shell.log()] == [1, 2]


def test_a_signed_version_counts_as_long_as_its_publisher_does(shell: Shell) -> None:
    shell.run("key", "new", "ann.pem")
    shell.run("key", "enroll", "ann", "ann.pem", "--role", "publisher")
    shell.run("model", "register", "digits", shell.model_file(1), "--sign", "ann.pem")
    shell.run(*PROMOTE, 1, "--alias", "prod", "--signatures-min", 1)
    shell.run("key", "revoke", "ann", "--reason", "left")
    shell.run("model", "export", "digits@prod", "out.safetensors", code=5)


def test_four_processes_at_once_keep_history_and_alias_whole(shell: Shell) -> None:
    shell.register(1, 2, 3, 4)
    shell.promote(1)

    def act(index: int) -> list[str | None]:
        outcomes = []
        for turn in range(3):
            move = (
                (*ROLLBACK, "--no-quarantine")
                if turn % 2
                else (*PROMOTE, index + 1, "--alias", "prod")
            )
            process = shell.start(*move, "-o", "json")
            stdout, stderr = process.communicate(timeout=WAIT_MAX_S)
            assert process.returncode in (0, 4, 7), stderr
            outcomes.append(json.loads(stdout)["outcome"] if stdout else None)
        return outcomes

    with ThreadPoolExecutor(4) as pool:
        outcomes = [outcome for each in pool.map(act, range(4)) for outcome in each]
    log = shell.log()
    assert len(log) == 1 + outcomes.count("moved")
    assert [entry["gen"] for entry in log] == list(range(1, len(log) + 1))
    for before, after in itertools.pairwise(log):
        assert after["from"] == before["to"]
    (pointed_at,) = shell.json("model", "list", "--alias", "prod")["versions"]
    assert pointed_at["version"] == log[-1]["to"]


def test_a_registration_killed_half_way_is_completed_by_the_next(shell: Shell) -> None:
    shell.register(1)
    rows = [os.urandom(1024 * 1024) for _ in range(40)]
    tensors = {f"layer{i}": Tensor.of_bytes("U8", (len(r),), r) for i, r in enumerate(rows)}
    write_tensor_file(shell.folder / "big.safetensors", tensors, {})
    process = shell.start("model", "register", "digits", "big.safetensors")
    deadline = time.monotonic() + WAIT_MAX_S
    stored = shell.folder / ".pliska/registry/default/tensors"
    while sum(1 for path in stored.rglob("*") if path.is_file()) < 10:
        assert process.poll() is None, "it finished before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_MAX_S)

    listed = shell.json("model", "list")["versions"]
    assert [version["state"] for version in listed] == ["READY", "PENDING"]
    shell.run("model", "verify", "digits")
    shell.run(*PROMOTE, 2, "--alias", "prod", code=7)
    done = shell.json("model", "register", "digits", "big.safetensors")
    assert (done["version"], done["created"], done["state"]) == (2, True, "READY")
    shell.run("model", "export", "digits:2", "out.safetensors")
    with TensorFile(shell.folder / "out.safetensors") as out:
        for index, row in enumerate(rows):
            assert b"".join(out.tensors[f"layer{index}"].chunks()) == row


def test_a_rollback_killed_at_any_moment_and_repeated_moves_one_step(shell: Shell) -> None:
    shell.register(1, 2)
    shell.promote(1, 2)
    begin = time.monotonic()
    shell.run(*ROLLBACK, "--dry-run")
    whole_s = time.monotonic() - begin
    for turn, part in enumerate((0.6, 0.8, 1.0), start=1):
        words = (*ROLLBACK, "--no-quarantine", "--op-id", f"killed-{turn}")
        process = shell.start(*words)
        try:
            process.communicate(timeout=whole_s * part)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=WAIT_MAX_S)
        shell.run(*words)
        shell.promote(2)
    assert [entry["to"] for entry in shell.log()] == [1, 2] + [1, 2] * 3
    shell.run("model", "verify", "digits")
