"""The HTTP API of an OCI registry (distribution specification 1.1), as far as it is used here.

Blobs and manifests go by digest, so every request may be repeated. Answers are
bounded in bytes and in time; no redirect is followed but that of a blob to where
it is stored, and there without credentials. Belongs to one event loop. Called by
`oci_publication`; knows nothing of models.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
import yarl

from pliska.coordinator.registry.digest import Digest, digest_of
from pliska.coordinator.registry.errors import (
    DestinationError,
    IntegrityError,
    NotFoundError,
    RefusedError,
)
from pliska.coordinator.registry.oci_access import TokenRequest, answer_challenge, read_token
from pliska.coordinator.registry.oci_credentials import OciCredentials
from pliska.coordinator.registry.oci_reference import LOOPBACK, OciReference

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ANY_MANIFEST = ", ".join(
    (
        MANIFEST_TYPE,
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
"""Whatever a tag may point at: what is not asked for, a registry hides or converts."""
MANIFEST_BYTES_MAX = 4 * 1024 * 1024
"""What registries take (specification, "Pushing manifests")."""
ANSWER_BYTES_MAX = 64 * 1024
PIECE_BYTES = 1024 * 1024
TIMEOUT_S = 60.0
"""For one request and its answer, and a second more for each `BYTES_PER_S_MIN` of a blob."""
BYTES_PER_S_MIN = 256 * 1024
ATTEMPTS_MAX = 3

_CODE = re.compile(r"[A-Z_]{1,64}")

Receive = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a registry answered; `body` is what there was no other use for."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OciClient:
    """Speaks to one repository of one registry. Make and use it in `async with`."""

    def __init__(self, reference: OciReference, credentials: OciCredentials | None) -> None:
        self._reference = reference
        self._credentials = credentials
        self._authorization: str | None = None
        self._base = yarl.URL(reference.origin)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def has_blob(self, digest: Digest) -> bool:
        """Say whether the repository has a blob."""
        answer = await self._ask("HEAD", self._url(f"blobs/{digest}"))
        return self._expect(answer, {200, 404}, "look for a blob").status == 200

    async def upload_blob(self, digest: Digest, content: bytes) -> None:
        """Store a blob; the registry compares its digest too."""
        begun = await self._ask("POST", self._url("blobs/uploads/"))
        self._expect(begun, {202}, "begin an upload")
        place = self._same_origin(begun.headers.get("location", ""))
        joint = "&" if "?" in place else "?"
        url = yarl.URL(f"{place}{joint}digest={digest}", encoded=True)
        headers = {"content-type": "application/octet-stream"}
        done = await self._ask("PUT", url, headers, content)
        self._expect(done, {201}, "store a blob")

    async def download_blob(self, digest: Digest, size: int, receive: Receive) -> None:
        """Hand the bytes of a blob, at most `size`, to `receive`, which checks their digest.

        Raises:
            IntegrityError: The registry lacks it.
        """
        url = self._url(f"blobs/{digest}")
        answer = await self._ask("GET", url, receive=receive, receive_max=size)
        if answer.status in {301, 302, 303, 307, 308}:
            answer = await self._attempt(
                "GET", self._elsewhere(answer.headers.get("location", "")), {}, b"", receive, size
            )
        if answer.status == 404:
            raise IntegrityError(f"{self._reference}: blob {digest} is missing")
        self._expect(answer, {200}, "read a blob")

    async def find_manifest(self, tag_or_digest: str) -> bytes | None:
        """Return a manifest as it is stored; None where there is none.

        Raises:
            IntegrityError: It does not have the digest that was asked for.
        """
        chunks: list[bytes] = []
        answer = await self._ask(
            "GET",
            self._url(f"manifests/{tag_or_digest}"),
            {"accept": ANY_MANIFEST},
            receive=chunks.append,
            receive_max=MANIFEST_BYTES_MAX,
        )
        if self._expect(answer, {200, 404}, "read a manifest").status == 404:
            return None
        content = b"".join(chunks)
        if tag_or_digest.startswith("sha256:") and digest_of(content) != tag_or_digest:
            raise IntegrityError(f"{self._reference}: manifest {tag_or_digest} has another digest")
        return content

    async def put_manifest(self, tag_or_digest: str, content: bytes) -> None:
        """Store a manifest under its digest, or let a tag point at it."""
        url = self._url(f"manifests/{tag_or_digest}")
        done = await self._ask("PUT", url, {"content-type": MANIFEST_TYPE}, content)
        self._expect(done, {201}, "store a manifest")

    async def _ask(
        self,
        method: str,
        url: yarl.URL,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        receive: Receive | None = None,
        receive_max: int = 0,
    ) -> Answer:
        """Send a request, and once more with what the registry wants to know of us."""
        given = dict(headers or {})
        for is_last in (False, True):
            if self._authorization is not None:
                given["authorization"] = self._authorization
            answer = await self._attempt(method, url, given, content, receive, receive_max)
            if answer.status != 401 or is_last:
                return answer
            self._authorization = await self._authorize(answer)
        raise AssertionError("the last answer is returned")

    async def _authorize(self, answer: Answer) -> str:
        challenge = answer.headers.get("www-authenticate", "")
        wanted = answer_challenge(challenge, self._reference, self._credentials)
        if not isinstance(wanted, TokenRequest):
            return wanted
        shown = {} if wanted.authorization is None else {"authorization": wanted.authorization}
        url = yarl.URL(wanted.url, encoded=True)
        told = await self._attempt("GET", url, shown, b"", None, 0)
        return read_token(self._expect(told, {200}, "get a token").body, self._reference)

    async def _attempt(
        self,
        method: str,
        url: yarl.URL,
        headers: Mapping[str, str],
        content: bytes,
        receive: Receive | None,
        receive_max: int,
    ) -> Answer:
        """Send a request until an answer comes; a connection that broke before is made again."""
        timeout_s = TIMEOUT_S + max(len(content), receive_max) / BYTES_PER_S_MIN
        place = f"{url.scheme}://{url.raw_authority}"
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._exchange(method, url, headers, content, receive, receive_max)
            except TimeoutError as error:
                raise DestinationError(f"{place} took more than {timeout_s:.0f} s") from error
            except aiohttp.ServerDisconnectedError as error:
                if attempt == ATTEMPTS_MAX:
                    raise DestinationError(f"{place} keeps breaking off: {error}") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise DestinationError(f"{place} cannot be reached: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    async def _exchange(
        self,
        method: str,
        url: yarl.URL,
        headers: Mapping[str, str],
        content: bytes,
        receive: Receive | None,
        receive_max: int,
    ) -> Answer:
        async with self._session.request(
            method,
            url,
            headers={**headers, "content-length": str(len(content))},
            data=_pieces(content) if content else None,
            allow_redirects=False,
        ) as response:
            told = {name.lower(): value for name, value in response.headers.items()}
            if receive is None or response.status != 200:
                body = await _bounded(response, ANSWER_BYTES_MAX)
                return Answer(response.status, told, body)
            received = 0
            async for chunk in response.content.iter_chunked(PIECE_BYTES):
                received += len(chunk)
                if received > receive_max:
                    raise IntegrityError(f"{url.path} is longer than {receive_max} bytes")
                receive(chunk)
            return Answer(response.status, told, b"")

    def _url(self, path: str) -> yarl.URL:
        return self._base.with_path(f"/v2/{self._reference.name}/{path}")

    def _same_origin(self, location: str) -> str:
        """Return where an upload goes on; the registry may not send it anywhere else."""
        url = self._joined(location)
        if url is None or url.origin() != self._base.origin():
            raise IntegrityError(
                f"{self._reference.origin} wants uploads to go on elsewhere: {location[:80]!r}"
            )
        return str(url)

    def _elsewhere(self, location: str) -> yarl.URL:
        """Return where a blob is stored: over TLS, or on this machine as the registry."""
        url = self._joined(location)
        is_local = self._reference.is_local and url is not None and url.host in LOOPBACK
        if url is None or not (url.scheme == "https" or is_local):
            raise IntegrityError(f"{self._reference.origin} sends us to {location[:80]!r}")
        return url

    def _joined(self, location: str) -> yarl.URL | None:
        """Return the URL that a `Location` header means; None where it is none."""
        try:
            url = self._base.join(yarl.URL(location, encoded=True))
        except ValueError:
            return None
        is_url = location and location.isprintable() and url.scheme in {"http", "https"}
        return url if is_url and url.host and url.user is None else None

    def _expect(self, answer: Answer, statuses: set[int], what: str) -> Answer:
        """Return the answer, or raise what another status means."""
        if answer.status in statuses:
            return answer
        told = f"{self._reference.origin} does not let us {what} ({answer.status}{_code(answer)})"
        if answer.status in {401, 403}:
            raise RefusedError(f"{told}: check the name, the password and what they may do")
        if answer.status == 404:
            raise NotFoundError(told)
        raise DestinationError(told)


async def _pieces(content: bytes) -> AsyncIterator[memoryview]:
    view = memoryview(content)
    for offset in range(0, len(view), PIECE_BYTES):
        yield view[offset : offset + PIECE_BYTES]


async def _bounded(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the beginning of an answer; what is longer is not worth reading."""
    chunks = []
    received = 0
    async for chunk in response.content.iter_chunked(PIECE_BYTES):
        received += len(chunk)
        if received > bytes_max:
            response.close()
            return b""
        chunks.append(chunk)
    return b"".join(chunks)


def _code(answer: Answer) -> str:
    """Return the error code of a registry's answer (specification, "Error Codes")."""
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ""
    match told:
        case {"errors": [{"code": str(code)}, *_]} if _CODE.fullmatch(code):
            return f" {code}"
    return ""
