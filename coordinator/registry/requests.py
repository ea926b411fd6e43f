"""What a person can ask of an alias: to promote a version, or to roll back."""

import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime

from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.registry.history import MoveKind
from pliska.coordinator.registry.names import check_alias, check_model
from pliska.coordinator.registry.operations import TIMEOUT_S_MAX, Wait

REASON_CHARACTERS_MAX = 1000
ACTOR_CHARACTERS_MAX = 128
OP_ID_CHARACTERS_MAX = 64
STEPS_MAX = 1000
TIMEOUT_S = 60
VALID_FOR_S_MAX = 10 * 365 * 24 * 3600

_OP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def new_op_id() -> str:
    """Return a name for an operation that nobody else has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """What both kinds of request have in common.

    Attributes:
        model: The model.
        alias: Made by the first promotion.
        actor: Who wants it.
        reason: Why.
        expect_gen: Only if the alias is at this generation (0: only if there is none).
        op_id: Names the operation; give the same one to repeat it when its
            outcome is unknown.
        wait: Which serving nodes have to be ready before the alias moves.
        is_emergency: Move it at once, whatever operation is open, and wait for
            the nodes afterwards.
        timeout_s: How long nodes may take to get ready, and then to switch.
        valid_for_s: How long nodes may follow the alias before it has to be moved
            or promoted again; None for ever.

    Raises:
        RegistryUsageError: A field is out of its bounds.
    """

    model: str
    alias: str
    actor: str
    reason: str = ""
    expect_gen: int | None = None
    op_id: str = field(default_factory=new_op_id)
    wait: Wait = Wait.ALL
    is_emergency: bool = False
    timeout_s: int = TIMEOUT_S
    valid_for_s: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        check_model(self.model)
        check_alias(self.alias)
        check_actor(self.actor)
        check_reason(self.reason)
        check_op_id(self.op_id)
        if self.expect_gen is not None:
            _check_number("expected generation", self.expect_gen, 0)
        _check_number("timeout", self.timeout_s, 1, TIMEOUT_S_MAX)
        if self.valid_for_s is not None:
            _check_number("validity", self.valid_for_s, 1, VALID_FOR_S_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteRequest(MoveRequest):
    """A wish to point an alias at a version; see `MoveRequest`.

    Attributes:
        version: The version.
        allow_deprecated: Whether it may be DEPRECATED.
        allow_schema_change: Whether its tensors may have other names, dtypes or shapes
            than those of the version that the alias points at.
        canary_percent: Give it only so many of a hundred requests, 1 to 99, and
            leave the alias where it is; None to point the alias at it.
    """

    version: int
    allow_deprecated: bool = False
    allow_schema_change: bool = False
    canary_percent: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        MoveRequest.__post_init__(self)
        _check_number("version", self.version, 1)
        if self.canary_percent is not None:
            _check_number("percentage of a canary", self.canary_percent, 1, 99)

    @property
    def kind(self) -> MoveKind:
        """How the history calls it."""
        return MoveKind.PROMOTE if self.canary_percent is None else MoveKind.CANARY


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest(MoveRequest):
    """A wish to take an alias back to an earlier version; see `MoveRequest`.

    A rollback cannot wait for a node that is broken, so by default more than half
    of the nodes are enough. Its reason may not be empty.

    Attributes:
        to: This version, whatever the history says. Else the previous one.
        at: The version that the alias pointed at then.
        steps: How many times to go to the previous version, in one move.
        quarantine: Whether the versions that are left become QUARANTINED, in the
            same transaction: no alias may be moved to them any more.
        is_automatic: Whether a failed guard wants it.
    """

    wait: Wait = Wait.QUORUM
    to: int | None = None
    at: datetime | None = None
    steps: int = 1
    quarantine: bool = True
    is_automatic: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        MoveRequest.__post_init__(self)
        if not self.reason:
            raise RegistryUsageError("a rollback needs a reason: it is what others read later")
        if (self.to is not None) + (self.at is not None) + (self.steps != 1) > 1:
            raise RegistryUsageError("give a version to roll back to, or a time, or steps")
        if self.to is not None:
            _check_number("to", self.to, 1)
        if self.at is not None and self.at.tzinfo is None:
            raise RegistryUsageError(f"{self.at} has no time zone; write 2031-05-04T03:02:01Z")
        _check_number("steps", self.steps, 1, STEPS_MAX)

    @property
    def kind(self) -> MoveKind:
        """How the history calls it."""
        return MoveKind.AUTO if self.is_automatic else MoveKind.ROLLBACK

    @property
    def is_relative(self) -> bool:
        """Whether the target depends on where the alias is, and that is not stated."""
        return self.to is None and self.at is None and self.expect_gen is None


Request = PromoteRequest | RollbackRequest


def check_actor(actor: str) -> str:
    """Return `actor`. Raises `RegistryUsageError` where it cannot name anybody."""
    if not actor:
        raise RegistryUsageError("say who you are: the actor is empty")
    return _checked_text("actor", actor, ACTOR_CHARACTERS_MAX)


def check_reason(reason: str) -> str:
    """Return `reason`. Raises `RegistryUsageError` where it cannot stand in a log."""
    return _checked_text("reason", reason, REASON_CHARACTERS_MAX)


def check_op_id(op_id: str) -> str:
    """Return `op_id`. Raises `RegistryUsageError` where it cannot name an operation."""
    if not _OP_ID.fullmatch(op_id) or len(op_id) > OP_ID_CHARACTERS_MAX:
        raise RegistryUsageError(
            f"operation id {op_id[:80]!r}: use 1 to {OP_ID_CHARACTERS_MAX} letters, digits, '_' "
            "and '-', beginning with a letter or digit"
        )
    return op_id


def _checked_text(what: str, text: str, characters_max: int) -> str:
    """Return `text`; what lands in the log must not hide or forge lines of it."""
    if len(text) > characters_max or not text.isprintable():
        raise RegistryUsageError(
            f"{what}: at most {characters_max} printable characters on one line, "
            f"not {text[:80]!r} ({len(text)})"
        )
    return text


def _check_number(what: str, number: int, minimum: int, maximum: int | None = None) -> None:
    if number < minimum:
        raise RegistryUsageError(f"{what}: {number} is less than {minimum}")
    if maximum is not None and number > maximum:
        raise RegistryUsageError(f"{what}: at most {maximum}, not {number}")
