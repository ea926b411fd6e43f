import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pliska.coordinator.training.user_code import call_factory, load_function
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import Job, parse_job

TEXT = """\
name = "tiny"
[model]
factory = "{factory}"
arguments = {{ {arguments} }}
[data]
factory = "tiny_task:data"
[rule]
name = "mean"
[optimizer]
name = "sgd"
[rounds]
count = 1
workers = 1
quorum = 1
"""
FACTORY_LINE, ARGUMENTS_LINE = 3, 4


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return lambda name, source: (tmp_path / f"{name}.py").write_text(source) and None


def job_of(factory: str, arguments: str = "") -> Job:
    return parse_job(TEXT.format(factory=factory, arguments=arguments), "jobs/tiny.toml")


def refusal_of(job: Job) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        call_factory(job, "model")
    return caught.value


def test_a_factory_is_called_with_the_arguments_of_the_job(
    write_module: Callable[[str, str], None],
) -> None:
    write_module("user_a", "def model(width, deep=False): return width, deep\n")

    assert call_factory(job_of("user_a:model", "width = 3, deep = true"), "model") == (3, True)


def test_a_module_that_is_not_there_says_where_to_start(
    write_module: Callable[[str, str], None],
) -> None:
    error = refusal_of(job_of("user_missing.sub:model"))

    assert str(error) == (
        "jobs/tiny.toml:3: model.factory names the module 'user_missing.sub', but there is no "
        "module 'user_missing'; start in the directory that holds it, or set PYTHONPATH, or "
        "install its package"
    )
    assert error.exit_code == 2


def test_an_import_that_fails_inside_the_module_names_its_line(
    write_module: Callable[[str, str], None],
) -> None:
    write_module("user_b", "x = 1\nimport not_there_at_all\n")
    error = refusal_of(job_of("user_b:model"))

    assert "importing it raised ModuleNotFoundError: No module named 'not_there" in error.message
    assert "user_b.py:2" in error.message
    assert error.advice == "mend it until `python -c 'import user_b'` works"


@pytest.mark.parametrize(
    ("name", "source", "raised"),
    [
        ("user_c1", "def model(:\n", "SyntaxError"),
        ("user_c2", "raise SystemExit(3)\n", "SystemExit: 3"),
        ("user_c3", "1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_says_what_it_raised(
    write_module: Callable[[str, str], None], name: str, source: str, raised: str
) -> None:
    write_module(name, source)

    assert f"importing it raised {raised}" in refusal_of(job_of(f"{name}:model")).message


def test_a_missing_function_suggests_the_ones_there_are(
    write_module: Callable[[str, str], None],
) -> None:
    write_module("user_d", "def make_model(): pass\ndef other(): pass\n")
    error = refusal_of(job_of("user_d:model"))

    assert error.line == FACTORY_LINE
    assert error.message == "model.factory is 'user_d:model', but user_d has no 'model'"
    assert error.advice == "name one of its functions, such as make_model"


def test_a_module_without_functions_says_so(write_module: Callable[[str, str], None]) -> None:
    write_module("user_e", "x = 1\n")

    assert "it has none" in refusal_of(job_of("user_e:model")).advice


def test_what_is_not_a_function_is_refused(write_module: Callable[[str, str], None]) -> None:
    write_module("user_f", "model = 3\n")

    assert "which is an int, not a function" in refusal_of(job_of("user_f:model")).message


def test_arguments_that_do_not_fit_show_the_signature(
    write_module: Callable[[str, str], None],
) -> None:
    write_module("user_g", "def model(width, deep=False): pass\n")
    error = refusal_of(job_of("user_g:model", "widht = 3"))

    assert error.line == ARGUMENTS_LINE
    assert "do not fit model.factory" in error.message
    assert error.advice == "write what model(width, deep=False) takes"


def test_what_a_factory_raises_is_one_line_with_the_users_place(
    write_module: Callable[[str, str], None],
) -> None:
    write_module("user_h", "def model():\n    raise ValueError('no such size\\nand more')\n")
    error = refusal_of(job_of("user_h:model"))

    assert "model.factory raised ValueError: no such size (" in error.message
    assert "user_h.py:2)" in error.message
    assert "and more" not in error.message


def test_functions_of_a_library_are_found(write_module: Callable[[str, str], None]) -> None:
    function = load_function(job_of("user_a:model"), "data.loss")

    assert function.__name__ == "cross_entropy"


def test_the_working_directory_is_searched_last(tmp_path: Path) -> None:
    (tmp_path / "here_only.py").write_text("def model(): return 'from here'\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('a shadow')\n")
    program = (
        "import sys\n"
        "sys.path.remove('')\n"
        "from pliska.coordinator.training.user_code import call_factory\n"
        "from pliska.coordinator.wire.job import parse_job\n"
        f"print(call_factory(parse_job({job_of('here_only:model').text!r}, 'x'), 'model'))\n"
        "import json\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "from here\n", done.stderr
