"""What is installed is what is in the tree: sdist, then a wheel from the sdist, offline."""

import configparser
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("aggregation", "coordinator", "discovery", "locks", "trainer")
BESIDE_THEM = ("pyproject.toml", "README.md", "LICENSE")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BESIDE_THEM:
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def package_files(tree: Path) -> set[str]:
    """Every file of every package, modules and data alike, as a path from the root."""
    paths = [path for package in PACKAGES for path in (tree / package).rglob("*")]
    return {path.relative_to(tree).as_posix() for path in paths if path.is_file()}


@pytest.fixture(scope="module")
def distributions(
    tree: Path, package_files: set[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where the sdist lies, and the wheel that was built from it."""
    built = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, tree],
        env={**os.environ, "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> zipfile.ZipFile:
    (path,) = distributions.glob("*.whl")
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (each for each in wheel.namelist() if each.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_the_wheel_has_every_file_of_the_tree_and_no_other(
    wheel: zipfile.ZipFile, package_files: set[str]
) -> None:
    packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packaged == {f"pliska/{path}" for path in package_files}


def test_the_sdist_has_every_file_that_the_wheel_is_built_from(
    distributions: Path, package_files: set[str]
) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        members = {name.partition("/")[2] for name in sdist.getnames()}
    assert package_files | set(BESIDE_THEM) <= members


def test_every_package_is_marked_as_typed(wheel: zipfile.ZipFile) -> None:
    marked = {name for name in wheel.namelist() if name.endswith("/py.typed")}
    assert marked == {f"pliska/{package}/py.typed" for package in PACKAGES}


def test_the_wheel_takes_no_name_but_ours(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"pliska", f"pliska-{PROJECT['project']['version']}.dist-info"}
    assert "pliska/__init__.py" not in wheel.namelist()


def test_entry_points_are_those_of_the_project_and_lead_to_modules(wheel: zipfile.ZipFile) -> None:
    declared = configparser.ConfigParser(delimiters=("=",))
    declared.read_string(metadata(wheel, "entry_points.txt"))
    assert dict(declared["console_scripts"]) == PROJECT["project"]["scripts"]
    commands = dict(declared["pliska.commands"])
    assert commands == PROJECT["project"]["entry-points"]["pliska.commands"]
    modules = [target.partition(":")[0] for target in commands.values()]
    missing = [
        each for each in modules if f"{each.replace('.', '/')}.py" not in set(wheel.namelist())
    ]
    assert missing == []


def test_the_metadata_lets_users_choose_their_torch(wheel: zipfile.ZipFile) -> None:
    text = metadata(wheel, "METADATA")
    assert "Requires-Dist: torch>=2.6\n" in text
    assert "Requires-Python: >=3.11\n" in text
    assert "License-Expression: Apache-2.0\n" in text
