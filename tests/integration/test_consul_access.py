"""Tokens, certificates and limits on the way to Consul."""

import datetime
import http.client
import ipaddress
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pliska.locks import (
    AccessDeniedError,
    Backend,
    LockUsageError,
    Mutex,
    Session,
    StoreUnavailableError,
    connect,
)
from pliska.locks.backends.base import ChangeFeed
from services import consul as consul_service
from services.process import START_TIMEOUT_S, free_ports

RULES = 'key_prefix "mine/" { policy = "write" } session_prefix "" { policy = "write" }'
UNKNOWN = "6f1a1d4e-0000-4000-8000-5ec2e7000001"


@dataclass
class Guarded:
    """An agent that lets nobody do anything without a token."""

    host_port: str
    manager: str

    def ask(self, method: str, path: str, **body: Any) -> Any:
        connection = http.client.HTTPConnection(self.host_port, timeout=5)
        connection.request(method, path, json.dumps(body), {"X-Consul-Token": self.manager})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status == 200, text
        return json.loads(text)

    def bootstrap(self) -> None:
        """Become the manager, as soon as a leader has brought the new kind of ACL into force."""
        until_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.manager = self.ask("PUT", "/v1/acl/bootstrap")["SecretID"]
            except AssertionError as error:
                if "legacy mode" not in str(error) or time.monotonic() > until_s:
                    raise
                time.sleep(0.05)
            else:
                return


