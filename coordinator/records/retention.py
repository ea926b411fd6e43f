"""Which checkpoints and aggregates may go: pure decisions on version numbers.

The leader decides how far back aggregates are needed at all, and writes that
version, the horizon, into the store under its epoch (see `horizon`). Each
coordinator then clears its own storage up to it. The horizon only grows, and
what may go once is never wanted again: a coordinator that slept over newer
decisions and then carries out an old one does no harm.

Beside the newest checkpoints, milestones stay from the horizon on: the first
checkpoint in each interval of `keep_rounds` versions, so that every round whose
aggregate is kept can be recomputed from a checkpoint before it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from pliska.coordinator.records.rollback import Undone


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """What is to stay.

    Attributes:
        keep: So many of the newest checkpoints, and what leads on from each.
        keep_rounds: Aggregates of so many of the newest rounds, at least, and a
            checkpoint before them.
    """

    keep: int
    keep_rounds: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What one storage keeps.

    Attributes:
        checkpoints: Versions of the checkpoints.
        aggregates_after: Aggregates of later versions; older ones go.
    """

    checkpoints: frozenset[int]
    aggregates_after: int


def horizon_of(
    head: int,
    checkpoints: Collection[int],
    followed: Collection[int],
    options: RetentionOptions,
    undone: Collection[Undone] = (),
) -> int:
    """Decide up to which version nobody needs aggregates any more.

    Args:
        head: The last committed version.
        checkpoints: Versions of the leader's complete checkpoints.
        followed: Versions that the standbys have reached; they need what follows.
        options: What is to stay.
        undone: Rollbacks so far: what follows one is reached from its target.

    Returns:
        The version of a milestone at or below all that is needed; 0 where there is none.
    """
    newest = sorted(checkpoints)[-options.keep :]
    needed_after = min((head - options.keep_rounds, *newest[:1], *followed))
    return _base(needed_after, checkpoints, options, undone)


def kept(
    horizon: int,
    checkpoints: Collection[int],
    options: RetentionOptions,
    undone: Collection[Undone] = (),
) -> Kept:
    """Decide what one storage keeps.

    Args:
        horizon: Nobody needs aggregates up to this version.
        checkpoints: Versions of the complete checkpoints in this storage.
        options: What is to stay.
        undone: Rollbacks so far.
    """
    newest = sorted(checkpoints)[-options.keep :]
    base = min((_base(horizon, checkpoints, options, undone), *newest[:1]))
    milestones = {each for each in _milestones(checkpoints, options) if each >= base}
    return Kept(frozenset({*newest, *milestones}), aggregates_after=base)


def _base(
    version: int,
    checkpoints: Collection[int],
    options: RetentionOptions,
    undone: Collection[Undone],
) -> int:
    """Return the newest milestone that leads to all after a version; 0 where there is none."""
    milestones = _milestones(checkpoints, options)
    base = max((each for each in milestones if each <= version), default=0)
    for each in sorted(undone, key=lambda each: -each.version):
        if each.version > base:
            base = max((m for m in milestones if m <= min(base, each.target)), default=0)
    return base


def _milestones(checkpoints: Collection[int], options: RetentionOptions) -> Collection[int]:
    """Return the first checkpoint in each interval of `keep_rounds` versions."""
    interval = max(1, options.keep_rounds)
    first: dict[int, int] = {}
    for version in sorted(checkpoints):
        first.setdefault(version // interval, version)
    return first.values()
