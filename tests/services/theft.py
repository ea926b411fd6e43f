"""Ends the session of another client, as a thief of its credentials or an operator would."""

import contextlib
import http.client
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from pliska.locks import Address, BackendSession, StoreError, StoreUnavailableError, connect
from pliska.locks.backends.embedded import EmbeddedBackend
from pliska.locks.backends.memory import MemoryBackend

TIMEOUT_S = 2.0


def steal(address: str, session: BackendSession) -> bool:
    """End a session through a client of its own; False when it is not known whether that worked."""
    try:
        match Address.parse(address).scheme:
            case "zookeeper":
                _steal_from_zookeeper(address, session)
            case "consul":
                _steal_from_consul(address, session)
            case _:
                _steal_here(address, session)
    except (StoreError, OSError, http.client.HTTPException, KazooException, KazooTimeoutError):
        return False
    return True


def _steal_here(address: str, session: BackendSession) -> None:
    with contextlib.closing(connect(address)) as backend:
        if isinstance(backend, MemoryBackend):
            backend.open_store().close_session(session.id)
        elif isinstance(backend, EmbeddedBackend):
            with backend._database.writing(TIMEOUT_S) as table:
                table.end_sessions([session.id])


def _steal_from_zookeeper(address: str, session: Any) -> None:
    hosts = address.removeprefix("zookeeper://").partition("/")[0]
    thief = KazooClient(hosts, client_id=session.link.client.client_id)
    try:
        thief.start(TIMEOUT_S)
        thief.stop()
    finally:
        thief.close()


def _steal_from_consul(address: str, session: BackendSession) -> None:
    host_port = address.removeprefix("consul://").partition("/")[0]
    connection = http.client.HTTPConnection(host_port, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", f"/v1/session/destroy/{session.id}")
        if connection.getresponse().status != http.HTTPStatus.OK:
            raise StoreUnavailableError("Consul did not destroy the session")
    finally:
        connection.close()
