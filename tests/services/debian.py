"""Brings services to a Debian machine by apt, when the tests run there as root.

No mirror is named here: packages come from where the machine's apt gets its
own, and Consul, which left Debian after its release 11, from the same mirror's
copy of that release, checked against Debian's archive keys.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.missing import ServiceMissingError

CACHE = Path(__file__).parents[2] / ".services"
"""What was downloaded, kept between runs; git ignores it."""

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CONSUL_RELEASE = "bullseye"
TIMEOUT_S = 600


def can_install() -> bool:
    """Whether this is Debian, with apt, and we are root."""
    return os.geteuid() == 0 and KEYRING.exists() and shutil.which("apt-get") is not None


def install(*packages: str) -> None:
    """Install packages of the machine's own release.

    Raises:
        ServiceMissingError: apt failed; its last lines say why.
    """
    with _one_at_a_time():
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *packages)


def consul_binary() -> Path:
    """Consul from the cache; downloaded when it is not there.

    Raises:
        ServiceMissingError: apt failed.
    """
    binary = CACHE / "consul"
    with _one_at_a_time():
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                _download_consul(Path(directory), binary)
    return binary


def registry_binary() -> Path:
    """Debian's OCI registry from the cache; downloaded when it is not there.

    It is unpacked, not installed, so that no service of the machine begins to run.

    Raises:
        ServiceMissingError: apt failed.
    """
    binary = CACHE / "docker-registry"
    with _one_at_a_time():
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                _run("apt-get", "update", "-qq")
                options = ("-o", "APT::Sandbox::User=root")
                download = ("apt-get", *options, "download", "-qq", "docker-registry")
                _run(*download, directory=Path(directory))
                _unpack(Path(directory), "docker-registry", "usr/bin/docker-registry", binary)
    return binary


def _unpack(directory: Path, package: str, inside: str, binary: Path) -> None:
    """Take one program out of a package that was downloaded to a directory."""
    (archive,) = directory.glob(f"{package}_*.deb")
    _run("dpkg", "-x", str(archive), str(directory / "unpacked"))
    (directory / "unpacked" / inside).rename(binary)


def _download_consul(directory: Path, binary: Path) -> None:
    for needed in ("lists/partial", "cache/archives/partial"):
        (directory / needed).mkdir(parents=True)
    source = directory / "sources.list"
    source.write_text(
        f"deb [signed-by={KEYRING} check-valid-until=no] {_mirror()} {CONSUL_RELEASE} main\n"
    )
    options = {
        "Dir::Etc::sourcelist": source,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": directory / "lists",
        "Dir::Cache": directory / "cache",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", *(word for name in options for word in ("-o", f"{name}={options[name]}"))]
    _run(*apt, "update", "-qq")
    _run(*apt, "download", "-qq", "consul", directory=directory)
    _unpack(directory, "consul", "usr/bin/consul", binary)


def _mirror() -> str:
    """Where this machine's apt gets the main part of its own release."""
    targets = _run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Component: main")
    mirrors = [line for line in targets.splitlines() if "security" not in line]
    if not mirrors:
        raise ServiceMissingError("apt knows no Debian mirror: see /etc/apt/sources.list")
    return mirrors[0]


def _run(*command: str, directory: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ServiceMissingError(f"{' '.join(command)} failed: {done.stderr[-1000:].strip()}")
    return done.stdout


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
