"""How long a session may count on its lease: arithmetic only, no clock and no I/O."""

from dataclasses import dataclass, replace

LEASE_S_MIN = 0.1
LEASE_S_MAX = 3_600.0

MARGIN = 0.05
"""The part of the lease that the holder gives away, so that it stops before the store frees
what it held even when clocks run at slightly different rates."""

RENEWALS_PER_LEASE = 3
RETRIES_PER_LEASE = 10


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its holder knows it.

    It counts from the moment the last acknowledged renewal was sent: the store
    got it later and therefore cannot end the lease earlier.

    Attributes:
        length_s: What the store granted.
        sent_s: When the last acknowledged renewal was sent.
        attempted_s: When the last renewal was sent, acknowledged or not.
    """

    length_s: float
    sent_s: float
    attempted_s: float

    @classmethod
    def begun(cls, length_s: float, sent_s: float) -> "Lease":
        """The lease of a session that was asked for at `sent_s`."""
        return cls(length_s, sent_s, sent_s)

    @property
    def deadline_s(self) -> float:
        """When the holder must have stopped."""
        return self.sent_s + self.length_s * (1 - MARGIN)

    @property
    def next_renewal_s(self) -> float:
        """When to send the next renewal: a third of the lease later, sooner after a failure."""
        if self.attempted_s > self.sent_s:
            return self.attempted_s + self.length_s / RETRIES_PER_LEASE
        return self.sent_s + self.length_s / RENEWALS_PER_LEASE

    def renewed(self, sent_s: float) -> "Lease":
        """The lease after the renewal sent at `sent_s` was acknowledged."""
        return replace(self, sent_s=sent_s, attempted_s=sent_s)

    def failed(self, sent_s: float) -> "Lease":
        """The lease after the renewal sent at `sent_s` was not acknowledged."""
        return replace(self, attempted_s=sent_s)
