"""What we ask of a Consul agent: py-consul's plain calls over our own transport.

py-consul (1.8) takes no timeout for one call, sends no token with a
transaction, refuses session leases below 10 s that the servers may allow, and
hands out indices as strings. Those are put right here; its exceptions end here.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import consul.base
import consul.exceptions
from consul.callback import CB

from pliska.locks.backends.consul_http import Answer, Connections, Exchange
from pliska.locks.backends.consul_place import ConsulPlace
from pliska.locks.errors import (
    AccessDeniedError,
    LockUsageError,
    OutcomeUnknownError,
    SessionLostError,
    StoreFormatError,
    StoreUnavailableError,
)

WAIT_ANSWER_S = 0.5
"""What an answer to a blocking query may take beyond the wait that was asked for."""
BEGIN_TIMEOUT_S = 1.0
"""How long it may take to connect and to send a query."""
REASON_CHARACTERS_MAX = 300

_NOT_APPLIED = ("No cluster leader", "No known Consul servers")
"""What Consul answers when a change did not even reach the leader."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One operation of a transaction that did not hold: its place in the list, and why."""

    operation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: the pairs it read and wrote, or why it was refused."""

    pairs: Sequence[Mapping[str, Any]]
    refused: Sequence[Refused]


@dataclass(frozen=True, slots=True)
class Read:
    """Key-value pairs as Consul shows them, values decoded, and the index they were read at."""

    index: int
    pairs: Sequence[Mapping[str, Any]]


class ConsulAgent:
    """The calls that the backend makes, each within its time. Safe to use from any thread."""

    def __init__(self, place: ConsulPlace) -> None:
        self._place = place
        self._connections = Connections(place)

    def close(self) -> None:
        """End the requests in flight; every later one fails."""
        self._connections.close()

    def read(self, key: str, timeout_s: float) -> Read:
        """The pair under `key`, if there is one, as it is now."""
        with self._translated_errors("GET"):
            index, pair = self._calls(timeout_s).kv.get(key)
            return Read(index_of(index), [] if pair is None else [pair])

    def read_below(self, prefix: str, timeout_s: float) -> Read:
        """All pairs whose key begins with `prefix`."""
        with self._translated_errors("GET"):
            index, pairs = self._calls(timeout_s).kv.get(prefix, recurse=True)
            return Read(index_of(index), pairs or [])

    def wait_for_keys(self, prefix: str, index: int, wait_s: float) -> tuple[int, Sequence[str]]:
        """Wait until something below `prefix` changed after `index`; its index and all keys."""
        # The servers add up to a sixteenth, so that queries do not all end together.
        timeout_s = wait_s * 17 / 16 + WAIT_ANSWER_S
        wait = f"{max(1, round(wait_s * 1000))}ms"
        with self._translated_errors("GET"):
            seen, keys = self._calls(timeout_s).kv.get(prefix, keys=True, index=index, wait=wait)
            return index_of(seen), keys or []

    def ask_for_change(self, path: str, index: int, wait_s: float) -> Exchange:
        """Ask what is under a path of the API, to be answered when it changed after `index`.

        Args:
            path: One that takes blocking queries, percent-encoded, perhaps
                with a query of its own.
            index: 0 to be answered at once.
            wait_s: After so long there is an answer in any case.
        """
        params = [("consistent", "1")]
        if index:
            params += [("index", str(index)), ("wait", f"{max(1, round(wait_s * 1000))}ms")]
        if self._place.datacenter:
            params.append(("dc", self._place.datacenter))
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(params)}"
        return self._connections.begin("GET", target, b"", BEGIN_TIMEOUT_S)

    def change_in(self, exchange: Exchange) -> tuple[int, bool]:
        """From an answer that has begun to arrive: its index, and whether there is anything."""
        with self._translated_errors("GET"):
            index, found = CB.json(index=True)(exchange.answer(WAIT_ANSWER_S))
            return index_of(index), bool(found)

    def directories(self, prefix: str, timeout_s: float) -> Sequence[str]:
        """The next segment of all keys that begin with `prefix` and have a slash after it."""
        with self._translated_errors("GET"):
            _, keys = self._calls(timeout_s).kv.get(prefix, keys=True, separator="/")
            return [key[len(prefix) : -1] for key in keys or [] if key[len(prefix) :].endswith("/")]

    def transact(self, operations: Sequence[Mapping[str, Any]], timeout_s: float) -> Outcome:
        """Apply all operations or none."""
        body = json.dumps([{"KV": operation} for operation in operations])
        with self._translated_errors("PUT"):
            outcome: Outcome = self._put(_outcome, "/v1/txn", body, timeout_s)
        for each in outcome.refused:
            if "Permission denied" in each.reason:
                raise self._access_denied(each.reason)
        return outcome

    def open_session(self, lease_s: float, lock_delay_s: float, timeout_s: float) -> str:
        """Begin a session that deletes what it holds when it ends; its id.

        Raises:
            LockUsageError: The servers do not allow so short or long a lease.
        """
        session = {
            "Name": "pliska",
            "Behavior": "delete",
            "TTL": f"{round(lease_s * 1000)}ms",
            "LockDelay": f"{round(lock_delay_s * 1000)}ms",
            # Neither the health of the agent's machine nor a hiccup of gossip ends it.
            "Checks": [],
            "NodeChecks": [],
        }
        with self._translated_errors("PUT"):
            body = json.dumps(session)
            return str(self._put(_session_id, "/v1/session/create", body, timeout_s))

    def renew_session(self, session_id: str, timeout_s: float) -> None:
        """Count a session's lease from now on. Raises `SessionLostError` when it has ended."""
        with self._translated_errors("PUT"):
            try:
                self._calls(timeout_s).session.renew(session_id)
            except consul.exceptions.NotFound as error:
                raise SessionLostError(f"session {session_id} has ended: open a new one") from error

    def end_session(self, session_id: str, timeout_s: float) -> None:
        """End a session; harmless when it has ended."""
        with self._translated_errors("PUT"):
            self._calls(timeout_s).session.destroy(session_id)

    @contextmanager
    def calls(self, method: str, timeout_s: float) -> Iterator[Any]:
        """py-consul for calls that have no method here: over by `timeout_s`, with our errors."""
        with self._translated_errors(method):
            yield self._calls(timeout_s)

    def _put(self, callback: "_Callback", path: str, body: str, timeout_s: float) -> Any:
        """A call that py-consul has no use for us in."""
        calls = self._calls(timeout_s)
        params = [("dc", calls.dc)] if calls.dc else None
        return calls.http.put(callback, path, params=params, data=body)

    def _calls(self, timeout_s: float) -> Any:
        return _Calls(self._connections, self._place, timeout_s)

    @contextmanager
    def _translated_errors(self, method: str) -> Iterator[None]:
        try:
            yield
        except (consul.exceptions.ACLPermissionDenied, consul.exceptions.ACLDisabled) as error:
            raise self._access_denied(str(error)) from error
        except consul.exceptions.ClientError as error:
            if str(error).startswith("429"):
                raise StoreUnavailableError(
                    f"{self._place.address}: too many connections from this machine: see Consul's "
                    "limits.http_max_conns_per_client"
                ) from error
            raise LockUsageError(self._reason(error)) from error
        except consul.exceptions.BadRequest as error:
            raise LockUsageError(self._reason(error)) from error
        except consul.exceptions.ConsulException as error:
            reason = self._reason(error)
            if method == "GET" or any(text in reason for text in _NOT_APPLIED):
                raise StoreUnavailableError(reason) from error
            raise OutcomeUnknownError(reason) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, LockUsageError):
                raise
            raise StoreFormatError(
                f"{self._place.address} did not answer as Consul does: {error!r:.200}"
            ) from error

    def _reason(self, error: Exception) -> str:
        return f"{self._place.address}: {error}"[:REASON_CHARACTERS_MAX].strip()

    def _access_denied(self, reason: str) -> AccessDeniedError:
        return AccessDeniedError(
            f"{self._place.address} refused us with {self._place.identity}: "
            f"{reason[:REASON_CHARACTERS_MAX].strip()}"
        )


