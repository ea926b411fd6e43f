"""Services on every store: register, follow, drain, and what outages must not do to them."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from pliska.discovery import (
    DeregisteredError,
    Instance,
    InstanceConflictError,
    InstanceState,
    NoInstanceError,
    Registration,
    Resolver,
    ServiceView,
    Standing,
    register,
)
from pliska.discovery.service_store import ServiceStore, open_service_store
from pliska.locks import Backend
from pliska.locks.backends.service_catalog import CatalogBackend, CatalogEntry
from services.outage import Outage
from services.waiting import wait_until

Connect = Callable[[], Backend]
Register = Callable[..., Registration]

PATIENCE_S = 15.0
SERVICE = "scorer"
"""Of the test that runs: Consul's catalog is one for all who use the agent."""


@pytest.fixture(autouse=True)
def fresh_service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request.module, "SERVICE", f"scorer-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def lease_s(address: str) -> float:
    """Short, where the store allows it."""
    return {"memory": 0.4, "embedded": 0.4, "zookeeper": 1.0, "consul": 1.0}[
        address.partition(":")[0]
    ]


@pytest.fixture
def line(connect_store: Connect) -> Outage:
    """A client whose line can be cut."""
    return Outage(connect_store())


@pytest.fixture
def services(backend: Backend) -> ServiceStore:
    """What another process finds when it asks afresh."""
    return open_service_store(backend)


@pytest.fixture
def enter(connect_store: Connect, lease_s: float) -> Iterator[Register]:
    """Registers an instance on a client of its own, as another process would."""
    registrations: list[Registration] = []

    def enter_one(instance: Instance, backend: Backend | None = None) -> Registration:
        registration = register(backend or connect_store(), instance, lease_s, PATIENCE_S)
        registrations.append(registration)
        return registration

    yield enter_one
    for registration in registrations:
        registration.deregister()


@pytest.fixture
def follow() -> Iterator[Callable[[Backend], ServiceView]]:
    views: list[ServiceView] = []

    def follow_scorer(backend: Backend) -> ServiceView:
        views.append(ServiceView(backend, SERVICE))
        assert views[-1].wait_until_known(PATIENCE_S)
        return views[-1]

    yield follow_scorer
    for view in views:
        view.close()


def scorer(instance_id: str, **fields: object) -> Instance:
    return Instance(service=SERVICE, id=instance_id, address="127.0.0.1", port=80, **fields)  # type: ignore[arg-type]


def working(services: ServiceStore) -> list[str]:
    """Ids of the instances that a fresh query finds and that take work."""
    return [each.id for each in services.list(SERVICE).instances if each.takes_work]


def ids(view: ServiceView) -> list[str]:
    return [each.id for each in view.snapshot.instances if each.takes_work]


def test_a_registered_instance_is_found_by_a_fresh_query(
    enter: Register, services: ServiceStore
) -> None:
    instance = scorer("s1", metadata={"model": "v3"}, tags=("gpu", "eu"), zone="eu-1", weight=3)
    enter(instance)
    assert services.list(SERVICE).instances == (instance,)
    assert SERVICE in services.names()


def test_a_deregistered_instance_is_gone_and_stays_gone(
    enter: Register, services: ServiceStore
) -> None:
    registration = enter(scorer("s1"))
    registration.deregister()
    registration.deregister()
    assert services.list(SERVICE).instances == ()
    assert not registration.is_registered
    with pytest.raises(DeregisteredError, match="it was deregistered"):
        registration.update(weight=2)
    with pytest.raises(DeregisteredError):
        registration.drain()
    assert services.list(SERVICE).instances == ()


def test_an_update_reaches_the_store(enter: Register, services: ServiceStore) -> None:
    registration = enter(scorer("s1", zone="eu-1"))
    registration.update(metadata={"model": "v4"}, weight=7)
    assert registration.wait_until_registered(PATIENCE_S)
    expected = scorer("s1", zone="eu-1", metadata={"model": "v4"}, weight=7)
    assert services.list(SERVICE).instances == (expected,)


