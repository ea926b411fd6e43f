"""Robust aggregation: arrays in, one array out, whatever a minority of the rows says.

    from pliska.aggregation import NNM, MultiKrum

    result = MultiKrum(f=2)(rows)  # a [n, d] tensor, a list of tensors or of state dicts
    result.vector, result.report

    rule = NNM() | MultiKrum(f=2)  # nearest-neighbour mixing first

Needs torch only, and nothing else of Pliska.
"""

from pliska.aggregation.aggregator import Aggregation, Rule
from pliska.aggregation.attacks import (
    Attack,
    attack_named,
    attack_names,
    claimed_masses,
    flipped_labels,
)
from pliska.aggregation.basgd import BASGD, BufferState
from pliska.aggregation.bucketing import Bucketing
from pliska.aggregation.buffer import FilledRow, GradientBuffer
from pliska.aggregation.bulyan import Bulyan, MultiBulyan
from pliska.aggregation.caf import CAF
from pliska.aggregation.catalog import pre_names, rule_named, rule_names
from pliska.aggregation.centered_clipping import CenteredClipping
from pliska.aggregation.cge import CGE
from pliska.aggregation.clipping import ARC, Clipping
from pliska.aggregation.coordinate_median import CoordinateMedian
from pliska.aggregation.dnc import DnC
from pliska.aggregation.errors import (
    AggregationError,
    BoundError,
    BufferFullError,
    LayoutMismatchError,
    MassError,
    ParameterError,
    RuleUsageError,
    SearchLimitError,
    ShapeError,
    TooManyBadRowsError,
    UnknownNameError,
    WorkerNameError,
)
from pliska.aggregation.faults import FaultCount, Faults
from pliska.aggregation.fltrust import FLTrust
from pliska.aggregation.foolsgold import FoolsGold
from pliska.aggregation.gate import Gate
from pliska.aggregation.geometric_median import GeometricMedian
from pliska.aggregation.kardam import Arrival, FilterVerdict, Kardam, KardamState
from pliska.aggregation.krum import Krum
from pliska.aggregation.layout import EntryKind, LayoutEntry, StateLayout
from pliska.aggregation.mass import VotingMass
from pliska.aggregation.mda import MDA
from pliska.aggregation.meamed import MeaMed
from pliska.aggregation.mean import Mean
from pliska.aggregation.monna import MoNNA
from pliska.aggregation.multi_krum import MultiKrum
from pliska.aggregation.nnm import NNM
from pliska.aggregation.preaggregation import Chain, PreAggregator
from pliska.aggregation.report import SCORE_MAX, Verdict, WorkerReport
from pliska.aggregation.setting import Given, Memory
from pliska.aggregation.sign_vote import SignVote
from pliska.aggregation.smea import SMEA
from pliska.aggregation.trimmed_mean import TrimmedMean
from pliska.aggregation.zeno import ZenoPlusPlus, ZenoState, ZenoVerdict

__all__ = [
    "ARC",
    "BASGD",
    "CAF",
    "CGE",
    "MDA",
    "NNM",
    "SCORE_MAX",
    "SMEA",
    "Aggregation",
    "AggregationError",
    "Arrival",
    "Attack",
    "BoundError",
    "Bucketing",
    "BufferFullError",
    "BufferState",
    "Bulyan",
    "CenteredClipping",
    "Chain",
    "Clipping",
    "CoordinateMedian",
    "DnC",
    "EntryKind",
    "FLTrust",
    "FaultCount",
    "Faults",
    "FilledRow",
    "FilterVerdict",
    "FoolsGold",
    "Gate",
    "GeometricMedian",
    "Given",
    "GradientBuffer",
    "Kardam",
    "KardamState",
    "Krum",
    "LayoutEntry",
    "LayoutMismatchError",
    "MassError",
    "MeaMed",
    "Mean",
    "Memory",
    "MoNNA",
    "MultiBulyan",
    "MultiKrum",
    "ParameterError",
    "PreAggregator",
    "Rule",
    "RuleUsageError",
    "SearchLimitError",
    "ShapeError",
    "SignVote",
    "StateLayout",
    "TooManyBadRowsError",
    "TrimmedMean",
    "UnknownNameError",
    "Verdict",
    "VotingMass",
    "WorkerNameError",
    "WorkerReport",
    "ZenoPlusPlus",
    "ZenoState",
    "ZenoVerdict",
    "attack_named",
    "attack_names",
    "claimed_masses",
    "flipped_labels",
    "pre_names",
    "rule_named",
    "rule_names",
]
