"""How many messages got which reply, in all and by worker.

A message is put down to a worker only once its signature has been checked:
nobody can blacken a worker by sending rubbish in its name.
"""

from collections import Counter
from collections.abc import Mapping

from pliska.coordinator.wire import ReplyCode


class Tally:
    """Counts replies by code. `coordinator.status` shows it."""

    def __init__(self) -> None:
        self._all: Counter[ReplyCode] = Counter()
        self._by_worker: dict[str, Counter[ReplyCode]] = {}
        self._last_reasons: dict[ReplyCode, str] = {}

    def count(self, code: ReplyCode, reason: str = "", worker: str | None = None) -> None:
        """Count one reply.

        Args:
            code: What the sender was told.
            reason: Why; the last one of each code is kept.
            worker: Whose verified message it was; None when it was not verified.
        """
        self._all[code] += 1
        if reason:
            self._last_reasons[code] = reason
        if worker is not None:
            self._by_worker.setdefault(worker, Counter())[code] += 1

    def totals(self) -> Mapping[str, int]:
        """Return the counts by code, in the order of the codes."""
        return {code.value: self._all[code] for code in ReplyCode if self._all[code]}

    def reasons(self) -> Mapping[str, str]:
        """Return the last reason given with each code."""
        return {
            code.value: self._last_reasons[code] for code in ReplyCode if code in self._last_reasons
        }

    def of_worker(self, worker: str) -> Mapping[str, int]:
        """Return the counts of one worker's verified messages."""
        counts = self._by_worker.get(worker, Counter())
        return {code.value: counts[code] for code in ReplyCode if counts[code]}
