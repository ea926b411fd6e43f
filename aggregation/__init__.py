"""Robust aggregation: arrays in, one array out, whatever a minority of the rows says.

    from pliska.aggregation import NNM, MultiKrum

    result = MultiKrum(f=2)(rows)  # a [n, d] tensor, a list of tensors or of state dicts
    result.vector, result.report

    rule = NNM() | MultiKrum(f=2)  # nearest-neighbour mixing first

Needs torch only, and nothing else of Pliska. The names are imported when they are
first used, so that the command line does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliska.aggregation.aggregator import Rule as Rule
    from pliska.aggregation.attack_name import AttackName as AttackName
    from pliska.aggregation.attacks import Attack as Attack
    from pliska.aggregation.attacks import attack_named as attack_named
    from pliska.aggregation.attacks import attack_names as attack_names
    from pliska.aggregation.attacks import claimed_masses as claimed_masses
    from pliska.aggregation.attacks import flipped_labels as flipped_labels
    from pliska.aggregation.basgd import BASGD as BASGD
    from pliska.aggregation.basgd import BufferState as BufferState
    from pliska.aggregation.bucketing import Bucketing as Bucketing
    from pliska.aggregation.buffer import FilledRow as FilledRow
    from pliska.aggregation.buffer import GradientBuffer as GradientBuffer
    from pliska.aggregation.bulyan import Bulyan as Bulyan
    from pliska.aggregation.bulyan import MultiBulyan as MultiBulyan
    from pliska.aggregation.caf import CAF as CAF
    from pliska.aggregation.catalog import pre_names as pre_names
    from pliska.aggregation.catalog import rule_named as rule_named
    from pliska.aggregation.catalog import rule_names as rule_names
    from pliska.aggregation.centered_clipping import CenteredClipping as CenteredClipping
    from pliska.aggregation.cge import CGE as CGE
    from pliska.aggregation.clipping import ARC as ARC
    from pliska.aggregation.clipping import Clipping as Clipping
    from pliska.aggregation.coordinate_median import CoordinateMedian as CoordinateMedian
    from pliska.aggregation.dnc import DnC as DnC
    from pliska.aggregation.errors import AggregationError as AggregationError
    from pliska.aggregation.errors import BoundError as BoundError
    from pliska.aggregation.errors import BufferFullError as BufferFullError
    from pliska.aggregation.errors import LayoutMismatchError as LayoutMismatchError
    from pliska.aggregation.errors import MassError as MassError
    from pliska.aggregation.errors import ParameterError as ParameterError
    from pliska.aggregation.errors import RuleUsageError as RuleUsageError
    from pliska.aggregation.errors import SearchLimitError as SearchLimitError
    from pliska.aggregation.errors import ShapeError as ShapeError
    from pliska.aggregation.errors import TooManyBadRowsError as TooManyBadRowsError
    from pliska.aggregation.errors import UnknownNameError as UnknownNameError
    from pliska.aggregation.errors import WorkerNameError as WorkerNameError
    from pliska.aggregation.faults import FaultCount as FaultCount
    from pliska.aggregation.faults import Faults as Faults
    from pliska.aggregation.fltrust import FLTrust as FLTrust
    from pliska.aggregation.foolsgold import FoolsGold as FoolsGold
    from pliska.aggregation.gate import Gate as Gate
    from pliska.aggregation.geometric_median import GeometricMedian as GeometricMedian
    from pliska.aggregation.kardam import Arrival as Arrival
    from pliska.aggregation.kardam import FilterVerdict as FilterVerdict
    from pliska.aggregation.kardam import Kardam as Kardam
    from pliska.aggregation.kardam import KardamState as KardamState
    from pliska.aggregation.krum import Krum as Krum
    from pliska.aggregation.layout import EntryKind as EntryKind
    from pliska.aggregation.layout import LayoutEntry as LayoutEntry
    from pliska.aggregation.layout import StateLayout as StateLayout
    from pliska.aggregation.mass import VotingMass as VotingMass
    from pliska.aggregation.mda import MDA as MDA
    from pliska.aggregation.meamed import MeaMed as MeaMed
    from pliska.aggregation.mean import Mean as Mean
    from pliska.aggregation.monna import MoNNA as MoNNA
    from pliska.aggregation.multi_krum import MultiKrum as MultiKrum
    from pliska.aggregation.nnm import NNM as NNM
    from pliska.aggregation.preaggregation import Chain as Chain
    from pliska.aggregation.preaggregation import PreAggregator as PreAggregator
    from pliska.aggregation.report import SCORE_MAX as SCORE_MAX
    from pliska.aggregation.report import Verdict as Verdict
    from pliska.aggregation.report import WorkerReport as WorkerReport
    from pliska.aggregation.result import Aggregation as Aggregation
    from pliska.aggregation.setting import Given as Given
    from pliska.aggregation.setting import Memory as Memory
    from pliska.aggregation.sign_vote import SignVote as SignVote
    from pliska.aggregation.smea import SMEA as SMEA
    from pliska.aggregation.trimmed_mean import TrimmedMean as TrimmedMean
    from pliska.aggregation.zeno import ZenoPlusPlus as ZenoPlusPlus
    from pliska.aggregation.zeno import ZenoState as ZenoState
    from pliska.aggregation.zeno import ZenoVerdict as ZenoVerdict

_HOMES = {
    "ARC": "clipping",
    "Aggregation": "result",
    "AggregationError": "errors",
    "Arrival": "kardam",
    "Attack": "attacks",
    "AttackName": "attack_name",
    "BASGD": "basgd",
    "BoundError": "errors",
    "Bucketing": "bucketing",
    "BufferFullError": "errors",
    "BufferState": "basgd",
    "Bulyan": "bulyan",
    "CAF": "caf",
    "CGE": "cge",
    "CenteredClipping": "centered_clipping",
    "Chain": "preaggregation",
    "Clipping": "clipping",
    "CoordinateMedian": "coordinate_median",
    "DnC": "dnc",
    "EntryKind": "layout",
    "FLTrust": "fltrust",
    "FaultCount": "faults",
    "Faults": "faults",
    "FilledRow": "buffer",
    "FilterVerdict": "kardam",
    "FoolsGold": "foolsgold",
    "Gate": "gate",
    "GeometricMedian": "geometric_median",
    "Given": "setting",
    "GradientBuffer": "buffer",
    "Kardam": "kardam",
    "KardamState": "kardam",
    "Krum": "krum",
    "LayoutEntry": "layout",
    "LayoutMismatchError": "errors",
    "MDA": "mda",
    "MassError": "errors",
    "MeaMed": "meamed",
    "Mean": "mean",
    "Memory": "setting",
    "MoNNA": "monna",
    "MultiBulyan": "bulyan",
    "MultiKrum": "multi_krum",
    "NNM": "nnm",
    "ParameterError": "errors",
    "PreAggregator": "preaggregation",
    "Rule": "aggregator",
    "RuleUsageError": "errors",
    "SCORE_MAX": "report",
    "SMEA": "smea",
    "SearchLimitError": "errors",
    "ShapeError": "errors",
    "SignVote": "sign_vote",
    "StateLayout": "layout",
    "TooManyBadRowsError": "errors",
    "TrimmedMean": "trimmed_mean",
    "UnknownNameError": "errors",
    "Verdict": "report",
    "VotingMass": "mass",
    "WorkerNameError": "errors",
    "WorkerReport": "report",
    "ZenoPlusPlus": "zeno",
    "ZenoState": "zeno",
    "ZenoVerdict": "zeno",
    "attack_named": "attacks",
    "attack_names": "attacks",
    "claimed_masses": "attacks",
    "flipped_labels": "attacks",
    "pre_names": "catalog",
    "rule_named": "catalog",
    "rule_names": "catalog",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name from the file it lives in."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
