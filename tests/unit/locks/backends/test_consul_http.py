import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from pliska.locks import OutcomeUnknownError, StoreUnavailableError
from pliska.locks.backends import consul_http
from pliska.locks.backends.consul_http import Connections
from pliska.locks.backends.consul_place import ConsulPlace

Script = Callable[[socket.socket], None]
Serve = Callable[[Sequence[Script]], Connections]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-consul-index: 7\r\n\r\nok"


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    return data


def answers(answer: bytes) -> Script:
    """Answer one request and close."""

    def script(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    return script


def answers_slowly(connection: socket.socket) -> None:
    read_request(connection)
    for byte in OK:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def never_answers(connection: socket.socket) -> None:
    read_request(connection)
    time.sleep(2)


def answers_twice(connection: socket.socket) -> None:
    for _ in range(2):
        read_request(connection)
        connection.sendall(OK)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves each connection by the next script, and gives a client of that server."""
    with contextlib.ExitStack() as stack:

        def start(scripts: Sequence[Script]) -> Connections:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                for script in scripts:
                    with contextlib.suppress(OSError):  # the client, or the test, may end first
                        connection, _ = listener.accept()
                        with connection:
                            script(connection)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            port = listener.getsockname()[1]
            connections = Connections(ConsulPlace.parse(f"consul://127.0.0.1:{port}", {}))
            stack.callback(connections.close)
            return connections

        yield start


def test_an_answer_is_read_whatever_the_case_of_its_headers(serve: Serve) -> None:
    answer = serve([answers(OK)]).request("GET", "/v1/kv/a", b"", 5)
    assert (answer.code, answer.body, answer.headers["X-Consul-Index"]) == (200, "ok", "7")


def test_one_connection_serves_one_request_after_another(serve: Serve) -> None:
    connections = serve([answers_twice])
    assert [connections.request("GET", "/", b"", 5).code for _ in range(2)] == [200, 200]


def test_a_connection_closed_while_idle_is_not_used_again(serve: Serve) -> None:
    connections = serve([answers(OK), answers(OK)])
    connections.request("GET", "/", b"", 5)
    time.sleep(0.05)  # until the closing has arrived
    assert connections.request("PUT", "/", b"body", 5).code == 200


LOST: list[Script] = [
    lambda connection: connection.close(),
    answers(b""),
    answers(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut short"),
    answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ncut"),
    answers(b"SSH-2.0-something else\r\n\r\n"),
    answers(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff"),
    answers(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000),
]


@pytest.mark.parametrize("script", LOST)
def test_a_lost_answer_leaves_a_change_unknown_and_a_read_undone(
    serve: Serve, script: Script
) -> None:
    with pytest.raises(OutcomeUnknownError, match="did not answer"):
        serve([script]).request("PUT", "/v1/txn", b"[]", 5)
    with pytest.raises(StoreUnavailableError, match="did not answer"):
        serve([script]).request("GET", "/v1/kv/a", b"", 5)


@pytest.mark.parametrize("script", [answers_slowly, never_answers])
def test_a_request_ends_at_its_time_however_the_answer_drips(serve: Serve, script: Script) -> None:
    connections = serve([script])
    started_s = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="timed out"):
        connections.request("GET", "/", b"", 0.3)
    assert 0.25 < time.monotonic() - started_s < 0.6


def test_an_answer_beyond_the_limit_is_refused_and_one_at_it_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consul_http, "ANSWER_BYTES_MAX", 10)
    for size, is_read in ((10, True), (11, False)):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
        connections = serve([answers(head + b"x" * size)])
        if is_read:
            assert len(connections.request("GET", "/", b"", 5).body) == size
        else:
            with pytest.raises(StoreUnavailableError, match="larger"):
                connections.request("GET", "/", b"", 5)


def test_nobody_there_is_unavailable_even_for_a_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    connections = Connections(ConsulPlace.parse(f"consul://127.0.0.1:{port}", {}))
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        connections.request("PUT", "/v1/txn", b"[]", 5)


def test_closing_ends_the_request_of_another_thread(serve: Serve) -> None:
    connections, ended = serve([never_answers]), threading.Event()

    def ask() -> None:
        with pytest.raises(StoreUnavailableError, match="closed"):
            connections.request("GET", "/", b"", 30)
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.1)  # until the request is under way
    connections.close()
    assert ended.wait(5)
    thread.join()
    with pytest.raises(StoreUnavailableError, match="closed"):
        connections.request("GET", "/", b"", 1)


def test_an_answer_may_be_waited_for_elsewhere(serve: Serve) -> None:
    may_answer = threading.Event()

    def answers_when_it_may(connection: socket.socket) -> None:
        for _ in range(2):
            read_request(connection)
            may_answer.wait(10)
            connection.sendall(OK)

    connections = serve([answers_when_it_may])
    exchange = connections.begin("GET", "/v1/kv/a", b"", 5)
    assert not exchange.is_answered()
    may_answer.set()
    poll = select.poll()
    poll.register(exchange, select.POLLIN)
    assert poll.poll(10_000)
    assert exchange.is_answered()
    assert exchange.answer(5).body == "ok"
    # The connection is as good as new.
    assert connections.request("GET", "/v1/kv/a", b"", 5).body == "ok"


def test_the_end_of_a_connection_is_an_answer_that_fails(serve: Serve) -> None:
    exchange = serve([answers(b"")]).begin("GET", "/v1/kv/a", b"", 5)
    poll = select.poll()
    poll.register(exchange, select.POLLIN)
    assert poll.poll(10_000)
    assert exchange.is_answered()
    with pytest.raises(StoreUnavailableError):
        exchange.answer(5)


def test_an_abandoned_request_ends_its_connection(serve: Serve) -> None:
    has_ended = threading.Event()

    def waits_for_the_end(connection: socket.socket) -> None:
        read_request(connection)
        if connection.recv(1) == b"":
            has_ended.set()

    serve([waits_for_the_end]).begin("GET", "/v1/kv/a", b"", 5).abandon()
    assert has_ended.wait(10)
