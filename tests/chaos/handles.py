"""Handles: what came of each acquire of a run, from its history."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.history import Event

BREAK_NOTICE_S = 1.0
"""How long a holder whose lock was taken by force may not know it (S3)."""
SLACK_S = 2.0
"""What a busy machine may add to a bound that the rules give in real time."""


@dataclass
class Handle:
    """One acquire and what came of it."""

    id: str
    who: str
    recipe: str
    name: str
    session: str
    asked_s: float
    token: int | None = None
    granted_s: float | None = None
    refused: Event | None = None
    downgraded_s: float | None = None
    lost_s: float | None = None
    released: Event | None = None
    held_s: list[float] = field(default_factory=list)
    """When it was seen to hold, each time the moment before looking."""
    robberies: list[Event] = field(default_factory=list)
    """How an administrator took it away, or a thief its session, or may have."""

    @property
    def until_s(self) -> float:
        """Until when it held for certain; a time long ago when it was never seen to."""
        seen_s = list(self.held_s)
        if self.released is not None and self.released["was_held"]:
            seen_s.append(self.released["from_s"])
        until_s = max(seen_s, default=-math.inf)
        for each in self.robberies:
            if until_s <= each["to_s"] + BREAK_NOTICE_S + SLACK_S:
                until_s = min(until_s, each["from_s"])
        return until_s

    def alone_until_s(self) -> float:
        """Until when it held for certain and allowed nobody beside it."""
        return self.until_s if self.downgraded_s is None else min(self.until_s, self.downgraded_s)

    @property
    def left_s(self) -> float:
        """When it stopped to wait; never, as far as is known, where nothing says so."""
        if self.granted_s is not None:
            return self.granted_s
        return math.inf if self.refused is None else float(self.refused["at_s"])


def handles_of(events: Iterable[Event]) -> list[Handle]:
    """All handles of a history that is ordered by time."""
    events = list(events)
    handles: dict[str, Handle] = {}
    for event in events:
        if event["kind"] == "asked":
            names = ("who", "recipe", "name", "session")
            handles[event["handle"]] = Handle(
                event["handle"], *(event[name] for name in names), event["at_s"]
            )
        elif event.get("handle") in handles:
            _note(handles[event["handle"]], event)
    robberies = [event for event in events if event["kind"] in ("broken", "stolen")]
    for handle in handles.values():
        if handle.granted_s is not None:
            handle.robberies = [event for event in robberies if _robs(event, handle)]
    return list(handles.values())


def granted_by_name(handles: Iterable[Handle]) -> dict[str, list[Handle]]:
    """Those that were granted, by what they locked."""
    by_name = defaultdict(list)
    for handle in handles:
        if handle.granted_s is not None:
            by_name[handle.name].append(handle)
    return by_name


def _robs(event: Event, handle: Handle) -> bool:
    if event["kind"] == "broken":
        is_meant = handle.name == event["name"] and handle.token in event["tokens"]
    else:
        is_meant = handle.session == event["session"]
    was_free = handle.released is not None and handle.released["to_s"] < event["from_s"]
    return is_meant and not was_free


def _note(handle: Handle, event: Event) -> None:
    match event["kind"]:
        case "granted":
            handle.token, handle.granted_s = event["token"], event["at_s"]
        case "refused":
            handle.refused = event
        case "looked" if event["held"]:
            handle.held_s.append(event["from_s"])
        case "downgraded":
            handle.downgraded_s = event["from_s"]
        case "lost":
            handle.lost_s = event["at_s"]
        case "released":
            handle.released = event
