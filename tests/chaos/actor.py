"""Uses locks as its plan says and writes down what it saw: as a process, or in threads."""

import contextlib
import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from chaos.history import Recorder, now_s
from chaos.schedule import NAMES, Plan, Turn

from pliska.locks import (
    Backend,
    BackendSession,
    Barrier,
    ConflictError,
    Election,
    FencedStore,
    Grant,
    LockError,
    Mutex,
    ReadWriteLock,
    Semaphore,
    Session,
    SessionLostError,
    StaleTokenError,
    StoreError,
    Update,
    connect,
    observe_leaders,
)
from services.theft import steal

LOOK_PAUSE_S = 0.01
OUTAGE_S_MAX = 60.0
SEMAPHORE_SIZE = 2
BARRIER_PARTIES = 2
GUARDED = "guarded"

ResultT = TypeVar("ResultT")


class Actor:
    """One client's part in a run: a session, renewed when it is lost, and threads that use it."""

    def __init__(self, address: str, recorder: Recorder, lease_s: float) -> None:
        self._address = address
        self._backend = through_outages(lambda: connect(address))
        self._recorder = recorder
        _record_sessions(self._backend, recorder)
        self._lease_s = lease_s
        self._fenced = FencedStore(self._backend, "registers")
        self._lock = threading.Lock()
        self._session: Session | None = None
        self.has_ended = threading.Event()

    def session(self) -> Session:
        """The session, a new one when the last was lost."""
        with self._lock:
            if self.has_ended.is_set():
                raise SessionLostError("the run has ended")
            if self._session is None or not self._session.is_alive:
                self._session = Session.open(self._backend, self._lease_s)
            return self._session

    def be_robbed(self) -> None:
        """Have another client end the session."""
        with self._lock:
            session = self._session
        if session is not None:
            from_s = now_s()
            is_certain = steal(self._address, session.backend_session)
            to_s = now_s() if is_certain else math.inf
            self._recorder.record("stolen", session=session.id, from_s=from_s, to_s=to_s)

    def work(self, turns: tuple[Turn, ...]) -> None:
        """Take one turn after the other until the run has ended."""
        for turn in turns:
            if self.has_ended.is_set():
                return
            self.has_ended.wait(turn.rest_s)
            try:
                self._take(turn)
            except LockError:
                self.has_ended.wait(LOOK_PAUSE_S)  # written down where it matters

    def observe(self) -> None:
        """Write down every leader that comes."""
        while not self.has_ended.is_set():
            with contextlib.suppress(LockError):
                who = self._recorder.new_handle()
                for leader in observe_leaders(self._backend, "e", self.has_ended):
                    self._recorder.record(
                        "observed", who=who, name="elections/e", epoch=leader.epoch
                    )

    def close(self) -> None:
        """End the session."""
        self.has_ended.set()
        self._recorder.record("ended", victim=self._recorder.who, from_s=now_s())
        with self._lock:
            if self._session is not None:
                self._session.close()
        self._backend.close()

    def _take(self, turn: Turn) -> None:
        session, handle = self.session(), self._recorder.new_handle()
        name = NAMES[turn.recipe]
        lock = ReadWriteLock(session, "rw")
        acquire, attempt = self._ways(session, lock, turn.recipe)
        self._recorder.record(
            "asked", handle=handle, recipe=turn.recipe, name=name, session=session.id
        )
        try:
            grant = attempt() if turn.is_try else acquire(turn.timeout_s)
        except LockError as error:
            self._recorder.record("refused", handle=handle, why=type(error).__name__)
            raise
        if grant is None:
            self._recorder.record("refused", handle=handle, why="busy")
            return
        self._recorder.record("granted", handle=handle, token=grant.token)
        grant.on_lost(lambda: self._recorder.record("lost", handle=handle))
        self._use(grant, handle, turn, lock)

    def _ways(
        self, session: Session, lock: ReadWriteLock, recipe: str
    ) -> tuple[Callable[[float], Grant], Callable[[], Grant | None]]:
        if recipe == "leader":
            election = Election(session, "e", self._recorder.new_handle())
            return election.campaign, lambda: election.campaign(timeout_s=0)
        if recipe == "barrier":
            barrier = Barrier(session, "b", BARRIER_PARTIES)
            return barrier.enter, lambda: barrier.enter(timeout_s=0)
        side: Any = {
            "mutex": lambda: Mutex(session, "m"),
            "read": lambda: lock.read,
            "write": lambda: lock.write,
            "semaphore": lambda: Semaphore(session, "s", SEMAPHORE_SIZE),
        }[recipe]()
        return side.acquire, side.try_acquire

    def _use(self, grant: Grant, handle: str, turn: Turn, lock: ReadWriteLock) -> None:
        until_s = now_s() + turn.hold_s
        self._look(grant, handle)
        if turn.recipe in ("mutex", "write", "leader"):
            self._write(grant, turn.recipe)
        if turn.recipe == "write" and turn.downgrades:
            self._recorder.record("downgraded", handle=handle, from_s=now_s())
            lock.write.downgrade()
        while now_s() < until_s and self._look(grant, handle):
            time.sleep(LOOK_PAUSE_S)
        self._look(grant, handle)
        if turn.forgets:
            return
        from_s = now_s()
        was_held = grant.release()
        self._recorder.record(
            "released", handle=handle, from_s=from_s, to_s=now_s(), was_held=was_held
        )
        self._look(grant, handle)

    def _look(self, grant: Grant, handle: str) -> bool:
        from_s = now_s()
        held = grant.held
        self._recorder.record("looked", handle=handle, held=held, from_s=from_s, to_s=now_s())
        return held

    def _write(self, grant: Grant, recipe: str) -> None:
        """Write under the token, and under the guard: what was accepted is in the history."""
        with contextlib.suppress(StaleTokenError):
            revision = self._fenced.write(recipe, b"", grant.token)
            self._recorder.record(
                "write", register=f"fenced {recipe}", token=grant.token, revision=revision
            )
        with contextlib.suppress(ConflictError):
            update = Update(f"{GUARDED}/{recipe}", b"")
            revision = self._backend.transact([grant.guard()], [update])
            self._recorder.record(
                "write", register=f"guarded {recipe}", token=grant.token, revision=revision
            )


