"""What a `zookeeper://` address and the environment say: hosts, chroot, credentials, TLS.

`zookeeper://host:port,host:port/chroot?name=value&…`. Secrets are never part
of the address, which people see in lists of processes and in logs: they come
from a file that it names, or from the environment.
"""

import importlib.util
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from pliska.locks.backends.keys import check_key
from pliska.locks.errors import LockUsageError

PORT = 2181
DIGEST_VARIABLE = "PLISKA_ZOOKEEPER_DIGEST"
SASL_VARIABLE = "PLISKA_ZOOKEEPER_SASL"
KEY_PASSWORD_VARIABLE = "PLISKA_ZOOKEEPER_KEY_PASSWORD"  # noqa: S105 - the name of a variable
SECRET_BYTES_MAX = 4096

PARAMETERS = {
    "digest_file": "a file with user:password, for digest authentication",
    "sasl_file": "a file with user:password, for SASL authentication",
    "sasl_mechanism": "DIGEST-MD5 (as when it is not given) or GSSAPI",
    "acl": "creator (others may not touch our records) or open",
    "tls": "true or false",
    "ca": "a PEM file with the certificates that may sign the server's",
    "cert": "a PEM file with our certificate",
    "key": "a PEM file with its key",
    "verify_host": "false accepts a certificate for another host",
}


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret and where it came from; only the latter is ever shown."""

    source: str
    secret: str = field(repr=False)

    @property
    def user_and_password(self) -> tuple[str, str]:
        """Both parts of user:password."""
        user, _, password = self.secret.partition(":")
        return user, password


@dataclass(frozen=True, slots=True)
class ZookeeperOptions:
    """Where the servers are and how to speak to them.

    Attributes:
        hosts: As `host:port,host:port`.
        root: Path of the node that the store lives in; empty for the top.
        digest: For ZooKeeper's digest scheme.
        sasl: For the mechanism DIGEST-MD5.
        sasl_mechanism: None without SASL.
        are_records_private: Whether only our own credential may touch what we create.
        tls: How to speak TLS; None without it.
    """

    hosts: str
    root: str = ""
    digest: Credential | None = None
    sasl: Credential | None = None
    sasl_mechanism: str | None = None
    are_records_private: bool = False
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(
        cls, address: str, environment: Mapping[str, str] | None = None
    ) -> "ZookeeperOptions":
        """Read an address.

        Raises:
            LockUsageError: It is malformed, or names a file that cannot be used.
        """
        environment = os.environ if environment is None else environment
        url = urlsplit(address)
        query = _query(address, url.query)
        digest = _credential(query.get("digest_file"), DIGEST_VARIABLE, environment)
        sasl = _credential(query.get("sasl_file"), SASL_VARIABLE, environment)
        mechanism = query.get("sasl_mechanism", "DIGEST-MD5" if sasl else None)
        _check_mechanism(mechanism, sasl)
        has_identity = digest is not None or mechanism is not None
        acl = query.get("acl", "creator" if has_identity else "open")
        if acl not in ("creator", "open") or (acl == "creator" and not has_identity):
            raise LockUsageError(
                f"acl={acl} in {address!r}: write acl=open, or acl=creator with a credential"
            )
        return cls(
            hosts=_hosts(address, url.netloc),
            root=_root(address, unquote(url.path)),
            digest=digest,
            sasl=sasl,
            sasl_mechanism=mechanism,
            are_records_private=acl == "creator",
            tls=_tls(query, environment),
        )

    @property
    def credential_source(self) -> str:
        """Where the credential came from, for messages about its refusal."""
        sources = [each.source for each in (self.digest, self.sasl) if each is not None]
        if self.sasl_mechanism == "GSSAPI":
            sources.append("the Kerberos ticket cache")
        return " and ".join(sources) or "no credential was given"


def _query(address: str, text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError as error:
        raise LockUsageError(f"{address!r}: write name=value after the question mark") from error
    query = dict(pairs)
    unknown = set(query) - set(PARAMETERS)
    if unknown or len(query) != len(pairs):
        raise LockUsageError(
            f"{address!r}: the parameters are {', '.join(PARAMETERS)}, each at most once"
        )
    return query


def _hosts(address: str, netloc: str) -> str:
    if "@" in netloc:
        raise LockUsageError(
            "a zookeeper:// address has no user or password in it, where others would see them: "
            f"put user:password into a file and write digest_file=FILE, or set {DIGEST_VARIABLE}"
        )
    return ",".join(_host(address, host) for host in netloc.split(","))


def _host(address: str, text: str) -> str:
    try:
        url = urlsplit(f"//{text}")
        host, port = url.hostname, url.port or PORT
    except ValueError as error:
        raise LockUsageError(f"{address!r}: {text!r} is no host:port: {error}") from error
    if not host:
        raise LockUsageError(
            f"{address!r} names no server: write zookeeper://host:{PORT},host:{PORT}/path"
        )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _root(address: str, path: str) -> str:
    root = path.strip("/")
    if not root:
        return ""
    try:
        check_key(root)
    except LockUsageError as error:
        raise LockUsageError(
            f"{address!r}: the path after the hosts is not usable: {error}"
        ) from error
    return f"/{root}"


def _credential(
    file: str | None, variable: str, environment: Mapping[str, str]
) -> Credential | None:
    if file is not None:
        credential = Credential(f"the file {file}", _read_secret(file))
    elif environment.get(variable):
        credential = Credential(f"the environment variable {variable}", environment[variable])
    else:
        return None
    if not all(credential.user_and_password):
        raise LockUsageError(f"{credential.source} does not hold user:password")
    return credential


def _read_secret(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(SECRET_BYTES_MAX + 1)
        if len(content) > SECRET_BYTES_MAX:
            raise LockUsageError(f"{file} has more than {SECRET_BYTES_MAX} bytes: no user:password")
        return content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        # Not the error's own text: that of a decoding error shows what was decoded.
        raise LockUsageError(f"{file} cannot be read as text: {type(error).__name__}") from None


def _check_mechanism(mechanism: str | None, sasl: Credential | None) -> None:
    if mechanism is None:
        return
    if mechanism not in ("DIGEST-MD5", "GSSAPI"):
        raise LockUsageError(f"sasl_mechanism={mechanism}: write DIGEST-MD5 or GSSAPI")
    if mechanism == "DIGEST-MD5" and sasl is None:
        raise LockUsageError(
            f"sasl_mechanism=DIGEST-MD5 needs sasl_file=FILE or the variable {SASL_VARIABLE}"
        )
    if importlib.util.find_spec("puresasl") is None:
        raise LockUsageError("SASL needs the package pure-sasl: pip install 'pliska[sasl]'")


def _tls(query: Mapping[str, str], environment: Mapping[str, str]) -> ssl.SSLContext | None:
    if not _truth(query, "tls", default=bool({"ca", "cert", "key"} & query.keys())):
        return None
    if ("cert" in query) != ("key" in query):
        raise LockUsageError("cert=FILE and key=FILE belong together")
    try:
        context = ssl.create_default_context(cafile=query.get("ca"))
    except OSError as error:
        raise LockUsageError(f"TLS cannot use {query.get('ca')}: {error}") from error
    context.check_hostname = _truth(query, "verify_host", default=True)
    if "cert" in query:
        _load_certificate(context, query["cert"], query["key"], environment)
    return context


def _load_certificate(
    context: ssl.SSLContext, certificate: str, key: str, environment: Mapping[str, str]
) -> None:
    password = environment.get(KEY_PASSWORD_VARIABLE, "")
    try:
        context.load_cert_chain(certificate, key, lambda: password)
    except OSError as error:
        raise LockUsageError(
            f"TLS cannot use {certificate} with {key} (a locked key is opened by the environment "
            f"variable {KEY_PASSWORD_VARIABLE}): {error}"
        ) from error


def _truth(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = query.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise LockUsageError(f"{name}={text}: write true or false")
    return text == "true"
