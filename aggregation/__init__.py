"""Robust aggregation: arrays in, one array out, whatever a minority of the rows says.

    from pliska.aggregation import MultiKrum

    result = MultiKrum(f=2)(rows)  # a [n, d] tensor, a list of tensors or of state dicts
    result.vector, result.report

Needs torch only, and nothing else of Pliska.
"""

from pliska.aggregation.aggregator import Aggregation, Rule
from pliska.aggregation.attacks import Attack, attack_named, attack_names, flipped_labels
from pliska.aggregation.buffer import FilledRow, GradientBuffer
from pliska.aggregation.catalog import rule_named, rule_names
from pliska.aggregation.coordinate_median import CoordinateMedian
from pliska.aggregation.errors import (
    AggregationError,
    BoundError,
    BufferFullError,
    LayoutMismatchError,
    ParameterError,
    RuleUsageError,
    ShapeError,
    TooManyBadRowsError,
    UnknownNameError,
    WorkerNameError,
)
from pliska.aggregation.gate import Gate
from pliska.aggregation.krum import Krum
from pliska.aggregation.layout import EntryKind, LayoutEntry, StateLayout
from pliska.aggregation.mean import Mean
from pliska.aggregation.multi_krum import MultiKrum
from pliska.aggregation.report import SCORE_MAX, Verdict, WorkerReport
from pliska.aggregation.trimmed_mean import TrimmedMean

__all__ = [
    "SCORE_MAX",
    "Aggregation",
    "AggregationError",
    "Attack",
    "BoundError",
    "BufferFullError",
    "CoordinateMedian",
    "EntryKind",
    "FilledRow",
    "Gate",
    "GradientBuffer",
    "Krum",
    "LayoutEntry",
    "LayoutMismatchError",
    "Mean",
    "MultiKrum",
    "ParameterError",
    "Rule",
    "RuleUsageError",
    "ShapeError",
    "StateLayout",
    "TooManyBadRowsError",
    "TrimmedMean",
    "UnknownNameError",
    "Verdict",
    "WorkerNameError",
    "WorkerReport",
    "attack_named",
    "attack_names",
    "flipped_labels",
    "rule_named",
    "rule_names",
]
