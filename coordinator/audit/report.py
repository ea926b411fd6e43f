"""What an audit found: how much of what was checked, and what is wrong with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.records.evidence import Fork

PROBLEMS_MAX = 1000
"""Problems of one kind that are told; more are counted."""


@dataclass(slots=True)
class Check:
    """One kind of thing that was checked.

    Attributes:
        count: How many were looked at.
        failed: How many of them are not as they should be.
        problems: What is wrong, the first `PROBLEMS_MAX` of them.
    """

    count: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)


class AuditReport:
    """Fills up while an audit runs.

    Attributes:
        job: Its name.
        version: The newest version on the chain; 0 where there is none.
        head: Digest of its record.
        checks: By what was checked, in the order in which it came up.
        notes: What the reader should know and is no problem.
        forks: Two records that one coordinator signed for one version.
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.version = 0
        self.head = b""
        self.checks: dict[str, Check] = {}
        self.notes: list[str] = []
        self.forks: list[Fork] = []

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not any(check.failed for check in self.checks.values())

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """Count one thing; an error of ours in the block is its problem, and ends it."""
        check = self.checks.setdefault(what, Check())
        check.count += 1
        try:
            yield
        except CoordinatorError as error:
            self._note(check, str(error))

    def fail(self, what: str, problem: str) -> None:
        """Count one thing that is wrong."""
        check = self.checks.setdefault(what, Check())
        check.count += 1
        self._note(check, problem)

    def _note(self, check: Check, problem: str) -> None:
        check.failed += 1
        if len(check.problems) < PROBLEMS_MAX:
            check.problems.append(problem)
