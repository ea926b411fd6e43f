"""The user's own functions that a job file names: imported and called with care.

Whatever goes wrong in them becomes a `JobFileError` that names the line of the
job file and says what to write instead; their tracebacks stay out of sight.
Imports no torch. Called by the coordinator and by workers, who build the same
model from the same job.
"""

import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import Job

MESSAGE_CHARACTERS_MAX = 500
"""So much of a user's own error message is passed on."""


def load_function(job: Job, key: str) -> Callable[..., Any]:
    """Import the function that `key` of the job file names as "package.module:function".

    The working directory counts as a place to import from, after all others.

    Args:
        job: The job.
        key: `model.factory`, `data.factory` or `data.loss`.

    Raises:
        JobFileError: There is no such module or function, or importing it failed.
    """
    reference = _value_of(job, key)
    module_name, _, name = reference.partition(":")
    module = _import(job, key, module_name)
    if not hasattr(module, name):
        raise mistake(
            job,
            key,
            f"{key} is {reference!r}, but {module_name} has no {name!r}",
            _what_there_is(module, name),
        )
    function = getattr(module, name)
    if not callable(function):
        raise mistake(
            job,
            key,
            f"{key} is {reference!r}, which is {_a(type(function).__name__)}, not a function",
            "name a function",
        )
    return function  # type: ignore[no-any-return]


def call_factory(job: Job, table: str) -> Any:
    """Load the factory of `table` (`model` or `data`) and call it with the table's arguments.

    Raises:
        JobFileError: As `load_function`; or the arguments do not fit the
            function, or it raised.
    """
    function = load_function(job, f"{table}.factory")
    arguments: Mapping[str, Any] = getattr(job, table).arguments
    _require_fit(job, table, function, arguments)
    try:
        return function(**arguments)
    except Exception as error:
        raise mistake(
            job,
            f"{table}.factory",
            f"{table}.factory raised {described(error)}",
            f"mend the function or its {table}.arguments",
        ) from error


def mistake(job: Job, key: str, message: str, advice: str) -> JobFileError:
    """Return the error that names the line of `key` in the job file."""
    return JobFileError(job.source, job.line_of(key), message, advice)


def _value_of(job: Job, key: str) -> str:
    table, _, field = key.partition(".")
    return str(getattr(getattr(job, table), field))


def _import(job: Job, key: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        # Last, so that a file here never shadows an installed package.
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed_import(job, key, name, error) from error
        raise mistake(
            job,
            key,
            f"{key} names the module {name!r}, but there is no module {error.name!r}",
            "start in the directory that holds it, or set PYTHONPATH, or install its package",
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed_import(job, key, name, error) from error


def _failed_import(job: Job, key: str, name: str, error: BaseException) -> JobFileError:
    return mistake(
        job,
        key,
        f"{key} names the module {name!r}, but importing it raised {described(error)}",
        f"mend it until `python -c 'import {name}'` works",
    )


def _what_there_is(module: ModuleType, name: str) -> str:
    functions = [
        each for each, value in vars(module).items() if callable(value) and not each.startswith("_")
    ]
    close = difflib.get_close_matches(name, functions, n=3, cutoff=0.5) or sorted(functions)[:5]
    if not close:
        return "name a function of that module; it has none"
    return "name one of its functions, such as " + ", ".join(close)


def _require_fit(
    job: Job, table: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # written in C: calling it will tell
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise mistake(
            job,
            f"{table}.arguments",
            f"{table}.arguments do not fit {table}.factory: {error}",
            f"write what {function.__name__}{signature} takes",
        ) from error


def described(error: BaseException) -> str:
    """Return type, message and the last line of the trace: `ValueError: no (model.py:7)`."""
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:MESSAGE_CHARACTERS_MAX]
    ours = str(Path(__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != ours and not frame.filename.startswith("<")
    ]
    if not frames or "importlib" in frames[-1].filename:
        return text
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})"


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
