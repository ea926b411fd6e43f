"""Holds a history against the safety rules of `pliska.locks`; a pure function of the events.

A handle holds for certain from the moment its acquire had returned until the
last moment at which it was seen to hold: what says it holds was not lost before.
Everything here follows from such intervals, so a violation found is one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf

from chaos.actor import BARRIER_PARTIES
from chaos.handles import BREAK_NOTICE_S, SLACK_S, Handle, granted_by_name, handles_of
from chaos.history import Event

EXCLUSIVE = frozenset({"mutex", "write", "leader"})


def check(history: Iterable[Event]) -> list[str]:
    """All violations of the rules, in words; none for a good history."""
    events = sorted(history, key=lambda event: event["at_s"])
    handles = handles_of(events)
    return [
        *_tokens_grow(handles),
        *_writes_are_in_order(events),
        *_the_exclusive_are_alone(handles),
        *_leases_stay_within_the_size(handles, events),
        *_nothing_is_claimed_beyond_the_lease(handles, events),
        *_what_was_lost_stays_lost(handles, events),
        *_losses_are_announced(handles, events),
        *_nobody_waits_for_a_free_lock(handles, events),
        *_observers_see_epochs_in_order(events),
        *_barriers_open_when_they_are_full(handles, events),
        *_nobody_waits_at_a_full_barrier(handles, events),
    ]


def _tokens_grow(handles: list[Handle]) -> Iterator[str]:
    """S1: whoever asked after another was granted has a greater token; no token comes twice."""
    for name, granted in granted_by_name(handles).items():
        tokens = [handle.token for handle in granted]
        if len(set(tokens)) != len(tokens):
            yield f"S1: {name} gave a token out twice: {sorted(map(int, tokens))}"  # type: ignore[arg-type]
        for later in granted:
            for earlier in granted:
                if earlier.granted_s < later.asked_s and earlier.token >= later.token:  # type: ignore[operator]
                    yield f"S1: {name}: {later.id} has token {later.token} after {earlier.token}"


def _writes_are_in_order(events: list[Event]) -> Iterator[str]:
    """S1: no accepted write has a smaller token than one before it in the store."""
    by_register = defaultdict(list)
    for event in events:
        if event["kind"] == "write":
            by_register[event["register"]].append((event["revision"], event["token"]))
    for register, writes in by_register.items():
        newest = 0
        for revision, token in sorted(writes):
            if token < newest:
                yield f"S1: {register} took token {token} at {revision} after {newest}"
            newest = max(newest, token)


def _the_exclusive_are_alone(handles: list[Handle]) -> Iterator[str]:
    """S2, and the read/write lock: a writer, a mutex or a leader has nobody beside it."""
    for name, granted in granted_by_name(handles).items():
        for one in granted:
            if one.recipe not in EXCLUSIVE:
                continue
            for other in granted:
                is_beside = (
                    one.granted_s < other.until_s and other.granted_s < one.alone_until_s()  # type: ignore[operator]
                )
                if other is not one and is_beside:
                    yield (
                        f"S2: {name}: {one.recipe} {one.id} held {one.granted_s}..{one.until_s} "
                        f"beside {other.recipe} {other.id} {other.granted_s}..{other.until_s}"
                    )


def _leases_stay_within_the_size(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """There are never more leases than the largest size since the oldest of them was asked for."""
    sizes = [event for event in events if event["kind"] == "resized"]
    for name, granted in granted_by_name(handles).items():
        for last in granted:
            if last.recipe != "semaphore":
                continue
            out = [
                each
                for each in granted
                if each is last or each.granted_s < last.granted_s < each.until_s  # type: ignore[operator]
            ]
            since_s = min(each.asked_s for each in out)
            size = _size_max([e for e in sizes if e["name"] == name], since_s, last.granted_s)
            if len(out) > size:
                yield f"semaphore {name}: {len(out)} leases of {size} when {last.id} came in"


def _size_max(sizes: list[Event], from_s: float, to_s: float | None) -> int:
    """The largest size in force at some moment of an interval."""
    assert to_s is not None
    before = [event["size"] for event in sizes if event["to_s"] < from_s]
    during = [
        event["size"] for event in sizes if event["to_s"] >= from_s and event["from_s"] <= to_s
    ]
    return max([*before[-1:], *during])


def _nothing_is_claimed_beyond_the_lease(
    handles: list[Handle], events: list[Event]
) -> Iterator[str]:
    """S2, S3: who holds has sent a renewal, acknowledged since, no longer ago than its lease."""
    sent_s, lease_s = defaultdict(list), {}
    for event in events:
        if event["kind"] == "session":
            lease_s[event["session"]] = event["lease_s"]
        if event["kind"] in ("session", "renewal"):
            sent_s[event["session"]].append(event["sent_s"])
    for handle in handles:
        for held_s in handle.held_s:
            last_s = max((s for s in sent_s[handle.session] if s <= held_s), default=0.0)
            if held_s > last_s + lease_s[handle.session]:
                yield f"S3: {handle.id} claimed at {held_s} on a renewal sent at {last_s}"


def _what_was_lost_stays_lost(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """S2: a handle that was seen not to hold is never seen to hold again."""
    gone_s: dict[str, float] = {}
    for event in events:
        if event["kind"] == "looked" and not event["held"]:
            gone_s.setdefault(event["handle"], event["to_s"])
    for handle in handles:
        again = [s for s in handle.held_s if s > gone_s.get(handle.id, s)]
        if again:
            yield f"S2: {handle.id} was gone at {gone_s[handle.id]} and held again at {again[0]}"


def _losses_are_announced(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """S3: whoever was robbed knows soon, unless it was stopped, killed, cut off or gone."""
    for handle in handles:
        for robbery in handle.robberies:
            is_certain = robbery["to_s"] < inf
            if not is_certain or handle.released is not None or handle.granted_s is None:
                continue
            due_s = max(robbery["to_s"], handle.granted_s) + BREAK_NOTICE_S + SLACK_S
            from_s = robbery["from_s"] - SLACK_S
            is_excused = any(_excuses(each, handle, from_s, due_s) for each in events)
            if not is_excused and (handle.lost_s is None or handle.lost_s > due_s):
                yield f"S3: {handle.id} was robbed at {robbery['to_s']} and told at {handle.lost_s}"


def _excuses(event: Event, handle: Handle, from_s: float, due_s: float) -> bool:
    """Whether the event kept whoever has the handle from hearing of anything in an interval."""
    is_about_it = event["kind"] == "outage" or (
        event["kind"] in ("paused", "killed", "ended", "cut off") and event["victim"] == handle.who
    )
    return is_about_it and event["from_s"] < due_s and event.get("to_s", due_s) > from_s


def _nobody_waits_for_a_free_lock(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """S4, S6: a wait does not run out of time while nobody has held the lock for long."""
    for handle, since_s, ended_s in _waits_in_vain(handles, events):
        if handle.recipe == "barrier":
            continue
        was_taken = any(
            other.name == handle.name
            and other.granted_s is not None
            and other.granted_s < ended_s
            and max(other.until_s, other.lost_s or 0.0) > since_s
            for other in handles
        )
        if not was_taken:
            yield f"S4: {handle.id} waited in vain for {handle.name}, free since {since_s}"


def _waits_in_vain(
    handles: list[Handle], events: list[Event]
) -> Iterator[tuple[Handle, float, float]]:
    """Waits of the living that ran out of time, and of each the end when nobody was disturbed."""
    bounds_s = [3 * e["lease_s"] + SLACK_S for e in events if e["kind"] == "session"]
    bound_s = max(bounds_s, default=SLACK_S)
    stops = [event for event in events if event["kind"] in ("paused", "cut off", "outage")]
    for handle in handles:
        if handle.refused is None or handle.refused["why"] != "AcquireTimeoutError":
            continue
        ended_s = handle.refused["at_s"]
        since_s = ended_s - bound_s
        was_disturbed = any(e["from_s"] < ended_s and e["to_s"] > since_s for e in stops)
        has_lived = _has_lived(handle.session, events, since_s, ended_s)
        if handle.asked_s < since_s and has_lived and not was_disturbed:
            yield handle, since_s, ended_s


def _has_lived(session: str, events: list[Event], from_s: float, to_s: float) -> bool:
    """Whether a session was renewed in time throughout an interval, however busy the machine."""
    own = [event for event in events if event.get("session") == session and "sent_s" in event]
    lease_s = max((event["lease_s"] for event in own if "lease_s" in event), default=0.0)
    sent_s = [event["sent_s"] for event in own if from_s - lease_s <= event["sent_s"] <= to_s]
    moments_s = [from_s, *sorted(sent_s), to_s]
    return all(later - earlier <= lease_s for earlier, later in pairwise(moments_s))


def _observers_see_epochs_in_order(events: list[Event]) -> Iterator[str]:
    seen: dict[tuple[str, str], int] = {}
    for event in events:
        if event["kind"] == "observed":
            key = (event["who"], event["name"])
            if event["epoch"] <= seen.get(key, 0):
                yield f"election {event['name']}: {key[0]} saw {event['epoch']} after {seen[key]}"
            seen[key] = event["epoch"]


def _barriers_open_when_they_are_full(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """Whoever passed a barrier was there together with as many as it is for."""
    at_barriers = [handle for handle in handles if handle.recipe == "barrier"]
    left_s = {each.id: _left_s(each, events) for each in at_barriers}
    for passed in at_barriers:
        if passed.granted_s is None:
            continue
        beside = [
            each
            for each in at_barriers
            if each.asked_s <= passed.granted_s and left_s[each.id] >= passed.asked_s
        ]
        arrivals_s = [max(each.asked_s, passed.asked_s) for each in beside]
        most = max(
            sum(each.asked_s <= moment_s <= left_s[each.id] for each in beside)
            for moment_s in arrivals_s
        )
        if most < BARRIER_PARTIES:
            yield f"barrier {passed.name}: {passed.id} passed with {most} of {BARRIER_PARTIES}"


def _left_s(handle: Handle, events: list[Event]) -> float:
    """When the store knew that it had gone, at the latest: its session ends, if nothing else.

    A store may count a lease twice, and anew when its servers come back.
    """
    if handle.refused is None:
        return handle.left_s
    at_s = handle.refused["at_s"]
    if not any(_excuses(each, handle, at_s - SLACK_S, at_s + SLACK_S) for each in events):
        return handle.left_s
    own = [event for event in events if event.get("session") == handle.session]
    lease_s = max((event["lease_s"] for event in own if "lease_s" in event), default=0.0)
    back_s = [event["to_s"] for event in events if event["kind"] == "outage"]
    return max([handle.left_s, *back_s]) + 2 * lease_s + SLACK_S


def _nobody_waits_at_a_full_barrier(handles: list[Handle], events: list[Event]) -> Iterator[str]:
    """S6: two who wait long at the same time, while nobody is on the other side, meet."""
    at_barriers = [handle for handle in handles if handle.recipe == "barrier"]
    for handle, since_s, ended_s in _waits_in_vain(handles, events):
        if handle.recipe != "barrier":
            continue
        waited = [each for each in at_barriers if each.asked_s < since_s and each.left_s > since_s]
        beyond = [
            each
            for each in at_barriers
            if each.granted_s is not None
            and each.granted_s < ended_s
            and max(each.until_s, each.lost_s or 0.0) > since_s
        ]
        if len(waited) >= BARRIER_PARTIES and not beyond:
            yield f"S4: {handle.id} waited in vain with {len(waited)} at {handle.name}"
