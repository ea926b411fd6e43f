import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pliska.aggregation.conformance import definitions, examine, golden

FILE = Path(__file__).parents[3] / "benchmarks" / "conformance.py"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_conformance", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("definition", definitions())
def test_ours_meets_its_definition(definition: str, benchmark: Any) -> None:
    findings = examine(definition, benchmark.pliska()[definition])
    assert [finding for finding in findings if not finding.is_met] == []


def complaints(definition: str, function: Any) -> dict[str, str | None]:
    return {each.claim: each.complaint for each in examine(definition, function)}


def test_a_rounded_fraction_is_found_out() -> None:
    def trim(rows: Tensor, f: int) -> Tensor:
        cut = int(0.2 * len(rows))
        return rows.sort(dim=0).values[cut : len(rows) - cut].mean(dim=0)

    found = complaints("trimmed-mean", trim)
    assert found["drops f at either end, never a rounded fraction"] == "(250.75) instead of (1)"


def test_a_change_of_the_input_and_a_nan_are_found_out() -> None:
    def careless(rows: Tensor, f: int) -> Tensor:
        return rows.mul_(2).median(dim=0).values

    found = complaints("coordinate-median", careless)
    assert found["leaves its input alone"] == "the rows were changed"
    assert "nan" in str(found["lets one NaN cost its sender, and not the round"])
    assert found["refuses n = 2f"] is not None


def test_a_function_that_raises_does_not_meet_the_claim() -> None:
    def broken(rows: Tensor, f: int) -> Tensor:
        raise RuntimeError("no")

    found = complaints("krum", broken)
    assert found["squares distances"] == "RuntimeError: no"
    assert found["refuses n = 2f"] is None


def test_lots_that_are_drawn_anew_are_found_out() -> None:
    def moody(rows: Tensor, f: int) -> Tensor:
        return rows[int(torch.randint(len(rows), (1,)))]

    torch.manual_seed(1)
    found = complaints("caf", moody)
    assert "of 19 repetitions differ" in str(found["gives the same answer every time"])


def test_a_golden_vector_reads_any_array() -> None:
    claim = golden("averages", torch.tensor([[1.0], [3.0]]), 0, 2.0)
    assert claim.complaint(lambda rows, _: rows.numpy().mean(axis=0)) is None
    assert claim.complaint(lambda *_: [2]) is None
    assert claim.complaint(lambda *_: [2, 2]) == "(2, 2) instead of (2)"


def test_peers_are_no_dependency(benchmark: Any) -> None:
    assert not {"byzfl", "byzpy", "flwr"} & set(sys.modules)