def test_an_instance_of_a_dead_process_goes_and_comes_back_with_its_latest_metadata(
    enter: Register, line: Outage, services: ServiceStore
) -> None:
    registration = enter(scorer("s1", metadata={"model": "old"}), line)
    line.is_cut = True
    registration.update(metadata={"model": "new"})
    wait_until(lambda: working(services) == [])
    assert not registration.is_registered
    line.is_cut = False
    assert registration.wait_until_registered(PATIENCE_S)
    assert services.list(SERVICE).instances == (scorer("s1", metadata={"model": "new"}),)


def test_what_was_deregistered_in_an_outage_is_not_resurrected(
    enter: Register, line: Outage, services: ServiceStore, backend: Backend
) -> None:
    registration = enter(scorer("s1"), line)
    line.is_cut = True
    registration.deregister()
    assert "pliska-registration" not in {each.name for each in threading.enumerate()}
    line.is_cut = False
    wait_until(lambda: working(services) == [])
    reads = line.reads
    enter(scorer("s2"))
    assert working(services) == ["s2"]
    assert line.reads == reads


def test_an_instance_drained_by_somebody_else_stays_drained_when_its_session_is_lost(
    enter: Register, line: Outage, services: ServiceStore
) -> None:
    registration = enter(scorer("s1"), line)
    assert services.drain(SERVICE, "s1").state is InstanceState.DRAINING
    assert working(services) == []
    wait_until(lambda: registration.instance.state is InstanceState.DRAINING)
    line.is_cut = True
    wait_until(lambda: not registration.is_registered)
    line.is_cut = False
    assert registration.wait_until_registered(PATIENCE_S)
    (instance,) = services.list(SERVICE).instances
    assert instance.state is InstanceState.DRAINING


def test_an_update_does_not_undo_a_drain(enter: Register, services: ServiceStore) -> None:
    registration = enter(scorer("s1"))
    services.drain(SERVICE, "s1")
    registration.update(weight=5)
    assert registration.wait_until_registered(PATIENCE_S)
    assert services.list(SERVICE).instances == (scorer("s1", weight=5).drained(),)


def test_its_owner_drains_it(enter: Register, services: ServiceStore) -> None:
    registration = enter(scorer("s1"))
    registration.drain()
    assert registration.wait_until_registered(PATIENCE_S)
    assert services.list(SERVICE).instances == (scorer("s1").drained(),)


def test_draining_what_is_not_there_is_an_error(services: ServiceStore) -> None:
    with pytest.raises(NoInstanceError, match="no instance s1"):
        services.drain(SERVICE, "s1")


def test_an_instance_that_fails_its_probe_takes_no_work_until_it_recovers(
    enter: Register, services: ServiceStore
) -> None:
    registration = enter(scorer("s1"))
    registration.report_health(False)
    assert registration.wait_until_registered(PATIENCE_S)
    assert working(services) == []
    registration.report_health(True)
    assert registration.wait_until_registered(PATIENCE_S)
    assert services.list(SERVICE).instances == (scorer("s1"),)


def test_removed_by_somebody_else_it_does_not_come_back(
    enter: Register, backend: Backend, services: ServiceStore
) -> None:
    registration = enter(scorer("s1"))
    if isinstance(backend, CatalogBackend):
        # A gap, see `CatalogAnnouncer`: it may as well be its agent that lost the entry.
        backend.service_catalog.deregister(SERVICE, "s1")
        wait_until(lambda: working(services) == ["s1"])
        return
    backend.delete(f"services/{SERVICE}/s1")
    assert "removed from the store" in (registration.wait_until_ended(PATIENCE_S) or "")
    assert services.list(SERVICE).instances == ()


def test_one_id_has_one_owner(enter: Register, connect_store: Connect, lease_s: float) -> None:
    enter(scorer("s1", zone="first"))
    with pytest.raises(InstanceConflictError, match="s1 of another process"):
        register(connect_store(), scorer("s1"), lease_s, timeout_s=0.5)


def test_a_new_process_takes_over_the_id_of_a_dead_one(
    enter: Register, line: Outage, services: ServiceStore
) -> None:
    enter(scorer("s1", zone="before"), line)
    line.is_cut = True
    enter(scorer("s1", zone="after"))
    assert services.list(SERVICE).instances == (scorer("s1", zone="after"),)


