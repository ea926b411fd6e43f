"""Why a message is turned away: a code for programs and a reason for people."""

from dataclasses import dataclass

from pliska.coordinator.wire import ReplyCode


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a check found. Checks return None where there is nothing to refuse."""

    code: ReplyCode
    reason: str
