"""Whatever is put in: it is refused with the right exit code, and nothing is left half done."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliska.coordinator.commands.main import main
from pliska.coordinator.registry import Reference, State, Tensor, TensorFile
from pliska.coordinator.registry.digest import hex_of
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.tensor_file import write_tensor_file
from services.commands import EXECUTABLE
from services.shell import WAIT_MAX_S, Shell

KEYS = Keys("default")
Pliska = Callable[..., int]


@pytest.fixture
def pliska(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Pliska:
    """Run `pliska model` in this process, in the folder of the shell; return its exit code."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.setenv("PLISKA_STORE", "embedded:./.pliska")
    monkeypatch.setenv("PLISKA_ACTOR", "ann@test")

    def run(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["pliska", "model", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


@pytest.fixture
def two(shell: Shell) -> Shell:
    """A store with versions 1 and 2, `prod` at 2."""
    shell.prepare(1, 2, prod=[1, 2])
    return shell


def content_of(shell: Shell) -> dict[str, bytes]:
    """Return all files of the folder but the store's own."""
    return {
        path.relative_to(shell.folder).as_posix(): path.read_bytes()
        for path in shell.folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.parent != shell.folder / ".pliska"
    }


def tensor_path(shell: Shell, name: str, version: int) -> Path:
    with shell.registry() as registry:
        manifest = registry.manifest(registry.versions("digits")[version - 1])
    (digest,) = (hex_of(entry.digest) for entry in manifest.tensors if entry.name == name)
    return shell.folder / ".pliska/registry/default/tensors" / digest[:2] / digest


def history_of(shell: Shell) -> list[int]:
    with shell.registry() as registry:
        return [entry.to_version for entry in registry.log("digits", "prod")]


BAD_NAMES = [
    "..", "../x", "/etc/passwd", "a/b", "a\\b", "%2e%2e", "%2e", "a%00b", "a\0b", "a\nb", "",
    "Digits", "DIGITS", "d\u0131gits", "a..b", ".x", "digits ", "~", "a" * 64,
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_a_path_an_escape_or_collides_is_refused_by_every_command(
    two: Shell, pliska: Pliska, name: str
) -> None:
    before = content_of(two)
    for words in (
        ("register", name, "m1.safetensors"),
        ("register", "digits", "m1.safetensors", "-n", name),
        ("promote", name, 1, "--alias", "prod"),
        ("promote", "digits", 1, "--alias", name),
        ("rollback", "digits", "--alias", name, "--reason", "worse"),
        ("show", f"{name}:1"),
        ("list", "-n", name),
        ("log", "digits", "--alias", name),
        ("export", f"digits@{name}", "out.safetensors"),
        ("quarantine", name, 1, "--reason", "x"),
        ("pin", name, 1),
        ("pins", "-n", name),
        ("diff", "digits:1", f"{name}:1"),
        ("gc", "--yes", "-n", name),
        ("fsck", "-n", name),
        ("metric", f"{name}:1", "loss=1", "--source", "n1"),
        ("metric", "digits:1", "loss=1", "--source", name),
        ("watch", f"digits@{name}"),
    ):
        assert pliska(*words) == 2, words
    assert content_of(two) == before
    assert history_of(two) == [1, 2]


def test_names_of_tensors_are_never_paths(shell: Shell, pliska: Pliska) -> None:
    names = ["../../etc/x", "/abs", "a\\b", "%2e%2e/x", "w", "W", "con", "."]
    tensors = {
        name: Tensor.of_bytes("U8", (2,), bytes([number, 1])) for number, name in enumerate(names)
    }
    write_tensor_file(shell.folder / "odd.safetensors", tensors, {"../y": "/z"})
    assert pliska("register", "digits", "odd.safetensors") == 0
    assert pliska("export", "digits", "out.safetensors") == 0
    stored = [each for each in content_of(shell) if each.startswith(".pliska/registry/")]
    assert {each.split("/")[3] for each in stored} == {"tensors", "manifests"}
    assert len(stored) == len(names) + 1
    assert {each for each in content_of(shell) if "/" not in each} == {
        "odd.safetensors",
        "out.safetensors",
    }
    with TensorFile(shell.folder / "out.safetensors") as out:
        assert {n: b"".join(t.chunks()) for n, t in out.tensors.items()} == {
            name: bytes([number, 1]) for number, name in enumerate(names)
        }


def test_links_in_the_storage_are_never_followed_nor_what_they_point_at_touched(
    two: Shell, pliska: Pliska
) -> None:
    outside = two.folder / "outside"
    path = tensor_path(two, "head", 1)
    path.rename(outside)
    path.symlink_to(outside)
    before = outside.read_bytes()
    for words in (
        ("export", "digits:1", "out.safetensors"),
        ("verify", "digits:1"),
        ("fsck",),
        ("promote", "digits", 1, "--alias", "prod"),
        ("rollback", "digits", "--alias", "prod", "--reason", "worse"),
        ("register", "digits", "m1.safetensors"),
    ):
        assert pliska(*words) == 5, words
    assert outside.read_bytes() == before
    assert path.is_symlink()
    assert not (two.folder / "out.safetensors").exists()
    assert history_of(two) == [1, 2]


def test_a_file_that_is_a_link_out_of_the_storage_is_not_removed_by_a_collection(
    two: Shell, pliska: Pliska
) -> None:
    outside = two.folder / "outside"
    outside.write_bytes(b"precious")
    folder = two.folder / ".pliska/registry/default/tensors/zz"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert pliska("fsck") == 0
    assert pliska("gc", "--yes") == 5
    assert outside.read_bytes() == b"precious"
    with two.registry() as registry:
        registry.load(Reference.parse("digits@prod"))


def test_a_folder_that_became_a_link_takes_nothing_in(two: Shell, pliska: Pliska) -> None:
    elsewhere = two.folder / "elsewhere"
    (two.folder / ".pliska/registry/default/tensors").rename(elsewhere)
    (two.folder / ".pliska/registry/default/tensors").symlink_to(elsewhere)
    count = len(list(elsewhere.rglob("*")))
    two.model_file(3)
    assert pliska("register", "digits", "m3.safetensors") == 5
    assert pliska("export", "digits@prod", "out.safetensors") == 5
    assert len(list(elsewhere.rglob("*"))) == count


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x80\x04\x95" + b"\0" * 60, 5),
        (b"PK\x03\x04" + b"\0" * 60, 5),
        (b"", 5),
        (struct.pack("<Q", 2**63) + b"{}", 5),
        (struct.pack("<Q", 2) + b"{}", 5),
        (struct.pack("<Q", 9) + b'{"a": NaN', 5),
    ],
)
def test_what_is_no_safetensors_file_is_refused_and_takes_no_number(
    two: Shell, pliska: Pliska, content: bytes, code: int
) -> None:
    (two.folder / "bad.safetensors").write_bytes(content)
    assert pliska("register", "digits", "bad.safetensors") == code
    two.model_file(3)
    assert pliska("register", "digits", "m3.safetensors") == 0
    with two.registry() as registry:
        assert [each.state for each in registry.versions("digits")] == [State.READY] * 3


@pytest.mark.parametrize("path", ["a\0b.safetensors", "", "..", "/", "m1.safetensors/x"])
def test_a_path_that_is_no_file_is_refused(two: Shell, pliska: Pliska, path: str) -> None:
    whole = content_of(two)
    assert pliska("register", "digits", path) in (2, 3, 5)
    assert pliska("export", "digits", path) in (2, 3)
    assert content_of(two) == whole


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--from", "soon"), 2),
        (("digits:1",), 2),
        (("../digits",), 2),
        (("digits@latest",), 2),
        (("--from", "7:history/digits/stage/000000000001"), 4),
        (("--from", "7:history/../../000000000001"), 2),
    ],
)
def test_what_cannot_be_watched_is_refused(
    pliska: Pliska, words: tuple[object, ...], code: int
) -> None:
    assert pliska("watch", *words) == code


