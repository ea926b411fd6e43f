"""Who meets which definition: Pliska, and ByzFL, ByzPy and Flower where they are installed.

    python benchmarks/conformance.py [--csv FILE] [--markdown FILE]

The others are no dependencies of Pliska. Give them an environment of their own
(they pin versions of torch and numpy) and make Pliska importable in it:

    python -m venv /tmp/peers
    /tmp/peers/bin/pip install byzfl byzpy flwr
    /tmp/peers/bin/pip install --no-deps -e .
    /tmp/peers/bin/pip install safetensors rich typer
    /tmp/peers/bin/python benchmarks/conformance.py
"""

import argparse
import csv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import Tensor

from pliska.aggregation import Rule, rule_named
from pliska.aggregation.conformance import REFUSAL, Finding, Function, definitions, examine

Library = dict[str, Function]
Findings = dict[str, tuple[Finding, ...]]
"""By definition."""


@dataclass(frozen=True)
class Untold:
    """A function of the rows alone: it cannot refuse an f that it is never told.

    Made anew for each call, since some keep something of the last one.
    """

    make: Callable[[], Callable[[Tensor], Any]]

    def __call__(self, rows: Tensor, f: int) -> Any:
        del f
        return self.make()(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--csv", type=Path, help="write every finding to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console()
    results: dict[str, Findings] = {}
    for name, (package, load) in LIBRARIES.items():
        try:
            library = load()
        except ImportError as error:
            console.print(f"{name} is left out: {error}")
            continue
        results[f"{name} {version(package)}"] = examined(library)
    console.print(overview(results))
    for name, findings in results.items():
        console.print(complaints(name, findings))
    if arguments.csv:
        write(arguments.csv, results)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results))


def examined(library: Library) -> Findings:
    """Try every claim on every function that there is, but those that it cannot know of."""
    return {
        definition: tuple(
            finding
            for finding in examine(definition, library[definition])
            if not (isinstance(library[definition], Untold) and finding.claim == REFUSAL)
        )
        for definition in definitions()
        if definition in library
    }


def counts(results: dict[str, Findings], definition: str) -> list[str]:
    """Return for each library how many claims of how many are met."""
    cells = []
    for findings in results.values():
        found = findings.get(definition)
        met = sum(finding.is_met for finding in found or ())
        cells.append("-" if found is None else f"{met}/{len(found)}")
    return cells


def overview(results: dict[str, Findings]) -> Table:
    table = Table("definition", *results, title="claims met, of those there are")
    for definition in definitions():
        table.add_row(definition, *counts(results, definition))
    return table


def markdown(results: dict[str, Findings]) -> str:
    """Return the overview for a page, then what is not met, a line a claim."""
    head = ["definition", *results]
    rows = [head, ["---"] * len(head)]
    rows += [[definition, *counts(results, definition)] for definition in definitions()]
    lines = [f"Measured on {datetime.now(UTC):%Y-%m-%d}.", ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    for name, findings in results.items():
        unmet = [
            f"- {definition}: {finding.claim} ({finding.complaint})"
            for definition, found in findings.items()
            for finding in found
            if not finding.is_met
        ]
        lines += ["", f"{name}, not met: {len(unmet)}", "", *unmet]
    return "\n".join(lines) + "\n"


def complaints(name: str, findings: Findings) -> Table:
    table = Table("definition", "claim", "found", title=f"what {name} does not meet")
    for definition, found in findings.items():
        for finding in found:
            if not finding.is_met:
                table.add_row(definition, finding.claim, finding.complaint)
    return table


def write(file: Path, results: dict[str, Findings]) -> None:
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["library", "definition", "claim", "is_met", "complaint"])
        for name, findings in results.items():
            for definition, found in findings.items():
                for each in found:
                    rows.writerow([name, definition, each.claim, each.is_met, each.complaint])


def pliska() -> Library:
    def of(make: Callable[[int], Rule]) -> Function:
        def call(rows: Tensor, f: int) -> Tensor:
            rule = make(f)
            if "reference" in rule.uses:
                return rule(rows, reference=rows[0]).vector
            return rule(rows).vector

        return call

    def named(name: str, **parameters: Any) -> Function:
        return of(lambda f: rule_named(name, f=f, **parameters))

    special = {
        "krum (kappa)": named("krum", variant="kappa"),
        "multi-krum (kappa)": named("multi-krum", variant="kappa"),
        "centered-clipping": named("centered-clipping", tau=1),
        "nnm, then mean": named("mean", pre=["nnm"]),
        "arc, then mean": named("mean", pre=["arc"]),
        "clipping at 2, then mean": named("mean", pre=[{"name": "clipping", "tau": 2}]),
        "bucketing by 2, then mean": named("mean", pre=["bucketing"]),
    }
    plain = {name: named(name) for name in definitions() if name not in special}
    return plain | special


