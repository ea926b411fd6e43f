import multiprocessing
import queue
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pliska.aggregation import (
    CoordinateMedian,
    Krum,
    MultiKrum,
    Rule,
    ShapeError,
    TrimmedMean,
    rule_named,
)
from pliska.aggregation.sharded import aggregate_sharded, shard_bounds

SIZE = 5
TIMEOUT_S = 100


def gradients(d: int) -> torch.Tensor:
    return torch.randn(SIZE, d, generator=torch.Generator().manual_seed(d)) + 3


def in_processes(tmp_path: Path, work: Callable[[int], Any]) -> list[Any]:
    """Return work(rank) of every rank, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{tmp_path}/rendezvous",
            rank=rank,
            world_size=SIZE,
            timeout=timedelta(seconds=TIMEOUT_S),
        )
        try:
            results.put((rank, work(rank)))
        finally:
            dist.destroy_process_group()

    processes = [context.Process(target=run, args=(rank,)) for rank in range(SIZE)]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=TIMEOUT_S) for _ in processes)
    except queue.Empty:
        pytest.fail(f"exit codes: {[process.exitcode for process in processes]}")
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()
    return [found[rank] for rank in range(SIZE)]


def aggregated(rule: Rule, rows: torch.Tensor, rank: int) -> tuple[list[float], list[Any]]:
    result = aggregate_sharded(rule, rows[rank])
    report = [(e.worker, e.verdict, e.weight, e.score) for e in result.report]
    return result.vector.tolist(), report


@pytest.mark.parametrize("d", [1003, 300_011])
def test_every_process_gets_what_one_machine_gets(tmp_path: Path, d: int) -> None:
    rules = [Krum(f=1), MultiKrum(f=1), TrimmedMean(f=1), CoordinateMedian(f=2)]
    rules += [rule_named(name, f=1) for name in ("geometric-median", "centered-clipping", "dnc")]
    rules.append(rule_named("trimmed-mean", f=1, pre=["nnm"]))
    rows = gradients(d)
    found = in_processes(tmp_path, lambda rank: [aggregated(rule, rows, rank) for rule in rules])
    for i, rule in enumerate(rules):
        alone = rule(rows)
        for per_rank in found:
            vector, report = per_rank[i]
            assert torch.allclose(torch.tensor(vector), alone.vector, rtol=1e-6, atol=1e-7)
            for entry, (worker, verdict, weight, score) in zip(alone.report, report, strict=True):
                assert (entry.worker, entry.verdict) == (worker, verdict)
                assert entry.weight == pytest.approx(weight, rel=1e-6)
                assert entry.score == pytest.approx(score, rel=1e-5)
        assert all(per_rank[i] == found[0][i] for per_rank in found)
        if rule.name in {"krum", "multi-krum", "trimmed-mean"} and not rule.pre.members:
            assert found[0][i][0] == alone.vector.tolist()


def test_row_that_is_not_finite_is_refused_by_all(tmp_path: Path) -> None:
    rows = gradients(1003)
    rows[2, 1000] = torch.nan  # in the last process's shard
    found = in_processes(tmp_path, lambda rank: aggregated(TrimmedMean(f=1), rows, rank))
    assert all(result == found[0] for result in found)
    vector, report = found[0]
    assert report[2][:2] == ("2", "refused")
    assert torch.tensor(vector).isfinite().all()


def test_liars_close_to_each_other_are_measured_again_across_shards(tmp_path: Path) -> None:
    rows = gradients(1003)
    rows[1:] = rows[1] + 1e-4 * torch.randn(4, 1003, generator=torch.Generator().manual_seed(2))
    found = in_processes(tmp_path, lambda rank: aggregated(MultiKrum(f=1), rows, rank))
    assert all(result == found[0] for result in found)
    assert found[0][0] == MultiKrum(f=1)(rows).vector.tolist()


def test_gradients_of_different_lengths_are_an_error_everywhere(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        try:
            aggregate_sharded(Krum(f=1), torch.zeros(100 + (rank == 3)))
        except ShapeError as error:
            return str(error)
        return "none"

    found = in_processes(tmp_path, work)
    assert found == ["the processes' gradients differ in length or dtype"] * SIZE


@pytest.mark.parametrize(("d", "size"), [(1000, 3), (16, 1), (10_000_000, 16), (129, 4)])
def test_shards_cover_every_column_once_and_start_aligned(d: int, size: int) -> None:
    bounds = shard_bounds(d, size)
    assert bounds[0] == 0
    assert bounds[-1] == d
    assert len(bounds) == size + 1
    assert bounds == sorted(bounds)
    assert all(bound % 16 == 0 or bound == d for bound in bounds)
