"""Local views of 1,000 services and of 1,000 configuration keys: speed, memory, truth.

    .venv/bin/python benchmarks/coordination_views.py --store embedded:/tmp/views

Everything is in one process: what it shows of memory includes whoever changes
things. The goals are those of the design: resolve in under 1 ms, a change seen
within 10 ms on the embedded store, and memory that 10,000 changes do not make grow.
"""

import argparse
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from report import Figure, figure, show

from pliska.discovery import ConfigStore, ConfigView, Instance, Resolver
from pliska.discovery.catalog_services import CatalogAnnouncer, CatalogServices
from pliska.discovery.curator_json import encode_instance
from pliska.discovery.service_store import open_service_store
from pliska.locks import Backend, Revision, Session, SystemClock, connect

SERVICES = 1_000
KEYS = 1_000
CHANGES = 10_000
WARM_CHANGES = 5_000
RESOLVES = 2_000
PATIENCE_S = 120.0
GROWTH_MB_MAX = 1.0
"""100 bytes a change: less than whatever could be kept of each."""
SEEN_MS_MAX = 10.0
LEASE_S = 3_600.0


def main() -> None:
    """Run the parts and show their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="address; an embedded store of its own by default")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/views.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        address = options.store or f"embedded:{directory}/store"
        with closing(connect(address)) as backend, Session.open(backend, LEASE_S) as session:
            entries = entries_of(backend, session)
            figures = [*one_large_service(backend, entries), *many_services(backend, entries)]
        with closing(connect(address)) as backend:
            figures += many_keys(backend)
    show("Views", figures, options.out)


def one_large_service(backend: Backend, entries: "Entries") -> list[Figure]:
    """One service with 1,000 instances."""
    for number in range(SERVICES):
        entries.put(_instance(entries.service("large"), f"i{number:04}"))
    with Resolver(backend) as resolver:
        resolver.resolve(entries.service("large"))
        samples = _times_ms(lambda: resolver.resolve(entries.service("large")), RESOLVES)
    return [_resolve_figure("resolve, one service of 1,000 instances", samples)]


def many_services(backend: Backend, entries: "Entries") -> list[Figure]:
    """1,000 services with one instance each, all followed, while they change 10,000 times."""
    instances = [_instance(entries.service(f"{number:04}"), "i") for number in range(SERVICES)]
    for instance in instances:
        entries.put(instance)
    with Resolver(backend) as resolver:
        views = [resolver.view(each.service) for each in instances]
        for view in views:
            assert view.wait_until_known(PATIENCE_S)
        names = iter([each.service for each in instances] * (RESOLVES // SERVICES))
        samples = _times_ms(lambda: resolver.resolve(next(names)), RESOLVES)

        def change(number: int) -> None:
            place = number % SERVICES
            instances[place] = replace(instances[place], weight=1 + number % 60_000)
            entries.put(instances[place])

        def wait_until_true() -> None:
            for instance, view in zip(instances, views, strict=True):
                while view.snapshot.instances != (instance,):
                    time.sleep(0.005)

        growth = _growth(change, wait_until_true)
    return [
        _resolve_figure("resolve, 1,000 services", samples),
        _growth_figure("memory grown by 10,000 changes of services", growth),
    ]


def many_keys(backend: Backend) -> list[Figure]:
    """1,000 keys with a watch each, while they change 10,000 times."""
    config = ConfigStore(backend)
    keys = [f"bench.key-{n:04}" for n in range(KEYS)]
    for key in keys:
        config.set(key, 0)
    with ConfigView(backend) as view, ExitStack() as stack:
        assert view.wait_until_known(PATIENCE_S)
        watches = {key: stack.enter_context(view.watch(key)) for key in keys}
        for watch in watches.values():
            watch.next(PATIENCE_S)
        reads = _times_ms(lambda: view.get(keys[0]), RESOLVES)

        def seen_after() -> float:
            started_s = time.perf_counter()
            revision = config.set(keys[1], time.time()).revision
            while (setting := watches[keys[1]].next(PATIENCE_S)) and setting.revision < revision:
                pass
            return (time.perf_counter() - started_s) * 1e3

        latencies = [seen_after() for _ in range(50)]
        last = dict.fromkeys(keys, 0)

        def change(number: int) -> None:
            key = keys[number % KEYS]
            last[key] = config.set(key, number).revision

        def wait_until_true() -> None:
            for key, revision in last.items():
                while view.get(key).setting.revision < revision:
                    time.sleep(0.005)

        growth = _growth(change, wait_until_true)
    return [
        figure("get a key from the view", reads, "ms", "< 1 ms", lambda value: value < 1),
        figure(
            "set a key until its watch has it",
            latencies,
            "ms",
            f"< {SEEN_MS_MAX:g} ms",
            lambda value: value < SEEN_MS_MAX,
        ),
        _growth_figure("memory grown by 10,000 changes of keys", growth),
    ]


class Entries(Protocol):
    """Writes instances as whoever registers them does, without a thread for each."""

    def service(self, name: str) -> str:
        """A name that no earlier run has used."""

    def put(self, instance: Instance) -> None:
        """Add an instance, or replace it."""


def entries_of(backend: Backend, session: Session) -> Entries:
    """The way of the store: its catalog, if it has one, or records."""
    store = open_service_store(backend)
    return CatalogEntries(store) if isinstance(store, CatalogServices) else Records(session)


class Records:
    """Instances as records of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._modified: dict[str, Revision] = {}

    def service(self, name: str) -> str:
        return f"bench-{name}"

    def put(self, instance: Instance) -> None:
        backend, value = self._session.backend, encode_instance(instance, 1)
        key = f"services/{instance.service}/{instance.id}"
        if key in self._modified:
            record = backend.update(key, value, self._modified[key])
        else:
            record = backend.create(key, value, self._session.backend_session)
        self._modified[key] = record.modified


