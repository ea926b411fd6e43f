from pathlib import Path

import pytest

from pliska.locks import LockUsageError
from pliska.locks.backends.consul_place import TOKEN_BYTES_MAX, ConsulPlace

TOKEN = "5ec2e7-5ec2e7"  # noqa: S105 - stands for a secret


@pytest.mark.parametrize(
    ("address", "host", "port", "prefix"),
    [
        ("consul://agent", "agent", 8500, ""),
        ("consul://agent/", "agent", 8500, ""),
        ("consul://agent:80/pliska", "agent", 80, "pliska/"),
        ("consul://agent/a/b%20c/", "agent", 8500, "a/b c/"),
        ("consul://[::1]:8500/a", "::1", 8500, "a/"),
    ],
)
def test_an_address_names_agent_and_prefix(address: str, host: str, port: int, prefix: str) -> None:
    place = ConsulPlace.parse(address, {})
    assert (place.address, place.host, place.port) == (address, host, port)
    assert (place.prefix, place.token, place.tls) == (prefix, None, None)


def test_only_the_other_scheme_speaks_tls() -> None:
    assert ConsulPlace.parse("consul://agent", {"CONSUL_CACERT": "/none"}).tls is None
    place = ConsulPlace.parse("consuls://agent?server_name=consul.example", {})
    assert place.tls is not None
    assert place.tls.check_hostname
    assert place.server_name == "consul.example"


@pytest.mark.parametrize(
    "address",
    [
        "consul://",
        "consul:///prefix",
        "consul://agent:port",
        "consul://agent:99999",
        "consul://agent/a//b",
        "consul://agent/../b",
        "consul://agent/a#b",
        "consul://agent?datacenter",
        "consul://agent?nonsense=1",
        "http://agent",
        "consul://[::1",
    ],
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(LockUsageError):
        ConsulPlace.parse(address, {})


@pytest.mark.parametrize(
    "address",
    [f"consul://agent?token={TOKEN}", f"consul://user:{TOKEN}@agent", f"consul://{TOKEN}@agent"],
)
def test_a_secret_in_the_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(LockUsageError) as refused:
        ConsulPlace.parse(address, {})
    assert TOKEN not in str(refused.value)


def test_the_address_goes_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    environment = {"CONSUL_HTTP_TOKEN": TOKEN, "CONSUL_HTTP_TOKEN_FILE": "/none"}
    by_environment = ConsulPlace.parse("consul://agent", environment)
    by_address = ConsulPlace.parse(f"consul://agent?token_file={file}", environment)
    assert by_environment.token is not None
    assert by_address.token is not None
    assert (by_environment.token.value, by_address.token.value) == (TOKEN, "from-file")
    assert by_environment.identity == "the token from CONSUL_HTTP_TOKEN"
    assert by_address.identity == f"the token from token_file in the address, {str(file)!r}"
    assert TOKEN not in repr(by_environment)


@pytest.mark.parametrize(
    "text", ["", "a\nb", "a\r\nX-Evil: 1", "\u00fc", "x" * (TOKEN_BYTES_MAX + 1)]
)
def test_what_is_no_token_is_refused_by_its_source(text: str) -> None:
    environment = {"CONSUL_HTTP_TOKEN": text} if text else {"CONSUL_HTTP_TOKEN_FILE": "/dev/null"}
    with pytest.raises(LockUsageError, match="CONSUL_HTTP_TOKEN"):
        ConsulPlace.parse("consul://agent", environment)


@pytest.mark.parametrize("option", ["token_file", "ca", "cert"])
def test_a_file_that_cannot_be_used_is_named(option: str, tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(LockUsageError, match=f"{option} in the address.*{path}"):
        ConsulPlace.parse(f"consuls://agent?{option}={path}", {})