def test_an_extra_file_changes_nothing_is_told_and_goes(two: Shell, pliska: Pliska) -> None:
    folder = two.folder / ".pliska/registry/default"
    whole = content_of(two)
    (folder / "tensors/extra").write_bytes(b"x" * 100)
    (folder / "manifests" / f"{'0' * 64}.json").write_bytes(b"{}")
    assert pliska("fsck", "--deep") == 0
    assert pliska("export", "digits@prod", "out.safetensors") == 0
    assert pliska("gc", "--yes") == 0
    (two.folder / "out.safetensors").unlink()
    assert content_of(two) == whole


def test_a_replayed_alias_record_is_refused_by_whatever_reads_the_alias(
    two: Shell, pliska: Pliska
) -> None:
    key = KEYS.alias("digits", "prod")
    with two.registry() as registry:
        old = registry.namespace.backend.get(key)
    two.prepare(3, prod=[3])
    with two.registry() as registry:
        now = registry.namespace.backend.get(key)
        registry.namespace.backend.update(key, old.value, now.modified)
    for words in (
        ("promote", "digits", 1, "--alias", "prod"),
        ("rollback", "digits", "--alias", "prod", "--reason", "worse"),
        ("log", "digits"),
        ("list",),
        ("export", "digits@prod", "out.safetensors"),
        ("gc", "--keep-last", 1, "--yes"),
        ("fsck",),
    ):
        assert pliska(*words) == 5, words
    with two.registry() as registry:
        assert {each.state for each in registry.versions("digits")} == {State.READY}


