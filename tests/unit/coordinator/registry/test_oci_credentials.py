from pathlib import Path

import pytest

from pliska.coordinator.registry import NotFoundError, RegistryUsageError
from pliska.coordinator.registry.oci_credentials import (
    FILE_BYTES_MAX,
    OciCredentials,
    credentials_in,
)


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_password_is_not_shown() -> None:
    assert "s3cret" not in repr(OciCredentials("ann", "s3cret"))
    assert "s3cret" not in str(OciCredentials("ann", "s3cret"))


def test_a_private_file_goes_before_the_environment(tmp_path: Path) -> None:
    environment = {"PLISKA_OCI_USERNAME": "bob", "PLISKA_OCI_PASSWORD": "x"}
    file = private(tmp_path / "c", "ann:s3:cret\n")
    assert credentials_in(environment, file) == OciCredentials("ann", "s3:cret")
    assert credentials_in(environment, None) == OciCredentials("bob", "x")
    assert credentials_in({}, None) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"PLISKA_OCI_USERNAME": "bob"},
        {"PLISKA_OCI_PASSWORD": "x"},
        {"PLISKA_OCI_USERNAME": "b:b", "PLISKA_OCI_PASSWORD": "x"},
    ],
)
def test_half_an_environment_is_a_mistake(environment: dict[str, str]) -> None:
    with pytest.raises(RegistryUsageError):
        credentials_in(environment, None)


@pytest.mark.parametrize(
    "text", ["", "ann", ":x", "ann:a\nb", "\udcff", "a:" + "x" * FILE_BYTES_MAX]
)
def test_a_file_that_holds_something_else_is_refused_without_showing_it(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "c").write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "c").chmod(0o600)
    with pytest.raises(RegistryUsageError) as refused:
        credentials_in({}, tmp_path / "c")
    assert text == "" or text not in str(refused.value)


def test_a_file_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryUsageError, match="chmod 600"):
        credentials_in({}, private(tmp_path / "c", "ann:s3cret", 0o640))
    with pytest.raises(RegistryUsageError):
        credentials_in({}, tmp_path)
    with pytest.raises(NotFoundError):
        credentials_in({}, tmp_path / "missing")
