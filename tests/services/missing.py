"""What happens to a test whose service is not there: skipped for people, failed in CI."""

import os
from typing import NoReturn

import pytest


class ServiceMissingError(Exception):
    """A service is not installed. The text says which command would bring it."""


def skip_or_fail(error: ServiceMissingError) -> NoReturn:
    """Skip the test with the command that would bring the service; fail where `CI` is true."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"CI must not skip: {error}", pytrace=False)
    pytest.skip(str(error))
