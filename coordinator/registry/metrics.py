"""Metrics of versions while they serve: pushed into the store, or asked of Prometheus.

What cannot be read is left out: a guard that needs it is inconclusive. Used by
canaries; `pliska model metric` and `Registry.push_metrics` write what is read here.
"""

import json
import logging
import math
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pliska.coordinator.registry.document import (
    canonical_bytes,
    moment,
    read_document,
    timestamp,
)
from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.registry.guard import check_metric_name
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.names import check_model, check_node
from pliska.coordinator.registry.stored import Stored, read_stored
from pliska.locks import Backend, ConflictError, Create, OutcomeUnknownError, Update

SAMPLE_BYTES_MAX = 16 * 1024
SAMPLE_METRICS_MAX = 100
ATTEMPTS_MAX = 5
PROMETHEUS_TIMEOUT_S = 5.0
PROMETHEUS_BYTES_MAX = 1024 * 1024

_SAMPLE_FORMAT = "pliska-metrics-1"

_log = logging.getLogger(__name__)


class MetricSource(Protocol):
    """Where a canary's metrics come from."""

    def read(self, model: str, version: int, names: frozenset[str]) -> Mapping[str, float]:
        """Return what is known now of these metrics of a version; the rest is left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one source last said of a version.

    Attributes:
        source: Who measured, such as a node.
        at: UTC time, ISO 8601.
        values: Finite numbers by name.
    """

    namespace: str
    model: str
    version: int
    source: str
    at: str
    values: Mapping[str, float]

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _SAMPLE_FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "version": self.version,
                "source": self.source,
                "at": self.at,
                "values": {name: float(value) for name, value in self.values.items()},
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Sample":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, SAMPLE_BYTES_MAX, what)
        document.check_format(_SAMPLE_FORMAT)
        sample = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            version=document.integer("version", minimum=1),
            source=document.text("source"),
            at=document.time("at"),
            values=document.number_map("values", SAMPLE_METRICS_MAX),
        )
        document.finish()
        return sample


class PushedMetrics:
    """Metrics that nodes and clients push into the coordination store, the last of each.

    Args:
        backend: The store.
        namespace: Whose models.
        now: Returns the time, in UTC.
        age_s_max: Older samples count for nothing.
    """

    def __init__(
        self, backend: Backend, namespace: str, now: Callable[[], datetime], age_s_max: float = 60.0
    ) -> None:
        self._backend = backend
        self._namespace = namespace
        self._keys = Keys(namespace)
        self._now = now
        self._age_s_max = age_s_max

    def push(self, model: str, version: int, source: str, values: Mapping[str, float]) -> None:
        """Say what was measured of a version; it replaces what this source said before.

        Raises:
            RegistryUsageError: A name is malformed, a value is not finite, or there
                are too many.
        """
        check_model(model)
        check_node(source)
        if len(values) > SAMPLE_METRICS_MAX:
            raise RegistryUsageError(f"at most {SAMPLE_METRICS_MAX} metrics, not {len(values)}")
        for name, number in values.items():
            check_metric_name(name)
            if not math.isfinite(number):
                raise RegistryUsageError(f"metric {name!r} is {number}; say nothing instead")
        at = timestamp(self._now())
        sample = Sample(self._namespace, model, version, source, at, dict(values))
        key, value = _sample_key(sample), sample.to_bytes()
        for _ in range(ATTEMPTS_MAX):
            change = Create(key, value) if self._backend.get(key) is None else Update(key, value)
            try:
                self._backend.transact([], [change])
            except (ConflictError, OutcomeUnknownError):
                continue
            return

    def read(self, model: str, version: int, names: frozenset[str]) -> dict[str, float]:
        """Return the mean over all sources that have said something lately."""
        told: dict[str, list[float]] = defaultdict(list)
        for stored in self._samples(model, version):
            age = self._now() - moment(stored.record.at)
            if age.total_seconds() <= self._age_s_max:
                for name in names & stored.record.values.keys():
                    told[name].append(stored.record.values[name])
        return {name: math.fsum(values) / len(values) for name, values in told.items()}

    def _samples(self, model: str, version: int) -> list[Stored[Sample]]:
        listing = self._backend.list(self._keys.metrics(model, version))
        return [read_stored(found, Sample.from_bytes, _sample_key) for found in listing.records]


class PrometheusMetrics:
    """Metrics by queries to a Prometheus server (HTTP API v1, instant queries).

    Args:
        url: Of the server, such as `http://prometheus:9090`.
        queries: Metric to query; `$model` and `$version` in it are replaced.
    """

    def __init__(self, url: str, queries: Mapping[str, str]) -> None:
        if not url.startswith(("http://", "https://")):
            raise RegistryUsageError(f"{url!r} is not the address of a Prometheus server")
        for name in queries:
            check_metric_name(name)
        self._url = url.rstrip("/")
        self._queries = dict(queries)

    def read(self, model: str, version: int, names: frozenset[str]) -> dict[str, float]:
        """Ask for each metric; what is not answered by one finite number is left out."""
        found = {}
        for name in names & self._queries.keys():
            query = self._queries[name].replace("$model", model)
            value = self._ask(query.replace("$version", str(version)))
            if value is not None:
                found[name] = value
        return found

    def _ask(self, query: str) -> float | None:
        address = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=PROMETHEUS_TIMEOUT_S) as response:  # noqa: S310 - the scheme is checked
                answer = json.loads(response.read(PROMETHEUS_BYTES_MAX))
        except (OSError, ValueError, RecursionError, urllib.error.URLError) as error:
            _log.warning("Prometheus does not answer: query=%s reason=%s", query, error)
            return None
        value = _only_number(answer)
        if value is None:
            _log.warning("Prometheus has not one number for it: query=%s", query)
        return value


def _only_number(answer: Any) -> float | None:
    match answer:
        case {"status": "success", "data": {"resultType": "scalar", "result": [_, str(text)]}}:
            pass
        case {
            "status": "success",
            "data": {"resultType": "vector", "result": [{"value": [_, str(text)]}]},
        }:
            pass
        case _:
            return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _sample_key(sample: Sample) -> str:
    return Keys(sample.namespace).sample(sample.model, sample.version, sample.source)
