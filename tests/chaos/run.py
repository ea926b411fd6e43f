"""Runs: actors that use locks as planned, faults among them, and the history of it all."""

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.actor import GUARDED, SEMAPHORE_SIZE, through_outages
from chaos.cast import Member, Process, Threads
from chaos.history import Event, Recorder, now_s, read_history
from chaos.schedule import AMONG_THREADS, Fault, FaultKind, Plan
from chaos.servers import Servers

from pliska.locks import (
    ConflictError,
    StoreError,
    break_lock,
    connect,
    lock_queue,
    resize_semaphore,
)

SIZES = (1, 2, 3)


class Administrator:
    """What an administrator does to a store, and the store as it is before a run."""

    def __init__(self, address: str, recorder: Recorder, seed: int) -> None:
        self._random = random.Random(seed)
        self._recorder = recorder
        self._backend = through_outages(lambda: connect(address))

    def prepare(self) -> None:
        """Write what actors expect to be there, through outages that other runs cause."""
        through_outages(self._prepare)

    def act(self, kind: FaultKind) -> None:
        """Break a lock, or resize the semaphore."""
        with contextlib.suppress(StoreError):  # what may have happened is written down
            if kind is FaultKind.BREAK:
                self._break_one()
            else:
                self._resize(self._random.choice(SIZES))

    def close(self) -> None:
        """Free the connections."""
        self._backend.close()

    def _prepare(self) -> None:
        for recipe in ("mutex", "write", "leader"):
            with contextlib.suppress(ConflictError):
                self._backend.create(f"{GUARDED}/{recipe}", b"")
        self._resize(SEMAPHORE_SIZE)

    def _break_one(self) -> None:
        name, from_s = self._random.choice(("m", "rw")), now_s()
        tokens = [each.token for each in lock_queue(self._backend, name)]
        to_s = math.inf
        try:
            tokens = [each.token for each in break_lock(self._backend, name)]
            to_s = now_s()
        finally:
            self._recorder.record(
                "broken", name=f"locks/{name}", tokens=tokens, from_s=from_s, to_s=to_s
            )

    def _resize(self, size: int) -> None:
        from_s, to_s = now_s(), math.inf
        try:
            resize_semaphore(self._backend, "s", size)
            to_s = now_s()
        finally:
            self._recorder.record(
                "resized", name="semaphores/s", size=size, from_s=from_s, to_s=to_s
            )


def perform(
    the_plan: Plan, addresses: Sequence[str], servers: Servers, history: Path
) -> list[Event]:
    """Play a plan and return what all who took part wrote down.

    Args:
        the_plan: What happens.
        addresses: Of one store, perhaps through several servers; actors take turns with them.
        servers: What keeps the store.
        history: A file to write to.
    """
    recorder = Recorder(history, "administrator")
    administrator = Administrator(addresses[0], recorder, the_plan.seed)
    administrator.prepare()
    members: list[Member] = []
    with servers.seen_by(recorder):
        try:
            members = _cast(the_plan, addresses, recorder, history)
            _let_happen(the_plan, members, administrator, servers)
        finally:
            with ThreadPoolExecutor(max(1, len(members))) as pool:
                endings = [pool.submit(member.stop) for member in members]
            for ending in endings:
                ending.result()
            administrator.close()
    recorder.close()
    return read_history(history)


def perform_together(
    plans: Sequence[Plan], place: Callable[[], Sequence[str]], servers: Servers, directory: Path
) -> dict[int, list[Event]]:
    """Play several plans at once, each in a store of its own on the same servers.

    Returns:
        The histories by the plans' seeds.
    """
    with ThreadPoolExecutor(len(plans)) as pool:
        running = {
            each.seed: pool.submit(
                perform, each, place(), servers, directory / f"history-{each.seed}"
            )
            for each in plans
        }
    return {seed: run.result() for seed, run in running.items()}


def _cast(
    the_plan: Plan, addresses: Sequence[str], recorder: Recorder, history: Path
) -> list[Member]:
    numbers = range(the_plan.shape.actors)
    addressed = [(addresses[number % len(addresses)], number) for number in numbers]
    if the_plan.shape.faults is AMONG_THREADS:
        return [Threads(address, history, the_plan, number) for address, number in addressed]
    processes = [
        Process(address, history, the_plan, number, recorder) for address, number in addressed
    ]
    for process in processes:
        process.wait_until_ready()
    return [*processes]


def _let_happen(
    the_plan: Plan, members: Sequence[Member], administrator: Administrator, servers: Servers
) -> None:
    started_s = now_s()
    for fault in the_plan.faults:
        time.sleep(max(0.0, started_s + fault.at_s - now_s()))
        _do(fault, members, administrator, servers)
    time.sleep(max(0.0, started_s + the_plan.length_s - now_s()))


def _do(
    fault: Fault, members: Sequence[Member], administrator: Administrator, servers: Servers
) -> None:
    match fault.kind:
        case FaultKind.BREAK | FaultKind.RESIZE:
            administrator.act(fault.kind)
        case FaultKind.FREEZE | FaultKind.CRASH:
            servers.suffer(fault)
        case _:
            members[fault.victim].suffer(fault)
