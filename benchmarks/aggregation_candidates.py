"""What `aggregation.py` compares: our rules, plain torch, and three libraries' own functions."""

import importlib.util
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from aggregation_goals import OURS, RANK_RULES, SORT, UNCOMPILED
from torch import Tensor

from pliska.aggregation import Rule, order_statistics, rule_named

Calls = dict[str, Callable[[], Any]]

RULES = (
    "mean",
    "coordinate-median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "geometric-median",
    "centered-clipping",
    "nnm, then trimmed-mean",
    "meamed",
    "multi-bulyan",
)

DISTANCE_RULES = RULES[3:8]
"""Their limit is the larger of one read and the flops of the products."""


def faults(rule: str, n: int) -> int:
    """Return the f that is compared: a quarter of n, or what the rule's bound allows."""
    if rule == "mean":
        return 0
    return (n - 3) // 4 if rule == "multi-bulyan" else min(n // 4, (n - 3) // 2)


def of(rule: str, rows: Tensor, peers: bool) -> Calls:
    """Return every candidate of a rule, by name."""
    n, f = len(rows), faults(rule, len(rows))
    ours = pliska(rule, f)
    calls: Calls = {OURS: lambda: ours(rows)}
    if rule in RANK_RULES:
        calls[UNCOMPILED] = lambda: uncompiled(ours, rows)
    calls |= plain_torch(rule, rows, n, f)
    if peers:
        for library, load in (("byzfl", byzfl), ("byzpy", byzpy), ("flwr", flower)):
            if importlib.util.find_spec(library) is not None:
                calls |= {f"{library}{name}": call for name, call in load(rule, rows, f).items()}
    return calls


def pliska(rule: str, f: int) -> Rule:
    """Return our rule, as a user would make it."""
    if rule == "nnm, then trimmed-mean":
        return rule_named("trimmed-mean", f=f, pre=["nnm"])
    return rule_named(rule, f=f)


def uncompiled(rule: Rule, rows: Tensor) -> Any:
    """Call a rule as where llvmlite is not installed."""
    with patch.object(order_statistics, "host_for", lambda _: None):
        return rule(rows)


def plain_torch(rule: str, rows: Tensor, n: int, f: int) -> Calls:
    """Return what one would write with torch alone."""

    def products() -> Tensor:
        gram = rows @ rows.T
        lengths = gram.diagonal()
        return (lengths[:, None] + lengths[None, :] - 2 * gram).clamp(min=0)

    def scores() -> Tensor:
        return products().sort(dim=1).values[:, 1 : n - f - 1].sum(dim=1)

    def trimmed() -> Tensor:
        return rows.sort(dim=0).values[f : n - f].mean(dim=0)

    if rule == "mean":
        return {"torch mean": lambda: rows.mean(dim=0)}
    if rule == "coordinate-median":
        middle = slice((n - 1) // 2, n // 2 + 1)
        return {
            "torch median": lambda: rows.median(dim=0).values,
            SORT: lambda: rows.sort(dim=0).values[middle].mean(dim=0),
        }
    if rule == "trimmed-mean":
        return {SORT: trimmed}
    if rule == "krum":
        return {"torch X @ X.T": lambda: rows[scores().argsort()[:1]].mean(dim=0)}
    if rule == "multi-krum":
        chosen = n - f - 2
        return {"torch X @ X.T": lambda: rows[scores().argsort()[:chosen]].mean(dim=0)}
    return {}


def byzfl(rule: str, rows: Tensor, f: int) -> Calls:
    """Return ByzFL's, on torch tensors and on NumPy arrays."""
    import byzfl as peer

    rules = {
        "mean": peer.Average,
        "coordinate-median": peer.Median,
        "trimmed-mean": lambda: peer.TrMean(f=f),
        "meamed": lambda: peer.Meamed(f=f),
        "krum": lambda: peer.Krum(f=f),
        "multi-krum": lambda: peer.MultiKrum(f=f),
        "geometric-median": lambda: peer.GeometricMedian(T=8),
        "centered-clipping": lambda: peer.CenteredClipping(L=3, tau=100.0),
    }
    if rule == "nnm, then trimmed-mean":
        return {" torch": lambda: peer.TrMean(f=f)(peer.NNM(f=f)(rows))}
    if rule not in rules:
        return {}
    array = rows.numpy()
    return {
        " torch": lambda: rules[rule]()(rows),
        " numpy": lambda: rules[rule]()(array),
    }


def byzpy(rule: str, rows: Tensor, f: int) -> Calls:
    """Return ByzPy's direct path."""
    from byzpy.aggregators.coordinate_wise.median import CoordinateWiseMedian
    from byzpy.aggregators.coordinate_wise.trimmed_mean import CoordinateWiseTrimmedMean
    from byzpy.aggregators.geometric_wise.geometric_median import GeometricMedian
    from byzpy.aggregators.geometric_wise.krum import Krum, MultiKrum
    from byzpy.aggregators.norm_wise.center_clipping import CenteredClipping

    each = list(rows)
    rules: dict[str, Callable[[], Any]] = {
        "coordinate-median": CoordinateWiseMedian,
        "trimmed-mean": lambda: CoordinateWiseTrimmedMean(f),
        "krum": lambda: Krum(f),
        "multi-krum": lambda: MultiKrum(f, len(rows) - f - 2),
        "geometric-median": lambda: GeometricMedian(max_iter=8),
        "centered-clipping": lambda: CenteredClipping(c_tau=100.0, M=3),
    }
    return {"": lambda: rules[rule]().aggregate(each)} if rule in rules else {}


def flower(rule: str, rows: Tensor, f: int) -> Calls:
    """Return Flower's functions, without its round machinery."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, RecordDict
    from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
    from flwr.serverapp.strategy.multikrum import select_multikrum

    array = rows.numpy()

    def selected(count: int) -> list[Any]:
        records = [RecordDict({"arrays": ArrayRecord({"w": Array(row)})}) for row in array]
        chosen = select_multikrum(records, f, count)
        return [record["arrays"].to_numpy_ndarrays()[0] for record in chosen]

    calls: Calls = {
        "coordinate-median": lambda: np.median(array, axis=0),
        "trimmed-mean": lambda: trim_mean(array, f / len(rows)),
        "krum": lambda: selected(1)[0],
        "multi-krum": lambda: np.mean(selected(len(rows) - f - 2), axis=0),
    }
    return {"": calls[rule]} if rule in calls else {}


def sgemm_rate(by_processor: bool) -> float:
    """Return flops per second of torch's float32 matrix product, once warm."""
    clock = time.process_time if by_processor else time.perf_counter
    square = torch.randn(2048, 2048)
    best = 0.0
    for _ in range(4):
        started = clock()
        square @ square
        best = max(best, 2 * 2048**3 / (clock() - started))
    return best
