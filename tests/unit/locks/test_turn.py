import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.locks import Record, Revision
from pliska.locks.claim import OWNER_CHARACTERS_MAX, Claim, this_process
from pliska.locks.turn import Enter, Wait, exclusive, of_record, shared


def queue(kinds: str) -> list[Record]:
    """Records for a string of r (shared) and w (alone), oldest first."""
    return [
        Record(f"q/{i}", Claim("", kind == "r").to_bytes(), Revision(i), Revision(i))
        for i, kind in enumerate(kinds)
    ]


KINDS = st.text("rw", max_size=12)


@given(KINDS)
def test_whoever_wants_to_be_alone_waits_for_the_one_just_before(kinds: str) -> None:
    records = queue(kinds)
    for position in range(len(records) + 1):
        expected = Wait(f"q/{position - 1}") if position else Enter()
        assert exclusive(records, position) == expected


@given(KINDS)
def test_a_reader_waits_for_the_nearest_writer_before_it(kinds: str) -> None:
    records = queue(kinds)
    for position in range(len(records) + 1):
        writer = kinds[:position].rfind("w")
        assert shared(records, position) == (Enter() if writer < 0 else Wait(f"q/{writer}"))


@given(KINDS)
def test_those_inside_are_one_writer_or_all_leading_readers(kinds: str) -> None:
    records = queue(kinds)
    inside = "".join(
        kinds[i] for i in range(len(records)) if isinstance(of_record(records, i), Enter)
    )
    assert inside in (kinds[:1], "r" * (len(kinds) - len(kinds.lstrip("r"))))


def test_a_claim_is_read_back() -> None:
    claim = Claim(this_process(), is_shared=True, is_inside=True)
    assert Claim.from_bytes(claim.to_bytes()) == claim


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"{", b"[" * 9999, b'{"is_shared": 1}', b'{"is_inside": "yes"}'],
)
def test_what_nobody_can_read_wants_to_be_alone_and_is_not_inside(value: bytes) -> None:
    assert Claim.from_bytes(value) == Claim("")


def test_an_owners_name_is_cut_to_its_limit() -> None:
    for length in (OWNER_CHARACTERS_MAX, OWNER_CHARACTERS_MAX + 1):
        owner = Claim.from_bytes(Claim("x" * length).to_bytes()).owner
        assert len(owner) == min(length, OWNER_CHARACTERS_MAX)
