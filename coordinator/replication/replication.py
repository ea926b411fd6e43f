"""Whether enough standbys hold a round's entry: a pure decision, with its reason.

    (version, replicas, wanted, now) -> (enough or not, how many are in force, why)

A number of replicas that a job states is strict. "auto" asks for one where a
standby is there that follows, and for none where there is none: it prefers to go
on. A standby that is there but does not follow yet, or any more, is waited for
a short while, so that a leader that has only begun, or a short interruption,
does not commit without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Literal

PATIENCE_S = 5.0
"""How long "auto" waits for a standby that is there and does not follow."""

Wanted = int | Literal["auto"]


class ReplicaState(StrEnum):
    """How one standby stands to this leader."""

    AWAY = auto()
    """It does not answer, or not yet."""
    LAGGING = auto()
    """It answers, and fetches what it lacks."""
    FOLLOWING = auto()
    """It has what was committed, and takes each entry that comes."""
    SHARED = auto()
    """It has the leader's own storage, so that it holds no second copy."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One standby as the leader knows it.

    Attributes:
        version: Up to which it has everything on its disk.
        followed_at: When it followed last, on the leader's clock; while it never
            did, when the leader learned of it.
        reason: Why it does not follow.
    """

    name: str
    state: ReplicaState
    version: int
    followed_at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a version may be committed.

    Attributes:
        in_force: How many standbys must hold it now.
        reason: What is waited for, or how it is kept.
    """

    is_enough: bool
    in_force: int
    reason: str


def judge(version: int, replicas: Sequence[Replica], wanted: Wanted, now: float) -> Verdict:
    """Decide whether a version is on as many disks as the job asks for.

    Args:
        version: Whose entry is on the leader's own disk.
        replicas: The standbys that are there, by the store's word.
        wanted: `durable.replicas` of the job.
        now: Seconds on the leader's clock.
    """
    holding = [
        each
        for each in replicas
        if each.state is ReplicaState.FOLLOWING and each.version >= version
    ]
    in_force = wanted if wanted != "auto" else min(1, len(_expected(replicas, now)))
    if len(holding) >= in_force:
        names = ", ".join(each.name for each in holding)
        return Verdict(True, in_force, f"also at {names}" if names else _alone(replicas))
    missing = in_force - len(holding)
    others = "; ".join(_told(each) for each in replicas if each not in holding)
    waited = f"version {version} waits for {missing} of {in_force} replicas"
    return Verdict(False, in_force, f"{waited}: {others or 'no standby is there'}")


def _expected(replicas: Sequence[Replica], now: float) -> list[Replica]:
    """Return the standbys that follow, or may be expected to in a moment."""
    return [
        each
        for each in replicas
        if each.state is ReplicaState.FOLLOWING
        or (each.state is not ReplicaState.SHARED and now - each.followed_at < PATIENCE_S)
    ]


def _alone(replicas: Sequence[Replica]) -> str:
    if not replicas:
        return "on this disk only: no standby is there"
    return f"on this storage only: {'; '.join(map(_told, replicas))}"


def _told(replica: Replica) -> str:
    match replica.state:
        case ReplicaState.FOLLOWING:
            return f"{replica.name} has version {replica.version}"
        case ReplicaState.LAGGING:
            reason = f", {replica.reason}" if replica.reason else ""
            return f"{replica.name} is at version {replica.version}{reason}"
        case ReplicaState.SHARED:
            return f"{replica.name} shares this storage"
        case ReplicaState.AWAY:
            return f"{replica.name} does not answer: {replica.reason or 'not yet'}"
