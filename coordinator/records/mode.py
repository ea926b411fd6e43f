"""How a job's rounds are run, and the record in the store that says so.

A mode is switched while the job runs: `pliska job mode`, or the job's own
policy, writes a record with a higher mode epoch, and the leader takes it up
when it opens its next round. What each mode means for a round is `gathering`.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.wire.encoding import U64_MAX
from pliska.coordinator.wire.limits import REASON_CHARACTERS_MAX

MODE_BYTES_MAX = 8 * REASON_CHARACTERS_MAX
"""Largest record of a mode that is read."""


class Mode(StrEnum):
    """How gradients meet a version."""

    SYNCHRONOUS = "synchronous"
    """All gradients of a round are computed on the version before it."""
    ASYNCHRONOUS = "asynchronous"
    """A gradient counts as soon as it comes, within a bound on its age."""
    HYBRID = "hybrid"
    """A round closes with so many gradients, however old within a bound."""


@dataclass(frozen=True, slots=True)
class ModeSetting:
    """A mode that was asked for.

    Attributes:
        mode_epoch: Counts the settings of one job; the first is 0.
        reason: Who wanted it and why, for people.
    """

    mode: Mode = Mode.SYNCHRONOUS
    mode_epoch: int = 0
    reason: str = "as the job file has it"

    def followed_by(self, mode: Mode, reason: str) -> "ModeSetting":
        """Return the setting that takes this one's place."""
        return ModeSetting(mode, self.mode_epoch + 1, reason[:REASON_CHARACTERS_MAX])

    def to_bytes(self) -> bytes:
        """Encode for the store, in JSON."""
        fields = {"mode": self.mode, "mode_epoch": self.mode_epoch, "reason": self.reason}
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "ModeSetting":
        """Read what the store has.

        Raises:
            DamagedStateError: It is no setting.
        """
        try:
            fields = json.loads(data[:MODE_BYTES_MAX])
            return cls(
                Mode(fields["mode"]), _epoch(fields["mode_epoch"]), _reason(fields["reason"])
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedStateError(
                f"the job's mode in the store cannot be read: {error}; "
                "set it anew with `pliska job mode`"
            ) from error


def _epoch(value: object) -> int:
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise ValueError(f"its mode epoch is {value!r}")
    return value


def _reason(value: object) -> str:
    if not isinstance(value, str) or len(value) > REASON_CHARACTERS_MAX:
        raise ValueError("its reason is no text, or too long")
    return value
