"""What a person can ask of an alias: to promote a version, or to roll back."""

import uuid
from dataclasses import dataclass, field

from pliska.coordinator.registry.aliases import MoveKind
from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.registry.names import check_alias, check_model

REASON_CHARACTERS_MAX = 1000
ACTOR_CHARACTERS_MAX = 128
OP_ID_CHARACTERS_MAX = 64
STEPS_MAX = 1000


def new_op_id() -> str:
    """Return a name for an operation that nobody else has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteRequest:
    """A wish to point an alias at a version.

    Attributes:
        model: The model.
        alias: Made by the first promotion.
        version: The version.
        actor: Who wants it.
        reason: Why; may be empty.
        expect_gen: Only if the alias is at this generation (0: only if there is none).
        op_id: Names the operation; give the same one to repeat it when its
            outcome is unknown.

    Raises:
        RegistryUsageError: A field is out of its bounds.
    """

    model: str
    alias: str
    version: int
    actor: str
    reason: str = ""
    expect_gen: int | None = None
    op_id: str = field(default_factory=new_op_id)

    def __post_init__(self) -> None:
        """Check the fields."""
        check_model(self.model)
        check_alias(self.alias)
        _check_order(self.actor, self.reason, self.op_id, self.expect_gen)
        _check_number("version", self.version, 1)

    @property
    def kind(self) -> MoveKind:
        """How the history calls it."""
        return MoveKind.PROMOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """A wish to take an alias back to an earlier version.

    Attributes:
        model: The model.
        alias: The alias.
        actor: Who wants it.
        reason: Why; not empty.
        to: This version, whatever the history says. Else the previous one.
        steps: How many times to go to the previous version, in one move.
        quarantine: Whether the version that is left becomes QUARANTINED, in the
            same transaction: no alias may be moved to it any more.
        expect_gen: Only if the alias is at this generation.
        op_id: As for `PromoteRequest`.

    Raises:
        RegistryUsageError: A field is out of its bounds.
    """

    model: str
    alias: str
    actor: str
    reason: str
    to: int | None = None
    steps: int = 1
    quarantine: bool = True
    expect_gen: int | None = None
    op_id: str = field(default_factory=new_op_id)

    def __post_init__(self) -> None:
        """Check the fields."""
        check_model(self.model)
        check_alias(self.alias)
        _check_order(self.actor, self.reason, self.op_id, self.expect_gen)
        if not self.reason:
            raise RegistryUsageError("a rollback needs a reason: it is what others read later")
        if self.to is not None:
            _check_number("to", self.to, 1)
            if self.steps != 1:
                raise RegistryUsageError("give either a version to roll back to, or steps")
        _check_number("steps", self.steps, 1)
        if self.steps > STEPS_MAX:
            raise RegistryUsageError(f"steps: at most {STEPS_MAX}, not {self.steps}")

    @property
    def kind(self) -> MoveKind:
        """How the history calls it."""
        return MoveKind.ROLLBACK


Request = PromoteRequest | RollbackRequest


def check_actor(actor: str) -> str:
    """Return `actor`. Raises `RegistryUsageError` where it cannot name anybody."""
    if not actor:
        raise RegistryUsageError("say who you are: the actor is empty")
    return _checked_text("actor", actor, ACTOR_CHARACTERS_MAX)


def _check_order(actor: str, reason: str, op_id: str, expect_gen: int | None) -> None:
    check_actor(actor)
    _checked_text("reason", reason, REASON_CHARACTERS_MAX)
    if not op_id:
        raise RegistryUsageError("the operation id is empty")
    _checked_text("operation id", op_id, OP_ID_CHARACTERS_MAX)
    if expect_gen is not None:
        _check_number("expected generation", expect_gen, 0)


def _checked_text(what: str, text: str, characters_max: int) -> str:
    """Return `text`; what lands in the log must not hide or forge lines of it."""
    if len(text) > characters_max or not text.isprintable():
        raise RegistryUsageError(
            f"{what}: at most {characters_max} printable characters on one line, "
            f"not {text[:80]!r} ({len(text)})"
        )
    return text


def _check_number(what: str, number: int, minimum: int) -> None:
    if number < minimum:
        raise RegistryUsageError(f"{what}: {number} is less than {minimum}")
