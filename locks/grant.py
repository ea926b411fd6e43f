"""What an acquire returns: proof of holding, its token, and the news of its loss."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from pliska.locks.backends.base import Existing
from pliska.locks.errors import NotHeldError
from pliska.locks.fencing import FencingToken
from pliska.locks.loss import LossSignal
from pliska.locks.process import HomeProcess
from pliska.locks.session import Session


class Holding(Protocol):
    """What a grant is the handle of, as a rule a `Contender`. Safe to use from any thread."""

    @property
    def session(self) -> Session:
        """Whose end is the end of the holding."""

    @property
    def token(self) -> FencingToken:
        """See `Grant.token`."""

    @property
    def guard(self) -> Existing:
        """See `Grant.guard`."""

    @property
    def is_holding(self) -> bool:
        """Whether it holds, by the local deadline of the session. Once False, it stays so."""

    @property
    def lost(self) -> LossSignal:
        """See `Grant.lost`."""

    def check(self) -> None:
        """Raise unless it holds."""

    def release(self) -> bool:
        """Give up what it holds; False when it was not held any more."""


class Grant:
    """A lock that is held, until `release` or until it is lost.

    Losing it is normal: the process may be stopped, the store unreachable, an
    administrator may take it away. Holding cannot be guaranteed by looking;
    what is written under it carries `token`, or goes through `guard`.

    As a context manager it releases at the end, and raises `GrantLostError`
    when the block finished without noticing that the lock was lost. Any thread
    may use it.
    """

    def __init__(self, holding: Holding) -> None:
        self._own_holding = holding
        self._home = HomeProcess()
        self._lock = threading.Lock()
        self._is_released = False

    @property
    def token(self) -> FencingToken:
        """Greater than that of every earlier holder."""
        return self._holding.token

    @property
    def held(self) -> bool:
        """Whether it is held, computed now from a local deadline. Once False, it stays so."""
        return self._holding.is_holding and not self._is_released

    @property
    def remaining_s(self) -> float:
        """How long it is held if the store is not heard from again; 0 when it is not held."""
        remaining_s = self._holding.session.remaining_s
        return remaining_s if self.held else 0.0

    @property
    def lost(self) -> LossSignal:
        """Set when it was lost, and also when it was given up."""
        return self._holding.lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` in a thread of its own when it is lost, but not on `release`."""
        self._holding.lost.on_lost(callback)

    def check(self) -> None:
        """Raise `GrantLostError` when it was lost and `NotHeldError` when it was released."""
        holding = self._holding
        if self._is_released:
            raise NotHeldError("this grant was released before")
        holding.check()

    def guard(self) -> Existing:
        """The check for `Backend.transact` that refuses a write once this grant is over."""
        return self._holding.guard

    def release(self) -> bool:
        """Give it up; the next in line gets it at once.

        Returns:
            True when it was held until now; False when it was lost or released before.
        """
        holding = self._holding
        with self._lock:
            if self._is_released:
                return False
            self._is_released = True
        return holding.release()

    @property
    def _holding(self) -> Holding:
        self._home.check()
        return self._own_holding

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self._is_released:
                self.check()
        finally:
            self.release()
