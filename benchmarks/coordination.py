"""Locks, hand-overs and watches against the recipes of kazoo and of Consul, on the same servers.

    make bench BENCH=coordination ARGS="--rounds 7 --only zookeeper"

Candidates take short turns in each round, so that all meet the same load; a
ratio is taken inside one round, and its median over the rounds is shown with
its spread. ZooKeeper and Consul are found or installed as for the tests
(tests/services).
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self

from report import Figure, figure, show

from pliska.locks import Backend, Mutex, Session, connect
from services import consul as consul_service
from services import zookeeper as zookeeper_service

LEASE_S = 10.0
PAIRS = 200
"""Acquire and release so often in one sample."""
CONTENTION_S = 2.0
"""How long processes compete in one sample."""
TURNS = 10
"""A sample is taken in so many parts, in turns with those that it is compared with."""
KILLS = 15
CHANGES = 100

Pair = Callable[[], object]
"""Acquires and releases once."""


@contextmanager
def our_pair(address: str) -> Iterator[Pair]:
    """Acquire and release a mutex of ours."""
    with closing(connect(address)) as backend, Session.open(backend, LEASE_S) as session:
        mutex = Mutex(session, "bench")
        yield lambda: mutex.acquire().release()


@contextmanager
def kazoo_pair(host_port: str) -> Iterator[Pair]:
    """Acquire and release kazoo's Lock recipe."""
    from kazoo.client import KazooClient

    client = KazooClient(host_port)
    client.start()
    lock = client.Lock("/kazoo/bench")

    def pair() -> None:
        lock.acquire()
        lock.release()

    try:
        yield pair
    finally:
        client.stop()
        client.close()


@contextmanager
def consul_script(host_port: str, *, session_each_time: bool) -> Iterator[Pair]:
    """Acquire and release a key by plain py-consul calls, as its documentation shows."""
    import consul

    host, _, port = host_port.partition(":")
    client = consul.Consul(host, int(port))
    kept = client.session.create(ttl=10, lock_delay=0)

    def pair() -> None:
        session = client.session.create(ttl=10, lock_delay=0) if session_each_time else kept
        while not client.kv.put("plain/bench", "", acquire=session):
            pass
        client.kv.put("plain/bench", "", release=session)
        if session_each_time:
            client.session.destroy(session)

    yield pair


