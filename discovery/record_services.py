"""Services as ordinary records, in the layout of Apache Curator's x-discovery.

    services/<service>/<id>   one instance (`curator_json`), as long as its session

On ZooKeeper this is the node that Curator and Spring Cloud read and write.
"""

import time
from collections.abc import Callable

from pliska.discovery.curator_json import decode_instance, drained, encode_instance
from pliska.discovery.errors import (
    DeregisteredError,
    InstanceConflictError,
    InstanceFormatError,
    NoInstanceError,
)
from pliska.discovery.instance import (
    Instance,
    InstanceState,
    check_instance_id,
    check_service_name,
)
from pliska.discovery.service_store import ServiceListing
from pliska.locks import (
    Backend,
    Clock,
    ConflictError,
    Create,
    Delete,
    Record,
    Session,
    SessionLostError,
    Unmodified,
)
from pliska.locks.backends.base import CALL_TIMEOUT_S, ChangeFeed

SERVICES = "services"
INSPECTION_S = 0.5
"""How often a registered instance looks whether somebody drained or removed it."""


class RecordServices:
    """See `ServiceStore`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def names(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """See `ServiceStore.names`."""
        return self._backend.directories(SERVICES, timeout_s)

    def list(self, service: str, timeout_s: float = CALL_TIMEOUT_S) -> ServiceListing:
        """See `ServiceStore.list`."""
        listing = self._backend.list(_directory(service), timeout_s)
        instances, unreadable = [], []
        for record in listing.records:
            try:
                instances.append(_decode(record, service))
            except InstanceFormatError as error:
                unreadable.append(str(error))
        instances.sort(key=lambda instance: instance.id)
        return ServiceListing(tuple(instances), listing.revision, tuple(unreadable))

    def open_feed(self) -> ChangeFeed:
        """See `ServiceStore.open_feed`."""
        return self._backend.open_feed()

    def path(self, service: str) -> str:
        """See `ServiceStore.path`."""
        return _directory(service)

    def drain(self, service: str, instance_id: str, timeout_s: float = CALL_TIMEOUT_S) -> Instance:
        """See `ServiceStore.drain`."""
        key = _key(service, instance_id)
        while True:
            record = self._backend.get(key, timeout_s)
            if record is None:
                raise NoInstanceError(
                    f"{service} has no instance {instance_id}: `pliska service list {service}` "
                    "shows those it has"
                )
            value = drained(record.value)
            try:
                if value != record.value:
                    self._backend.update(key, value, record.modified, timeout_s)
            except ConflictError:
                continue  # its owner changed it meanwhile
            return decode_instance(value, service, instance_id)

    def announcer(
        self, service: str, instance_id: str, lease_s: float, clock: Clock, wake: Callable[[], None]
    ) -> "RecordAnnouncer":
        """See `ServiceStore.announcer`."""
        return RecordAnnouncer(self._backend, _key(service, instance_id), lease_s, clock, wake)


class RecordAnnouncer:
    """One instance's record under a session of its own, replaced whenever that is lost."""

    interval_s = INSPECTION_S

    def __init__(
        self, backend: Backend, key: str, lease_s: float, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._backend = backend
        self._key = key
        self._lease_s = lease_s
        self._clock = clock
        self._wake = wake
        self._registered_ms = int(time.time() * 1000)
        self._session: Session | None = None
        self._lost_session_id: str | None = None
        self._is_written = False

    @property
    def is_announced(self) -> bool:
        """See `Announcer.is_announced`."""
        session = self._session
        return self._is_written and session is not None and session.is_alive

    def announce(self, instance: Instance) -> Instance:
        """See `Announcer.announce`."""
        session = self._live_session()
        record = self._backend.get(self._key)
        if record is None:
            self._refuse_if_removed(session)
            self._backend.create(self._key, self._encode(instance), session.backend_session)
        elif record.session_id == session.id:
            instance = _heeding(record, instance)
            if record.value != self._encode(instance):
                self._backend.update(self._key, self._encode(instance), record.modified)
        elif record.session_id is not None and record.session_id == self._lost_session_id:
            # The store has not ended our last session yet: its record would go with it.
            instance = _heeding(record, instance)
            self._backend.transact(
                [Unmodified(self._key, record.modified)],
                [Delete(self._key), Create(self._key, self._encode(instance), session.id)],
            )
        else:
            raise InstanceConflictError(
                f"{instance.service} has an instance {instance.id} of another process: choose "
                "another id, or wait until that one is gone"
            )
        self._is_written = True
        return instance

    def withdraw(self) -> None:
        """See `Announcer.withdraw`."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _live_session(self) -> Session:
        if self._session is not None and self._session.is_alive:
            return self._session
        if self._session is not None:
            self._forget_session(self._session)
        self._session = Session.open(self._backend, self._lease_s, self._clock)
        self._session.on_lost(self._wake)
        return self._session

    def _forget_session(self, session: Session) -> None:
        self._lost_session_id = session.id
        self._session = None
        self._is_written = False
        session.close()

    def _refuse_if_removed(self, session: Session) -> None:
        """Tell a record that went with its session from one that somebody removed."""
        if not self._is_written:
            return
        try:
            session.backend_session.renew(CALL_TIMEOUT_S)
        except SessionLostError:
            self._forget_session(session)
            raise
        raise DeregisteredError(f"{self._key!r} was removed from the store by somebody else")

    def _encode(self, instance: Instance) -> bytes:
        return encode_instance(instance, self._registered_ms)


def _heeding(record: Record, instance: Instance) -> Instance:
    """The instance as its owner wants it, drained if somebody has drained it in the store."""
    try:
        stored = _decode(record, instance.service)
    except InstanceFormatError:
        return instance
    return instance.drained() if stored.state is InstanceState.DRAINING else instance


def _decode(record: Record, service: str) -> Instance:
    return decode_instance(record.value, service, record.key.rpartition("/")[2])


def _directory(service: str) -> str:
    check_service_name(service)
    return f"{SERVICES}/{service}"


def _key(service: str, instance_id: str) -> str:
    check_instance_id(instance_id)
    return f"{_directory(service)}/{instance_id}"
