"""Where a Consul agent is, and what it is told to let us in.

`consul://HOST:PORT/PREFIX?OPTION=VALUE`, or `consuls://` for TLS. What the
address does not say comes from the environment variables that Consul's own
programs read. Secrets are never part of the address, which people see in logs
and lists of processes. Parsing only: nothing is connected here.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pliska.locks.backends.keys import check_key
from pliska.locks.errors import LockUsageError

PORT = 8500
TOKEN_BYTES_MAX = 4096

OPTIONS: Mapping[str, str | None] = {
    "token_file": "CONSUL_HTTP_TOKEN_FILE",
    "ca": "CONSUL_CACERT",
    "cert": "CONSUL_CLIENT_CERT",
    "key": "CONSUL_CLIENT_KEY",
    "server_name": "CONSUL_TLS_SERVER_NAME",
    "datacenter": None,
}
"""Options of the address, and the environment variable that stands in for each."""

TOKEN_VARIABLE = "CONSUL_HTTP_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Token:
    """An ACL token, which no message shows, and where it came from, which messages name."""

    value: str = field(repr=False)
    source: str


@dataclass(frozen=True, slots=True)
class ConsulPlace:
    """A parsed address.

    Attributes:
        address: The address as given; it holds no secret.
        host: Name or number of the agent's machine.
        port: Where its HTTP API listens.
        prefix: What all our keys begin with: empty, or ending in a slash.
        datacenter: Whose store to use; None for the agent's own.
        token: Our credential; None to come as the anonymous one.
        tls: How to speak TLS; None to speak plain HTTP.
        server_name: Whom the agent's certificate must name.
    """

    address: str
    host: str
    port: int
    prefix: str
    datacenter: str | None
    token: Token | None
    tls: ssl.SSLContext | None = field(repr=False)
    server_name: str

    @classmethod
    def parse(cls, address: str, environment: Mapping[str, str]) -> "ConsulPlace":
        """Read the address, and what it leaves open from the environment.

        Raises:
            LockUsageError: It is malformed, has an option that there is not,
                or names a file that cannot be used.
        """
        url, port = _split(address)
        options = _options(url, environment)
        host = url.hostname or ""
        prefix = unquote(url.path).strip("/")
        if prefix:
            check_key(prefix)
        return cls(
            address=address,
            host=host,
            port=port,
            prefix=f"{prefix}/" if prefix else "",
            datacenter=options.get("datacenter", (None, ""))[0],
            token=_token(options),
            tls=_tls(options) if url.scheme == "consuls" else None,
            server_name=options.get("server_name", (host, ""))[0],
        )

    @property
    def identity(self) -> str:
        """Whom the agent takes us for, in words that give nothing away."""
        return "no token" if self.token is None else f"the token from {self.token.source}"


_Options = dict[str, tuple[str, str]]
"""Value and source of each option."""


def _split(address: str) -> tuple[SplitResult, int]:
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError as error:
        raise LockUsageError(f"{address!r} is malformed: {error}") from error
    if "@" in url.netloc:
        raise LockUsageError(
            "Consul knows no user and password: put a token into a file and add "
            f"?token_file=PATH, or set {TOKEN_VARIABLE}"
        )
    if url.scheme not in ("consul", "consuls") or not url.hostname or url.fragment:
        raise LockUsageError(f"{address!r} is not consul://HOST:PORT/PREFIX")
    return url, PORT if port is None else port


def _options(url: SplitResult, environment: Mapping[str, str]) -> _Options:
    try:
        given = dict(parse_qsl(url.query, strict_parsing=bool(url.query)))
    except ValueError as error:
        raise LockUsageError("after the ? in an address come NAME=VALUE pairs") from error
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        # Without its value: a token does not belong here, but that is no reason to show it.
        raise LockUsageError(
            f"{unknown[0]!r} is no option of Consul's address: there are {', '.join(OPTIONS)}"
        )
    options = {
        name: (environment[variable], variable)
        for name, variable in OPTIONS.items()
        if variable is not None and environment.get(variable)
    }
    if environment.get(TOKEN_VARIABLE) and "token_file" not in given:
        options["token"] = (environment[TOKEN_VARIABLE], TOKEN_VARIABLE)
    options.update((name, (value, f"{name} in the address")) for name, value in given.items())
    return options


def _token(options: _Options) -> Token | None:
    if "token" in options:
        value, source = options["token"]
    elif "token_file" in options:
        path, where = options["token_file"]
        source = f"{where}, {path!r}"
        try:
            value = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise LockUsageError(f"{source}, cannot be read: {error}") from error
    else:
        return None
    if not 0 < len(value) <= TOKEN_BYTES_MAX or not (value.isascii() and value.isprintable()):
        raise LockUsageError(f"what {source} holds is no token")
    return Token(value, source)


def _tls(options: _Options) -> ssl.SSLContext:
    ca, ca_source = options.get("ca", (None, "the system's certificates"))
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise LockUsageError(f"{ca_source}, {ca!r}, cannot be used: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert" in options:
        certificate, source = options["cert"]
        key = options.get("key", (certificate, ""))[0]
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise LockUsageError(
                f"{source}, {certificate!r} with key {key!r}, cannot be used: {error}"
            ) from error
    return context
