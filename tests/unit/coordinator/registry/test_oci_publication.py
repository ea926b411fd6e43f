"""Versions in OCI registries: a real `docker-registry`, over HTTP."""

import base64
import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

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
    Tensor,
)
from pliska.coordinator.registry.adoption import adopt
from pliska.coordinator.registry.alias_publication import follow_alias, publish_pointed_at
from pliska.coordinator.registry.oci_credentials import OciCredentials
from pliska.coordinator.registry.oci_publication import publish_to_oci, read_from_oci
from pliska.coordinator.registry.oci_reference import OciReference
from pliska.coordinator.registry.publication import Receipt, publication_of
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect
from services import oci_registry as oci_service
from services.oci_registry import OciRegistry
from services.waiting import wait_until

ANN = OciCredentials("ann", "s3cret")
ANN_HTPASSWD = "ann:$2b$04$M.DM0sz6jLkL2YMmqhSFl.9OThV5DG61xKBq1aA71s8pC/8FboNCW\n"


@pytest.fixture
def place(oci_registry: OciRegistry) -> Callable[[str], OciReference]:
    """Return a tag in a repository of this test's own."""
    name = f"models/{uuid4().hex}"
    return lambda tag: OciReference.parse(f"{oci_registry.host_port}/{name}:{tag}")


@pytest.fixture
def published(desk: Any) -> Callable[[int], Publication]:
    """Return a version of `digits` as it is published."""

    def make(version: int) -> Publication:
        record = desk.registry.resolve(Reference("digits", version=version))
        return publication_of(desk.registry.namespace, record)

    return make


def push(publication: Publication, place: OciReference, **more: Any) -> Receipt:
    return publish_to_oci(publication, place, None, **{"tag_may_move": False, **more})


def ask(method: str, place: OciReference, path: str, content: bytes = b"", **headers: str) -> bytes:
    """Speak to a registry without our client."""
    connection = http.client.HTTPConnection(place.host, place.port, timeout=10)
    try:
        connection.request(method, f"/v2/{place.name}/{path}", content, headers)
        answer = connection.getresponse()
        assert answer.status in {200, 201}
        return answer.read()
    finally:
        connection.close()


def get(place: OciReference, path: str) -> bytes:
    return ask("GET", place, path, Accept="application/vnd.oci.image.manifest.v1+json")


def uploads(registry: OciRegistry, place: OciReference) -> int:
    """How many blobs were sent to a repository."""
    return registry.log.count(f'"PUT /v2/{place.name}/blobs/uploads/')


def test_a_version_is_an_artifact_of_our_type_under_its_tag_and_digest(
    desk: Any, place: Callable[[str], OciReference], published: Callable[[int], Publication]
) -> None:
    desk.register(1)
    receipt = push(published(1), place("v1"))
    assert (receipt.created, receipt.blobs_added) == (True, 2)
    content = get(place("v1"), "manifests/v1")
    assert content == get(place("v1"), f"manifests/{receipt.digest}")
    manifest = json.loads(content)
    assert manifest["artifactType"] == "application/vnd.pliska.model.v1"
    assert [layer["mediaType"].rpartition("pliska.")[2] for layer in manifest["layers"]] == [
        "manifest.v1+json",
        "tensor.v1",
        "tensor.v1",
    ]
    assert get(place("v1"), f"blobs/{published(1).record.manifest_digest}") == (
        published(1).manifest.to_bytes()
    )


def test_a_second_version_sends_only_the_tensors_that_changed(
    desk: Any,
    oci_registry: OciRegistry,
    place: Callable[[str], OciReference],
    published: Callable[[int], Publication],
) -> None:
    desk.register(1, 2)
    push(published(1), place("v1"))
    assert uploads(oci_registry, place("v1")) == 4
    assert push(published(2), place("v2")).blobs_added == 1
    assert uploads(oci_registry, place("v1")) == 7


def test_publishing_again_sends_nothing(
    desk: Any,
    oci_registry: OciRegistry,
    place: Callable[[str], OciReference],
    published: Callable[[int], Publication],
) -> None:
    desk.register(1)
    first = push(published(1), place("v1"))
    sent = oci_registry.log.count('"PUT ')
    again = push(published(1), place("v1"))
    assert (again.created, again.digest) == (False, first.digest)
    assert oci_registry.log.count('"PUT ') == sent


