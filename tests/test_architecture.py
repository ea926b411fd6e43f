"""The rules that hold the tree together: who imports whom, and what is public.

Users may rely on the names in public_names.txt, so a change there belongs in
CHANGELOG.md. To write them down anew:

    .venv/bin/python tests/test_architecture.py > tests/public_names.txt
"""

import importlib
import json
import subprocess
import sys
from importlib.metadata import entry_points
from inspect import isclass, isfunction
from pathlib import Path

import pytest
from typer import Typer

from pliska.coordinator.commands.main import SUMMARIES

ROOT = Path(__file__).parents[1]
PACKAGES = ("aggregation", "coordinator", "discovery", "locks", "trainer")
PUBLIC = (*PACKAGES, "coordinator.wire", "coordinator.registry")


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
    modules = modules_after("import pliska.aggregation.catalog")
    others = {f"pliska.{name}" for name in PACKAGES} - {"pliska.aggregation"}
    assert modules & (others | {"aiohttp", "kazoo", "consul", "cryptography"}) == set()


def test_every_command_loads_and_has_a_line_in_the_root_help() -> None:
    commands = {each.name: each for each in entry_points(group="pliska.commands")}
    assert set(commands) == set(SUMMARIES)
    assert [name for name, each in commands.items() if not isinstance(each.load(), Typer)] == []


def public_names() -> list[str]:
    """What the packages export, one dotted name each."""
    modules = [importlib.import_module(f"pliska.{name}") for name in PUBLIC]
    return sorted(
        f"{module.__name__}.{name}" for module in modules for name in getattr(module, "__all__", ())
    )


def test_the_public_names_are_those_written_down() -> None:
    written = (ROOT / "tests" / "public_names.txt").read_text().splitlines()
    assert set(public_names()) - set(written) == set(), "new: see the top of this file"
    assert set(written) - set(public_names()) == set(), "gone: a break for users"


def test_every_public_name_exists_and_a_class_or_function_is_documented() -> None:
    undocumented = []
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if (isclass(value) or isfunction(value)) and not value.__doc__:
            undocumented.append(name)
    assert undocumented == []


if __name__ == "__main__":
    print("\n".join(public_names()))  # noqa: T201
