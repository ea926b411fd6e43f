import pytest

from pliska.locks import LockUsageError
from pliska.locks.name import NAME_CHARACTERS_MAX, check_name


@pytest.mark.parametrize("name", ["a", "jobs/digits", "A-1_b.c/d", "x" * NAME_CHARACTERS_MAX])
def test_names_of_letters_digits_and_slashes_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", ".", "a/..", "a b", "a\n", "é", "x" * (NAME_CHARACTERS_MAX + 1)],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(LockUsageError):
        check_name(name)


@pytest.mark.parametrize("name", ["leader", "a/contenders/b"])
def test_names_of_our_own_records_are_refused(name: str) -> None:
    with pytest.raises(LockUsageError, match="reserved"):
        check_name(name)
