"""Model versions, the aliases that point at them, and rollback."""

from pliska.coordinator.registry.aliases import AliasState
from pliska.coordinator.registry.canaries import CanaryResult
from pliska.coordinator.registry.canary_steps import CanaryPlan, StageVerdict
from pliska.coordinator.registry.collection import Collected, Fate
from pliska.coordinator.registry.difference import ChangedTensor, Difference, Distance
from pliska.coordinator.registry.ended_operations import Cause, EndedOperation, Ending
from pliska.coordinator.registry.errors import (
    AbortedError,
    AliasMovedError,
    DeadlinePassedError,
    DegradedError,
    DestinationError,
    IntegrityError,
    MoveUnknownError,
    NotFoundError,
    NotServingError,
    OperationOpenError,
    RefusedError,
    RegistryConflictError,
    RegistryError,
    RegistryUsageError,
    TensorFormatError,
)
from pliska.coordinator.registry.events import Cursor, Event, Events
from pliska.coordinator.registry.guard import Finding, Guard, parse_guard
from pliska.coordinator.registry.history import Canary, HistoryEntry, MoveKind
from pliska.coordinator.registry.housekeeping import Housekeeping, Marking
from pliska.coordinator.registry.inspection import Inspection, Inspector, Problem
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.loading import LoadedModel
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.marks import Mark
from pliska.coordinator.registry.metrics import MetricSource, PrometheusMetrics, PushedMetrics
from pliska.coordinator.registry.moves import Move, Outcome
from pliska.coordinator.registry.names import Reference
from pliska.coordinator.registry.nodes import Ack, Answer, NodeRecord
from pliska.coordinator.registry.open_operations import OpenOperations
from pliska.coordinator.registry.operations import Operation, Phase, Wait
from pliska.coordinator.registry.pins import Pin
from pliska.coordinator.registry.protocol import Situation
from pliska.coordinator.registry.publication import Publication, Receipt
from pliska.coordinator.registry.registration import Registration
from pliska.coordinator.registry.registry import Registry
from pliska.coordinator.registry.requests import PromoteRequest, RollbackRequest
from pliska.coordinator.registry.roots import Retention
from pliska.coordinator.registry.serving import ServedModel, Serving, WhenStale
from pliska.coordinator.registry.tensor import Tensor, TensorType
from pliska.coordinator.registry.tensor_file import TensorFile
from pliska.coordinator.registry.versions import State, VersionRecord

__all__ = [
    "AbortedError",
    "Ack",
    "AliasMovedError",
    "AliasState",
    "Answer",
    "Canary",
    "CanaryPlan",
    "CanaryResult",
    "Cause",
    "ChangedTensor",
    "Collected",
    "Cursor",
    "DeadlinePassedError",
    "DegradedError",
    "DestinationError",
    "Difference",
    "Distance",
    "EndedOperation",
    "Ending",
    "Event",
    "Events",
    "Fate",
    "Finding",
    "Guard",
    "HistoryEntry",
    "Housekeeping",
    "Inspection",
    "Inspector",
    "IntegrityError",
    "Lineage",
    "LoadedModel",
    "Manifest",
    "Mark",
    "Marking",
    "MetricSource",
    "Move",
    "MoveKind",
    "MoveUnknownError",
    "NodeRecord",
    "NotFoundError",
    "NotServingError",
    "OpenOperations",
    "Operation",
    "OperationOpenError",
    "Outcome",
    "Phase",
    "Pin",
    "Problem",
    "PrometheusMetrics",
    "PromoteRequest",
    "Publication",
    "PushedMetrics",
    "Receipt",
    "Reference",
    "RefusedError",
    "Registration",
    "Registry",
    "RegistryConflictError",
    "RegistryError",
    "RegistryUsageError",
    "Retention",
    "RollbackRequest",
    "ServedModel",
    "Serving",
    "Situation",
    "StageVerdict",
    "State",
    "Tensor",
    "TensorEntry",
    "TensorFile",
    "TensorFormatError",
    "TensorType",
    "VersionRecord",
    "Wait",
    "WhenStale",
    "parse_guard",
]
