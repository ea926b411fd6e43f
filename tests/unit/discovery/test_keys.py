import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pliska.discovery.errors import (
    KeyFileError,
    KeyFileExistsError,
    KeyFileMissingError,
    KeyringUsageError,
)
from pliska.discovery.keys import (
    KEY_FILE_BYTES_MAX,
    key_id,
    load_private_key,
    load_public_key,
    new_private_key,
    parse_public_text,
    public_bytes,
    public_text,
    write_private_key,
)

# RFC 8032, section 7.1, test 1.
RFC_SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "w1.pem"
    write_private_key(path, new_private_key())
    return path


def private_file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_public_bytes_are_those_of_the_rfc() -> None:
    private = Ed25519PrivateKey.from_private_bytes(RFC_SECRET)
    assert public_bytes(private) == RFC_PUBLIC
    assert public_bytes(private.public_key()) == RFC_PUBLIC


def test_a_key_id_never_changes() -> None:
    assert key_id(RFC_PUBLIC) == "ed25519:21fe31dfa154a261626bf854046fd227"


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_has_no_id(length: int) -> None:
    with pytest.raises(KeyringUsageError, match=f"a public key of {length} bytes"):
        key_id(b"x" * length)


def test_two_new_keys_differ() -> None:
    assert public_bytes(new_private_key()) != public_bytes(new_private_key())


def test_a_written_key_comes_back(tmp_path: Path) -> None:
    private = new_private_key()
    write_private_key(tmp_path / "key.pem", private)
    loaded = load_private_key(tmp_path / "key.pem")
    assert loaded.private_bytes_raw() == private.private_bytes_raw()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_a_new_key_file(tmp_path: Path, umask: int) -> None:
    program = (
        f"import os; os.umask({umask});"
        "from pliska.discovery.keys import new_private_key, write_private_key;"
        "write_private_key('key.pem', new_private_key())"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


def test_an_existing_file_is_never_overwritten(key_file: Path) -> None:
    before = key_file.read_bytes()
    with pytest.raises(KeyFileExistsError, match="exists and may hold a key"):
        write_private_key(key_file, new_private_key())
    assert key_file.read_bytes() == before


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(KeyFileExistsError):
        write_private_key(tmp_path / "link", new_private_key())
    assert not (tmp_path / "target").exists()


def test_a_key_cannot_be_written_into_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot create .*No such file or directory"):
        write_private_key(tmp_path / "none" / "key.pem", new_private_key())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_private_key_that_others_have_access_to_is_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"mode {mode:04o}.*chmod 600"):
        load_private_key(key_file)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_public_key(key_file)


def test_a_link_to_a_key_is_refused(tmp_path: Path, key_file: Path) -> None:
    (tmp_path / "link").symlink_to(key_file)
    with pytest.raises(KeyFileError, match="it is a link"):
        load_private_key(tmp_path / "link")


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileMissingError, match=r"there is no key file .*none\.pem"):
        load_private_key(tmp_path / "none.pem")


def test_a_pipe_or_directory_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyFileError, match="not a plain file"):
        load_private_key(tmp_path / "pipe")
    with pytest.raises(KeyFileError, match="not a plain file"):
        load_private_key(tmp_path)


def test_a_key_file_at_the_size_limit_is_read_and_one_byte_more_is_not(key_file: Path) -> None:
    content = key_file.read_bytes()
    private_file(key_file, content.ljust(KEY_FILE_BYTES_MAX, b"\n"))
    load_private_key(key_file)
    private_file(key_file, content.ljust(KEY_FILE_BYTES_MAX + 1, b"\n"))
    with pytest.raises(KeyFileError, match="longer than 16384 bytes"):
        load_private_key(key_file)


def test_other_content_than_an_ed25519_private_key_is_refused(tmp_path: Path) -> None:
    encrypted = new_private_key().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    public = (
        new_private_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for content, message in [
        (b"", "holds no private key"),
        (b"\x00" * 100, "holds no private key"),
        (b"-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n", "holds no private key"),
        (public, "holds no private key"),
        (encrypted, "is encrypted"),
        (curve, "another kind than Ed25519"),
    ]:
        path = private_file(tmp_path / "key.pem", content)
        with pytest.raises(KeyFileError, match=message):
            load_private_key(path)


def test_a_public_key_is_read_from_any_of_its_files(tmp_path: Path, key_file: Path) -> None:
    public = load_private_key(key_file).public_key()
    pem, text = tmp_path / "public.pem", tmp_path / "public.txt"
    pem.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    text.write_text(public_text(public_bytes(public)) + "\n")
    pem.chmod(0o644)
    for path in (key_file, pem, text):
        assert load_public_key(path) == public_bytes(public)


def test_a_file_without_any_key_holds_no_public_key(tmp_path: Path) -> None:
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    for content, message in [
        (b"hello", "holds no Ed25519 key"),
        (b"\xff\xfe", "holds no Ed25519 key"),
        (b"-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----\n", "holds no public key"),
        (
            curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "another kind than Ed25519",
        ),
    ]:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(KeyFileError, match=message):
            load_public_key(tmp_path / "file")


def test_a_public_key_survives_its_text() -> None:
    text = public_text(RFC_PUBLIC)
    assert text == "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    assert parse_public_text(text) == RFC_PUBLIC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        public_text(RFC_PUBLIC).removeprefix("ed25519:"),
        public_text(RFC_PUBLIC) + "\n",
        public_text(RFC_PUBLIC).rstrip("="),
        public_text(RFC_PUBLIC)[:-2] + "p=",
        public_text(RFC_PUBLIC[:31]),
        key_id(RFC_PUBLIC),
        "ed25519:ключ",
    ],
)
def test_only_the_exact_text_of_a_public_key_is_taken(text: str) -> None:
    with pytest.raises(KeyringUsageError, match="is not a public key"):
        parse_public_text(text)
