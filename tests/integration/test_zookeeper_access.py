"""Credentials and certificates for ZooKeeper: what passes, and what a refusal says."""

import datetime
import ipaddress
import logging
import ssl
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pliska.locks import AccessDeniedError, Mutex, Session, StoreUnavailableError, connect
from pliska.locks.backends.base import CALL_TIMEOUT_S
from pliska.locks.backends.zookeeper import ZookeeperBackend
from pliska.locks.backends.zookeeper_options import DIGEST_VARIABLE, SASL_VARIABLE
from services import zookeeper as zookeeper_service
from services.process import free_ports
from services.zookeeper import ZookeeperServer


@pytest.fixture
def address(zookeeper: ZookeeperServer) -> str:
    """Beside the other tests' stores: what is made here above ours shuts others out."""
    return f"zookeeper://{zookeeper.host_port}/pliska-access-{uuid.uuid4().hex}"


def test_records_made_with_a_digest_are_refused_to_everybody_else_without_saying_the_secret(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIGEST_VARIABLE, "alice:wonderland")
    owner = connect(address)
    record = owner.create("d/a", b"private")
    with Session.open(owner, 5.0) as session, Mutex(session, "m").hold(timeout_s=5):
        assert owner.get("d/a") == record
    owner.close()

    file = tmp_path / "digest"
    file.write_text("alice:looking-glass")
    wrong = connect(f"{address}?digest_file={file}")
    monkeypatch.delenv(DIGEST_VARIABLE)
    nobody = connect(address)
    for client, source in ((wrong, str(file)), (nobody, "no credential was given")):
        for call in (
            lambda client=client: client.get("d/a"),
            lambda client=client: client.list("d"),
            lambda client=client: client.create("d/b", b""),
            lambda client=client: client.update("d/a", b"", record.modified),
            lambda client=client: client.delete("d/a"),
        ):
            with pytest.raises(AccessDeniedError, match=source) as caught:
                call()
            assert "looking-glass" not in str(caught.value)
        client.close()

    file.write_text("alice:wonderland")
    again = connect(f"{address}?digest_file={file}")
    assert again.get("d/a") == record
    again.close()


def test_an_open_store_may_be_used_with_and_without_a_digest(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIGEST_VARIABLE, "alice:wonderland")
    owner = connect(f"{address}?acl=open")
    record = owner.create("d/a", b"public")
    owner.close()
    monkeypatch.delenv(DIGEST_VARIABLE)
    nobody = connect(address)
    assert nobody.get("d/a") == record
    nobody.close()


