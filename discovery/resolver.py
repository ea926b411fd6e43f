"""From the name of a service to the instance to ask: view, sieve, zone and policy in one place.

    resolver = Resolver(backend, zone="eu-1")
    with resolver.pick("scorer") as pick:
        ask(pick.instance.endpoint)

What happens inside the `with` counts as work in flight, and an exception as an
error of the instance. Resolving asks nobody: it works on local views, which
stay usable, marked as stale, while the store is away.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random, SystemRandom
from types import TracebackType
from typing import Self

from pliska.discovery.balancing import (
    BalancingState,
    Choice,
    Policy,
    power_of_two_choices,
)
from pliska.discovery.errors import NoInstanceError
from pliska.discovery.follower import Follower
from pliska.discovery.instance import Instance
from pliska.discovery.outliers import ErrorTimes, OutlierOptions, after_error, sieve
from pliska.discovery.service_view import (
    ServiceSnapshot,
    ServiceView,
    Standing,
    service_follower,
)
from pliska.discovery.zones import ZoneOptions, in_zone
from pliska.locks import Backend, Clock, SystemClock
from pliska.locks.closing import Closing

FIRST_ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LocalKnowledge:
    """What this process found out about the instances of one service by asking them."""

    in_flight: Mapping[str, int]
    errors: ErrorTimes
    balancing: BalancingState


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverOptions:
    """How to choose.

    Attributes:
        policy: Who of those that may be asked.
        zone: The caller's own; empty for no preference.
        zones: When a zone is good enough.
        outliers: When an instance is left out.
        stale_s_max: A list that the store has not confirmed for longer is not
            used any more; None uses it for ever.
    """

    policy: Policy = power_of_two_choices
    zone: str = ""
    zones: ZoneOptions = field(default_factory=ZoneOptions)
    outliers: OutlierOptions = field(default_factory=OutlierOptions)
    stale_s_max: float | None = None


def choose(
    now_s: float,
    snapshot: ServiceSnapshot,
    knowledge: LocalKnowledge,
    options: ResolverOptions,
    random: Random,
) -> Choice:
    """Decide whom to ask, and say why.

    Raises:
        NoInstanceError: There is nobody to ask, or the list is too old.
    """
    age_s = snapshot.age_s(now_s)
    if options.stale_s_max is not None and snapshot.is_stale and age_s > options.stale_s_max:
        raise NoInstanceError(
            f"the list of {snapshot.service} is {age_s:.1f} s old, more than "
            f"{options.stale_s_max:g} s: {snapshot.reason}"
        )
    working = [instance for instance in snapshot.instances if instance.takes_work]
    if not working:
        raise NoInstanceError(_nobody(snapshot))
    sieved = sieve(now_s, working, knowledge.errors, options.outliers)
    candidates, zone_reason = in_zone(
        options.zone, sieved.usable, snapshot.instances, options.zones, random
    )
    choice = options.policy(candidates, knowledge.in_flight, knowledge.balancing, random)
    reasons = [choice.reason]
    if options.zone:
        reasons.append(zone_reason)
    if sieved.is_panic:
        reasons.append(f"{len(sieved.ejected)} of {len(working)} fail, so none is left out")
    elif sieved.ejected:
        reasons.append(f"{len(sieved.ejected)} left out after errors")
    if snapshot.is_stale:
        reasons.append(f"the list is {age_s:.1f} s old: {snapshot.reason}")
    return Choice(choice.instance, "; ".join(reasons), choice.state)


class Resolver(Closing):
    """Chooses instances of any service of a store. Safe to use from any thread."""

    def __init__(
        self,
        backend: Backend,
        options: ResolverOptions | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Nothing is read before a service is asked for.

        Args:
            backend: The store.
            options: How to choose.
            clock: Where the time comes from; `SystemClock` unless a test moves it.
            random: Where chance comes from; the system's unless a test chooses.
        """
        self._backend = backend
        self._options = options or ResolverOptions()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._lock = threading.Lock()
        self._follower: Follower | None = None
        self._followed: dict[str, _Followed] = {}

    def view(self, service: str) -> ServiceView:
        """The view of a service, followed from the first call on."""
        return self._follow(service).view

    def resolve(self, service: str) -> Instance:
        """An instance to ask.

        Raises:
            NoInstanceError: There is nobody to ask.
            ServiceUsageError: The service's name is malformed.
        """
        return self._choose(service).instance

    def pick(self, service: str) -> "Pick":
        """An instance to ask, counted as in flight until the pick is closed.

        Raises:
            NoInstanceError: There is nobody to ask.
            ServiceUsageError: The service's name is malformed.
        """
        choice = self._choose(service)
        followed = self._follow(service)
        with self._lock:
            followed.in_flight[choice.instance.id] += 1
        return Pick(self, choice.instance, choice.reason)

    def report_error(self, instance: Instance) -> None:
        """Say that an instance failed; enough errors leave it out for a while."""
        with self._lock:
            followed = self._followed.get(instance.service)
            if followed is not None:
                followed.errors = after_error(
                    self._clock.now_s(), followed.errors, instance.id, self._options.outliers
                )

    def give_back(self, instance: Instance) -> None:
        """Count one piece of work less in flight."""
        with self._lock:
            followed = self._followed.get(instance.service)
            if followed is not None:
                followed.in_flight[instance.id] -= 1
                followed.in_flight += Counter()  # drops what is zero

    def close(self) -> None:
        """Follow no service any longer."""
        with self._lock:
            follower, self._follower, self._followed = self._follower, None, {}
        if follower is not None:
            follower.close()

    def _choose(self, service: str) -> Choice:
        followed = self._follow(service)
        snapshot = followed.view.snapshot
        if snapshot.standing is Standing.UNKNOWN:
            followed.view.wait_until_known(FIRST_ANSWER_TIMEOUT_S)
            snapshot = followed.view.snapshot
        with self._lock:
            knowledge = LocalKnowledge(followed.in_flight, followed.errors, followed.balancing)
            choice = choose(self._clock.now_s(), snapshot, knowledge, self._options, self._random)
            followed.balancing = choice.state
        return choice

    def _follow(self, service: str) -> "_Followed":
        with self._lock:
            if self._follower is None:
                self._follower = service_follower(self._backend, self._clock, self._random)
            if service not in self._followed:
                view = ServiceView(
                    self._backend, service, self._clock, self._random, self._follower
                )
                self._followed[service] = _Followed(view)
            return self._followed[service]


class Pick:
    """One piece of work for one instance: in flight until `close`, or the end of the `with`."""

    def __init__(self, resolver: Resolver, instance: Instance, reason: str) -> None:
        self.instance = instance
        self.reason = reason
        self._resolver = resolver
        self._is_open = True

    def close(self, *, failed: bool) -> None:
        """The work is over; the second time does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self._resolver.give_back(self.instance)
        if failed:
            self._resolver.report_error(self.instance)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(failed=isinstance(error, Exception))


class _Followed:
    """A service that this process asks."""

    def __init__(self, view: ServiceView) -> None:
        self.view = view
        self.in_flight: Counter[str] = Counter()
        self.errors: ErrorTimes = {}
        self.balancing = BalancingState()


def _nobody(snapshot: ServiceSnapshot) -> str:
    if snapshot.instances:
        states = Counter(str(instance.state) for instance in snapshot.instances)
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"no instance of {snapshot.service} takes work: {counted}"
    reason = f" ({snapshot.reason})" if snapshot.reason else ""
    return f"{snapshot.service} has no instance{reason}"
