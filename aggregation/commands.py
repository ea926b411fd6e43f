"""`pliska aggregate`: combine files of tensors by a robust rule.

Data goes to stdout, messages to stderr. torch is imported when files are
combined, not for `--help`.
"""

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pliska.aggregation.errors import ParameterError, TensorFileError

if TYPE_CHECKING:
    from pliska.aggregation.result import Aggregation

app = typer.Typer(context_settings={"allow_interspersed_args": True})

SCHEMA_VERSION = 1
"""Grows when a field of the JSON output changes its meaning or goes away."""


class OutputFormat(StrEnum):
    """Who reads the output."""

    TABLE = "table"
    JSON = "json"


@app.callback(
    invoke_without_command=True,
    epilog="Example: pliska aggregate --rule multi-krum --f 2 w*.safetensors --to out.safetensors",
)
def aggregate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Safetensors files, one of each worker."),
    ],
    rule: Annotated[str, typer.Option(help="The rule's name, as in a job file.")] = "multi-krum",
    f: Annotated[
        str, typer.Option("--f", help='Faults to bear: a count, a fraction or "auto".')
    ] = "auto",
    pre: Annotated[
        list[str] | None,
        typer.Option(help="A pre-aggregator, such as nnm or bucketing:s=2; may be repeated."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the rule, such as m=3."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For rules and pre-aggregators that draw lots.")] = 0,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the aggregate to this new file.")
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="A table for people, JSON for programs.")
    ] = OutputFormat.TABLE,
) -> None:
    """Combine files of tensors by a robust rule, and say what became of each.

    A file that cannot be read or does not fit the others costs its worker, and
    spends one of f. Exit codes: 2 usage or too few files for the rule, 3 no such
    file, 4 the file to write exists, 5 the files hold no tensors to combine, 7
    more than f bad files.
    """
    from pliska.aggregation.catalog import rule_named
    from pliska.aggregation.tensor_files import write_tensors

    chosen = rule_named(
        rule, f=value_of(f), pre=[entry_of(text) for text in pre or ()], **parameters_of(set_ or ())
    )
    states, rejected = _read(files)
    result = chosen.aggregate(list(states.values()), list(states), rejected=rejected, seed=seed)
    if to is not None:
        write_tensors(to, result.state_dict)
    _show(output, chosen.title, result, to)


def value_of(text: str) -> int | float | str:
    """Read a value as a whole number, a number or a text, whichever it is first."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parameters_of(texts: "list[str] | tuple[()]") -> dict[str, int | float | str]:
    """Read KEY=VALUE texts.

    Raises:
        ParameterError: One has no `=`.
    """
    parameters = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (key and separator):
            raise ParameterError(f"write KEY=VALUE, such as m=3, not {text!r}")
        parameters[key] = value_of(value)
    return parameters


def entry_of(text: str) -> dict[str, int | float | str]:
    """Read a pre-aggregator as NAME or NAME:KEY=VALUE,KEY=VALUE.

    Raises:
        ParameterError: A parameter has no `=`.
    """
    name, _, rest = text.partition(":")
    return {"name": name, **parameters_of(rest.split(",") if rest else ())}


def _read(files: list[Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read what can be read; return the tensors and the reason for the rest, by worker."""
    from pliska.aggregation.errors import MissingFileError
    from pliska.aggregation.tensor_files import read_tensors

    stems = Counter(file.stem for file in files)
    states, rejected = {}, {}
    for file in files:
        worker = file.stem if stems[file.stem] == 1 else str(file)
        if worker in states or worker in rejected:
            raise ParameterError(f"{file} is named twice")
        try:
            states[worker] = read_tensors(file)
        except MissingFileError:
            raise
        except TensorFileError as error:
            rejected[worker] = str(error)
    return states, rejected


def _show(output: OutputFormat, title: str, result: "Aggregation[Any]", file: Path | None) -> None:
    if output is OutputFormat.JSON:
        document = {
            "schema_version": SCHEMA_VERSION,
            "rule": title,
            "f": result.faults.count,
            "f_reason": result.faults.reason,
            "file": None if file is None else str(file),
            "workers": [
                {
                    "worker": entry.worker,
                    "verdict": entry.verdict.value,
                    "weight": entry.weight,
                    "score": entry.score,
                    "margin": entry.margin,
                    "reason": entry.reason,
                }
                for entry in result.report
            ],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("WORKER", "VERDICT", "WEIGHT", "SCORE", "REASON"):
        table.add_column(heading, overflow="fold")
    for entry in result.report:
        numbers = (f"{entry.weight:.3f}", f"{entry.score:.3g}")
        table.add_row(entry.worker, entry.verdict.value, *numbers, entry.reason)
    Console().print(table)
    written = "" if file is None else f"; the aggregate is in {file}"
    typer.echo(f"{title}, f = {result.faults.count} ({result.faults.reason}){written}", err=True)