def test_a_view_follows_what_comes_changes_and_goes(
    enter: Register, backend: Backend, follow: Callable[[Backend], ServiceView]
) -> None:
    view = follow(backend)
    assert (view.snapshot.instances, view.snapshot.standing) == ((), Standing.CONFIRMED)
    first = enter(scorer("s1"))
    enter(scorer("s2"))
    wait_until(lambda: ids(view) == ["s1", "s2"])
    first.update(weight=9)
    wait_until(lambda: [each.weight for each in view.snapshot.instances] == [9, 1])
    first.deregister()
    wait_until(lambda: ids(view) == ["s2"])
    assert view.snapshot.standing is Standing.CONFIRMED


def test_a_view_keeps_the_last_good_list_in_an_outage_and_ends_in_the_true_state(
    enter: Register,
    line: Outage,
    services: ServiceStore,
    follow: Callable[[Backend], ServiceView],
) -> None:
    first = enter(scorer("s1"))
    view = follow(line)
    assert ids(view) == ["s1"]
    line.is_cut = True
    first.deregister()
    enter(scorer("s2"))
    wait_until(lambda: view.snapshot.standing is Standing.UNREACHABLE)
    assert ids(view) == ["s1"]
    assert view.snapshot.is_stale
    assert "cut the line" in view.snapshot.reason
    age_s = view.age_s
    wait_until(lambda: view.age_s > age_s)
    line.is_cut = False
    wait_until(lambda: ids(view) == ["s2"] == working(services))
    assert not view.snapshot.is_stale


def test_an_emptied_service_keeps_its_last_good_list_marked_as_stale(
    enter: Register, backend: Backend, follow: Callable[[Backend], ServiceView]
) -> None:
    registration = enter(scorer("s1"))
    view = follow(backend)
    registration.deregister()
    wait_until(lambda: view.snapshot.standing is Standing.EMPTIED)
    assert ids(view) == ["s1"]
    enter(scorer("s2"))
    wait_until(lambda: ids(view) == ["s2"])
    assert view.snapshot.standing is Standing.CONFIRMED


def test_a_resolver_passes_over_what_drains_and_says_why_nobody_is_left(
    enter: Register, backend: Backend, services: ServiceStore
) -> None:
    enter(scorer("s1"))
    enter(scorer("s2"))
    services.drain(SERVICE, "s1")
    with Resolver(backend) as resolver:
        assert {resolver.resolve(SERVICE).id for _ in range(10)} == {"s2"}
        services.drain(SERVICE, "s2")
        wait_until(lambda: ids(resolver.view(SERVICE)) == [])
        with pytest.raises(NoInstanceError, match="2 draining"):
            resolver.resolve(SERVICE)


def test_what_cannot_be_read_hides_only_itself(
    enter: Register, backend: Backend, services: ServiceStore
) -> None:
    if isinstance(backend, CatalogBackend):
        entry = CatalogEntry(SERVICE, "no id!", "h", 1, (), {}, 1)
        backend.service_catalog.register(entry, ttl_s=60)
    else:
        backend.create(f"services/{SERVICE}/garbage", b"\xff not json")
        backend.create(f"services/{SERVICE}/liar", b'{"name":"other","id":"liar","address":"h"}')
    enter(scorer("s1"))
    listing = services.list(SERVICE)
    assert listing.instances == (scorer("s1"),)
    assert listing.unreadable
    assert all(SERVICE in reason for reason in listing.unreadable)


def test_many_services_are_followed_in_one_thread(enter: Register, backend: Backend) -> None:
    quiet = [f"{SERVICE}-{number}" for number in range(60)]
    with Resolver(backend) as resolver:
        views = [resolver.view(name) for name in (*quiet, SERVICE)]
        wait_until(lambda: all(view.snapshot.standing is Standing.CONFIRMED for view in views))
        enter(scorer("s1"))
        wait_until(lambda: ids(views[-1]) == ["s1"])
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("pliska-service-views") == 1
    wait_until(lambda: "pliska-service-views" not in [each.name for each in threading.enumerate()])
