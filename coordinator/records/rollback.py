"""What a rollback of a running job is: values in commit records, and decisions on them.

A rollback unmakes nothing. It is a commit record of its own, with the next version
number, whose state is that of an older version: the versions between the two are
*undone*. They stay in the chain and in the log, but nothing follows from them any
more. How often that happened is the job's *training epoch*; every record lists the
rollbacks before it, so that whoever has one record knows what became of each version.

Pure. An operator's wish is `rollback_order`, a leader carries it out in
`rollback_control`, and what it means for a round is `round`'s matter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pliska.coordinator.wire.encoding import Digest, Length, Name
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.limits import WHY_CHARACTERS_MAX

ROLLBACKS_MAX = 256
"""Rollbacks of one job; each record lists all before it."""
RULE = "rollback"
"""Stands in the record of a rollback where that of a round names its rule."""
EXCLUDED_MAX = 64
"""Workers that one rollback excludes."""

Words = Annotated[str, Length(1, 4 * WHY_CHARACTERS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A rollback, as the record that carries it out states it.

    Attributes:
        target: The version whose state is restored.
        record_digest: Of the record that made that version.
        actor: Who asked for it.
        reason: Why.
        excluded: Workers whose gradients the job takes no more, sorted.
    """

    target: int
    record_digest: Digest
    actor: Words
    reason: Words
    excluded: Annotated[tuple[Name, ...], Length(0, EXCLUDED_MAX)] = ()

    def __post_init__(self) -> None:
        """Refuse a second way to write the same down.

        Raises:
            MalformedError: The workers are not sorted, or one is there twice.
        """
        if any(low >= high for low, high in pairwise(self.excluded)):
            raise MalformedError("the excluded workers are not sorted")


@dataclass(frozen=True, slots=True)
class Undone:
    """The versions between a rollback and its target; nothing follows from them.

    Attributes:
        target: The version before the first of them.
        version: That the rollback made, after the last of them.
    """

    target: int
    version: int

    def __post_init__(self) -> None:
        """Refuse what is no rollback.

        Raises:
            MalformedError: Nothing lies between the two.
        """
        if not 0 < self.target < self.version - 1:
            raise MalformedError(f"no rollback from {self.version} to {self.target}")

    def __contains__(self, version: int) -> bool:
        """Whether a version is undone by this rollback."""
        return self.target < version < self.version


def undoing(version: int, undone: Iterable[Undone]) -> Undone | None:
    """Return the rollback that undid a version; None where the newest version follows from it."""
    return next((each for each in undone if version in each), None)


def refuse_target(
    target: int, version: int, rounds: int, undone: tuple[Undone, ...], horizon: int
) -> str | None:
    """Say why a job cannot be rolled back to a version; None where it can.

    Args:
        target: The version that is asked for.
        version: The last committed one.
        rounds: The job ends with the version of this number.
        undone: Rollbacks so far, oldest first.
        horizon: Nothing is kept that leads to versions before this one.
    """
    if version >= rounds:
        return f"it has finished with version {version}; only a job that runs can go back"
    if target < 1:
        return "version 0 has no record: start the job anew under another name"
    if target >= version:
        return f"version {target} is not before the last committed one, {version}"
    if (by := undoing(target, undone)) is not None:
        return f"version {target} is TAINTED: the rollback in version {by.version} undid it"
    if target < horizon:
        return (
            f"version {target} is behind the horizon: what leads to its state was kept only from "
            f"version {horizon} on (`keep` and `keep_rounds` in the job file say for how long)"
        )
    if len(undone) >= ROLLBACKS_MAX:
        return f"the job was rolled back {ROLLBACKS_MAX} times already"
    return None