def through_outages(action: Callable[[], ResultT]) -> ResultT:
    """Do something that has to succeed, again and again while the store is away."""
    until_s = now_s() + OUTAGE_S_MAX
    while True:
        try:
            return action()
        except StoreError:
            if now_s() > until_s:
                raise
            time.sleep(LOOK_PAUSE_S)


def _record_sessions(backend: Backend, recorder: Recorder) -> None:
    """Write down each session that is opened and each renewal that is acknowledged."""
    open_session = backend.open_session

    def open_and_record(lease_s: float) -> BackendSession:
        sent_s = now_s()
        session = open_session(lease_s)
        renew = session.renew

        def renew_and_record(timeout_s: float) -> None:
            sent_s = now_s()
            renew(timeout_s)
            recorder.record("renewal", session=session.id, sent_s=sent_s)

        session.renew = renew_and_record  # type: ignore[method-assign]
        recorder.record("session", session=session.id, sent_s=sent_s, lease_s=session.lease_s)
        return session

    backend.open_session = open_and_record  # type: ignore[method-assign, assignment]


def play(address: str, history: Path, the_plan: Plan, number: int, commands: Connection) -> None:
    """Play one actor's part in a process of its own, until the other end of `commands` closes."""
    stacks = stacks_file(history, number).open("w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, stacks)
    recorder = Recorder(history, f"process {number} pid {os.getpid()}")
    actor = Actor(address, recorder, the_plan.shape.lease_s)
    threads = [
        threading.Thread(target=actor.work, args=(turns,), daemon=True)
        for turns in the_plan.turns[number]
    ]
    for thread in (*threads, threading.Thread(target=actor.observe, daemon=True)):
        thread.start()
    with contextlib.suppress(EOFError, ConnectionError):
        commands.send("ready")
        while commands.recv() == "be robbed":
            actor.be_robbed()
    actor.close()
    stacks.close()


def stacks_file(history: Path, number: int) -> Path:
    """Where an actor that is sent SIGUSR1 writes what its threads do."""
    return history.with_name(f"{history.name}-stacks-{number}")
