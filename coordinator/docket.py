"""What waits to be taken into a commit record: convictions with their evidence, and receipts.

Both are durable on this coordinator's disk before they come here (`audit_trail`);
`stepper` takes them into the next record and its annex, as many as one has room for.
"""

from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.commit import CONVICTIONS_MAX, CommitRecord
from pliska.coordinator.records.receipts import RECEIPTS_MAX, KeptReceipt, that_fit
from pliska.coordinator.records.standing import Conviction

RECEIPTS_WAITING_MAX = 2 * RECEIPTS_MAX
"""Receipts that wait for a commit record; what comes when so many do stays on this disk only."""


class Docket:
    """The convictions and receipts of one leadership that no commit record has yet."""

    def __init__(self) -> None:
        """Begin with none."""
        self._convictions: dict[bytes, tuple[Conviction, bytes]] = {}
        self._receipts: dict[KeptReceipt, None] = {}

    def convict(self, conviction: Conviction, evidence: bytes) -> None:
        """Let the next commit record take a conviction in, and its annex the evidence."""
        self._convictions[conviction.evidence] = (conviction, evidence)

    def note(self, receipt: KeptReceipt) -> None:
        """Let the annex of the next commit record take a receipt in."""
        if len(self._receipts) < RECEIPTS_WAITING_MAX:
            self._receipts[receipt] = None

    def convictions(self) -> tuple[tuple[Conviction, bytes], ...]:
        """Return those that the next record has room for, each with its evidence, oldest first."""
        return tuple(self._convictions.values())[:CONVICTIONS_MAX]

    def receipts(self) -> tuple[KeptReceipt, ...]:
        """Return those that the next annex has room for, oldest first."""
        return that_fit(tuple(self._receipts))

    def strike(self, record: CommitRecord, annex: Annex) -> None:
        """Forget what a committed record and its annex have taken in."""
        for conviction in record.convictions:
            self._convictions.pop(conviction.evidence, None)
        for receipt in annex.receipts:
            self._receipts.pop(receipt, None)
