import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from pliska.discovery.errors import ServiceUsageError
from pliska.discovery.probe import (
    Health,
    HttpProbe,
    ProbeOptions,
    Prober,
    ProbeResult,
    TcpProbe,
    judge,
    parse_probe,
)

OPTIONS = ProbeOptions(rise=2, fall=3)
GOOD, BAD = ProbeResult(True, "fine"), ProbeResult(False, "broken")


def after(*results: ProbeResult, health: Health | None = None) -> Health:
    health = health or Health()
    for result in results:
        health = judge(health, result, OPTIONS)
    return health


def test_it_takes_several_failures_in_a_row_to_be_unhealthy() -> None:
    assert after(BAD, BAD).is_healthy
    assert after(BAD, BAD, GOOD, BAD, BAD).is_healthy
    health = after(BAD, BAD, BAD)
    assert (health.is_healthy, health.reason) == (False, "3 times in a row: broken")


def test_it_takes_several_successes_in_a_row_to_be_healthy_again() -> None:
    unhealthy = after(BAD, BAD, BAD)
    assert not after(GOOD, health=unhealthy).is_healthy
    assert not after(GOOD, BAD, GOOD, health=unhealthy).is_healthy
    assert after(GOOD, GOOD, health=unhealthy).is_healthy


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_http_probe_succeeds_with_a_status_of_success(port: int) -> None:
    assert HttpProbe("127.0.0.1", port, "/health").ask(2) == ProbeResult(
        True, "GET /health answers 204"
    )
    assert HttpProbe("127.0.0.1", port, "/").ask(2) == ProbeResult(False, "GET / answers 503")


def test_a_tcp_probe_succeeds_when_the_port_is_open(port: int) -> None:
    assert TcpProbe("127.0.0.1", port).ask(2).is_success


def test_nobody_who_listens_and_nobody_who_answers_are_failures() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not HttpProbe("127.0.0.1", port).ask(0.1).is_success
    for probe in (TcpProbe("127.0.0.1", port), HttpProbe("127.0.0.1", port)):
        result = probe.ask(1)
        assert not result.is_success
        assert f"127.0.0.1:{port}" in result.detail


def test_a_prober_reports_only_when_the_verdict_changes() -> None:
    reports: list[bool] = []
    turned = threading.Event()

    class Script:
        results = iter([GOOD, BAD, BAD, BAD, BAD, GOOD, GOOD, GOOD])

        def ask(self, timeout_s: float) -> ProbeResult:  # noqa: ARG002
            result = next(self.results, None)
            if result is None:
                turned.set()
            return result or GOOD

    with Prober(Script(), reports.append, ProbeOptions(interval_s=0.001)) as prober:
        assert turned.wait(10)
    assert reports == [False, True]
    assert prober.health.is_healthy


def test_a_probe_is_written_as_a_word() -> None:
    assert parse_probe("tcp", "h", 1) == TcpProbe("h", 1)
    assert parse_probe("http:/a/b?c=d", "h", 1) == HttpProbe("h", 1, "/a/b?c=d")
    for text in (
        "",
        "http",
        "http:",
        "http:a",
        "https:/",
        "http://other/",
        "http:/a b",
        "http:/\n",
    ):
        with pytest.raises(ServiceUsageError, match="is no probe"):
            parse_probe(text, "h", 1)
    with pytest.raises(ServiceUsageError, match="needs a port"):
        parse_probe("tcp", "h", 0)


def test_options_that_would_never_decide_are_refused() -> None:
    for fields in ({"interval_s": 0}, {"timeout_s": 0}, {"rise": 0}, {"fall": 0}):
        with pytest.raises(ServiceUsageError):
            ProbeOptions(**fields)  # type: ignore[arg-type]
