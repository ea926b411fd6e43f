import ssl
from pathlib import Path

import pytest

from pliska.locks import LockUsageError
from pliska.locks.backends.zookeeper_options import (
    DIGEST_VARIABLE,
    SASL_VARIABLE,
    SECRET_BYTES_MAX,
    ZookeeperOptions,
)

SECRET = "alice:s3cret"  # noqa: S105


def parse(address: str, **environment: str) -> ZookeeperOptions:
    return ZookeeperOptions.parse(address, environment)


def test_hosts_get_the_default_port_and_the_path_becomes_the_root() -> None:
    options = parse("zookeeper://a,b:2182,[::1]:2183/x/y/")
    assert options == ZookeeperOptions(hosts="a:2181,b:2182,[::1]:2183", root="/x/y")
    assert parse("zookeeper://a").root == ""
    assert parse("zookeeper://a/").root == ""


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("zookeeper://", "names no server"),
        ("zookeeper://a,,b", "names no server"),
        ("zookeeper://a:port", "no host:port"),
        ("zookeeper://a:99999", "no host:port"),
        ("zookeeper://a/x/../y", "not usable"),
        ("zookeeper://a/x?nonsense=1", "the parameters are"),
        ("zookeeper://a/x?tls=true&tls=true", "at most once"),
        ("zookeeper://a/x?tls", "name=value"),
        ("zookeeper://a/x?tls=yes", "write true or false"),
        ("zookeeper://a/x?cert=c.pem", "belong together"),
        ("zookeeper://a/x?ca=/nowhere.pem", "TLS cannot use /nowhere.pem"),
        ("zookeeper://a/x?acl=creator", "with a credential"),
        ("zookeeper://a/x?acl=mine", "acl=open"),
        ("zookeeper://a/x?digest_file=/nowhere", "/nowhere cannot be read"),
        ("zookeeper://a/x?sasl_mechanism=PLAIN", "DIGEST-MD5 or GSSAPI"),
        ("zookeeper://a/x?sasl_mechanism=DIGEST-MD5", "sasl_file=FILE"),
        ("zookeeper://alice:s3cret@a/x", "digest_file=FILE"),
    ],
)
def test_a_bad_address_says_what_to_write(address: str, hint: str) -> None:
    with pytest.raises(LockUsageError, match=hint) as caught:
        parse(address)
    assert "s3cret" not in str(caught.value)


def test_a_credential_comes_from_a_file_or_the_environment_and_is_never_shown(
    tmp_path: Path,
) -> None:
    file = tmp_path / "digest"
    file.write_text(f"{SECRET}\n")
    for options in (
        parse("zookeeper://a/x", **{DIGEST_VARIABLE: SECRET}),
        parse(f"zookeeper://a/x?digest_file={file}", **{DIGEST_VARIABLE: "other:one"}),
    ):
        assert options.digest is not None
        assert options.digest.user_and_password == ("alice", "s3cret")
        assert options.are_records_private
        assert "s3cret" not in repr(options)
        assert "s3cret" not in options.credential_source
    assert str(file) in options.credential_source
    assert not parse("zookeeper://a/x?acl=open", **{DIGEST_VARIABLE: SECRET}).are_records_private


@pytest.mark.parametrize(
    "content", [b"", b"no-colon-s3cret", b":s3cret", b"alice:", b"\xff:s3cret"]
)
def test_a_file_without_user_and_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "digest"
    file.write_bytes(content)
    with pytest.raises(LockUsageError, match="digest") as caught:
        parse(f"zookeeper://a/x?digest_file={file}")
    assert "s3cret" not in str(caught.value)


def test_a_secret_at_the_limit_is_taken_and_one_byte_more_refused(tmp_path: Path) -> None:
    file = tmp_path / "digest"
    file.write_bytes(b"a:" + b"x" * (SECRET_BYTES_MAX - 2))
    assert parse(f"zookeeper://a/x?digest_file={file}").digest is not None
    file.write_bytes(b"a:" + b"x" * (SECRET_BYTES_MAX - 1))
    with pytest.raises(LockUsageError, match="more than"):
        parse(f"zookeeper://a/x?digest_file={file}")


def test_sasl_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(LockUsageError, match=r"pip install 'pliska\[sasl\]'"):
        parse("zookeeper://a/x", **{SASL_VARIABLE: SECRET})


def test_naming_certificates_turns_tls_on() -> None:
    assert parse("zookeeper://a/x").tls is None
    context = parse("zookeeper://a/x?tls=true").tls
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    lenient = parse("zookeeper://a/x?tls=true&verify_host=false").tls
    assert lenient is not None
    assert not lenient.check_hostname
    assert lenient.verify_mode == ssl.CERT_REQUIRED
