"""Makes kazoo's client: servers, credentials, TLS, and how long it tries.

It carries connections and sessions; none of its calls is used. Called by
`zookeeper_link`.
"""

import logging
import select
import socket
import ssl
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from pliska.locks.backends.zookeeper_options import ZookeeperOptions

CONNECT_TIMEOUT_S_MIN = 0.5
CONNECT_TIMEOUT_S_MAX = 3.0
"""How long one server has to take a connection and to answer its first request."""
RECONNECT_PAUSE_S = 0.05
RECONNECT_PAUSE_S_MAX = 1.0

_LOSSES = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}

# kazoo's debug messages show credentials, and what it warns of the link says in fewer words.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)


class _Client(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Tells its connection when it is gone, before it tells anybody else."""

    def _session_callback(self, state: str) -> None:
        if state != KeeperState.CONNECTED:
            self._connection.lose(_LOSSES.get(state, ConnectionLoss)())
        super()._session_callback(state)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Opens connections and waits for them, without a leak for each failure of TLS.

    kazoo's two threads for callbacks are never started: there are none.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def select(
        self,
        reading: Sequence[socket.socket],
        writing: Sequence[socket.socket],
        _failing: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Wait for sockets by one system call; kazoo's own way takes five, for each request."""
        poll = select.poll()
        for each in reading:
            poll.register(each, select.POLLIN)
        for each in writing:
            poll.register(each, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        readable = [each for each in reading if each.fileno() in ready]
        writable = [each for each in writing if each.fileno() in ready]
        return readable, writable, []

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Open one, in less than a session's time so that some is left for other servers."""
        connection = socket.create_connection(address, connect_timeout_s(timeout))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


def kazoo_client(options: ZookeeperOptions, session_timeout_s: float) -> KazooClient:
    """Make a client that is not started yet."""
    handler = _Handler(options.tls)
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_PAUSE_S,
        backoff=2,
        max_delay=RECONNECT_PAUSE_S_MAX,
        sleep_func=handler.sleep_func,
    )
    digest = [] if options.digest is None else [("digest", options.digest.secret)]
    return _Client(
        hosts=options.hosts,
        timeout=session_timeout_s,
        handler=handler,
        auth_data=digest,
        sasl_options=_sasl_options(options),
        connection_retry=retry,
        logger=_kazoo_log,
    )


def connect_timeout_s(session_timeout_s: float) -> float:
    """How long one server may take to let us in, so that there is time for another one."""
    return min(CONNECT_TIMEOUT_S_MAX, max(CONNECT_TIMEOUT_S_MIN, session_timeout_s / 3))


def _sasl_options(options: ZookeeperOptions) -> dict[str, str] | None:
    if options.sasl_mechanism is None:
        return None
    if options.sasl is None:
        return {"mechanism": options.sasl_mechanism}
    user, password = options.sasl.user_and_password
    return {"mechanism": options.sasl_mechanism, "username": user, "password": password}
