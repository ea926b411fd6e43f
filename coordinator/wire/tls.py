"""TLS 1.3 contexts: a server with its own certificate, clients that pin it.

A coordinator makes a self-signed certificate and publishes it in the store
beside its address; who reads it there trusts that very certificate, and no
authority. Not authentication of workers: they sign their messages.
"""

import datetime
import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pliska.coordinator.wire.errors import CertificateError
from pliska.coordinator.wire.limits import CERTIFICATE_BYTES_MAX

VALID_FOR = datetime.timedelta(days=3650)
"""Long, since a pinned certificate is replaced by publishing another, not by expiry."""
CLOCK_SKEW = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """A certificate with its private key, both in PEM. Publish the first, keep the second."""

    certificate_pem: str
    private_key_pem: bytes = field(repr=False)


def self_signed(hosts: Sequence[str], now: datetime.datetime) -> ServerCertificate:
    """Make a certificate over an ECDSA P-256 key, which browsers and `curl` know too.

    Args:
        hosts: Names and IP addresses that the server is reached at; at least one.
        now: The present time, with its zone.

    Raises:
        CertificateError: No host is given, or one is no host name.
    """
    if not hosts:
        raise CertificateError("a certificate needs at least one host name or address")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pliska coordinator")])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return ServerCertificate(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def server_context(certificate: ServerCertificate) -> ssl.SSLContext:
    """Return a context that serves TLS 1.3 with this certificate, and nothing older.

    Raises:
        CertificateError: Certificate and key cannot be read or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no client of ours takes a session up again
    # The ssl module takes keys from files only: one that we alone can read, for a moment.
    with TemporaryDirectory(prefix="pliska-tls-") as directory:
        path = Path(directory) / "chain.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate.private_key_pem + certificate.certificate_pem.encode())
        try:
            context.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(
                f"the certificate cannot be served: {error}; make a new one"
            ) from error
    return context


def client_context(pinned_pem: str) -> ssl.SSLContext:
    """Return a context that speaks TLS 1.3 with the owner of one certificate only.

    The host name is not compared: the pin says more than a name would.

    Raises:
        CertificateError: It is not exactly one certificate, or one of an authority, which
            would let in everybody whom it signed for.
    """
    _check_pinned(pinned_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pinned_pem)
    return context


def _check_pinned(pinned_pem: str) -> None:
    if len(pinned_pem) > CERTIFICATE_BYTES_MAX:
        raise CertificateError(f"a certificate has at most {CERTIFICATE_BYTES_MAX} bytes")
    try:
        (certificate,) = x509.load_pem_x509_certificates(pinned_pem.encode())
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (ValueError, x509.ExtensionNotFound) as error:
        raise CertificateError(f"this is not one server certificate in PEM: {error}") from error
    if constraints.value.ca:
        raise CertificateError("pin the server's own certificate, not that of its authority")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except UnicodeError as error:
        raise CertificateError(f"{host!r} is no host name and no IP address") from error
