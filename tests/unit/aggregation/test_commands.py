import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import typer
from typer.testing import CliRunner

from pliska.aggregation.commands import app, entry_of, parameters_of, value_of
from pliska.aggregation.errors import (
    BoundError,
    FileExistsAlreadyError,
    MissingFileError,
    ParameterError,
    TooManyBadRowsError,
    UnknownNameError,
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Eight workers' files; the last one is far away."""
    paths = []
    for i in range(8):
        weight = torch.full((2, 3), 100.0 if i == 7 else 1 + i / 100)
        path = tmp_path / f"w{i}.safetensors"
        safetensors.torch.save_file({"weight": weight, "steps": torch.tensor(5 + i)}, path)
        paths.append(str(path))
    return paths


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def error_of(*arguments: str) -> BaseException:
    result = run(*arguments)
    assert result.exception is not None
    return result.exception


def test_files_are_combined_and_written(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    result = run("--rule", "trimmed-mean", "--f", "1", *files, "--to", str(out))
    assert result.exit_code == 0, result.output
    tensors = safetensors.torch.load_file(out)
    assert torch.allclose(tensors["weight"], torch.full((2, 3), 1.035))
    assert tensors["steps"].item() == 8
    assert "trimmed-mean, f = 1 (set); the aggregate is in" in result.output
    assert list(tmp_path.glob(".*")) == []


def test_json_has_one_entry_for_each_file(files: list[str]) -> None:
    result = run(*files, "--rule", "krum", "--f", "auto", "--pre", "nnm", "-o", "json")
    document = json.loads(result.stdout)
    assert (document["schema_version"], document["rule"], document["f"]) == (1, "nnm | krum", 1)
    assert [entry["worker"] for entry in document["workers"]] == [f"w{i}" for i in range(8)]
    assert document["workers"][7]["verdict"] == "outvoted"


def test_file_that_cannot_be_read_costs_its_worker(files: list[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x80\x04K\x01.")
    result = run("--rule", "trimmed-mean", "--f", "2", *files, str(broken), "-o", "json")
    entry = next(
        each for each in json.loads(result.stdout)["workers"] if each["worker"] == "broken"
    )
    assert entry["verdict"] == "refused"
    assert "is no safetensors file" in entry["reason"]
    assert isinstance(
        error_of("--rule", "mean", "--f", "0", *files, str(broken)), TooManyBadRowsError
    )


@pytest.mark.parametrize(
    ("arguments", "error", "exit_code"),
    [
        (("--rule", "krumm", "--f", "1"), UnknownNameError, 2),
        (("--rule", "krum", "--f", "3"), BoundError, 2),
        (("--rule", "krum", "--f", "1", "--set", "m=3"), ParameterError, 2),
        (("--rule", "krum", "--f", "1", "--set", "m"), ParameterError, 2),
        (("--rule", "krum", "--f", "1", "gone.safetensors"), MissingFileError, 3),
        (("--f", "1", "--to", "nowhere/out.safetensors"), MissingFileError, 3),
    ],
)
def test_mistakes_are_errors_with_the_code_that_a_command_ends_with(
    files: list[str], arguments: tuple[str, ...], error: type[Exception], exit_code: int
) -> None:
    found = error_of(*arguments, *files)
    assert type(found) is error
    assert found.exit_code == exit_code  # type: ignore[attr-defined]


def test_no_file_is_overwritten(files: list[str]) -> None:
    before = Path(files[0]).read_bytes()
    found = error_of("--f", "1", *files, "--to", files[0])
    assert isinstance(found, FileExistsAlreadyError)
    assert found.exit_code == 4
    assert Path(files[0]).read_bytes() == before


def test_a_file_named_twice_is_refused(files: list[str]) -> None:
    assert "is named twice" in str(error_of("--f", "1", *files, files[0], files[0]))


def test_values_are_read_as_what_they_look_like() -> None:
    assert [value_of(text) for text in ("3", "0.25", "auto", "-1")] == [3, 0.25, "auto", -1]
    assert parameters_of(["m=3", "variant=kappa"]) == {"m": 3, "variant": "kappa"}
    assert entry_of("bucketing:s=2") == {"name": "bucketing", "s": 2}
    assert entry_of("nnm") == {"name": "nnm"}


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys\n"
        "from pliska.aggregation.commands import app\n"
        "try:\n"
        "    app(['--help'])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "multi-krum" in done.stdout
    assert isinstance(app, typer.Typer)