def test_only_a_tag_that_follows_an_alias_moves(
    desk: Any, place: Callable[[str], OciReference], published: Callable[[int], Publication]
) -> None:
    desk.register(1, 2)
    first = push(published(1), place("prod"))
    with pytest.raises(RegistryConflictError, match="another artifact"):
        push(published(2), place("prod"))
    assert get(place("prod"), "manifests/prod") == get(place("prod"), f"manifests/{first.digest}")
    second = push(published(2), place("prod"), tag_may_move=True)
    assert get(place("prod"), "manifests/prod") == get(place("prod"), f"manifests/{second.digest}")


def test_what_was_published_can_be_adopted_from_tag_or_digest(
    desk: Any,
    place: Callable[[str], OciReference],
    published: Callable[[int], Publication],
    tmp_path: Path,
) -> None:
    desk.register(1)
    empty = {"none": Tensor.of_bytes("F32", (0,), b""), "one": Tensor.of_bytes("U8", (1,), b"x")}
    desk.registry.register("digits", empty, actor="ann", metadata={"k": "v"})
    receipt = push(published(2), place("v2"))
    by_digest = OciReference.parse(
        f"{place('v2').host}:{place('v2').port}/{place('v2').name}@{receipt.digest}"
    )
    for number, reference in enumerate((place("v2"), by_digest)):
        other = Registry(connect(f"memory:{uuid4().hex}"), LocalStorage(tmp_path / str(number)))
        folder = tmp_path / f"spool{number}"
        folder.mkdir()
        adopt(other, read_from_oci(reference, None, folder), actor="bob")
        assert other.load(Reference("digits")).tensors == {"none": b"", "one": b"x"}
    with pytest.raises(NotFoundError):
        read_from_oci(place("v9"), None, tmp_path)
    with pytest.raises(RegistryUsageError, match="publish to a tag"):
        push(published(2), by_digest)


def test_a_damaged_blob_in_the_registry_is_refused(
    desk: Any,
    oci_binary: Path,
    published: Callable[[int], Publication],
    tmp_path: Path,
) -> None:
    desk.register(1)
    registry = oci_service.start(tmp_path / "oci", oci_binary)
    try:
        reference = OciReference.parse(f"{registry.host_port}/digits:v1")
        push(published(1), reference)
        for entry in published(1).manifest.tensors:
            digest = entry.digest.removeprefix("sha256:")
            data = registry.directory / f"data/docker/registry/v2/blobs/sha256/{digest[:2]}"
            (data / digest / "data").write_bytes(b"\0" * entry.type.nbytes)
        other = Registry(connect(f"memory:{uuid4().hex}"), LocalStorage(tmp_path / "other"))
        (tmp_path / "spool").mkdir()
        publication = read_from_oci(reference, None, tmp_path / "spool")
        with pytest.raises(IntegrityError, match="is not sha256"):
            adopt(other, publication, actor="bob")
        assert other.models() == []
    finally:
        registry.process.kill()
    with pytest.raises(DestinationError, match="cannot be reached") as gone:
        push(published(1), reference)
    assert gone.value.exit_code == 8


def test_an_image_of_somebody_else_is_not_a_model_and_keeps_its_tag(
    desk: Any,
    place: Callable[[str], OciReference],
    published: Callable[[int], Publication],
    tmp_path: Path,
) -> None:
    kind = "application/vnd.oci.image.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": []}
    ask("PUT", place("x"), "manifests/x", json.dumps(index).encode(), **{"Content-Type": kind})
    with pytest.raises(IntegrityError, match="not a model"):
        read_from_oci(place("x"), None, tmp_path)
    desk.register(1)
    with pytest.raises(RegistryConflictError, match="another artifact"):
        push(published(1), place("x"))


def test_an_alias_that_moves_while_it_is_published_is_published_again(
    desk: Any, place: Callable[[str], OciReference]
) -> None:
    desk.register(1, 2)
    desk.promote(1)
    sent: list[int] = []

    def publish(publication: Publication) -> Receipt:
        sent.append(publication.record.version)
        if len(sent) == 1:
            desk.promote(2)  # and its publisher is done before us
            push(publication, place("prod"), tag_may_move=True)
        return push(publication, place("prod"), tag_may_move=True)

    record, receipt = publish_pointed_at(desk.registry, Reference.parse("digits@prod"), publish)
    assert (record.version, sent) == (2, [1, 2])
    assert get(place("prod"), "manifests/prod") == get(place("prod"), f"manifests/{receipt.digest}")


class EnoughError(Exception):
    """Ends a follower."""


