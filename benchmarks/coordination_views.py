"""Local views of 1,000 services and of 1,000 configuration keys: speed, memory, truth.

    .venv/bin/python benchmarks/coordination_views.py --store embedded:/tmp/views

Everything is in one process: what it shows of memory includes whoever changes
things. The goals are those of the design: resolve in under 1 ms, and memory that
10,000 changes do not make grow. Each of the 1,000 service views has a thread, and
glibc keeps some freed memory back for each thread; the bound leaves room for that.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from report import Figure, figure, show

from pliska.discovery import ConfigStore, ConfigView, Instance, Resolver, ServiceView
from pliska.discovery.curator_json import encode_instance
from pliska.locks import Backend, Create, Revision, Session, connect

SERVICES = 1_000
KEYS = 1_000
CHANGES = 10_000
WARM_CHANGES = 5_000
RESOLVES = 2_000
PATIENCE_S = 120.0
GROWTH_MB_MAX = 16.0
"""16 KB for each view's thread."""
BATCH = 50


def main() -> None:
    """Run the parts and show their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="address; an embedded store of its own by default")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/views.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        address = options.store or f"embedded:{directory}/store"
        with closing(connect(address)) as backend, Session.open(backend) as session:
            figures = [*one_large_service(backend, session), *many_services(backend, session)]
        with closing(connect(address)) as backend:
            figures += many_keys(backend)
    show("Views", figures, options.out)


def one_large_service(backend: Backend, session: Session) -> list[Figure]:
    """One service with 1,000 instances."""
    instances = [_instance("large", f"i{n:04}") for n in range(SERVICES)]
    _register(backend, session, instances)
    with Resolver(backend) as resolver:
        resolver.resolve("large")
        samples = _times_ms(lambda: resolver.resolve("large"), RESOLVES)
    return [_resolve_figure("resolve, one service of 1,000 instances", samples)]


def many_services(backend: Backend, session: Session) -> list[Figure]:
    """1,000 services with one instance each, all followed, while they change 10,000 times."""
    instances = [_instance(f"service-{n:04}", "i") for n in range(SERVICES)]
    _register(backend, session, instances)
    with Resolver(backend) as resolver:
        views = [resolver.view(each.service) for each in instances]
        for view in views:
            assert view.wait_until_known(PATIENCE_S)
        names = iter([each.service for each in instances] * (RESOLVES // SERVICES))
        samples = _times_ms(lambda: resolver.resolve(next(names)), RESOLVES)
        change = _ServiceChanges(backend, instances, views)
        growth = _growth(change.one, change.wait_until_true)
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
        figure("set a key until its watch has it", latencies, "ms"),
        _growth_figure("memory grown by 10,000 changes of keys", growth),
    ]


class _ServiceChanges:
    """Changes weights, one service after the other, and knows what the views must end with."""

    def __init__(
        self, backend: Backend, instances: list[Instance], views: list[ServiceView]
    ) -> None:
        self._backend = backend
        self._instances = instances
        self._views = views
        self._modified = [_modified(backend, each) for each in instances]

    def one(self, number: int) -> None:
        place = number % len(self._instances)
        changed = replace(self._instances[place], weight=1 + number % 60_000)
        record = self._backend.update(
            _key(changed), encode_instance(changed, 1), self._modified[place]
        )
        self._instances[place], self._modified[place] = changed, record.modified

    def wait_until_true(self) -> None:
        for instance, view in zip(self._instances, self._views, strict=True):
            while view.snapshot.instances != (instance,):
                time.sleep(0.005)


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


def _register(backend: Backend, session: Session, instances: list[Instance]) -> None:
    for begin in range(0, len(instances), BATCH):
        backend.transact(
            [],
            [
                Create(_key(each), encode_instance(each, 1), session.id)
                for each in instances[begin : begin + BATCH]
            ],
        )


def _instance(service: str, instance_id: str) -> Instance:
    return Instance(service=service, id=instance_id, address="127.0.0.1", port=80)


def _key(instance: Instance) -> str:
    return f"services/{instance.service}/{instance.id}"


def _modified(backend: Backend, instance: Instance) -> Revision:
    record = backend.get(_key(instance))
    assert record is not None
    return record.modified


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
