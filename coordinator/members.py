"""The live workers of one job, as the leader knows them.

A worker proves its key by signing a challenge, and is then known by an access
token, which spares it a signature for each heartbeat and download. It stays
while something is heard from it within its lease. A new incarnation of a
worker takes the place of the old one at once.

The leader keeps this in memory: after a failover each worker joins again.
Used by `coordinator.server` and `coordinator.driver`, on one event loop.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.routes import DONORS_MAX

TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Member:
    """One live worker.

    Attributes:
        token: Secret of this membership; never logged.
        heard_at: When something was last heard from it, on the leader's clock.
        seq: Highest sequence number that it has used.
        donor: Where it gives parameters to others; None where it does not.
    """

    worker: str
    incarnation: bytes
    key_id: str
    token: str
    heard_at: float
    seq: int = 0
    donor: Endpoint | None = None

    def __repr__(self) -> str:
        """Leave the token out, so that it cannot reach a log."""
        return f"Member({self.worker!r}, incarnation={self.incarnation.hex()})"


class Members:
    """Who has joined."""

    def __init__(
        self, lease_s: float, members_max: int, new_secret: Callable[[int], bytes]
    ) -> None:
        """Begin with nobody.

        Args:
            lease_s: A worker that is silent for so long is gone.
            members_max: Workers that there is room for.
            new_secret: Returns that many unpredictable bytes.
        """
        self.lease_s = lease_s
        self.members_max = members_max
        self._new_secret = new_secret
        self._by_worker: dict[str, Member] = {}
        self._by_token: dict[str, str] = {}
        self._named_last = ""

    def join(
        self,
        worker: str,
        incarnation: bytes,
        key_id: str,
        now: float,
        donor: Endpoint | None = None,
    ) -> Member | None:
        """Take a worker in that has proved its key; None when the job is full."""
        known = self._by_worker.get(worker)
        if known is None and len(self._by_worker) >= self.members_max:
            return None
        self.leave(worker)
        seq = known.seq if known is not None and known.incarnation == incarnation else 0
        token = self._new_secret(TOKEN_BYTES).hex()
        member = Member(worker, incarnation, key_id, token, now, seq, donor)
        self._by_worker[worker] = member
        self._by_token[token] = worker
        return member

    def leave(self, worker: str) -> None:
        """Forget a worker; harmless when it is not here."""
        member = self._by_worker.pop(worker, None)
        if member is not None:
            del self._by_token[member.token]

    def with_token(self, token: str) -> Member | None:
        """Find the member that this access token was given to."""
        worker = self._by_token.get(token)
        if worker is None:
            return None
        member = self._by_worker[worker]
        return member if hmac.compare_digest(member.token, token) else None

    def named(self, worker: str) -> Member | None:
        """Find a live worker by name."""
        return self._by_worker.get(worker)

    def hear(self, worker: str, now: float) -> None:
        """Note that something was heard from this worker: its lease begins anew."""
        member = self._by_worker.get(worker)
        if member is not None:
            self._by_worker[worker] = replace(member, heard_at=now)

    def use_seq(self, worker: str, seq: int) -> None:
        """Note the highest sequence number that this worker has used."""
        member = self._by_worker.get(worker)
        if member is not None and seq > member.seq:
            self._by_worker[worker] = replace(member, seq=seq)

    def expire(self, now: float) -> tuple[str, ...]:
        """Forget the workers whose lease has run out and return their names."""
        gone = tuple(w for w, m in self._by_worker.items() if now - m.heard_at > self.lease_s)
        for worker in gone:
            self.leave(worker)
        return gone

    def donors(self, asking: str) -> tuple[Endpoint, ...]:
        """Name up to `DONORS_MAX` workers that give parameters to the one that asks, in turn."""
        donors = {
            name: member.donor
            for name, member in self._by_worker.items()
            if member.donor is not None and name != asking
        }
        # Those behind the last one that was named come first, so that all have their turn.
        in_turn = sorted(donors, key=lambda name: (name <= self._named_last, name))[:DONORS_MAX]
        self._named_last = in_turn[-1] if in_turn else ""
        return tuple(donors[name] for name in in_turn)

    def present(self) -> Mapping[str, bytes]:
        """Return the live workers and their incarnations."""
        return {worker: member.incarnation for worker, member in self._by_worker.items()}
