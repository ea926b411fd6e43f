"""`pliska model publish` and `adopt` as pipelines run them: real git, a real OCI registry."""

import json
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pliska.coordinator.registry import PromoteRequest, Registry, Tensor
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect
from services import oci_registry as oci_service
from services.commands import EXECUTABLE, Commands
from services.missing import ServiceMissingError, skip_or_fail
from services.oci_registry import OciRegistry


def site(folder: Path) -> Commands:
    """Return `pliska model` on a store with two versions of `digits` that share a tensor."""
    if shutil.which("git") is None:
        skip_or_fail(ServiceMissingError("no git here: install the package `git`"))
    with closing(connect(f"embedded:{folder / 'store'}")) as backend:
        registry = Registry(backend, LocalStorage(folder / "store/registry"))
        for number in (1, 2):
            head = Tensor.of_bytes("F32", (2,), struct.pack("<2f", number, -number))
            frozen = Tensor.of_bytes("BF16", (2, 2), b"\0\1\2\3\4\5\6\7")
            registry.register("digits", {"head": head, "frozen": frozen}, actor="ann")
        registry.promote(PromoteRequest(model="digits", alias="prod", version=1, actor="ann"))
    subprocess.run(["git", "init", "-q", "--bare", str(folder / "repo.git")], check=True)
    return Commands("model", folder)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Commands]:
    commands = site(tmp_path)
    yield commands
    commands.end()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A site that no test changes."""
    commands = site(tmp_path_factory.mktemp("site"))
    yield commands
    commands.end()


def answer(commands: Commands, *words: str, code: int = 0) -> Any:
    done = commands.run(*words, "-o", "json")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_a_version_goes_through_git_to_another_site(model: Commands, tmp_path: Path) -> None:
    first = answer(model, "publish", "digits:1", "--git", "repo.git")
    assert (first["place"], first["created"], first["blobs_added"]) == (
        "pliska/default/digits/1",
        True,
        2,
    )
    assert answer(model, "publish", "digits:2", "--git", "repo.git")["blobs_added"] == 1
    assert not answer(model, "publish", "digits:1", "--git", "repo.git")["created"]
    other = ("--store", "embedded:./other")
    adopted = answer(model, "adopt", "digits:2", "--git", "repo.git", *other)
    assert (adopted["version"], adopted["created"]) == (1, True)
    assert (
        answer(model, "show", "digits:1", *other)["content_id"]
        == (answer(model, "show", "digits:2")["content_id"])
    )


def test_a_version_goes_through_an_oci_registry_to_another_site(
    model: Commands, oci_registry: OciRegistry
) -> None:
    place = f"{oci_registry.host_port}/{uuid4().hex}"
    published = answer(model, "publish", "digits@prod", "--oci", f"{place}:prod")
    assert (published["created"], published["version"]) == (True, "digits:1")
    other = ("--store", "embedded:./other")
    at_digest = f"{place}@{published['digest']}"
    adopted = answer(model, "adopt", "digits", "--oci", at_digest, *other)
    assert (adopted["version"], adopted["created"]) == (1, True)
    assert "not digits:2" in answer(model, "adopt", "digits:2", "--oci", at_digest, code=5)


def test_a_tag_follows_its_alias_as_long_as_the_command_runs(
    model: Commands, oci_registry: OciRegistry
) -> None:
    place = f"{oci_registry.host_port}/{uuid4().hex}:prod"
    follower = model.start("publish", "digits@prod", "--oci", place, "--follow")
    assert follower.stderr is not None
    assert follower.stderr.readline().startswith("published digits:1")
    assert model.run("promote", "digits", "2", "--alias", "prod").returncode == 0
    assert follower.stderr.readline().startswith("published digits:2")
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert "Traceback" not in err
    assert "already" in answer_text(model, "publish", "digits@prod", "--oci", place)


def answer_text(commands: Commands, *words: str) -> str:
    done = commands.run(*words)
    assert done.returncode == 0
    return done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("pack",), 0),
        (("publish", "digits:1"), 2),
        (("publish", "digits:1", "--oci", "not a reference"), 2),
        (("publish", "digits:1", "--oci", "127.0.0.1:1/a:1", "--follow"), 2),
        (("publish", "digits:1", "--git", "--upload-pack=x"), 3),
        (("publish", "digits:1", "--oci", "127.0.0.1:1/a:1"), 8),
        (("adopt", "digits:1", "--git", "repo.git"), 3),
    ],
)
def test_the_exit_code_says_what_went_wrong(
    untouched: Commands, words: tuple[str, ...], code: int
) -> None:
    done = untouched.run(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_publisher_killed_at_any_moment_leaves_the_repository_as_it_was_or_done(
    model: Commands, tmp_path: Path
) -> None:
    repository = tmp_path / "repo.git"
    for pause_s in (0.4, 0.8):
        publisher = model.start("publish", "digits:1", "--git", "repo.git")
        try:
            publisher.communicate(timeout=pause_s)
        except subprocess.TimeoutExpired:
            publisher.kill()
            publisher.communicate()
        quiet = {**os.environ, "LC_ALL": "C"}
        fsck = ["git", "-C", str(repository), "fsck", "--strict"]
        subprocess.run(fsck, check=True, capture_output=True, env=quiet)
    assert answer(model, "publish", "digits:1", "--git", "repo.git")["version"] == "digits:1"


def certificate(folder: Path, address: str) -> Path:
    """Write a certificate for an address, signed by itself, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "registry.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


ELSEWHERE = "127.0.0.2"
"""To us another machine than this one, so that TLS is required."""


def test_another_machine_is_spoken_to_over_tls_and_has_to_be_known(
    oci_binary: Path, tmp_path: Path
) -> None:
    pem = certificate(tmp_path, ELSEWHERE)
    tls = {"certificate": str(pem), "key": str(pem.with_suffix(".key"))}
    registry = oci_service.start(tmp_path / "oci", oci_binary, ELSEWHERE, http={"tls": tls})
    try:
        stranger = site(tmp_path)
        refused = stranger.run("publish", "digits:1", "--oci", f"{registry.host_port}/digits:1")
        assert refused.returncode == 8
        assert "certificate" in refused.stderr
        # Whom a program trusts is read when it is loaded: no copy of a loaded one would do.
        knowing = subprocess.run(
            [EXECUTABLE, "model", "publish", "digits:1", "--oci",
             f"{registry.host_port}/digits:1", "-o", "json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PLISKA_STORE": f"embedded:{tmp_path / 'store'}",
                 "SSL_CERT_FILE": str(pem)},
        )  # fmt: skip
        assert knowing.returncode == 0, knowing.stderr
        assert json.loads(knowing.stdout)["created"]
    finally:
        registry.process.kill()
