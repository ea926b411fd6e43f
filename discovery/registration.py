"""Keeps one instance registered, through outages and lost sessions, until it is deregistered.

What is wanted (the latest metadata, draining or not) is set from any thread;
one thread of its own makes the store show it, again and again. Nothing here
runs on a thread of the store's client, where a call back into the store would
hang it. Once deregistered, by its owner or by somebody else, it stays so.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import SystemRandom
from typing import Self

from pliska.discovery.errors import DeregisteredError, DiscoveryError
from pliska.discovery.instance import Instance, InstanceState
from pliska.discovery.retry import retry_pause_s
from pliska.discovery.service_store import Announcer, open_service_store
from pliska.locks import (
    Backend,
    Clock,
    LockError,
    LockUsageError,
    StoreUnavailableError,
    SystemClock,
)
from pliska.locks.closing import Closing
from pliska.locks.lease import LEASE_S_MAX, LEASE_S_MIN

LEASE_S = 10.0
REGISTER_TIMEOUT_S = 30.0
"""Enough for the instance of a dead predecessor with the same id to go."""
CLOSE_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class Registration(Closing):
    """One instance that stays registered. Make one with `register` or `begin`.

    Safe to use from any thread.
    """

    def __init__(self, backend: Backend, instance: Instance, lease_s: float, clock: Clock) -> None:
        """Use `begin`, which checks the lease, or `register`, which also waits."""
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted = instance
        self._is_failing = False
        self._shown: Instance | None = None
        self._failure: Exception | None = None
        self._failures = 0
        self._random = SystemRandom()
        self._is_woken = False
        self._end_reason: str | None = None
        self._announcer: Announcer = open_service_store(backend).announcer(
            instance.service, instance.id, lease_s, clock, self._wake
        )
        self._thread = threading.Thread(target=self._run, name="pliska-registration", daemon=True)
        self._thread.start()

    @classmethod
    def begin(
        cls, backend: Backend, instance: Instance, lease_s: float, clock: Clock | None = None
    ) -> Self:
        """Begin to register an instance, and go on trying while that fails; see `register`.

        Raises:
            LockUsageError: The lease is out of range.
        """
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise LockUsageError(
                f"a lease lasts {LEASE_S_MIN} to {LEASE_S_MAX} seconds, not {lease_s}"
            )
        return cls(backend, instance, lease_s, clock or SystemClock())

    @property
    def instance(self) -> Instance:
        """What the store is to show."""
        with self._changed:
            if self._is_failing and self._wanted.state is InstanceState.UP:
                return replace(self._wanted, state=InstanceState.FAILING)
            return self._wanted

    @property
    def is_registered(self) -> bool:
        """Whether the store shows the instance as wanted, as far as is known here."""
        with self._changed:
            is_shown = self._shown is not None and self._shown == self.instance
            return is_shown and not self.has_ended and self._announcer.is_announced

    @property
    def failure(self) -> Exception | None:
        """Why the last announcement failed; None when it did not."""
        return self._failure

    @property
    def has_ended(self) -> bool:
        """Whether it was deregistered, by its owner or by somebody else."""
        return self._end_reason is not None

    def update(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        tags: tuple[str, ...] | None = None,
        weight: int | None = None,
    ) -> None:
        """Change what the instance says about itself; None leaves a field as it is.

        Raises:
            ServiceUsageError: A value is malformed; nothing changes.
            DeregisteredError: It was deregistered before.
        """

        def changed(instance: Instance) -> Instance:
            return replace(
                instance,
                metadata=instance.metadata if metadata is None else metadata,
                tags=instance.tags if tags is None else tags,
                weight=instance.weight if weight is None else weight,
            )

        self._want(changed)

    def drain(self) -> None:
        """Ask for no new work. Raises `DeregisteredError` when it was deregistered before."""
        self._want(Instance.drained)

    def report_health(self, is_healthy: bool) -> None:
        """Say what a probe found; others send no work to an instance that fails its own."""
        with self._changed:
            self._is_failing = not is_healthy
        self._wake()

    def wait_until_registered(self, timeout_s: float) -> bool:
        """Wait until the store shows the instance as wanted; False when the time passed.

        Raises:
            DeregisteredError: It was deregistered.
        """
        until_s = self._clock.now_s() + timeout_s
        with self._changed:
            while not self.is_registered:
                self._refuse_if_ended()
                if self._clock.now_s() >= until_s:
                    return False
                self._clock.wait(self._changed, until_s)
            return True

    def wait_until_ended(self, timeout_s: float | None = None) -> str | None:
        """Wait until it is deregistered; the reason, or None when the time passed."""
        until_s = None if timeout_s is None else self._clock.now_s() + timeout_s
        with self._changed:
            while self._end_reason is None:
                if until_s is not None and self._clock.now_s() >= until_s:
                    return None
                self._clock.wait(self._changed, until_s)
            return self._end_reason

    def deregister(self) -> None:
        """Remove the instance for good; harmless when that happened before.

        When the store does not answer, the instance goes with its lease.
        """
        self._end("it was deregistered")
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)

    def close(self) -> None:
        """See `deregister`."""
        self.deregister()

    def _want(self, changed: Callable[[Instance], Instance]) -> None:
        with self._changed:
            self._refuse_if_ended()
            self._wanted = changed(self._wanted)
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def _end(self, reason: str) -> None:
        with self._changed:
            self._end_reason = self._end_reason or reason
            self._changed.notify_all()

    def _refuse_if_ended(self) -> None:
        if self._end_reason is not None:
            name = f"{self._wanted.service}/{self._wanted.id}"
            raise DeregisteredError(f"{name} is not registered any more: {self._end_reason}")

    def _run(self) -> None:
        try:
            while not self.has_ended:
                pause_s = self._announce()
                self._sleep(pause_s)
        finally:
            self._announcer.withdraw()

    def _announce(self) -> float:
        """Make the store show what is wanted; returns how long to wait until the next time."""
        with self._changed:
            self._is_woken = False
        try:
            shown = self._announcer.announce(self.instance)
        except DeregisteredError as error:
            self._end(str(error))
            return 0.0
        except (LockError, DiscoveryError) as error:
            self._note(error)
            self._failures += 1
            return retry_pause_s(self._failures, self._random)
        with self._changed:
            self._shown = shown
            if shown.state is InstanceState.DRAINING:
                self._wanted = self._wanted.drained()
            self._note(None)
            self._failures = 0
            self._changed.notify_all()
        return self._announcer.interval_s

    def _note(self, failure: LockError | DiscoveryError | None) -> None:
        if failure is not None and str(failure) != str(self._failure):
            name = f"{self._wanted.service}/{self._wanted.id}"
            _log.warning("not registered for now: instance=%s reason=%s", name, failure)
        self._failure = failure

    def _sleep(self, pause_s: float) -> None:
        until_s = self._clock.now_s() + pause_s
        with self._changed:
            while not self._is_woken and not self.has_ended and self._clock.now_s() < until_s:
                self._clock.wait(self._changed, until_s)


def register(
    backend: Backend,
    instance: Instance,
    lease_s: float = LEASE_S,
    timeout_s: float = REGISTER_TIMEOUT_S,
    clock: Clock | None = None,
) -> Registration:
    """Register an instance and keep it registered until `Registration.deregister`.

    It opens its own sessions, since it outlives each of them.

    Args:
        backend: The store.
        instance: What to register.
        lease_s: How long others may still see the instance after its process died.
        timeout_s: How long to wait for the first registration, which an
            instance with the same id may hold up until its own lease ends.
        clock: Where the time comes from; `SystemClock` unless a test moves it.

    Raises:
        InstanceConflictError: Another live process has an instance of this id.
        StoreUnavailableError: The store did not answer in time.
        LockUsageError: The lease is out of range.
    """
    registration = Registration.begin(backend, instance, lease_s, clock)
    try:
        if registration.wait_until_registered(timeout_s):
            return registration
    except BaseException:
        registration.deregister()
        raise
    registration.deregister()
    raise registration.failure or StoreUnavailableError(
        f"{backend.address} did not register {instance.service}/{instance.id} in {timeout_s} s"
    )