@pytest.fixture(scope="module")
def guarded(consul_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    acl = {"enabled": True, "default_policy": "deny"}
    server = consul_service.start_one(tmp_path_factory.mktemp("guarded"), consul_binary, acl=acl)
    guarded = Guarded(server.host_port, "")
    guarded.bootstrap()
    yield guarded
    assert server.process is not None
    server.process.kill()


@pytest.fixture(scope="module")
def token(guarded: Guarded) -> str:
    """A token that may write below mine/ and nowhere else."""
    guarded.ask("PUT", "/v1/acl/policy", Name="mine", Rules=RULES)
    token = guarded.ask("PUT", "/v1/acl/token", Policies=[{"Name": "mine"}])
    return str(token["SecretID"])


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSUL_HTTP_TOKEN", raising=False)
    monkeypatch.delenv("CONSUL_HTTP_TOKEN_FILE", raising=False)


def refuse(backend: Backend) -> str:
    """What each kind of call is refused with, all alike."""
    texts = []
    for call in (
        lambda: backend.get("a"),
        lambda: backend.list("a"),
        lambda: backend.create("a/b", b""),
        lambda: backend.delete("a/b"),
        lambda: backend.wait_for_change("a", backend.list("a").revision, 1),
        lambda: backend.open_session(10),
    ):
        with pytest.raises(AccessDeniedError) as refused:
            call()
        assert refused.value.exit_code == 7
        texts.append(str(refused.value))
    backend.close()
    return "\n".join(texts)


def test_a_token_with_the_rights_may_lock(
    guarded: Guarded, token: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    for variable, value, query in (
        ("CONSUL_HTTP_TOKEN", token, ""),
        ("CONSUL_HTTP_TOKEN_FILE", str(file), ""),
        ("CONSUL_HTTP_TOKEN", UNKNOWN, f"?token_file={file}"),
    ):
        monkeypatch.delenv("CONSUL_HTTP_TOKEN", raising=False)
        monkeypatch.setenv(variable, value)
        backend = connect(f"consul://{guarded.host_port}/mine{query}")
        with Session.open(backend) as session, Mutex(session, "m").hold(timeout_s=5) as grant:
            assert grant.held
        backend.close()


def test_an_unknown_token_is_refused_by_its_source_and_never_shown(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", UNKNOWN)
    text = refuse(connect(f"consul://{guarded.host_port}/mine"))
    assert text.count("the token from CONSUL_HTTP_TOKEN") == len(text.splitlines())
    assert UNKNOWN not in text


def test_a_token_without_the_right_to_write_is_refused(
    guarded: Guarded, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", token)
    backend = connect(f"consul://{guarded.host_port}/other")
    with pytest.raises(AccessDeniedError, match="CONSUL_HTTP_TOKEN"):
        backend.create("a", b"")
    backend.close()


def test_without_a_token_the_refusal_says_that_there_was_none(guarded: Guarded) -> None:
    backend = connect(f"consul://{guarded.host_port}/mine")
    with pytest.raises(AccessDeniedError, match="with no token"):
        backend.create("a", b"")
    backend.close()


def test_a_token_that_is_revoked_costs_the_lock_within_the_lease(
    guarded: Guarded, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lived = guarded.ask("PUT", "/v1/acl/token", Policies=[{"Name": "mine"}])
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", short_lived["SecretID"])
    backend = connect(f"consul://{guarded.host_port}/mine")
    session = Session.open(backend, lease_s=1.0)
    grant = Mutex(session, "revoked").acquire(timeout_s=5)
    guarded.ask("DELETE", f"/v1/acl/token/{short_lived['AccessorID']}")
    assert grant.lost.wait(2.0)
    session.close()
    backend.close()


def expect_change(feed: ChangeFeed) -> None:
    """Wait until the feed tells of a change; it may wake without one."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        if heard := feed.wait(until_s - time.monotonic()):
            assert heard == {"d": None}
            return
    raise AssertionError("the feed tells of no change")


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority, and of a server and a client that it vouches for."""

    directory: Path

    def __post_init__(self) -> None:
        authority = self._write("authority", None)
        for name in ("server", "client"):
            self._write(name, authority)
        self._write("stranger", None)

    def file(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def _write(
        self, name: str, issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None
    ) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer_name, issuer_key = issuer or (subject, key)
        now = datetime.datetime.now(datetime.UTC)
        hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True
            )
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(issuer_key, hashes.SHA256())
        )
        (self.directory / f"{name}.pem").write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )
        (self.directory / f"{name}-key.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return subject, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_host_port(
    certificates: Certificates, consul_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    (port,) = free_ports(1)
    server = consul_service.start_one(
        tmp_path_factory.mktemp("tls"),
        consul_binary,
        https_port=port,
        ca_file=certificates.file("authority"),
        cert_file=certificates.file("server"),
        key_file=certificates.file("server-key"),
        verify_incoming_https=True,
    )
    yield f"127.0.0.1:{port}"
    assert server.process is not None
    server.process.kill()


def test_a_lock_is_held_over_tls_with_a_certificate_of_our_own(
    tls_host_port: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSUL_CACERT", certificates.file("authority"))
    own = f"cert={certificates.file('client')}&key={certificates.file('client-key')}"
    backend = connect(f"consuls://{tls_host_port}/mine?{own}")
    with Session.open(backend) as session, Mutex(session, "m").hold(timeout_s=5) as grant:
        assert grant.held
        assert not backend.wait_for_change("m", backend.list("m").revision, 0.1)
    feed = backend.open_feed()
    feed.follow("d")
    expect_change(feed)
    assert feed.wait(0.3) == {}  # TLS has things of its own to say
    backend.create("d/a", b"")
    expect_change(feed)
    feed.close()
    backend.close()


@pytest.mark.parametrize("ca", ["stranger", "authority"])
def test_no_lock_is_held_with_an_agent_that_is_not_vouched_for_or_without_a_certificate(
    tls_host_port: str, certificates: Certificates, ca: str
) -> None:
    backend = connect(f"consuls://{tls_host_port}/mine?ca={certificates.file(ca)}")
    with pytest.raises(StoreUnavailableError, match="certificate"):
        backend.get("a")
    backend.close()


def test_a_lease_below_what_the_servers_allow_becomes_one_that_they_do(
    consul_binary: Path, tmp_path: Path
) -> None:
    server = consul_service.start_one(tmp_path, consul_binary, session_ttl_min="10s")
    backend = connect(server.fresh_address())
    with Session.open(backend, lease_s=1.0) as session:
        assert session.lease_s == 10
    with pytest.raises(LockUsageError, match="TTL"):
        backend.open_session(200_000)
    backend.close()
    assert server.process is not None
    server.process.kill()