def byzfl() -> Library:
    import byzfl as peer

    def then_mean(pre: Callable[[int], Any]) -> Function:
        return lambda rows, f: peer.Average()(pre(f)(rows))

    return {
        "mean": Untold(peer.Average),
        "coordinate-median": Untold(peer.Median),
        "trimmed-mean": lambda rows, f: peer.TrMean(f=f)(rows),
        "meamed": lambda rows, f: peer.Meamed(f=f)(rows),
        "krum": lambda rows, f: peer.Krum(f=f)(rows),
        "krum (kappa)": lambda rows, f: peer.Krum(f=f)(rows),
        "multi-krum": lambda rows, f: peer.MultiKrum(f=f)(rows),
        "multi-krum (kappa)": lambda rows, f: peer.MultiKrum(f=f)(rows),
        "geometric-median": Untold(peer.GeometricMedian),
        "centered-clipping": Untold(partial(peer.CenteredClipping, L=3, tau=1.0)),
        "mda": lambda rows, f: peer.MDA(f=f)(rows),
        "smea": lambda rows, f: peer.SMEA(f=f)(rows),
        "caf": lambda rows, f: peer.CAF(f=f)(rows),
        "monna": lambda rows, f: peer.MoNNA(f=f, idx=0)(rows),
        "nnm, then mean": then_mean(lambda f: peer.NNM(f=f)),
        "arc, then mean": then_mean(lambda f: peer.ARC(f=f)),
        "clipping at 2, then mean": then_mean(lambda _: peer.Clipping(c=2.0)),
        "bucketing by 2, then mean": then_mean(lambda _: peer.Bucketing(s=2)),
    }


def byzpy() -> Library:
    from byzpy.aggregators.coordinate_wise.median import CoordinateWiseMedian
    from byzpy.aggregators.coordinate_wise.trimmed_mean import CoordinateWiseTrimmedMean
    from byzpy.aggregators.geometric_wise.geometric_median import GeometricMedian
    from byzpy.aggregators.geometric_wise.krum import Krum, MultiKrum
    from byzpy.aggregators.geometric_wise.minimum_diameter_average import (
        MinimumDiameterAveraging,
    )
    from byzpy.aggregators.geometric_wise.monna import MoNNA
    from byzpy.aggregators.geometric_wise.smea import SMEA
    from byzpy.aggregators.norm_wise.caf import CAF
    from byzpy.aggregators.norm_wise.center_clipping import CenteredClipping
    from byzpy.aggregators.norm_wise.comparative_gradient_elimination import (
        ComparativeGradientElimination,
    )

    def of(make: Callable[[Tensor, int], Any]) -> Function:
        return lambda rows, f: make(rows, f).aggregate(list(rows))

    def untold(make: Callable[[], Any]) -> Untold:
        return Untold(lambda: lambda rows: make().aggregate(list(rows)))

    return {
        "coordinate-median": untold(CoordinateWiseMedian),
        "trimmed-mean": of(lambda _, f: CoordinateWiseTrimmedMean(f)),
        "krum": of(lambda _, f: Krum(f)),
        "krum (kappa)": of(lambda _, f: Krum(f)),
        "multi-krum": of(lambda rows, f: MultiKrum(f, len(rows) - f - 2)),
        "multi-krum (kappa)": of(lambda rows, f: MultiKrum(f, len(rows) - f)),
        "geometric-median": untold(GeometricMedian),
        "centered-clipping": untold(partial(CenteredClipping, c_tau=1.0)),
        "mda": of(lambda _, f: MinimumDiameterAveraging(f)),
        "smea": of(lambda _, f: SMEA(f)),
        "caf": of(lambda _, f: CAF(f)),
        "monna": of(lambda _, f: MoNNA(f)),
        "cge": of(lambda _, f: ComparativeGradientElimination(f)),
    }


def flower() -> Library:
    import numpy as np
    from flwr.app import Array, ArrayRecord, RecordDict
    from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
    from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
    from flwr.serverapp.strategy.multikrum import select_multikrum

    def selected(rows: Tensor, f: int, count: int) -> list[Any]:
        records = [RecordDict({"arrays": ArrayRecord({"w": Array(row.numpy())})}) for row in rows]
        chosen = select_multikrum(records, f, count)
        return [record["arrays"].to_numpy_ndarrays()[0] for record in chosen]

    def bulyan(rows: Tensor, f: int) -> Any:
        # What Bulyan.aggregate_train does between receiving and sending.
        chosen = selected(rows, f, len(rows) - 2 * f)
        middle = np.median(np.stack(chosen), axis=0)
        count = len(chosen) - 2 * f
        return aggregate_n_closest_weights([middle], [[each] for each in chosen], count)[0]

    return {
        "coordinate-median": Untold(lambda: lambda rows: np.median(rows.numpy(), axis=0)),
        "trimmed-mean": lambda rows, f: trim_mean(rows.numpy(), f / len(rows)),
        "krum": lambda rows, f: selected(rows, f, 1)[0],
        "krum (kappa)": lambda rows, f: selected(rows, f, 1)[0],
        "multi-krum": lambda rows, f: np.mean(selected(rows, f, len(rows) - f - 2), axis=0),
        "multi-krum (kappa)": lambda rows, f: np.mean(selected(rows, f, len(rows) - f), axis=0),
        "bulyan": bulyan,
    }


LIBRARIES: dict[str, tuple[str, Callable[[], Library]]] = {
    "Pliska": ("pliska", pliska),
    "ByzFL": ("byzfl", byzfl),
    "ByzPy": ("byzpy", byzpy),
    "Flower": ("flwr", flower),
}
"""By name: the package that its version is read from, and what makes its functions."""

if __name__ == "__main__":
    main()