def rates(pairs: Sequence[Pair], count: int = PAIRS) -> list[float]:
    """Return how often a second each pair runs; they take turns, so that all meet the same load."""
    spent_s = [0.0] * len(pairs)
    for pair in pairs:
        pair()
    for _ in range(TURNS):
        for index, pair in enumerate(pairs):
            begun_s = time.perf_counter()
            for _ in range(count // TURNS):
                pair()
            spent_s[index] += time.perf_counter() - begun_s
    return [count // TURNS * TURNS / each_s for each_s in spent_s]


class Competitors:
    """Processes that acquire and release one lock in tight loops, when they are told to."""

    def __init__(self, kind: str, address: str, count: int) -> None:
        command = [sys.executable, __file__, "--compete", kind, address]
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        for child in self._children:
            assert child.stdout is not None
            child.stdout.readline()  # it is ready

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.communicate()

    def compete(self, length_s: float) -> list[int]:
        """Return how often each had the lock in this time."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{length_s}\n")
            child.stdin.flush()
        return [int(child.stdout.readline()) for child in self._children if child.stdout]


def compete_here(kind: str, address: str) -> None:
    """Be one of the `Competitors`."""
    with (our_pair if kind == "ours" else kazoo_pair)(address) as pair:
        pair()
        print("ready", flush=True)
        for line in sys.stdin:
            count, until_s = 0, time.monotonic() + float(line)
            while time.monotonic() < until_s:
                pair()
                count += 1
            print(count, flush=True)


def hand_over_ratio(ours: Competitors, theirs: Competitors) -> float:
    """Return the time of our hand-over over that of theirs; they take turns too."""
    counts = [0, 0]
    for _ in range(TURNS):
        for index, competitors in enumerate((ours, theirs)):
            counts[index] += sum(competitors.compete(CONTENTION_S / TURNS))
    return counts[1] / counts[0]


def hold_here(address: str) -> None:
    """Acquire the lock, say so, and hold it until killed."""
    with closing(connect(address)) as backend, Session.open(backend, LEASE_S) as session:
        Mutex(session, "bench").acquire()
        print("held", flush=True)
        sys.stdin.readline()


def zookeeper_figures(stack: ExitStack, rounds: int) -> list[Figure]:
    """Compare with kazoo's Lock recipe on one server."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = zookeeper_service.start_one(directory, zookeeper_service.classpath())
    if server.process is not None:
        stack.callback(server.process.kill)
    address = server.fresh_address()
    pairs = [
        stack.enter_context(our_pair(address)),
        stack.enter_context(kazoo_pair(server.host_port)),
    ]
    our_two = stack.enter_context(Competitors("ours", address, 2))
    kazoos_two = stack.enter_context(Competitors("kazoo", server.host_port, 2))
    ours, theirs, ratios, hand_overs = [], [], [], []
    for _ in range(rounds):
        own, kazoos = rates(pairs)
        ours.append(own)
        theirs.append(kazoos)
        ratios.append(own / kazoos)
        hand_overs.append(hand_over_ratio(our_two, kazoos_two))
    return [
        figure("ZooKeeper: our acquire + release", ours, "/s"),
        figure("ZooKeeper: kazoo's Lock recipe", theirs, "/s"),
        figure("ZooKeeper: ours over kazoo's", ratios, "x", ">= 1.5", lambda v: v >= 1.5),
        figure(
            "ZooKeeper: time of a hand-over between two processes, ours over kazoo's",
            hand_overs,
            "x",
            "<= 1",
            lambda v: v <= 1.0,
        ),
    ]


def consul_figures(stack: ExitStack, rounds: int) -> list[Figure]:
    """Compare with a plain script on one agent."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = consul_service.start_one(directory, consul_service.binary())
    if server.process is not None:
        stack.callback(server.process.kill)
    pairs = [
        stack.enter_context(our_pair(server.fresh_address())),
        stack.enter_context(consul_script(server.host_port, session_each_time=True)),
        stack.enter_context(consul_script(server.host_port, session_each_time=False)),
    ]
    ours, with_session, without = [], [], []
    for _ in range(rounds):
        own, each, kept = rates(pairs)
        ours.append(own)
        with_session.append(own / each)
        without.append(own / kept)
    goal = ">= 1.3"
    return [
        figure("Consul: our acquire + release", ours, "/s"),
        figure("Consul: ours over session + acquire + release", with_session, "x", goal,
               lambda v: v >= 1.3),
        figure("Consul: ours over acquire + release on a kept session", without, "x"),
    ]  # fmt: skip


def embedded_figures(stack: ExitStack, rounds: int) -> list[Figure]:
    """Measure the embedded store, which has no peer to compare with."""
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    address = f"embedded:{directory}"
    own = stack.enter_context(our_pair(address))
    ours = [each for _ in range(rounds) for each in rates([own], 2000)]
    with Competitors("ours", address, 8) as eight:
        shares = [eight.compete(CONTENTION_S) for _ in range(max(1, rounds // 2))]
    fairness = [max(share) / max(1, min(share)) for share in shares]
    backend = stack.enter_context(closing(connect(address)))
    return [
        figure("embedded: acquire + release", ours, "/s", ">= 2000", lambda v: v >= 2000),
        figure("embedded: most over least of 8 processes", fairness, "x", "<= 2",
               lambda v: v <= 2.0),
        figure("embedded: lock free after kill -9", kills_ms(address, backend), "ms", "<= 50",
               lambda v: v <= 50),
        figure("embedded: a watch sees a change after", watches_ms(address, backend), "ms",
               "<= 10", lambda v: v <= 10),
    ]  # fmt: skip


def kills_ms(address: str, backend: Backend) -> Sequence[float]:
    """Kill holders and measure until the next in line holds."""
    waits = []
    with Session.open(backend, LEASE_S) as session:
        mutex = Mutex(session, "bench")
        for _ in range(KILLS):
            holder = subprocess.Popen(
                [sys.executable, __file__, "--hold", address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert holder.stdout is not None
            holder.stdout.readline()
            held_at: list[float] = []

            def wait(held_at: list[float] = held_at) -> None:
                mutex.acquire().release()
                held_at.append(time.perf_counter())

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.1)  # until it is in the queue
            killed_at = time.perf_counter()
            holder.send_signal(signal.SIGKILL)
            waiter.join()
            waits.append(1000 * (held_at[0] - killed_at))
            holder.communicate()
    return waits


def watches_ms(address: str, backend: Backend) -> Sequence[float]:
    """Write through one connection and measure until a waiter on another one wakes."""
    waits = []
    with closing(connect(address)) as writer:
        for number in range(CHANGES):
            revision = backend.list("bench-watch").revision
            woken_at: list[float] = []

            def wait(revision: int = revision, woken_at: list[float] = woken_at) -> None:
                backend.wait_for_change("bench-watch", revision, 10.0)  # type: ignore[arg-type]
                woken_at.append(time.perf_counter())

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.03)  # until it waits
            writer.create(f"bench-watch/{number}-{time.monotonic_ns()}", b"")
            written_at = time.perf_counter()
            waiter.join()
            waits.append(max(0.0, 1000 * (woken_at[0] - written_at)))
    return waits


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("zookeeper", "consul", "embedded"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/coordination.json"))
    parser.add_argument("--compete", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compete:
        compete_here(*options.compete)
        return
    if options.hold:
        hold_here(options.hold)
        return
    parts = {
        "zookeeper": zookeeper_figures,
        "consul": consul_figures,
        "embedded": embedded_figures,
    }
    figures: list[Figure] = []
    with ExitStack() as stack:
        for name, part in parts.items():
            if options.only in (None, name):
                figures += part(stack, options.rounds)
    show("Coordination", figures, options.output)


if __name__ == "__main__":
    main()
