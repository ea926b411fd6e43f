"""How a benchmark shows its figures: a table for people, JSON beside it for programs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One figure with its goal.

    Attributes:
        value: The median of `samples`.
        goal: What it should be, in words; empty where it is only shown.
        holds: Whether the goal is met; None where there is none.
    """

    name: str
    value: float
    unit: str
    samples: list[float]
    goal: str = ""
    holds: bool | None = None


def figure(
    name: str,
    samples: Sequence[float],
    unit: str,
    goal: str = "",
    meets: Callable[[float], bool] | None = None,
) -> Figure:
    """Summarise samples by their median and compare it with a goal."""
    value = median(samples)
    holds = None if meets is None else meets(value)
    return Figure(name, value, unit, list(samples), goal, holds)


def show(title: str, figures: Sequence[Figure], path: Path) -> None:
    """Print the figures and write them to `path`."""
    table = Table(title=title, title_justify="left")
    for column in ("figure", "median", "lowest to highest", "goal", "holds"):
        table.add_column(column, overflow="fold")
    for each in figures:
        spread = f"{min(each.samples):.3g} to {max(each.samples):.3g}"
        holds = "" if each.holds is None else "yes" if each.holds else "NO"
        table.add_row(each.name, f"{each.value:.3g} {each.unit}", spread, each.goal, holds)
    Console(width=120).print(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(each) for each in figures], indent=2))
    Console().print(f"written to {path}")
