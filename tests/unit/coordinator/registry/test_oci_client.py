"""Registries that mean harm: each answers one request so as to get at something."""

import asyncio
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from pliska.coordinator.registry import (
    DestinationError,
    IntegrityError,
    NotFoundError,
    RefusedError,
    RegistryError,
)
from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.registry.oci_client import (
    ANSWER_BYTES_MAX,
    ATTEMPTS_MAX,
    MANIFEST_BYTES_MAX,
    OciClient,
)
from pliska.coordinator.registry.oci_credentials import OciCredentials
from pliska.coordinator.registry.oci_reference import OciReference

ANN = OciCredentials("ann", "s3cret")
BLOB = digest_of(b"blob")

Answer = tuple[int, dict[str, str], bytes]


class Hostile:
    """A server that answers as it is told and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.breaks_off = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                path = self.path.partition("?")[0]
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, path, self.headers["Authorization"]))
                if outer.breaks_off:
                    outer.breaks_off -= 1
                    self.close_connection = True
                    return
                status, headers, body = outer.answers.get(f"{self.command} {path}", (404, {}, b""))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815 - the server's names

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.reference = OciReference.parse(f"127.0.0.1:{self.server.server_address[1]}/m:v1")

    def client(self, work: Callable[[OciClient], Any], credentials: OciCredentials | None) -> Any:
        async def run() -> Any:
            async with OciClient(self.reference, credentials) as client:
                return await work(client)

        return asyncio.run(run())

    @property
    def shown(self) -> set[str | None]:
        """What it was told of who we are."""
        return {authorization for _, _, authorization in self.asked}


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    thread = Thread(target=server.server.serve_forever, args=(0.005,))
    thread.start()
    yield server
    server.server.shutdown()
    server.server.server_close()
    thread.join()


def download(client: OciClient, size: int = 4) -> Any:
    received: list[bytes] = []

    async def run() -> bytes:
        await client.download_blob(BLOB, size, received.append)
        return b"".join(received)

    return run()


def test_a_blob_longer_than_its_size_is_refused(hostile: Hostile) -> None:
    hostile.answers[f"GET /v2/m/blobs/{BLOB}"] = (200, {}, b"blobs")
    with pytest.raises(IntegrityError, match="longer than 4"):
        hostile.client(download, None)
    assert hostile.client(lambda client: download(client, 5), None) == b"blobs"


@pytest.mark.parametrize("over", [0, 1])
def test_a_manifest_is_read_up_to_its_bound(hostile: Hostile, over: int) -> None:
    content = b"m" * (MANIFEST_BYTES_MAX + over)
    hostile.answers["GET /v2/m/manifests/v1"] = (200, {}, content)
    if over:
        with pytest.raises(IntegrityError, match="longer than"):
            hostile.client(lambda client: client.find_manifest("v1"), None)
    else:
        assert hostile.client(lambda client: client.find_manifest("v1"), None) == content


def test_a_manifest_with_another_digest_is_refused(hostile: Hostile) -> None:
    hostile.answers[f"GET /v2/m/manifests/{BLOB}"] = (200, {}, b"other")
    with pytest.raises(IntegrityError, match="another digest"):
        hostile.client(lambda client: client.find_manifest(BLOB), None)


@pytest.mark.parametrize(
    "location",
    ["", "http://127.0.0.1:1/u", "https://evil.example/u", "//evil.example/u", "http://u@h/",
     "file:///etc/passwd", "\x7f", "http://[bad/"],
)  # fmt: skip
def test_an_upload_goes_on_nowhere_else(hostile: Hostile, location: str) -> None:
    hostile.answers["POST /v2/m/blobs/uploads/"] = (202, {"Location": location}, b"")
    with pytest.raises(IntegrityError, match="elsewhere"):
        hostile.client(lambda client: client.upload_blob(BLOB, b"blob"), ANN)
    assert [method for method, _, _ in hostile.asked] == ["POST"]


@pytest.mark.parametrize(
    "location", ["", "http://evil.example/b", "file:///etc/passwd", "ftp://h/"]
)
def test_a_blob_is_not_fetched_in_the_clear_from_another_machine(
    hostile: Hostile, location: str
) -> None:
    hostile.answers[f"GET /v2/m/blobs/{BLOB}"] = (307, {"Location": location}, b"")
    with pytest.raises(IntegrityError, match="sends us to"):
        hostile.client(download, ANN)


def test_where_a_blob_is_stored_learns_no_password(hostile: Hostile) -> None:
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}
    hostile.answers["GET /v2/m/manifests/v1"] = (401, challenge, b"")
    hostile.answers[f"GET /v2/m/blobs/{BLOB}"] = (307, {"Location": "/elsewhere"}, b"")
    hostile.answers["GET /elsewhere"] = (200, {}, b"blob")

    async def both(client: OciClient) -> bytes:
        with pytest.raises(RefusedError):
            await client.find_manifest("v1")
        content: bytes = await download(client)
        return content

    assert hostile.client(both, ANN) == b"blob"
    assert [auth for _, path, auth in hostile.asked if path == "/elsewhere"] == [None]


def test_redirects_do_not_go_in_circles(hostile: Hostile) -> None:
    place = f"/v2/m/blobs/{BLOB}"
    hostile.answers[f"GET {place}"] = (307, {"Location": place}, b"")
    with pytest.raises(DestinationError, match="307"):
        hostile.client(download, None)
    assert len(hostile.asked) == 2


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="http://evil.example/token",service="x"',
        'Bearer realm="https://u:p@evil.example/token"',
        'Bearer realm="file:///etc/passwd"',
        'Bearer realm=""',
        "Bearer",
        'Digest realm="x"',
        "",
        'Bearer realm="https://[bad"',
    ],
)
def test_a_password_goes_to_no_token_service_in_the_clear(hostile: Hostile, challenge: str) -> None:
    headers = {"WWW-Authenticate": challenge}
    hostile.answers["GET /v2/m/manifests/v1"] = (401, headers, b"")
    with pytest.raises(IntegrityError):
        hostile.client(lambda client: client.find_manifest("v1"), ANN)
    assert hostile.shown == {None}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "a\\r\\nX: y"}', b'{"token": ""}',
     b"[" * 100_000, b'{"token": "' + b"a" * ANSWER_BYTES_MAX + b'"}'],
)  # fmt: skip
def test_a_token_service_that_gives_no_token_is_refused(hostile: Hostile, body: bytes) -> None:
    realm = f'Bearer realm="{hostile.reference.origin}/token"'
    hostile.answers["GET /v2/m/manifests/v1"] = (401, {"WWW-Authenticate": realm}, b"")
    hostile.answers["GET /token"] = (200, {}, body)
    with pytest.raises(IntegrityError, match="without a token"):
        hostile.client(lambda client: client.find_manifest("v1"), ANN)


@pytest.mark.parametrize(
    ("status", "kind"), [(403, RefusedError), (404, NotFoundError), (500, DestinationError)]
)
def test_a_refusal_shows_the_registrys_code_and_nothing_else_of_it(
    hostile: Hostile, status: int, kind: type[RegistryError]
) -> None:
    body = b'{"errors": [{"code": "DENIED", "message": "\\u001b[31mred"}]}'
    hostile.answers["POST /v2/m/blobs/uploads/"] = (status, {}, body)
    with pytest.raises(kind, match=f"{status} DENIED") as refused:
        hostile.client(lambda client: client.upload_blob(BLOB, b"blob"), None)
    assert "red" not in str(refused.value)


def test_a_connection_that_broke_off_is_made_again_but_not_for_ever(hostile: Hostile) -> None:
    hostile.breaks_off = ATTEMPTS_MAX - 1
    assert hostile.client(lambda client: client.find_manifest("v1"), None) is None
    hostile.breaks_off = 100
    with pytest.raises(DestinationError, match="breaking off"):
        hostile.client(lambda client: client.upload_blob(BLOB, b"blob"), None)


def test_a_registry_that_never_answers_is_given_up(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.coordinator.registry.oci_client.TIMEOUT_S", 0.2)
    monkeypatch.setattr("pliska.coordinator.registry.oci_client.BYTES_PER_S_MIN", 2**40)
    hostile.answers["GET /v2/m/manifests/v1"] = (200, {"Content-Length": "9"}, b"drip")
    with pytest.raises(DestinationError, match="took more than"):
        hostile.client(lambda client: client.find_manifest("v1"), None)
