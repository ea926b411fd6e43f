"""Ask a local service whether it works, so that its registration can say so.

`judge` decides from one result after the other when an instance counts as
healthy; `TcpProbe` and `HttpProbe` ask; `Prober` asks again and again and tells
a registration. The lease says that a process lives; a probe, that it works.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import urlsplit

from pliska.discovery.errors import ServiceUsageError
from pliska.locks.closing import Closing

INTERVAL_S = 5.0
RESPONSE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How often to ask, and how many results change the verdict.

    Attributes:
        interval_s: From one probe to the next.
        timeout_s: A probe that takes longer has failed.
        rise: So many successes in a row make an instance healthy.
        fall: So many failures in a row make it unhealthy.
    """

    interval_s: float = INTERVAL_S
    timeout_s: float = 2.0
    rise: int = 2
    fall: int = 3

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or self.timeout_s <= 0 or self.rise < 1 or self.fall < 1:
            raise ServiceUsageError("a probe has an interval and a timeout above 0, and counts")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one probe found, in a word for people."""

    is_success: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict so far.

    Attributes:
        is_healthy: Whether the instance counts as healthy.
        reason: Why.
        streak: Results in a row that speak against the verdict.
    """

    is_healthy: bool = True
    reason: str = "not probed yet"
    streak: int = 0


def judge(before: Health, result: ProbeResult, options: ProbeOptions) -> Health:
    """The verdict after one more result: it changes only when several in a row say so."""
    if result.is_success == before.is_healthy:
        return replace(before, reason=result.detail, streak=0)
    streak = before.streak + 1
    needed = options.rise if result.is_success else options.fall
    if streak < needed:
        return replace(before, streak=streak)
    return Health(result.is_success, f"{streak} times in a row: {result.detail}")


class Probe(Protocol):
    """A question to a service."""

    def ask(self, timeout_s: float) -> ProbeResult:
        """Ask once. Never raises; an error is a failed probe."""


@dataclass(frozen=True, slots=True)
class TcpProbe:
    """Succeeds when the port accepts a connection."""

    address: str
    port: int

    def ask(self, timeout_s: float) -> ProbeResult:
        """See `Probe.ask`."""
        try:
            with socket.create_connection((self.address, self.port), timeout_s):
                return ProbeResult(True, "accepts connections")
        except OSError as error:
            return ProbeResult(False, f"{self.address}:{self.port}: {error}")


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Succeeds when a GET of the path is answered with a status from 200 to 299."""

    address: str
    port: int
    path: str = "/"

    def ask(self, timeout_s: float) -> ProbeResult:
        """See `Probe.ask`."""
        import http.client  # not for everybody who imports this package

        connection = http.client.HTTPConnection(self.address, self.port, timeout=timeout_s)
        try:
            connection.request("GET", self.path, headers={"Connection": "close"})
            response = connection.getresponse()
            response.read(RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            return ProbeResult(False, f"{self.address}:{self.port}{self.path}: {error!r}")
        finally:
            connection.close()
        is_success = 200 <= response.status < 300
        return ProbeResult(is_success, f"GET {self.path} answers {response.status}")


def parse_probe(text: str, address: str, port: int) -> Probe:
    """A probe as people write it: `tcp`, or `http:/path`.

    Args:
        text: What to ask.
        address: Whom.
        port: Where.

    Raises:
        ServiceUsageError: It is neither, or there is no port to ask.
    """
    if port == 0:
        raise ServiceUsageError("a probe needs a port: give the instance one")
    if text == "tcp":
        return TcpProbe(address, port)
    kind, _, path = text.partition(":")
    is_plain = path.startswith("/") and path.isascii() and path.isprintable()
    if kind == "http" and is_plain and " " not in path and not urlsplit(path).netloc:
        return HttpProbe(address, port, path)
    raise ServiceUsageError(f"{text[:80]!r} is no probe: write tcp, or http:/path")


class Prober(Closing):
    """Asks a probe again and again in a thread of its own, until `close`."""

    def __init__(
        self, probe: Probe, report: Callable[[bool], None], options: ProbeOptions | None = None
    ) -> None:
        """Begin to ask.

        Args:
            probe: The question.
            report: Gets the verdict whenever it changes; `Registration.report_health`, say.
            options: How often, and how many results change the verdict.
        """
        self._probe = probe
        self._report = report
        self._options = options or ProbeOptions()
        self._closed = threading.Event()
        self.health = Health()
        self._thread = threading.Thread(target=self._run, name="pliska-prober", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        self._thread.join(self._options.timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            result = self._probe.ask(self._options.timeout_s)
            before, self.health = self.health, judge(self.health, result, self._options)
            if self.health.is_healthy != before.is_healthy and not self._closed.is_set():
                self._report(self.health.is_healthy)
            self._closed.wait(self._options.interval_s)