@pytest.fixture(scope="module", params=[True, False], ids=["serves others", "wants SASL"])
def sasl_address(
    request: pytest.FixtureRequest,
    zookeeper_jars: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """An empty store on a server that knows alice's password."""
    server = zookeeper_service.start_with_sasl(
        tmp_path_factory.mktemp("zookeeper-sasl"),
        zookeeper_jars,
        "alice",
        "wonderland",
        serves_others=request.param,
    )
    assert server.process is not None
    yield server.fresh_address()
    server.process.kill()


def test_who_proves_by_sasl_who_it_is_gets_in_from_a_file_and_from_the_environment(
    sasl_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sasl"
    file.write_text("alice:wonderland\n")
    owner = connect(f"{sasl_address}?sasl_file={file}")
    record = owner.create("d/a", b"private")
    with Session.open(owner, 5.0) as session, Mutex(session, "m").hold(timeout_s=5) as grant:
        assert grant.held
        owner._link.cut_connection()  # type: ignore[attr-defined]
        assert owner.get("d/a") == record  # it proves it again on each connection
    owner.close()
    monkeypatch.setenv(SASL_VARIABLE, "alice:wonderland")
    again = connect(sasl_address)
    assert again.get("d/a") == record
    again.close()


@pytest.mark.parametrize("secret", ["alice:looking-glass", "queen:looking-glass"])
def test_a_wrong_sasl_credential_is_refused_at_once_by_its_source_and_never_shown(
    sasl_address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    secret: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "sasl"
    file.write_text(secret)
    started_s = time.monotonic()
    with pytest.raises(AccessDeniedError, match=str(file)) as by_file:
        connect(f"{sasl_address}?sasl_file={file}")
    monkeypatch.setenv(SASL_VARIABLE, secret)
    with pytest.raises(AccessDeniedError, match=SASL_VARIABLE) as by_variable:
        connect(sasl_address)
    assert time.monotonic() - started_s < CALL_TIMEOUT_S
    for shown in (*by_file.value.args, *by_variable.value.args, caplog.text):
        assert "looking-glass" not in shown


def test_without_a_sasl_credential_what_belongs_to_one_is_refused_and_it_says_so(
    sasl_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SASL_VARIABLE, "alice:wonderland")
    owner = connect(sasl_address)
    owner.create("secret/a", b"private")
    owner.close()
    monkeypatch.delenv(SASL_VARIABLE)
    nobody = connect(sasl_address)
    for call in (
        lambda: nobody.get("secret/a"),
        lambda: nobody.list("secret"),
        lambda: nobody.create("secret/b", b""),
    ):
        with pytest.raises(AccessDeniedError, match="no credential was given"):
            call()
    nobody.close()


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate(self._name, self._key, ca=True)))

    def issue(self, name: str) -> tuple[Path, Path, Path]:
        """A certificate for 127.0.0.1: its file, its key's, and one with both."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = _pem(self._certificate(subject, key, ca=False))
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        files = tuple(self.folder / f"{name}-{part}.pem" for part in ("cert", "key", "both"))
        for file, content in zip(files, (certificate, private, private + certificate), strict=True):
            file.write_bytes(content)
        return files  # type: ignore[return-value]

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        host = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([host]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def tls_host_port(
    zookeeper_jars: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server that wants a certificate of every client."""
    (port,) = free_ports(1)
    _, _, both = authority.issue("server")
    extra = (
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"secureClientPort={port}\n"
        "secureClientPortAddress=127.0.0.1\n"
        f"ssl.keyStore.location={both}\n"
        f"ssl.trustStore.location={authority.file}\n"
        "ssl.clientAuth=need\n"
        "ssl.hostnameVerification=false\n"
    )
    directory = tmp_path_factory.mktemp("zookeeper-tls")
    server = zookeeper_service.start_one(directory, zookeeper_jars, extra)
    assert server.process is not None
    yield f"127.0.0.1:{port}"
    server.process.kill()


def test_a_client_with_a_certificate_gets_in_over_tls(
    tls_host_port: str, authority: Authority
) -> None:
    certificate, key, _ = authority.issue("client")
    files = f"ca={authority.file}&cert={certificate}&key={key}"
    backend = connect(f"zookeeper://{tls_host_port}/tls?{files}")
    with Session.open(backend, 5.0) as session, Mutex(session, "m").hold(timeout_s=5) as grant:
        assert grant.held
    backend.close()


def test_without_a_trusted_certificate_on_either_side_nothing_connects_and_it_says_why(
    tls_host_port: str, authority: Authority, tmp_path: Path
) -> None:
    certificate, key, _ = authority.issue("client")
    stranger = Authority(tmp_path, "stranger")
    strange_certificate, strange_key, _ = stranger.issue("strange")
    for query, why in (
        (f"ca={stranger.file}&cert={certificate}&key={key}", "certificate verify failed"),
        (f"ca={authority.file}&cert={strange_certificate}&key={strange_key}", "ZooKeeper at"),
        (f"ca={authority.file}", "ZooKeeper at"),
    ):
        with pytest.raises(StoreUnavailableError, match=why):
            ZookeeperBackend(f"zookeeper://{tls_host_port}/tls?{query}", timeout_s=2.0)


def test_the_secret_of_a_key_file_is_named_and_not_shown(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, _, _ = authority.issue("client")
    key = ec.generate_private_key(ec.SECP256R1())
    file = authority.folder / "locked.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"right"),
        )
    )
    monkeypatch.setenv("PLISKA_ZOOKEEPER_KEY_PASSWORD", "wrong-secret")
    with pytest.raises(ValueError, match="PLISKA_ZOOKEEPER_KEY_PASSWORD") as caught:
        connect(f"zookeeper://127.0.0.1:1/x?cert={certificate}&key={file}")
    assert "wrong-secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ssl.SSLError)
