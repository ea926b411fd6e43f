"""The servers for tests: a missing one is skipped by people and fails in CI."""

import pytest

from services.missing import ServiceMissingError, skip_or_fail


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
