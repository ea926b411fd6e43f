"""A local view of one service that stays true by itself and outlives outages of the store.

Reading the view costs nothing and never fails. When the store does not answer,
or suddenly lists nobody at all, the last list that had somebody stays, marked
as stale with the reason and its age: the instances behind it may serve well
while the store does not. Who may be asked next is `resolver`'s to decide.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random, SystemRandom

from pliska.discovery.follower import BEGINNING, READ_TIMEOUT_S, Copy, Follower
from pliska.discovery.instance import Instance, check_service_name
from pliska.discovery.service_store import ServiceListing, open_service_store
from pliska.locks import Backend, Clock, Revision, SystemClock
from pliska.locks.closing import Closing


class Standing(StrEnum):
    """How far a view can be believed."""

    UNKNOWN = "unknown"
    """The store has not answered yet."""
    CONFIRMED = "confirmed"
    """The store lists these instances."""
    EMPTIED = "emptied"
    """The store lists none any more; these are the last that it did list."""
    UNREACHABLE = "unreachable"
    """The store does not answer; these are the last that it listed."""


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """What is known of a service at one moment.

    Attributes:
        service: Its name.
        instances: The last known good list, ordered by id.
        standing: How far it can be believed.
        reason: Why it is not confirmed; empty when it is.
        confirmed_s: When the store last listed these instances, on the view's
            clock; when the view began, if it never did.
        revision: The store's revision of the list.
        generation: Grows by one with every change of the fields above other
            than `confirmed_s`.
        unreadable: Why entries were left out.
    """

    service: str
    instances: tuple[Instance, ...]
    standing: Standing
    reason: str
    confirmed_s: float
    revision: Revision = BEGINNING
    generation: int = 0
    unreadable: tuple[str, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether the list may be out of date."""
        return self.standing is not Standing.CONFIRMED

    def age_s(self, now_s: float) -> float:
        """How long ago the store last listed these instances."""
        return max(0.0, now_s - self.confirmed_s)


def unknown(now_s: float, service: str) -> ServiceSnapshot:
    """What is known before the store answers."""
    return ServiceSnapshot(service, (), Standing.UNKNOWN, "the store has not answered yet", now_s)


def after_answer(now_s: float, before: ServiceSnapshot, listing: ServiceListing) -> ServiceSnapshot:
    """What is known once the store has answered."""
    if not listing.instances and before.instances:
        reason = f"the store lists no instance of {before.service} any more"
        return _next(before, standing=Standing.EMPTIED, reason=reason)
    after = replace(
        before,
        instances=listing.instances,
        standing=Standing.CONFIRMED,
        reason="",
        confirmed_s=now_s,
        revision=listing.revision,
        unreadable=listing.unreadable,
    )
    is_same = (after.instances, after.standing, after.unreadable) == (
        before.instances,
        before.standing,
        before.unreadable,
    )
    return after if is_same else replace(after, generation=before.generation + 1)


def after_silence(before: ServiceSnapshot, reason: str) -> ServiceSnapshot:
    """What is known when the store has not answered: nothing new."""
    if before.standing is Standing.UNKNOWN:
        return _next(before, standing=before.standing, reason=reason)
    return _next(before, standing=Standing.UNREACHABLE, reason=reason)


def _next(before: ServiceSnapshot, standing: Standing, reason: str) -> ServiceSnapshot:
    if (standing, reason) == (before.standing, before.reason):
        return before
    return replace(before, standing=standing, reason=reason, generation=before.generation + 1)


def service_follower(backend: Backend, clock: Clock, random: Random | None = None) -> Follower:
    """A thread for views of any number of services of a store; whoever makes it closes it."""
    feed = open_service_store(backend).open_feed()
    return Follower("pliska-service-views", feed, clock, random or SystemRandom())


class ServiceView(Closing):
    """A service as this process sees it. Safe to use from any thread; ends with `close`."""

    def __init__(
        self,
        backend: Backend,
        service: str,
        clock: Clock | None = None,
        random: Random | None = None,
        follower: Follower | None = None,
    ) -> None:
        """Begin to follow a service.

        Args:
            backend: The store.
            service: The service's name; it need not have instances yet.
            clock: Where the time comes from; `SystemClock` unless a test moves it.
            random: Spreads retries; seeded by the system unless a test chooses.
            follower: Shares the thread of other views of the store (see
                `service_follower`); one of its own unless given.
        """
        check_service_name(service)
        self.clock = clock or SystemClock()
        store = open_service_store(backend)
        self._changed = threading.Condition()
        self._snapshot = unknown(self.clock.now_s(), service)
        self._has_own_follower = follower is None
        self._follower = follower or service_follower(backend, self.clock, random)
        self._copy = Copy(
            store.path(service),
            read=lambda _: store.list(service, READ_TIMEOUT_S),
            take=lambda listing: self._put(
                lambda now_s, before: after_answer(now_s, before, listing)
            ),
            miss=lambda reason: self._put(lambda _, before: after_silence(before, reason)),
        )
        self._follower.keep(self._copy)

    @property
    def snapshot(self) -> ServiceSnapshot:
        """What is known now."""
        return self._snapshot

    @property
    def age_s(self) -> float:
        """How long ago the store last listed these instances."""
        return self._snapshot.age_s(self.clock.now_s())

    def wait_for_change(self, after: int, timeout_s: float) -> ServiceSnapshot | None:
        """Wait for a snapshot with another generation than `after`; it may skip some.

        Returns:
            The newest one, or None when the time passed.
        """
        return self._wait(lambda snapshot: snapshot.generation != after, timeout_s)

    def wait_until_known(self, timeout_s: float) -> ServiceSnapshot | None:
        """Wait until the store has answered once, or None when the time passed."""
        return self._wait(lambda snapshot: snapshot.standing is not Standing.UNKNOWN, timeout_s)

    def close(self) -> None:
        """Follow no longer; the snapshot stays as it is."""
        self._follower.forget(self._copy)
        if self._has_own_follower:
            self._follower.close()

    def _put(self, change: Callable[[float, ServiceSnapshot], ServiceSnapshot]) -> None:
        with self._changed:
            before, self._snapshot = (
                self._snapshot,
                change(self.clock.now_s(), self._snapshot),
            )
            if self._snapshot.generation != before.generation:
                self._changed.notify_all()

    def _wait(
        self, is_awaited: Callable[[ServiceSnapshot], bool], timeout_s: float
    ) -> ServiceSnapshot | None:
        until_s = self.clock.now_s() + timeout_s
        with self._changed:
            while not is_awaited(self._snapshot):
                if self.clock.now_s() >= until_s:
                    return None
                self.clock.wait(self._changed, until_s)
            return self._snapshot