class CatalogEntries:
    """Instances in the catalog, which belongs to the whole store and outlives this process."""

    def __init__(self, store: CatalogServices) -> None:
        self._store = store
        self._run = uuid.uuid4().hex[:8]
        self._announcers: dict[str, CatalogAnnouncer] = {}

    def service(self, name: str) -> str:
        return f"bench-{self._run}-{name}"

    def put(self, instance: Instance) -> None:
        name = f"{instance.service}/{instance.id}"
        if name not in self._announcers:
            self._announcers[name] = self._store.announcer(
                instance.service, instance.id, LEASE_S, SystemClock(), lambda: None
            )
        self._announcers[name].announce(instance)


def _growth(change: Callable[[int], None], wait_until_true: Callable[[], None]) -> list[float]:
    """Megabytes that the process grows by during the changes, after a warm-up."""
    for number in range(WARM_CHANGES):
        change(number)
    wait_until_true()
    before = _resident_mb()
    started_s = time.perf_counter()
    for number in range(CHANGES):
        change(number)
    changed_s = time.perf_counter() - started_s
    wait_until_true()
    ended_s = time.perf_counter() - started_s
    print(
        f"{CHANGES} changes in {changed_s:.1f} s, all views true after {ended_s:.1f} s; "
        f"{before:.0f} MB before, {_resident_mb():.0f} MB after, {threading.active_count()} threads"
    )
    return [_resident_mb() - before]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _instance(service: str, instance_id: str) -> Instance:
    return Instance(service=service, id=instance_id, address="127.0.0.1", port=80)


def _times_ms(call: Callable[[], object], count: int) -> list[float]:
    samples = []
    for _ in range(count):
        started_s = time.perf_counter()
        call()
        samples.append((time.perf_counter() - started_s) * 1e3)
    return samples


def _resolve_figure(name: str, samples: list[float]) -> Figure:
    return figure(name, samples, "ms", "< 1 ms", lambda value: value < 1)


def _growth_figure(name: str, samples: list[float]) -> Figure:
    goal = f"< {GROWTH_MB_MAX:g} MB"
    return figure(name, samples, "MB", goal, lambda value: value < GROWTH_MB_MAX)


if __name__ == "__main__":
    main()
