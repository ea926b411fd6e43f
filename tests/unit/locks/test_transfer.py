import json

import pytest

from pliska.locks import Record, Revision, StoreFormatError, TransferFailedError, connect
from pliska.locks.transfer import PASSED_OVER_MAX, plan, was_passed_over

DIRECTORY = "elections/e/contenders"
NOTE = "elections/e/passed-over"


def candidate(number: int, name: str | None = None) -> Record:
    value = json.dumps({"candidate_id": name or f"c{number}", "value": ""}).encode()
    return Record(f"{DIRECTORY}/{number}", value, Revision(number), Revision(number))


def test_those_between_the_leader_and_the_successor_are_passed_over() -> None:
    queue = [candidate(number) for number in range(1, 6)]
    step = plan(queue, f"{DIRECTORY}/1", "c4")
    assert step.successor == queue[3]
    assert step.passed_over == (f"{DIRECTORY}/2", f"{DIRECTORY}/3")
    assert plan(queue, f"{DIRECTORY}/1", "c2").passed_over == ()


def test_of_candidates_with_one_name_the_first_is_meant() -> None:
    queue = [candidate(1), candidate(2, "twin"), candidate(3, "twin")]
    assert plan(queue, f"{DIRECTORY}/1", "twin").successor == queue[1]


@pytest.mark.parametrize("to", ["c1", "c9", ""])
def test_nobody_is_passed_over_for_somebody_who_does_not_wait(to: str) -> None:
    with pytest.raises(TransferFailedError, match="nothing has changed"):
        plan([candidate(1), candidate(2)], f"{DIRECTORY}/1", to)


def test_as_many_as_the_limit_are_passed_over_and_no_more() -> None:
    queue = [candidate(number) for number in range(PASSED_OVER_MAX + 3)]
    last_allowed = f"c{PASSED_OVER_MAX + 1}"
    step = plan(queue, f"{DIRECTORY}/0", last_allowed)
    assert len(step.passed_over) == PASSED_OVER_MAX
    with pytest.raises(TransferFailedError, match="at most"):
        plan(queue, f"{DIRECTORY}/0", f"c{PASSED_OVER_MAX + 2}")


@pytest.mark.parametrize("value", [b"", b"{}", b"\xff", b"[" * 9999])
def test_a_strange_note_is_an_error_that_names_it(value: bytes) -> None:
    backend = connect("memory:")
    assert not was_passed_over(backend, "e", f"{DIRECTORY}/1")
    backend.create(NOTE, value)
    with pytest.raises(StoreFormatError, match=NOTE):
        was_passed_over(backend, "e", f"{DIRECTORY}/1")
