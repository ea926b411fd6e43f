"""Metrics that are pushed, and Prometheus as it answers, over real HTTP."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pliska.coordinator.registry import (
    IntegrityError,
    PrometheusMetrics,
    PushedMetrics,
    RegistryUsageError,
)
from pliska.coordinator.registry.metrics import SAMPLE_METRICS_MAX
from pliska.locks import Backend


class Clock:
    def __init__(self) -> None:
        self.at = datetime(2031, 5, 4, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pushed(backend: Backend, clock: Clock) -> PushedMetrics:
    return PushedMetrics(backend, "default", clock, age_s_max=60)


ERRORS = frozenset({"errors"})


def test_what_is_read_is_the_mean_of_what_sources_said_last(pushed: PushedMetrics) -> None:
    pushed.push("digits", 2, "n1", {"errors": 9.0})
    pushed.push("digits", 2, "n1", {"errors": 0.1, "p99": 5})
    pushed.push("digits", 2, "n2", {"errors": 0.3})
    pushed.push("digits", 1, "n1", {"errors": 7.0})
    pushed.push("other", 2, "n1", {"errors": 7.0})
    assert pushed.read("digits", 2, ERRORS | {"missing"}) == {"errors": pytest.approx(0.2)}
    assert pushed.read("digits", 3, ERRORS) == {}


def test_what_was_said_long_ago_counts_for_nothing(pushed: PushedMetrics, clock: Clock) -> None:
    pushed.push("digits", 2, "n1", {"errors": 0.1})
    clock.at += timedelta(seconds=60)
    assert pushed.read("digits", 2, ERRORS)
    clock.at += timedelta(seconds=1)
    assert pushed.read("digits", 2, ERRORS) == {}


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("n1", {"errors": float("nan")}),
        ("n1", {"errors": float("inf")}),
        ("n1", {"no name": 1.0}),
        ("n1", {"": 1.0}),
        ("../n1", {"errors": 1.0}),
        ("n1", {f"m{number}": 1.0 for number in range(SAMPLE_METRICS_MAX + 1)}),
    ],
)
def test_what_is_no_metric_is_refused(
    pushed: PushedMetrics, source: str, values: dict[str, float]
) -> None:
    with pytest.raises(RegistryUsageError):
        pushed.push("digits", 2, source, values)
    assert pushed.read("digits", 2, ERRORS) == {}


def test_as_many_metrics_as_allowed_fit(pushed: PushedMetrics) -> None:
    pushed.push("digits", 2, "n1", {f"m{number}": 1.0 for number in range(SAMPLE_METRICS_MAX)})


def test_a_record_that_is_not_ours_is_refused(pushed: PushedMetrics, backend: Backend) -> None:
    pushed.push("digits", 2, "n1", {"errors": 0.1})
    (record,) = backend.list("registry/default/metrics/digits/000000000002").records
    backend.update(record.key, record.value.replace(b"0.1", b"NaN"), record.modified)
    with pytest.raises(IntegrityError):
        pushed.read("digits", 2, ERRORS)


@pytest.fixture
def prometheus() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """A server that answers queries as Prometheus does: what is asked to what is answered."""
    answers: dict[str, Any] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = parse_qs(split.query)["query"][0]
            asked.append(f"{split.path} {query}")
            answer = answers.get(query, {"status": "error", "errorType": "bad_data"})
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200 if query in answers else 400)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers, asked
    server.shutdown()
    thread.join()
    server.server_close()


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [1.5e9, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_prometheus_is_asked_about_the_model_and_the_version(
    prometheus: tuple[str, dict[str, Any], list[str]],
) -> None:
    url, answers, asked = prometheus
    answers['rate{model="digits",version="2"}'] = vector("0.25")
    answers["scalar(3)"] = {"status": "success", "data": {"resultType": "scalar",
                                                          "result": [1.5e9, "3"]}}  # fmt: skip
    source = PrometheusMetrics(
        f"{url}/", {"errors": 'rate{model="$model",version="$version"}', "three": "scalar(3)"}
    )
    assert source.read("digits", 2, frozenset({"errors", "three", "other"})) == {
        "errors": 0.25,
        "three": 3.0,
    }
    assert '/api/v1/query rate{model="digits",version="2"}' in asked


@pytest.mark.parametrize(
    "answer",
    [
        vector("NaN"),
        vector("+Inf"),
        vector("x"),
        vector(),
        vector("1", "2"),
        {"status": "error"},
        {"status": "success"},
        [],
        b"not JSON",
        b"[" * 100_000,
        b"",
    ],
)
def test_what_is_not_one_number_is_left_out(
    prometheus: tuple[str, dict[str, Any], list[str]], answer: Any
) -> None:
    url, answers, _ = prometheus
    answers["errors"] = answer
    assert PrometheusMetrics(url, {"errors": "errors"}).read("digits", 2, ERRORS) == {}


def test_a_server_that_is_away_knows_nothing(
    prometheus: tuple[str, dict[str, Any], list[str]],
) -> None:
    url, _, _ = prometheus
    assert PrometheusMetrics(url, {"errors": "unknown"}).read("digits", 2, ERRORS) == {}
    gone = PrometheusMetrics("http://127.0.0.1:9", {"errors": "errors"})
    assert gone.read("digits", 2, ERRORS) == {}


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host", "prometheus:9090", ""])
def test_only_http_is_asked(url: str) -> None:
    with pytest.raises(RegistryUsageError):
        PrometheusMetrics(url, {})
