"""Versions in git repositories: real repositories, and the real git beside ours."""

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import (
    DestinationError,
    IntegrityError,
    NotFoundError,
    Publication,
    Reference,
    RefusedError,
    Registry,
    RegistryConflictError,
    RegistryUsageError,
)
from pliska.coordinator.registry.adoption import adopt
from pliska.coordinator.registry.git import GitRepository
from pliska.coordinator.registry.git_publication import publish_to_git, read_from_git
from pliska.coordinator.registry.publication import publication_of
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Keyring, Role, key_id, new_private_key, public_bytes
from pliska.locks import connect
from services.missing import ServiceMissingError, skip_or_fail


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(folder: Path) -> set[str]:
    return set(git(folder, "cat-file", "--batch-all-objects", "--batch-check").splitlines())


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine's or of a surrounding git; who has none has to publish too."""
    if shutil.which("git") is None:
        skip_or_fail(ServiceMissingError("no git here: install the package `git`"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    return folder


@pytest.fixture
def working(tmp_path: Path) -> Path:
    """A repository somebody works in: a commit, a staged change, an unstaged one, a hook."""
    folder = tmp_path / "working"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "code.py").write_text("one\n")
    git(folder, "add", "code.py")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    (folder / "code.py").write_text("two\n")
    git(folder, "add", "code.py")
    (folder / "code.py").write_text("three\n")
    (folder / "new.py").write_text("new\n")
    hook = folder / ".git/hooks/reference-transaction"
    hook.write_text("#!/bin/sh\ntouch ran\nexit 1\n")
    hook.chmod(0o755)
    return folder


@pytest.fixture
def published(desk: Any) -> Callable[[int], Publication]:
    """Return a version of `digits` as it is published."""

    def make(version: int) -> Publication:
        record = desk.registry.resolve(Reference("digits", version=version))
        return publication_of(desk.registry.namespace, record)

    return make


def test_a_version_is_one_commit_with_its_files_under_its_tag(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    receipt = publish_to_git(published(1), GitRepository(bare))
    assert (receipt.place, receipt.created, receipt.blobs_added) == (
        "pliska/default/digits/1",
        True,
        2,
    )
    names = git(bare, "ls-tree", "-r", "--name-only", receipt.place).splitlines()
    assert names[:2] == ["manifest.json", "origin.json"]
    digests = [entry.digest for entry in published(1).manifest.tensors]
    assert sorted(names[2:]) == sorted("tensors/" + d.removeprefix("sha256:") for d in digests)
    assert git(bare, "rev-parse", receipt.place).strip() == receipt.digest
    git(bare, "fsck", "--strict")


def test_a_second_version_adds_only_the_tensors_that_changed(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2)
    publish_to_git(published(1), GitRepository(bare))
    before = objects(bare)
    receipt = publish_to_git(published(2), GitRepository(bare))
    assert receipt.blobs_added == 1
    added = sorted(line.split()[1] for line in objects(bare) - before)
    assert added == ["blob", "blob", "blob", "commit", "tree", "tree"]  # head, manifest, origin
    assert git(bare, "rev-list", "pliska/default/digits/2").count("\n") == 2


def test_publishing_again_changes_nothing(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    first = publish_to_git(published(1), GitRepository(bare))
    before = objects(bare), git(bare, "for-each-ref")
    again = publish_to_git(published(1), GitRepository(bare))
    assert (again.created, again.digest, again.blobs_added) == (False, first.digest, 0)
    assert (objects(bare), git(bare, "for-each-ref")) == before


def test_the_same_version_is_the_same_commit_in_every_repository(
    desk: Any, bare: Path, working: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    one = publish_to_git(published(1), GitRepository(bare))
    other = publish_to_git(published(1), GitRepository(working))
    assert one.digest == other.digest


def test_index_work_tree_branches_and_hooks_of_a_working_repository_are_left_alone(
    desk: Any, working: Path, published: Callable[[int], Publication]
) -> None:
    def state() -> tuple[str, str, bytes]:
        index = (working / ".git/index").read_bytes()
        return git(working, "branch", "-v"), git(working, "status", "--porcelain"), index

    desk.register(1)
    before = state()
    assert publish_to_git(published(1), GitRepository(working)).created
    assert state() == before
    assert not (working / "ran").exists()
    assert not (working / ".git/ran").exists()


def test_an_older_version_can_be_published_later(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2, 3)
    for version in (3, 1, 2):
        assert publish_to_git(published(version), GitRepository(bare)).created
    assert git(bare, "rev-list", "pliska/default/digits/2").count("\n") == 2
    git(bare, "fsck", "--strict")


def test_concurrent_publishers_lose_nothing(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2, 3)
    repository = GitRepository(bare)
    versions = [1, 2, 3] * 3
    with ThreadPoolExecutor(9) as pool:
        receipts = list(pool.map(lambda n: publish_to_git(published(n), repository), versions))
    assert sum(receipt.created for receipt in receipts) == 3
    for version in (1, 2, 3):
        read = read_from_git(repository, "default", "digits", version)
        assert read.manifest == published(version).manifest
    git(bare, "fsck", "--strict")


def test_a_tag_with_another_manifest_is_a_conflict_and_stays(
    desk: Any, bare: Path, published: Callable[[int], Publication], tensors: Callable[[int], Any]
) -> None:
    desk.register(1)
    first = publish_to_git(published(1), GitRepository(bare))
    other = Registry(connect("memory:other"), desk.storage)
    other.register("digits", tensors(9), actor="eve")
    publication = publication_of(other.namespace, other.resolve(Reference("digits")))
    with pytest.raises(RegistryConflictError, match="another manifest") as refused:
        publish_to_git(publication, GitRepository(bare))
    assert refused.value.exit_code == 4
    assert git(bare, "rev-parse", "pliska/default/digits/1").strip() == first.digest


def test_what_fails_in_the_middle_leaves_no_reference(
    desk: Any, bare: Path, tmp_path: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    publication = published(1)
    blob = next(p for p in (tmp_path / "artifacts/default/tensors").rglob("*") if p.is_file())
    blob.write_bytes(b"x" * blob.stat().st_size)
    with pytest.raises(IntegrityError):
        publish_to_git(publication, GitRepository(bare))
    assert git(bare, "for-each-ref") == ""


def test_a_repository_that_cannot_be_written_is_an_error_of_the_destination(
    desk: Any, bare: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    shutil.rmtree(bare / "objects")
    (bare / "objects").write_text("")
    with pytest.raises((DestinationError, NotFoundError)):
        publish_to_git(published(1), GitRepository(bare))


@pytest.mark.parametrize("model", ["a.lock", "a."])
def test_a_model_whose_name_git_does_not_allow_is_refused(
    desk: Any, bare: Path, tensors: Callable[[int], Any], model: str
) -> None:
    desk.registry.register(model, tensors(1), actor="ann")
    publication = publication_of(
        desk.registry.namespace, desk.registry.resolve(Reference(model, version=1))
    )
    if model == "a.":
        assert publish_to_git(publication, GitRepository(bare)).created
        return
    with pytest.raises(RegistryUsageError, match="git allows no reference"):
        publish_to_git(publication, GitRepository(bare))


@pytest.mark.parametrize("name", ["missing", "--upload-pack=touch x", "-c"])
def test_what_is_no_repository_is_not_found_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError):
        GitRepository(Path(name))
    Path(name).mkdir()
    with pytest.raises(NotFoundError, match="no git repository"):
        GitRepository(Path(name))
    subprocess.run(["git", "init", "-q", "--bare", "--", name], check=True)
    assert GitRepository(Path(name)).references("refs/") == {}


def test_a_quarantined_version_is_not_published(
    desk: Any, published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2)
    desk.promote(1, 2)
    desk.registry.rollback(desk.rollback())
    with pytest.raises(RefusedError, match="QUARANTINED"):
        published(2)


def test_a_clone_of_one_tag_brings_a_version_to_another_registry(
    desk: Any, bare: Path, tmp_path: Path, published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2)
    for version in (1, 2):
        publish_to_git(published(version), GitRepository(bare))
    clone = tmp_path / "clone"
    words = ["clone", "-q", "--depth", "1", "--branch", "pliska/default/digits/2"]
    git(tmp_path, "-c", "advice.detachedHead=false", *words, f"file://{bare}", str(clone))
    other = Registry(connect("memory:elsewhere"), LocalStorage(tmp_path / "other"))
    publication = read_from_git(GitRepository(clone), "default", "digits", 2)
    adopted = adopt(other, publication, actor="bob")
    assert (adopted.created, adopted.version.version) == (True, 1)
    assert (
        other.load(Reference("digits")).tensors
        == desk.registry.load(Reference("digits", version=2)).tensors
    )
    with pytest.raises(NotFoundError, match="no tag"):
        read_from_git(GitRepository(clone), "default", "digits", 1)


def replace_file(repository: Path, name: str, content: bytes) -> None:
    """Let the tag of digits:1 point at a tree in which one file is another."""
    tag = "pliska/default/digits/1"
    lines = git(repository, "ls-tree", "-r", tag).splitlines()
    index = {**os.environ, "GIT_INDEX_FILE": str(repository / "forged")}

    def run(*words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "-C", str(repository), *words],
            input=given,
            capture_output=True,
            env=index,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    blob = run("hash-object", "-w", "--stdin", given=content)
    for line in lines:
        mode, _, rest = line.split(" ")
        target, path = rest.split("\t")
        target = blob if path == name else target
        run("update-index", "--add", "--cacheinfo", f"{mode},{target},{path}")
    who = ["-c", "user.name=eve", "-c", "user.email=eve@x"]
    commit = run(*who, "commit-tree", run("write-tree"), "-m", "forged")
    run("update-ref", f"refs/tags/{tag}", commit)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("manifest.json", b"{}", "manifest"),
        ("origin.json", b"\x80\x04.", "origin"),
        ("tensor", b"\0" * 12, "is not sha256"),
        ("tensor", b"\0" * 13, "over 12 bytes"),
    ],
)
def test_what_was_forged_in_the_repository_is_refused_and_registers_nothing(
    desk: Any,
    bare: Path,
    tmp_path: Path,
    published: Callable[[int], Publication],
    name: str,
    content: bytes,
    reason: str,
) -> None:
    desk.register(1)
    publish_to_git(published(1), GitRepository(bare))
    frozen = next(e.digest for e in published(1).manifest.tensors if e.name == "frozen")
    path = f"tensors/{frozen.removeprefix('sha256:')}" if name == "tensor" else name
    replace_file(bare, path, content)
    other = Registry(connect("memory:victim"), LocalStorage(tmp_path / "other"))
    with pytest.raises(IntegrityError, match=reason):
        adopt(other, read_from_git(GitRepository(bare), "default", "digits", 1), actor="bob")
    assert other.models() == []


def test_who_wants_signatures_adopts_only_what_an_enrolled_publisher_signed(
    desk: Any, bare: Path, tmp_path: Path, tensors: Callable[[int], Any]
) -> None:
    private = new_private_key()
    signer = Signer(private, key_id(public_bytes(private)))
    Keyring(desk.backend).enroll("pub", Role.PUBLISHER, public_bytes(private))
    desk.registry.register("digits", tensors(1), actor="ann", signer=signer)
    record = desk.registry.resolve(Reference("digits"))
    publish_to_git(publication_of(desk.registry.namespace, record), GitRepository(bare))
    publication = read_from_git(GitRepository(bare), "default", "digits", 1)
    backend = connect("memory:careful")
    careful = Registry(backend, LocalStorage(tmp_path / "other"), signatures_min=1)
    with pytest.raises(IntegrityError, match="0 signatures"):
        adopt(careful, publication, actor="bob")
    Keyring(backend).enroll("pub", Role.PUBLISHER, public_bytes(private))
    assert adopt(careful, publication, actor="bob", signer=signer).created
    assert careful.load(Reference("digits")).version.version == 1
