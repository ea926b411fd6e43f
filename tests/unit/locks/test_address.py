from pathlib import Path

import pytest

from pliska.locks import Address, LockUsageError, connect


def test_an_embedded_address_names_a_directory() -> None:
    address = Address.parse("embedded:./.pliska")
    assert (address.scheme, address.local_directory) == ("embedded", Path(".pliska"))
    assert str(address) == "embedded:./.pliska"


def test_a_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert Address.parse("embedded:~/store").local_directory == Path("/somewhere/store")


def test_a_memory_address_has_no_directory() -> None:
    assert Address.parse("memory:x").local_directory is None


@pytest.mark.parametrize(
    "text", ["", "embedded", "embedded:", "redis://x", ":x", "memory", "memory:\0"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LockUsageError):
        connect(text)


def test_one_name_is_one_memory_store_and_no_name_a_new_one() -> None:
    connect("memory:test_address").create("a", b"")
    assert connect("memory:test_address").get("a") is not None
    assert connect("memory:test_address_2").get("a") is None
    connect("memory:").create("a", b"")
    assert connect("memory:").get("a") is None


def test_a_backend_knows_its_address(tmp_path: Path) -> None:
    backend = connect(f"embedded:{tmp_path}")
    assert backend.address == f"embedded:{tmp_path}"
    backend.close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LockUsageError, match="cannot hold a store"):
        connect(f"embedded:{tmp_path / 'file' / 'store'}")
