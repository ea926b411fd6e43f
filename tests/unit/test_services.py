"""The servers for tests: a missing one is skipped by people and fails in CI."""

import pytest

from services.missing import ServiceMissingError, skip_or_fail
from services.seeds import seeds


def test_a_missing_service_skips_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install x"):
        skip_or_fail(ServiceMissingError("no x here: `apt-get install x` as root"))


def test_a_missing_service_fails_where_ci_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install x"):
        skip_or_fail(ServiceMissingError("no x here: `apt-get install x` as root"))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("", range(1, 5)), ("300", range(1, 301)), ("17-17", range(17, 18)), ("5-9", range(5, 10))],
)
def test_seeds_are_a_number_of_them_or_a_range(
    monkeypatch: pytest.MonkeyPatch, chosen: str, expected: range
) -> None:
    monkeypatch.setenv("SOME_SEEDS", chosen)
    assert seeds("SOME_SEEDS", range(1, 5)) == expected
