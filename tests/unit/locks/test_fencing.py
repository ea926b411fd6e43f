from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    Backend,
    FencedStore,
    FencingToken,
    LockUsageError,
    StaleTokenError,
    StoreFormatError,
    connect,
)
from pliska.locks.backends.base import RECORD_BYTES_MAX


@pytest.fixture
def backend() -> Backend:
    return connect("memory:")


def test_nothing_was_written_yet(backend: Backend) -> None:
    assert FencedStore(backend, "f").read("x") is None


def test_a_token_may_write_again_and_a_larger_one_takes_over(backend: Backend) -> None:
    store = FencedStore(backend, "f")
    for token, value in ((3, b"a"), (3, b"b"), (7, b"")):
        store.write("x", value, FencingToken(token))
        assert store.read("x") == (token, value)


def test_a_stale_token_cannot_write(backend: Backend) -> None:
    store = FencedStore(backend, "f")
    store.write("x", b"new", FencingToken(7))
    with pytest.raises(StaleTokenError, match="token 6 is stale"):
        store.write("x", b"old", FencingToken(6))
    assert store.read("x") == (7, b"new")
    store.write("y", b"another name", FencingToken(1))


def test_concurrent_writers_leave_the_largest_token(backend: Backend) -> None:
    store = FencedStore(backend, "f")

    def write(token: int) -> bool:
        try:
            store.write("x", b"%d" % token, FencingToken(token))
        except StaleTokenError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(write, range(1, 101)))
    assert results[-1]
    assert store.read("x") == (100, b"100")


def test_a_value_at_the_limit_is_kept_and_one_byte_more_refused(backend: Backend) -> None:
    store = FencedStore(backend, "f")
    store.write("x", bytes(RECORD_BYTES_MAX - 8), FencingToken(1))
    with pytest.raises(LockUsageError, match="too many"):
        store.write("x", bytes(RECORD_BYTES_MAX - 7), FencingToken(1))


def test_what_is_no_fenced_value_is_refused(backend: Backend) -> None:
    backend.create("f/x", b"short")
    with pytest.raises(StoreFormatError, match="f/x"):
        FencedStore(backend, "f").read("x")