def test_a_tag_follows_its_alias_there_and_back_and_through_failures(
    desk: Any, place: Callable[[str], OciReference], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.coordinator.registry.alias_publication.RETRY_S", 0.01)
    desk.register(1, 2)
    desk.promote(1)
    told: list[int | str] = []
    failures = [DestinationError("not now")]

    def publish(publication: Publication) -> Receipt:
        if failures:
            raise failures.pop()
        return push(publication, place("prod"), tag_may_move=True)

    def tell(record: Any, news: Any) -> None:
        told.append("failed" if isinstance(news, DestinationError) else record.version)
        if len(told) == 4:
            raise EnoughError

    def follow() -> None:
        with pytest.raises(EnoughError):
            follow_alias(desk.registry, "digits", "prod", publish, tell)

    follower = Thread(target=follow)
    follower.start()
    wait_until(lambda: told == ["failed", 1])
    desk.promote(2)
    wait_until(lambda: told == ["failed", 1, 2])
    desk.registry.rollback(desk.rollback())
    follower.join()
    assert told == ["failed", 1, 2, 1]
    assert (
        json.loads(get(place("prod"), "manifests/prod"))["annotations"][
            "org.opencontainers.image.version"
        ]
        == "1"
    )


@contextmanager
def guarded(directory: Path, program: Path, **auth: Any) -> Iterator[OciReference]:
    registry = oci_service.start(directory, program, auth=auth)
    try:
        yield OciReference.parse(f"{registry.host_port}/team/digits:v1")
    finally:
        registry.process.kill()


def check_access(publication: Publication, reference: OciReference, folder: Path) -> None:
    """Only who gives the right password gets in, and nobody's password is in a message."""
    folder.mkdir()
    for credentials in (None, OciCredentials("ann", "wrong-0815")):
        with pytest.raises(RefusedError) as refused:
            publish_to_oci(publication, reference, credentials, tag_may_move=False)
        assert refused.value.exit_code == 7
        assert "wrong-0815" not in str(refused.value)
    assert publish_to_oci(publication, reference, ANN, tag_may_move=False).created
    assert read_from_oci(reference, ANN, folder).manifest == publication.manifest


def test_a_registry_that_wants_a_password_gets_it(
    desk: Any, oci_binary: Path, published: Callable[[int], Publication], tmp_path: Path
) -> None:
    desk.register(1)
    (tmp_path / "htpasswd").write_text(ANN_HTPASSWD)
    htpasswd = {"realm": "test", "path": str(tmp_path / "htpasswd")}
    with guarded(tmp_path / "oci", oci_binary, htpasswd=htpasswd) as reference:
        check_access(published(1), reference, tmp_path / "spool")


class TokenService:
    """Issues the tokens that a registry trusts, to who knows the password."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = folder / "tokens.pem"
        self.bundle.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self.asked: list[str] = []

    def token(self, scope: str) -> str:
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        kind, name, actions = scope.split(":")
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        now = int(time.time())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        claims = {"iss": "tokens", "sub": "ann", "aud": "registry", "exp": now + 300,
                  "nbf": now - 10, "iat": now, "jti": "1", "access": access}  # fmt: skip
        signed = b".".join(self._part(json.dumps(each).encode()) for each in (header, claims))
        signature = self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return (signed + b"." + self._part(signature)).decode()

    def _part(self, content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    def handler(service) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                service.asked.append(query["scope"][0])
                wanted = "Basic " + base64.b64encode(b"ann:s3cret").decode()
                is_ann = self.headers["Authorization"] == wanted
                body = json.dumps({"token": service.token(query["scope"][0])}).encode()
                self.send_response(200 if is_ann else 401)
                self.end_headers()
                self.wfile.write(body if is_ann else b"")

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def test_a_registry_that_wants_a_token_gets_one_for_this_repository(
    desk: Any, oci_binary: Path, published: Callable[[int], Publication], tmp_path: Path
) -> None:
    desk.register(1)
    service = TokenService(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), service.handler()) as server:
        Thread(target=server.serve_forever, args=(0.005,)).start()
        token = {
            "realm": f"http://127.0.0.1:{server.server_address[1]}/token",
            "service": "registry",
            "issuer": "tokens",
            "rootcertbundle": str(service.bundle),
        }
        with guarded(tmp_path / "oci", oci_binary, token=token) as reference:
            check_access(published(1), reference, tmp_path / "spool")
        server.shutdown()
    assert set(service.asked) == {"repository:team/digits:pull,push"}
