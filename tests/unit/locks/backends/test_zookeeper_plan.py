import pytest
from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.serialization import CheckVersion, Create2, SetData
from kazoo.protocol.serialization import Create as CreateNode
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import OPEN_ACL_UNSAFE

from pliska.locks import (
    Absent,
    ConflictError,
    Create,
    Delete,
    Existing,
    LockUsageError,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.backends.zookeeper_plan import (
    Layout,
    Seen,
    Step,
    check_refusal,
    keys_to_read,
    lacks_directory,
    needs_reading,
    plan,
    refused,
)
from pliska.locks.backends.zookeeper_reads import DIRECTORY, Node

LAYOUT = Layout("/root", tuple(OPEN_ACL_UNSAFE))


def node(data: bytes = b"", created: int = 5, modified: int = 7, owner: int = 0) -> Node:
    return Node(data, created, modified, modified, version=3, owner=owner, has_children=False)


def directory() -> Node:
    return Node(DIRECTORY, 1, 1, 9, version=8, owner=0, has_children=True)


def operations(steps: list[Step]) -> list[object]:
    return [step.operation for step in steps]


def test_a_record_of_nobody_is_checked_together_with_its_directory() -> None:
    seen: Seen = {"d/a": node(), "d": directory()}
    for check in (Unmodified("d/a", Revision(7)), Existing("d/a", Revision(5))):
        steps = plan([check], [Update("d/a", b"x")], seen, LAYOUT)
        assert operations(steps) == [
            CheckVersion("/root/d/a", 3),
            CheckVersion("/root/d", 8),
            SetData("/root/d/a", b"x", -1),
        ]


def test_deleting_a_record_of_nobody_writes_its_directory() -> None:
    seen: Seen = {"d/a": node(), "d": directory()}
    assert operations(plan([], [Delete("d/a")], seen, LAYOUT)) == [
        DeleteNode("/root/d/a", -1),
        SetData("/root/d", DIRECTORY, -1),
    ]


def test_a_directory_that_is_a_record_itself_is_never_written() -> None:
    seen: Seen = {"d/a": node(), "d": node(b"a record")}
    assert operations(plan([], [Delete("d/a")], seen, LAYOUT)) == [DeleteNode("/root/d/a", -1)]
    check = Unmodified("d/a", Revision(7))
    steps = plan([check], [Delete("d/a")], seen, LAYOUT)
    assert operations(steps) == [CheckVersion("/root/d/a", 3), DeleteNode("/root/d/a", -1)]


def test_a_record_of_a_session_is_checked_alone_and_deleted_without_a_look() -> None:
    seen: Seen = {"d/a": node(owner=77), "d": directory()}
    steps = plan([Existing("d/a", Revision(5))], [Create("d/b", b"v", "77")], seen, LAYOUT)
    assert operations(steps) == [
        CheckVersion("/root/d/a", 3),
        CreateNode("/root/d/b", b"", LAYOUT.acl, 1),
        SetData("/root/d/b", b"v", -1),
    ]
    assert not needs_reading([], [Delete("d/a")], lambda key: key == "d/a")
    assert operations(plan([], [Delete("d/a")], {}, LAYOUT)) == [DeleteNode("/root/d/a", -1)]


def test_a_creation_by_itself_is_one_operation_that_answers_with_its_revision() -> None:
    assert operations(plan([], [Create("d/a", b"v")], {}, LAYOUT)) == [
        Create2("/root/d/a", b"v", LAYOUT.acl, 0)
    ]
    (step,) = plan([], [Create("d/a", b"v", "77")], {}, LAYOUT)
    assert step.operation == Create2("/root/d/a", b"v", LAYOUT.acl, 1)
    assert lacks_directory(step, NoNodeError())


def test_what_must_be_seen_is_read() -> None:
    assert not needs_reading([], [Create("a", b"")], lambda _: False)
    for change in (Update("a", b""), Delete("a")):
        assert needs_reading([], [change], lambda _: False)
    assert needs_reading([Absent("a")], [Create("a", b"")], lambda _: False)
    assert keys_to_read([Absent("d/a")], [Create("d/a", b""), Delete("e")]) == ["d/a", "e", "d", ""]


def test_an_absence_is_checked_by_creating_and_deleting() -> None:
    steps = plan([Absent("d/a")], [Create("d/b", b"")], {"d/a": None}, LAYOUT)
    assert operations(steps)[:2] == [
        CreateNode("/root/d/a", b"", LAYOUT.acl, 0),
        DeleteNode("/root/d/a", -1),
    ]
    same = plan([Absent("d/a")], [Create("d/a", b"")], {"d/a": None}, LAYOUT)
    assert len(same) == 2


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        (Absent("d/a"), {"d/a": node()}),
        (Unmodified("d/a", Revision(6)), {"d/a": node()}),
        (Unmodified("d/a", Revision(7)), {"d/a": None}),
        (Existing("d/a", Revision(4)), {"d/a": node()}),
        (Existing("d/a", Revision(1)), {"d/a": directory()}),
    ],
)
def test_what_was_seen_refuses(check: Absent | Unmodified | Existing, seen: Seen) -> None:
    with pytest.raises(ConflictError):
        plan([check], [Create("d/b", b"")], seen, LAYOUT)


@pytest.mark.parametrize("change", [Update("d", b""), Delete("d")])
def test_a_directory_is_no_record_to_change(change: Update | Delete) -> None:
    with pytest.raises(ConflictError, match="does not exist"):
        plan([], [change], {"d": directory()}, LAYOUT)


def test_the_operation_that_was_refused_is_found_among_those_undone_with_it() -> None:
    error = NoNodeError()
    assert refused([RolledBackError(), error, RuntimeInconsistency()]) == (1, error)
    assert refused([True, "/root/a"]) is None


@pytest.mark.parametrize(
    ("error", "found", "expected"),
    [
        (NodeExistsError(), node(), ConflictError),
        (NodeExistsError(), directory(), LockUsageError),
        (NodeExistsError(), None, None),
        (NoNodeError(), None, ConflictError),
        (NoNodeError(), node(), None),
        (NotEmptyError(), node(), LockUsageError),
        (NotEmptyError(), directory(), ConflictError),
        (BadVersionError(), node(), None),
        (NoChildrenForEphemeralsError(), None, LockUsageError),
    ],
)
def test_a_refusal_is_an_error_unless_it_may_pass_by_now(
    error: Exception, found: Node | None, expected: type[Exception] | None
) -> None:
    step = Step(DeleteNode("/root/d/a", -1), "d/a")
    if expected is None:
        check_refusal(step, error, {"d/a": found})
    else:
        with pytest.raises(expected):
            check_refusal(step, error, {"d/a": found})
