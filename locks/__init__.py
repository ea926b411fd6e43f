"""Locks, leader election and the coordination stores they stand on.

`connect` opens a store, `Session` keeps a lease in it, and `Mutex`,
`ReadWriteLock`, `Semaphore`, `Barrier` and `Election` borrow the session:

    backend = connect("embedded:./.pliska")
    with Session.open(backend) as session, Mutex(session, "backup").hold() as grant:
        fenced_store.write("latest", value, grant.token)

`pliska.locks.aio` waits for the same in asyncio. This package coordinates; what
workers send each other is none of its business.
"""

from pliska.locks.address import Address, connect
from pliska.locks.backends.base import (
    Absent,
    Backend,
    BackendSession,
    Change,
    Check,
    Create,
    Delete,
    Existing,
    Guarantee,
    Listing,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.barrier import Barrier
from pliska.locks.clock import Clock, ManualClock, SystemClock
from pliska.locks.consul_lock import ConsulLock
from pliska.locks.election import Election, Leadership
from pliska.locks.errors import (
    AccessDeniedError,
    AcquireCancelledError,
    AcquireTimeoutError,
    BrokenBarrierError,
    ConflictError,
    ForkedProcessError,
    GrantLostError,
    LockError,
    LockFreeError,
    LockUsageError,
    NotHeldError,
    OutcomeUnknownError,
    SessionLostError,
    StaleTokenError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
    TransferFailedError,
    UpgradeRefusedError,
)
from pliska.locks.fencing import FencedStore, FencingToken
from pliska.locks.grant import Grant
from pliska.locks.leader import (
    Candidate,
    LeaderRecord,
    candidates,
    current_leader,
    leader_paths,
    observe_leaders,
    wait_for_leader_change,
)
from pliska.locks.loss import LossSignal
from pliska.locks.mutex import Mutex
from pliska.locks.queue import Contending, break_lock, lock_names, lock_queue
from pliska.locks.read_write_lock import ReadWriteLock
from pliska.locks.semaphore import (
    Semaphore,
    SemaphoreState,
    resize_semaphore,
    semaphore_state,
)
from pliska.locks.session import Session
from pliska.locks.zookeeper_lock import LockStyle, ZookeeperLock

__all__ = [
    "Absent",
    "AccessDeniedError",
    "AcquireCancelledError",
    "AcquireTimeoutError",
    "Address",
    "Backend",
    "BackendSession",
    "Barrier",
    "BrokenBarrierError",
    "Candidate",
    "Change",
    "Check",
    "Clock",
    "ConflictError",
    "ConsulLock",
    "Contending",
    "Create",
    "Delete",
    "Election",
    "Existing",
    "FencedStore",
    "FencingToken",
    "ForkedProcessError",
    "Grant",
    "GrantLostError",
    "Guarantee",
    "LeaderRecord",
    "Leadership",
    "Listing",
    "LockError",
    "LockFreeError",
    "LockStyle",
    "LockUsageError",
    "LossSignal",
    "ManualClock",
    "Mutex",
    "NotHeldError",
    "OutcomeUnknownError",
    "ReadWriteLock",
    "Record",
    "Revision",
    "Semaphore",
    "SemaphoreState",
    "Session",
    "SessionLostError",
    "StaleTokenError",
    "StoreError",
    "StoreFormatError",
    "StoreUnavailableError",
    "SystemClock",
    "TransferFailedError",
    "Unmodified",
    "Update",
    "UpgradeRefusedError",
    "ZookeeperLock",
    "break_lock",
    "candidates",
    "connect",
    "current_leader",
    "leader_paths",
    "lock_names",
    "lock_queue",
    "observe_leaders",
    "resize_semaphore",
    "semaphore_state",
    "wait_for_leader_change",
]
