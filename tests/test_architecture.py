"""The rules that hold the tree together: who imports whom, and what is public."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer import Typer

from pliska.coordinator.commands.main import SUMMARIES

ROOT = Path(__file__).parents[1]
PACKAGES = ("aggregation", "coordinator", "discovery", "locks", "trainer")


def test_the_import_contracts_are_kept() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def modules_after(program: str) -> set[str]:
    """What a fresh interpreter has imported once it ran `program`."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{program}\nimport json, sys; print(json.dumps(list(sys.modules)))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


HEAVY = {"torch", "numpy", "aiohttp", "kazoo", "consul", "cryptography", "sklearn", "matplotlib"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_root_command_imports_no_command_and_nothing_heavy(option: str) -> None:
    modules = modules_after(
        f"""
import sys
from pliska.coordinator.commands.main import main
sys.argv = ["pliska", "{option}"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""
    )
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith("pliska.")}
    assert ours <= {
        "pliska.coordinator",
        "pliska.coordinator.commands",
        "pliska.coordinator.commands.main",
    }


@pytest.mark.parametrize("package", ["locks", "discovery", "coordinator", "coordinator.wire"])
def test_a_package_can_be_imported_without_torch(package: str) -> None:
    assert "torch" not in modules_after(f"import pliska.{package}")


def test_aggregation_needs_nothing_of_ours_and_no_network() -> None:
    modules = modules_after("import pliska.aggregation")
    others = {f"pliska.{name}" for name in PACKAGES} - {"pliska.aggregation"}
    assert modules & (others | {"aiohttp", "kazoo", "consul", "cryptography"}) == set()


def test_every_command_loads_and_has_a_line_in_the_root_help() -> None:
    commands = {each.name: each for each in entry_points(group="pliska.commands")}
    assert set(commands) == set(SUMMARIES)
    assert [name for name, each in commands.items() if not isinstance(each.load(), Typer)] == []


def public_names(module: str) -> list[str]:
    return sorted(importlib.import_module(module).__all__)


PUBLIC = {
    "pliska.discovery": [
        "DiscoveryError",
        "Enrolled",
        "KeyConflictError",
        "KeyFileError",
        "KeyFileExistsError",
        "KeyFileMissingError",
        "KeyState",
        "Keyring",
        "KeyringFormatError",
        "KeyringUsageError",
        "NotEnrolledError",
        "RevokedKeyError",
        "Role",
        "key_id",
        "load_private_key",
        "load_public_key",
        "new_private_key",
        "parse_public_text",
        "public_bytes",
        "public_text",
        "write_private_key",
    ],
}
"""What users may rely on. A change here is a change for them: write it into CHANGELOG.md."""


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    assert public_names(module) == sorted(PUBLIC[module])


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_exists_and_is_documented(module: str) -> None:
    package = importlib.import_module(module)
    undocumented = [name for name in package.__all__ if not getattr(package, name).__doc__]
    assert undocumented == []
