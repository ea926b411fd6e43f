"""Model versions, the aliases that point at them, and rollback."""

from pliska.coordinator.registry.aliases import AliasState, HistoryEntry, MoveKind
from pliska.coordinator.registry.errors import (
    AliasMovedError,
    IntegrityError,
    MoveUnknownError,
    NotFoundError,
    RefusedError,
    RegistryConflictError,
    RegistryError,
    RegistryUsageError,
    TensorFormatError,
)
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.moves import Move, Outcome
from pliska.coordinator.registry.names import Reference
from pliska.coordinator.registry.registration import Registration
from pliska.coordinator.registry.registry import LoadedModel, Registry
from pliska.coordinator.registry.requests import PromoteRequest, RollbackRequest
from pliska.coordinator.registry.tensor import Tensor, TensorType
from pliska.coordinator.registry.tensor_file import TensorFile
from pliska.coordinator.registry.versions import State, VersionRecord

__all__ = [
    "AliasMovedError",
    "AliasState",
    "HistoryEntry",
    "IntegrityError",
    "Lineage",
    "LoadedModel",
    "Manifest",
    "Move",
    "MoveKind",
    "MoveUnknownError",
    "NotFoundError",
    "Outcome",
    "PromoteRequest",
    "Reference",
    "RefusedError",
    "Registration",
    "Registry",
    "RegistryConflictError",
    "RegistryError",
    "RegistryUsageError",
    "RollbackRequest",
    "State",
    "Tensor",
    "TensorEntry",
    "TensorFile",
    "TensorFormatError",
    "TensorType",
    "VersionRecord",
]