@pytest.mark.parametrize("number", ["nan", "NaN", "inf", "-inf", "1e999", "", "x", "0x1", "1,5"])
def test_a_metric_that_is_no_finite_number_is_refused(
    two: Shell, pliska: Pliska, number: str
) -> None:
    assert pliska("metric", "digits:1", f"loss={number}", "--source", "n1") == 2
    two.model_file(3)
    assert pliska("register", "digits", "m3.safetensors", "--metric", f"loss={number}") == 2
    lineage = two.folder / "lineage.json"
    lineage.write_text(f'{{"metrics": {{"loss": {number or "null"}}}}}')
    assert pliska("register", "digits", "m3.safetensors", "--lineage", lineage) == 2
    with two.registry() as registry:
        assert len(registry.versions("digits")) == 2
        assert registry.metrics.read("digits", 1, frozenset({"loss"})) == {}


@pytest.fixture
def small_disk(shell: Shell) -> Iterator[Callable[[int], None]]:
    """Put the artifacts on a file system of 256 KiB; what it returns gives it so many more."""
    artifacts = shell.folder / ".pliska/registry"
    artifacts.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(artifacts)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")

    def grow(kib: int) -> None:
        options = f"remount,size={kib}k"
        subprocess.run(["mount", "-o", options, str(artifacts)], check=True)

    yield grow
    subprocess.run(["umount", str(artifacts)], check=True)


def big_file(shell: Shell) -> str:
    """Write a model of which a part fits the small disk."""
    rows = {f"layer{i}": Tensor.of_bytes("U8", (40_000,), os.urandom(40_000)) for i in range(12)}
    write_tensor_file(shell.folder / "big.safetensors", rows, {})
    return "big.safetensors"


def test_a_disk_that_fills_up_leaves_what_was_there_and_can_be_cleared(
    shell: Shell, pliska: Pliska, small_disk: Callable[[int], None]
) -> None:
    shell.prepare(1, 2, prod=[1])
    whole = content_of(shell)
    assert pliska("register", "digits", big_file(shell)) == 8
    with shell.registry() as registry:
        failed = registry.versions("digits")[2]
        assert (failed.state, failed.manifest_digest) == (State.DELETED, None)
        registry.load(Reference.parse("digits@prod"))
    assert pliska("show", "digits:3") == 0
    assert pliska("promote", "digits", 3, "--alias", "prod") == 7
    assert pliska("fsck", "--deep") == 0
    assert pliska("gc", "--yes") == 0
    (shell.folder / "big.safetensors").rename(shell.folder / "kept")
    assert {name: each for name, each in content_of(shell).items() if name != "kept"} == whole
    small_disk(4096)
    assert pliska("register", "digits", "kept") == 0
    with shell.registry() as registry:
        assert registry.resolve(Reference.parse("digits")).version == 4
        registry.load(Reference.parse("digits:4"))


def test_a_process_that_may_not_write_so_much_is_refused_and_leaves_nothing(shell: Shell) -> None:
    shell.prepare(1, prod=[1])
    row = Tensor.of_bytes("U8", (900_000,), os.urandom(900_000))
    write_tensor_file(shell.folder / "big.safetensors", {"row": row}, {})
    whole = content_of(shell)
    process = subprocess.run(
        [
            *("/bin/sh", "-c", 'ulimit -f 1000; exec "$@"', "sh"),  # blocks of 512 bytes
            *(EXECUTABLE, "model", "register", "digits", "big.safetensors"),
        ],
        cwd=shell.folder,
        env={**os.environ, "PLISKA_STORE": "embedded:./.pliska"},
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    assert (process.returncode, process.stdout) == (8, ""), process.stderr
    assert "File too large; nothing was stored, make room" in process.stderr
    assert content_of(shell) == whole
    assert history_of(shell) == [1]
