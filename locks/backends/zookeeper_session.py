"""A lease in ZooKeeper: a connection of its own, kept alive by `renew` and by nothing else.

The server ends the session when it has heard nothing for the session timeout.
kazoo would send heartbeats by itself for as long as the process runs; a lease
must end when whoever renews it stops, so this connection sends none.
"""

from pliska.locks.backends.zookeeper_connection import Purpose
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_requests import Sync
from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreUnavailableError
from pliska.locks.process import HomeProcess

ANSWERS_PER_LEASE = 3
ANSWER_S_MIN = 0.1


class ZookeeperSession:
    """See `BackendSession`.

    Attributes:
        id: As ZooKeeper's servers print it.
        lease_s: What the servers granted: between 2 and 20 of their ticks by default.
        link: The connection that ephemeral records are created through.
        keys: The records that were created under it and not deleted yet.
    """

    def __init__(self, options: ZookeeperOptions, lease_s: float, timeout_s: float) -> None:
        """Begin the session.

        Raises:
            StoreUnavailableError: No server answered in time.
            AccessDeniedError: The servers refuse the credential.
        """
        self._home = HomeProcess()
        self._clock = SystemClock()
        self.keys: set[str] = set()
        self.link = ZookeeperLink(options, lease_s, Purpose.SESSION)
        try:
            self.link.wait_until_connected(self._clock.now_s() + timeout_s)
        except BaseException:
            self.link.leave()
            raise
        self.id = self.link.session_id
        self.lease_s = self.link.session_timeout_s

    def renew(self, timeout_s: float) -> None:
        """See `BackendSession.renew`.

        A server that does not answer is left for another one while there is time.
        """
        self._home.check()
        until_s = self._clock.now_s() + timeout_s
        while True:
            patience_s = max(ANSWER_S_MIN, self.lease_s / ANSWERS_PER_LEASE)
            self.link.wait_until_connected(until_s)
            try:
                self.link.ask(Sync("/"), min(until_s, self._clock.now_s() + patience_s))
            except StoreUnavailableError:
                self.link.cut_connection()
                if self._clock.now_s() >= until_s:
                    raise
            else:
                return

    def close(self, timeout_s: float) -> None:
        """See `BackendSession.close`.

        Raises:
            StoreUnavailableError: The servers did not answer; the lease runs out.
        """
        self._home.check()
        self.keys.clear()
        if not self.link.close(timeout_s):
            raise StoreUnavailableError(
                f"ZooKeeper did not confirm the end of session {self.id}: its lease runs out"
            )
