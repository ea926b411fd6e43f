"""Answering an OCI registry that wants to know who we are: Basic, or a token of its service.

A registry answers 401 and says how to identify oneself (RFC 9110, 11.6.1, and the
token specification of the distribution project). Everything it says is hostile
until checked: a password goes to the registry and to the token service that it names,
and to either only over TLS or on this machine; the rights asked for are ours
to choose. Called by `oci_client`; sends nothing itself.
"""

import base64
import json
import re
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from pliska.coordinator.registry.errors import IntegrityError, RefusedError
from pliska.coordinator.registry.oci_credentials import OciCredentials
from pliska.coordinator.registry.oci_reference import LOOPBACK, OciReference

CHALLENGE_CHARACTERS_MAX = 4096
TOKEN_CHARACTERS_MAX = 64 * 1024

_CHALLENGE = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_PARAMETER = re.compile(r'([a-z_]+)="([^"\\]*)"')
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Where to get a token, and what to show there.

    Attributes:
        url: Of the token service, with what is asked for.
        authorization: Header that says who asks; None for anybody.
    """

    url: str
    authorization: str | None


def basic(credentials: OciCredentials) -> str:
    """Return the header value that carries a name and a password."""
    pair = f"{credentials.username}:{credentials.password}".encode()
    return "Basic " + base64.b64encode(pair).decode("ascii")


def answer_challenge(
    challenge: str, reference: OciReference, credentials: OciCredentials | None
) -> str | TokenRequest:
    """Return what a registry asks for: the header value at once, or where to get a token for it.

    Args:
        challenge: The `WWW-Authenticate` header, not trusted.
        reference: The repository that is worked on.
        credentials: Who we are; None for nobody.

    Raises:
        RefusedError: It wants credentials and we have none.
        IntegrityError: The challenge is malformed, or would send a password in the clear.
    """
    matched = _CHALLENGE.fullmatch(challenge[:CHALLENGE_CHARACTERS_MAX])
    scheme = matched[1].lower() if matched else ""
    if matched and scheme == "bearer":
        given = dict(_PARAMETER.findall(matched[2]))
        return _token_request(given.get("realm", ""), given.get("service"), reference, credentials)
    if scheme != "basic":
        raise IntegrityError(f"{reference.origin} asks for credentials in a way not known here")
    if credentials is None:
        raise RefusedError(f"{reference.origin} wants a name and a password; none are given")
    return basic(credentials)


def read_token(content: bytes, reference: OciReference) -> str:
    """Return the header value with the token in a token service's answer.

    Raises:
        IntegrityError: There is no token in it.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    match answer:
        case {"token": str(token)} | {"access_token": str(token)} if len(
            token
        ) <= TOKEN_CHARACTERS_MAX and _TOKEN.fullmatch(token):
            return f"Bearer {token}"
    raise IntegrityError(f"the token service of {reference.origin} answered without a token")


def _token_request(
    realm: str, service: str | None, reference: OciReference, credentials: OciCredentials | None
) -> TokenRequest:
    try:
        parts = urlsplit(realm)
        host = f"[{parts.hostname}]" if parts.hostname == "::1" else parts.hostname
        is_local = reference.is_local and parts.scheme == "http" and host in LOOPBACK
        is_sound = (parts.scheme == "https" or is_local) and bool(host) and parts.username is None
    except ValueError:
        is_sound = False
    if not is_sound or not realm.isprintable() or " " in realm:
        raise IntegrityError(
            f"{reference.origin} sends us to a token service that is not https: {realm[:80]!r}"
        )
    asked = {"scope": f"repository:{reference.name}:pull,push"}
    if service is not None:
        asked["service"] = service
    joint = "&" if "?" in realm else "?"
    return TokenRequest(
        f"{realm}{joint}{urlencode(asked)}", None if credentials is None else basic(credentials)
    )
