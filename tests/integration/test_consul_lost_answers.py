"""Answers of Consul that are lost on the way: what was asked for was done, and nobody knows."""

import http.client
import http.server
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pliska.locks import Backend, Mutex, OutcomeUnknownError, Session, connect
from services.consul import ConsulServer

CONTENDERS = "locks/m/contenders"


class AnswerThief(http.server.ThreadingHTTPServer):
    """Passes requests on to an agent, and throws the answers away that it is told to."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.steals: Callable[[str], bool] = lambda _target: False
        self.stolen: list[str] = []
        self.host_port = f"127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AnswerThief

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=20)
        upstream.request(self.command, self.path, body)
        answer = upstream.getresponse()
        text = answer.read()
        upstream.close()
        if self.server.steals(self.path):
            self.server.stolen.append(self.path)
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.startswith("X-Consul"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT  # noqa: N815 - the library's name

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def thief(consul: ConsulServer) -> Iterator[AnswerThief]:
    with AnswerThief(consul.host_port) as thief:
        thread = threading.Thread(target=thief.serve_forever)
        thread.start()
        yield thief
        thief.shutdown()
        thread.join()


@pytest.fixture
def address(consul: ConsulServer) -> str:
    return consul.fresh_address()


@pytest.fixture
def robbed(thief: AnswerThief, consul: ConsulServer, address: str) -> Iterator[Backend]:
    """A client whose answers pass the thief."""
    backend = connect(address.replace(consul.host_port, thief.host_port))
    yield backend
    backend.close()


@pytest.fixture
def observer(address: str) -> Iterator[Backend]:
    backend = connect(address)
    yield backend
    backend.close()


def test_a_change_whose_answer_is_lost_was_made_and_says_that_it_may_have_been(
    thief: AnswerThief, robbed: Backend, observer: Backend
) -> None:
    thief.steals = lambda target: target.startswith("/v1/txn")
    with pytest.raises(OutcomeUnknownError):
        robbed.create("a", b"made")
    record = observer.get("a")
    assert record is not None
    assert record.value == b"made"
    with pytest.raises(OutcomeUnknownError):
        robbed.delete("a")
    assert observer.get("a") is None


def test_a_wish_whose_answer_is_lost_leaves_nothing_in_the_queue(
    thief: AnswerThief, robbed: Backend, observer: Backend
) -> None:
    with Session.open(robbed) as session:
        thief.steals = lambda target: target.startswith("/v1/txn") and not thief.stolen
        with pytest.raises(OutcomeUnknownError):
            Mutex(session, "m").acquire(timeout_s=5)
        assert thief.stolen
        deadline_s = time.monotonic() + 5
        while observer.list(CONTENDERS).records:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert Mutex(session, "m").acquire(timeout_s=5).held


def test_a_release_whose_answer_is_lost_hands_over_and_disturbs_nobody_later(
    thief: AnswerThief, robbed: Backend, observer: Backend
) -> None:
    with Session.open(robbed) as session, Session.open(observer) as rival:
        grant = Mutex(session, "m").acquire(timeout_s=5)
        thief.steals = lambda target: target.startswith("/v1/txn") and len(thief.stolen) < 2
        assert grant.release()
        after = Mutex(rival, "m").acquire(timeout_s=5)
        deadline_s = time.monotonic() + 5
        while len(thief.stolen) < 2:  # the keeper tries again
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        time.sleep(0.6)  # and once more, with success
        assert after.held


def test_a_renewal_whose_answer_is_lost_is_made_good_by_the_next(
    thief: AnswerThief, robbed: Backend
) -> None:
    with Session.open(robbed, lease_s=1.5) as session:
        thief.steals = lambda target: "renew" in target and len(thief.stolen) < 2
        deadline_s = time.monotonic() + 5
        while len(thief.stolen) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert not session.lost.wait(1.5)
