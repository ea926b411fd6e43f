import pytest

from pliska.locks import Barrier, LockUsageError, Session, StoreFormatError, connect
from pliska.locks.barrier import PARTIES_MAX

GENERATION = "barriers/b/members/generation"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"[" * 9999,
        b'{"parties": 3}',
        b'{"parties": 3, "arrived": 5, "phase": "open"}',
        b'{"parties": "x", "arrived": [], "phase": "open"}',
        b'{"parties": 3, "arrived": [], "phase": "wide open"}',
    ],
)
def test_a_strange_record_is_an_error_that_names_it(value: bytes) -> None:
    backend = connect("memory:")
    backend.create(GENERATION, value)
    with Session.open(backend) as session, pytest.raises(StoreFormatError, match=GENERATION):
        Barrier(session, "b", 3).enter(timeout_s=5)
    assert [record.key for record in backend.list("barriers/b/members").records] == [GENERATION]


def test_parties_at_the_limits_are_taken_and_beyond_them_refused() -> None:
    with Session.open(connect("memory:")) as session:
        for parties in (1, PARTIES_MAX):
            assert Barrier(session, "b", parties).parties == parties
        for parties in (0, PARTIES_MAX + 1):
            with pytest.raises(LockUsageError):
                Barrier(session, "b", parties)
