from collections.abc import Iterator

import pytest

from pliska.locks import (
    Backend,
    LockUsageError,
    Semaphore,
    Session,
    StoreFormatError,
    connect,
    resize_semaphore,
    semaphore_state,
)
from pliska.locks.semaphore import SIZE_MAX

SIZE_KEY = "semaphores/s/leases/size"


@pytest.fixture
def backend() -> Backend:
    return connect("memory:")


@pytest.fixture
def session(backend: Backend) -> Iterator[Session]:
    with Session.open(backend) as session:
        yield session


@pytest.mark.parametrize("value", [b"", b"[]", b'{"size": "2"}', b'{"size": 0}', b'{"size": true}'])
def test_a_strange_size_is_an_error_that_names_it(
    session: Session, backend: Backend, value: bytes
) -> None:
    backend.create(SIZE_KEY, value)
    semaphore = Semaphore(session, "s", 2)
    for attempt in (
        lambda: semaphore.acquire(timeout_s=5),
        semaphore.try_acquire,
        lambda: semaphore_state(backend, "s"),
        lambda: resize_semaphore(backend, "s", 2),
    ):
        with pytest.raises(StoreFormatError, match=SIZE_KEY):
            attempt()
    assert [record.key for record in backend.list("semaphores/s/leases").records] == [SIZE_KEY]


def test_sizes_at_the_limits_are_taken_and_beyond_them_refused(
    session: Session, backend: Backend
) -> None:
    for size in (1, SIZE_MAX):
        Semaphore(session, "s", size)
        resize_semaphore(backend, "s", size)
    for size in (0, -1, SIZE_MAX + 1):
        with pytest.raises(LockUsageError):
            Semaphore(session, "s", size)
        with pytest.raises(LockUsageError):
            resize_semaphore(backend, "s", size)
    state = semaphore_state(backend, "s")
    assert state is not None
    assert state.size == SIZE_MAX


def test_a_size_that_was_removed_is_an_error_rather_than_no_limit(
    session: Session, backend: Backend
) -> None:
    semaphore = Semaphore(session, "s", 2)
    semaphore.acquire().release()
    backend.delete(SIZE_KEY)
    for attempt in (lambda: semaphore.acquire(timeout_s=5), semaphore.try_acquire):
        with pytest.raises(StoreFormatError, match="was removed"):
            attempt()