class _Calls(consul.base.Consul):  # type: ignore[misc]
    """py-consul for one call: all of its requests share that call's time."""

    def __init__(self, connections: Connections, place: ConsulPlace, timeout_s: float) -> None:
        self._connections = connections
        self._timeout_s = timeout_s
        super().__init__(
            host=place.host, port=place.port, consistency="consistent", dc=place.datacenter
        )
        self.token = None  # py-consul prefers the environment's; the transport sends the right one

    def http_connect(self, *_place: object) -> "_Transport":
        return _Transport(self._connections, self._timeout_s)


_Callback = Callable[[Answer], Any]
_Params = Sequence[tuple[str, Any]] | None


class _Transport:
    """Carries py-consul's requests, within a time, over our connections."""

    def __init__(self, connections: Connections, timeout_s: float) -> None:
        self._connections = connections
        self._timeout_s = timeout_s

    def get(self, callback: _Callback, path: str, params: _Params = None, **_: Any) -> Any:
        return callback(self._request("GET", path, params, ""))

    def put(
        self, callback: _Callback, path: str, params: _Params = None, data: str = "", **_: Any
    ) -> Any:
        return callback(self._request("PUT", path, params, data))

    def _request(self, method: str, path: str, params: _Params, data: str) -> Answer:
        query = f"?{urlencode(params)}" if params else ""
        target = quote(path, safe="/:") + query
        return self._connections.request(method, target, data.encode(), self._timeout_s)


def _outcome(answer: Answer) -> Outcome:
    if answer.code == HTTPStatus.CONFLICT:
        errors = json.loads(answer.body)["Errors"]
        return Outcome([], [Refused(int(each["OpIndex"]), str(each["What"])) for each in errors])
    results = CB.json(allow_404=False)(answer)["Results"]
    return Outcome([dict(each["KV"]) for each in results or []], [])


def _session_id(answer: Answer) -> Any:
    if "Invalid Session TTL" in answer.body:
        raise LockUsageError(answer.body[:REASON_CHARACTERS_MAX])
    return CB.json(allow_404=False, is_id=True)(answer)


def index_of(text: str) -> int:
    """An index to read after; Consul says that less than 1 means 1."""
    return max(1, int(text))
