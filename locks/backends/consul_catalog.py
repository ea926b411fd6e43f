"""Consul's catalog of services, as `/v1/health/service` and Consul's DNS show it.

An entry is a service of the agent with a TTL check. The agent tells the servers
of a change a moment after it took it, so every change here waits until the
servers show it. Only the agent that has an entry can renew, drain or remove it.
Entries that stay critical are removed by the agent after `REAP_S`, as garbage.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import consul.exceptions
from consul.callback import CB

from pliska.locks.backends.base import CALL_TIMEOUT_S, Revision
from pliska.locks.backends.consul_agent import WAIT_ANSWER_S, ConsulAgent, index_of
from pliska.locks.backends.consul_feed import ConsulFeed
from pliska.locks.backends.service_catalog import (
    CatalogEntry,
    CatalogListing,
    EntryHealth,
    EntryStatus,
)
from pliska.locks.errors import ConflictError, LockUsageError, StoreUnavailableError
from pliska.locks.process import HomeProcess

TTL_S_MIN = 1.0
REAP_S = 60
"""The shortest that Consul allows; it looks every 30 s."""
SHOWN_TIMEOUT_S = 5.0
PASSING_OUTPUT = "heard of"
FAILING_OUTPUT = "its own probe fails"
DRAINING_REASON = "drained by pliska"

_EXPIRED = "TTL expired"
_NODE_CHECK = "serfHealth"
_MAINTENANCE = ("_service_maintenance:", "_node_maintenance")
_Checks = Sequence[Mapping[str, Any]]

_STATUS_OF = MappingProxyType(
    {
        EntryHealth.PASSING: "passing",
        EntryHealth.MAINTENANCE: "passing",
        EntryHealth.CRITICAL: "critical",
        EntryHealth.LOST: "critical",
    }
)


class ConsulCatalog:
    """See `ServiceCatalog`."""

    ttl_s_min = TTL_S_MIN

    def __init__(self, agent: ConsulAgent) -> None:
        self._agent = agent
        self._home = HomeProcess()

    def register(
        self, entry: CatalogEntry, ttl_s: float, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """See `ServiceCatalog.register`."""
        until_s = time.monotonic() + timeout_s
        agent_id = _agent_id(entry.service, entry.id)
        check = {
            "CheckID": _check_id(agent_id),
            "Name": "Pliska heard of it",
            "Notes": entry.owner,
            "TTL": f"{round(ttl_s * 1000)}ms",
            "Status": _STATUS_OF[entry.health],
            "DeregisterCriticalServiceAfter": f"{max(REAP_S, round(ttl_s))}s",
        }
        with self._calls("PUT", timeout_s) as calls:
            calls.agent.service.register(
                entry.service,
                service_id=agent_id,
                address=entry.address,
                port=entry.port,
                tags=list(entry.tags),
                check=check,
                meta=dict(entry.metadata),
                weights={"Passing": entry.weight, "Warning": 1},
            )
        if entry.health is EntryHealth.MAINTENANCE:
            self._maintain(agent_id, until_s)
        self.renew(entry, _left_s(until_s))
        self._wait_until_shown(entry.service, lambda listing: entry in listing, until_s)

    def renew(self, entry: CatalogEntry, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """See `ServiceCatalog.renew`."""
        check_id = _check_id(_agent_id(entry.service, entry.id))
        with self._calls("PUT", timeout_s) as calls:
            check = calls.agent.check
            try:
                if _STATUS_OF[entry.health] == "passing":
                    check.ttl_pass(check_id, notes=PASSING_OUTPUT)
                else:
                    check.ttl_fail(check_id, notes=FAILING_OUTPUT)
            except consul.exceptions.ConsulException as error:
                if "TTL" in str(error) or "Unknown check" in str(error):
                    raise ConflictError(f"Consul has no {entry.service}/{entry.id}") from error
                raise

    def status(
        self,
        service: str,
        id: str,  # noqa: A002 - the catalog's word
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> EntryStatus | None:
        """See `ServiceCatalog.status`."""
        agent_id = _agent_id(service, id)
        with self._calls("GET", timeout_s) as calls:
            chosen = [("filter", f'ServiceID == "{agent_id}"')]
            found = calls.http.get(CB.json(), "/v1/agent/checks", params=chosen)
            checks = list(found.values())
        return EntryStatus(_health(checks), _owner(checks)) if checks else None

    def drain(
        self,
        service: str,
        id: str,  # noqa: A002
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """See `ServiceCatalog.drain`."""
        until_s = time.monotonic() + timeout_s
        if self.status(service, id, timeout_s) is None:
            if any(entry.id == id for entry in self.list(service, _left_s(until_s)).entries):
                raise LockUsageError(
                    f"{service}/{id} is registered with another agent: give this command the "
                    "address of the agent on its machine"
                )
            return False
        self._maintain(_agent_id(service, id), until_s)
        self._wait_until_shown(
            service,
            lambda listing: any(
                entry.id == id and entry.health is EntryHealth.MAINTENANCE for entry in listing
            ),
            until_s,
        )
        return True

    def deregister(
        self,
        service: str,
        id: str,  # noqa: A002
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """See `ServiceCatalog.deregister`."""
        until_s = time.monotonic() + timeout_s
        if self.status(service, id, timeout_s) is None:
            return False
        with self._calls("PUT", _left_s(until_s)) as calls:
            calls.agent.service.deregister(_agent_id(service, id))
        self._wait_until_shown(
            service, lambda listing: all(entry.id != id for entry in listing), until_s
        )
        return True

    def list(self, service: str, timeout_s: float = CALL_TIMEOUT_S) -> CatalogListing:
        """See `ServiceCatalog.list`."""
        return self._query(service, [], timeout_s)

    def services(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """See `ServiceCatalog.services`."""
        with self._calls("GET", timeout_s) as calls:
            _, names = calls.catalog.services()
            return tuple(sorted(names))

    def open_feed(self) -> ConsulFeed:
        """See `ServiceCatalog.open_feed`. Takes `QUERIES_MAX` connections at the most."""
        self._home.check()
        return ConsulFeed(self._agent, lambda service: f"/v1/health/service/{quote(service)}")

    def _calls(self, method: str, timeout_s: float) -> AbstractContextManager[Any]:
        self._home.check()
        return self._agent.calls(method, timeout_s)

    def _maintain(self, agent_id: str, until_s: float) -> None:
        with self._calls("PUT", _left_s(until_s)) as calls:
            calls.agent.service.maintenance(agent_id, "true", reason=DRAINING_REASON)

    def _wait_until_shown(
        self,
        service: str,
        is_shown: Callable[[Sequence[CatalogEntry]], bool],
        until_s: float,
    ) -> None:
        until_s = min(until_s, time.monotonic() + SHOWN_TIMEOUT_S)
        listing = self.list(service, _left_s(until_s))
        while not is_shown(listing.entries):
            listing = self._wait(service, listing.revision, _left_s(until_s))

    def _wait(self, service: str, after: Revision, wait_s: float) -> CatalogListing:
        # The servers add up to a sixteenth, so that queries do not all end together.
        wait = ("wait", f"{max(1, round(wait_s * 1000))}ms")
        timeout_s = wait_s * 17 / 16 + WAIT_ANSWER_S
        return self._query(service, [("index", max(1, after)), wait], timeout_s)

    def _query(
        self, service: str, params: Sequence[tuple[str, Any]], timeout_s: float
    ) -> CatalogListing:
        with self._calls("GET", timeout_s) as calls:
            everything = [*params, ("consistent", "1")]
            if calls.dc:
                everything.append(("dc", calls.dc))
            index, found = calls.http.get(
                CB.json(index=True), f"/v1/health/service/{service}", params=everything
            )
            return CatalogListing(tuple(_entry(each) for each in found), Revision(index_of(index)))


def _agent_id(service: str, id_: str) -> str:
    """Consul wants ids that are unique on the agent, not only within the service."""
    return f"{service}:{id_}"


def _check_id(agent_id: str) -> str:
    return f"service:{agent_id}"


def _entry(found: Mapping[str, Any]) -> CatalogEntry:
    service, checks = found["Service"], found["Checks"]
    return CatalogEntry(
        service=service["Service"],
        id=service["ID"].removeprefix(f"{service['Service']}:"),
        address=service["Address"] or found["Node"]["Address"],
        port=service["Port"],
        tags=tuple(service["Tags"] or ()),
        metadata=service["Meta"] or {},
        weight=max(1, service["Weights"]["Passing"]),
        health=_health(checks),
        owner=_owner(checks),
    )


def _health(checks: _Checks) -> EntryHealth:
    critical = [check for check in checks if check["Status"] == "critical"]
    if any(check["CheckID"].startswith(_MAINTENANCE) for check in critical):
        is_gone = any(_is_loss(check) for check in critical)
        return EntryHealth.LOST if is_gone else EntryHealth.MAINTENANCE
    if any(_is_loss(check) for check in critical):
        return EntryHealth.LOST
    return EntryHealth.CRITICAL if critical else EntryHealth.PASSING


def _is_loss(check: Mapping[str, Any]) -> bool:
    """Whether the machine or the process was not heard of, rather than said something bad."""
    return check["CheckID"] == _NODE_CHECK or str(check["Output"]).startswith(_EXPIRED)


def _owner(checks: _Checks) -> str:
    notes = (
        check["Notes"] for check in checks if check["CheckID"] == _check_id(check["ServiceID"])
    )
    return str(next(notes, ""))


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise StoreUnavailableError("Consul's servers do not show a change that its agent took")
    return left_s
