"""A server proves that it owns the pinned certificate; nothing older than TLS 1.3 is spoken."""

import datetime
import ssl
from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pliska.coordinator.wire import CertificateError
from pliska.coordinator.wire.limits import CERTIFICATE_BYTES_MAX
from pliska.coordinator.wire.tls import (
    ServerCertificate,
    client_context,
    self_signed,
    server_context,
)

NOW = datetime.datetime.now(datetime.UTC)
CERTIFICATE = self_signed(["127.0.0.1", "::1", "coordinator.example"], NOW)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Run a handshake in memory and return the client's side of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (client_side, server_side):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client_side


def test_the_pinned_server_is_spoken_to_in_tls_1_3() -> None:
    client = shake_hands(server_context(CERTIFICATE), client_context(CERTIFICATE.certificate_pem))
    assert client.version() == "TLSv1.3"


def test_a_server_with_another_certificate_is_refused() -> None:
    other = self_signed(["127.0.0.1"], NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(other), client_context(CERTIFICATE.certificate_pem))


def test_an_older_tls_is_refused() -> None:
    old = client_context(CERTIFICATE.certificate_pem)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(CERTIFICATE), old)


def test_the_certificate_names_its_hosts() -> None:
    certificate = x509.load_pem_x509_certificate(CERTIFICATE.certificate_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == ["127.0.0.1", "::1", "coordinator.example"]


def test_the_private_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(CERTIFICATE)


@pytest.mark.parametrize("hosts", [[], ["bad\udc80host"]])
def test_hosts_that_are_none_are_refused(hosts) -> None:
    with pytest.raises(CertificateError):
        self_signed(hosts, NOW)


def test_a_key_that_does_not_belong_to_the_certificate_is_refused() -> None:
    other = self_signed(["127.0.0.1"], NOW)
    with pytest.raises(CertificateError):
        server_context(ServerCertificate(CERTIFICATE.certificate_pem, other.private_key_pem))


@pytest.mark.parametrize(
    "pem",
    ["", "nonsense", CERTIFICATE.certificate_pem * 2, CERTIFICATE.certificate_pem[:200]],
)
def test_a_pin_is_exactly_one_certificate(pem: str) -> None:
    with pytest.raises(CertificateError):
        client_context(pem)


def test_a_pin_is_bounded() -> None:
    padding = "\n" * (CERTIFICATE_BYTES_MAX - len(CERTIFICATE.certificate_pem))
    client_context(CERTIFICATE.certificate_pem + padding)
    with pytest.raises(CertificateError, match="at most"):
        client_context(CERTIFICATE.certificate_pem + padding + "\n")


def test_an_authority_cannot_be_pinned() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    authority = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + datetime.timedelta(1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(CertificateError, match="authority"):
        client_context(authority.public_bytes(serialization.Encoding.PEM).decode())
