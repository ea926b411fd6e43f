"""The model registry: what a command or a coordinator talks to.

Versions are immutable and identified by their content; aliases move by
compare-and-set and keep their history; whatever is loaded is verified first.
The coordination store keeps the small records, the artifact storage the tensors.
This file puts the parts together and decides nothing itself. It is neither a
server nor a cache, and knows nothing of who serves a model.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pliska.coordinator.registry.aliases import AliasState
from pliska.coordinator.registry.blobs import Blobs
from pliska.coordinator.registry.canaries import CanaryResult, CanaryRun
from pliska.coordinator.registry.canary_steps import CanaryPlan
from pliska.coordinator.registry.difference import Difference, difference
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import timestamp
from pliska.coordinator.registry.driver import Driver, Tell, silent
from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import NotFoundError
from pliska.coordinator.registry.events import Events, Scope
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.housekeeping import Housekeeping
from pliska.coordinator.registry.inspection import Inspector
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.loading import LoadedModel, load_record
from pliska.coordinator.registry.manifest import Manifest
from pliska.coordinator.registry.marks import Mark
from pliska.coordinator.registry.metrics import MetricSource, PushedMetrics
from pliska.coordinator.registry.model_file import open_model_file, write_model_file
from pliska.coordinator.registry.moves import Move
from pliska.coordinator.registry.names import Reference, check_alias, check_model
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.open_operations import OpenOperations
from pliska.coordinator.registry.pins import Pin
from pliska.coordinator.registry.protocol import Situation
from pliska.coordinator.registry.registration import Registrar, Registration
from pliska.coordinator.registry.requests import (
    PromoteRequest,
    Request,
    RollbackRequest,
    check_actor,
)
from pliska.coordinator.registry.resolution import find_version
from pliska.coordinator.registry.rollout import Rollout
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.versions import VersionRecord
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.signing import Signer
from pliska.locks import Backend


class Registry:
    """The models of one namespace. Safe to use from several threads and processes.

    Args:
        backend: The coordination store.
        storage: Where tensors and manifests lie.
        namespace: Tenant; nothing is shared between namespaces.
        signatures_min: How many enrolled publishers must have signed a version
            before it is loaded or pointed at.
        approvals_min: How many must have approved of a move of an alias.
        charter: Hash of a charter that the namespace must have or have had: whoever can
            write to the store then cannot decide whose signatures count (see `charter`).
        now: Returns the time, in UTC.
    """

    def __init__(
        self,
        backend: Backend,
        storage: Storage,
        namespace: str = "default",
        *,
        signatures_min: int = 0,
        approvals_min: int = 0,
        charter: Digest | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.namespace = Namespace.open(
            backend, storage, namespace, signatures_min, approvals_min, now, charter
        )

    def register(
        self,
        model: str,
        tensors: Mapping[str, Tensor],
        *,
        actor: str,
        metadata: Mapping[str, str] | None = None,
        lineage: Lineage | None = None,
        signer: Signer | None = None,
    ) -> Registration:
        """Store tensors as a version of a model.

        The same tensors are the same version: registering them again adds the
        signature if one is given, repairs damaged files, and changes nothing else.

        Args:
            model: Created with its first version.
            tensors: By name.
            actor: Who registers.
            metadata: Free-form texts, given back by `export`.
            lineage: Where the version comes from.
            signer: Signs the version.

        Raises:
            RegistryUsageError: A bad name, or a metric that is not finite.
            NotFoundError: The lineage names a parent that is not there.
            IntegrityError: The tensors changed while they were registered.
        """
        registrar = Registrar(
            self.namespace.versions,
            self.namespace.blobs,
            self.namespace.sweeps,
            self.namespace.name,
            timestamp(self.namespace.now()),
            check_actor(actor),
        )
        return registrar.register(
            check_model(model), tensors, metadata or {}, lineage or Lineage(), signer
        )

    def register_file(
        self,
        model: str,
        path: Path,
        *,
        actor: str,
        lineage: Lineage | None = None,
        signer: Signer | None = None,
    ) -> Registration:
        """Store the tensors of a safetensors, `.onnx` or `.pt2` file as a version; see `register`.

        Raises:
            NotFoundError: There is no such file.
            TensorFormatError: It is not well-formed, or not what its suffix says.
        """
        with open_model_file(path) as file:
            return self.register(
                model,
                file.tensors,
                actor=actor,
                metadata=file.metadata,
                lineage=lineage,
                signer=signer,
            )

    def models(self) -> list[str]:
        """Return the names of all models, sorted."""
        return self.namespace.versions.models()

    def versions(self, model: str) -> list[VersionRecord]:
        """Return the versions of a model, oldest first. Raises `NotFoundError`."""
        found = self.namespace.versions.of_model(check_model(model)).values()
        return [stored.record for stored in found]

    def aliases(self, model: str) -> dict[str, AliasState]:
        """Return the aliases of a model by name, each verified with its history."""
        aliases = self.namespace.aliases
        states = {
            alias: aliases.read(model, alias) for alias in aliases.of_model(check_model(model))
        }
        return {alias: state for alias, state in states.items() if state.history}

    def log(self, model: str, alias: str) -> tuple[HistoryEntry, ...]:
        """Return all that an alias pointed at, oldest first.

        Raises:
            NotFoundError: There is no such alias.
            IntegrityError: A record of it was changed or is missing.
        """
        history = self.namespace.aliases.read(check_model(model), check_alias(alias)).history
        if not history:
            raise NotFoundError(f"no alias {alias!r} of model {model!r}")
        return history

    def ended(self, model: str, alias: str) -> tuple[EndedOperation, ...]:
        """Return how all operations on an alias ended, the first to end first."""
        return self.namespace.operations.ended(check_model(model), check_alias(alias))

    def marks(self, record: VersionRecord) -> tuple[Mark, ...]:
        """Return every change of a version's state, oldest first.

        Raises:
            IntegrityError: One was changed or is missing.
        """
        return self.namespace.marks.of_version(record)

    def pins(self, model: str) -> tuple[Pin, ...]:
        """Return which versions of a model are pinned, and why. Raises `NotFoundError`."""
        self.versions(model)
        return tuple(self.namespace.pins.of_model(model).values())

    def resolve(self, reference: Reference) -> VersionRecord:
        """Return the version that a reference names; a bare model means its latest.

        Raises:
            NotFoundError: There is none.
            IntegrityError: The alias, its history or the version was changed.
        """
        return find_version(self.namespace, reference)

    def manifest(self, record: VersionRecord) -> Manifest:
        """Return a version's verified manifest. Raises as `load`."""
        return self.namespace.verifier.manifest(record)

    def load(self, reference: Reference) -> LoadedModel:
        """Read a version into memory; every byte and signature is verified.

        Raises:
            NotFoundError: There is no such version.
            RefusedError: It is PENDING.
            IntegrityError: Something of it is missing or was changed.
        """
        return load_record(self.namespace, self.resolve(reference))

    def export(self, reference: Reference, path: Path, like: Path | None = None) -> VersionRecord:
        """Write a version as a file, verified while it is written.

        Args:
            reference: The version.
            path: An `.onnx` or `.pt2` file, or else a safetensors file. It is there
                whole or not at all.
            like: For the first two: a file of the same kind, whose graph the new one gets.

        Raises as `load`, and `RegistryUsageError` where the path exists or cannot be
        written, or `like` has no place for the version's tensors.
        """
        record = self.resolve(reference)
        manifest = self.namespace.verifier.manifest(record)
        tensors = {entry.name: self.namespace.blobs.tensor(entry) for entry in manifest.tensors}
        write_model_file(path, tensors, manifest.metadata, like)
        return record

    def verify(self, record: VersionRecord) -> None:
        """Read every byte of a version. Raises as `load`."""
        self.namespace.verifier.every_byte(record)

    def difference(self, before: VersionRecord, after: VersionRecord) -> Difference:
        """Return what changed from one version to another. Raises as `load`."""
        manifests = self.manifest(before), self.manifest(after)
        return difference(*manifests, self.namespace.blobs.read_tensor)

    def inspector(self, *, reads_every_byte: bool) -> Inspector:
        """Return what looks for damage: in the sizes of files, or in all of their bytes."""
        fault_of = Blobs.digest_fault if reads_every_byte else Blobs.size_fault
        return Inspector(self.namespace, fault_of)

    def events(self, model: str | None = None, alias: str | None = None) -> Events:
        """Return what happens to all models, to one, or to one alias of it."""
        scope = Scope(model and check_model(model), alias and check_alias(alias))
        return Events(self.namespace, scope)

    def housekeeping(self, actor: str) -> Housekeeping:
        """Return what marks, pins and removes versions as `actor`."""
        return Housekeeping(self.namespace, check_actor(actor))

    def promote(
        self, request: PromoteRequest, signer: Signer | None = None, tell: Tell = silent
    ) -> Move:
        """Point an alias at a version, every byte of which is verified first.

        Args:
            request: What to do, and which serving nodes to wait for.
            signer: Approves of the move.
            tell: Gets what is waited for, each time it changes.

        Returns:
            What became of it; an operation that was called off too is an answer.
            `Move.check` makes an error of what is not as asked for.

        Raises:
            NotFoundError: No such model or version.
            RefusedError: The version is not READY, or trained from a quarantined one.
            RegistryConflictError: The alias is not at the expected generation,
                somebody else moved it meanwhile, or another operation is open.
            IntegrityError: The alias or the version is damaged; nothing was moved.
            MoveUnknownError: The store's answer was lost.
        """
        return Rollout(self.namespace, request, signer, tell).carry_out()

    def rollback(
        self, request: RollbackRequest, signer: Signer | None = None, tell: Tell = silent
    ) -> Move:
        """Take an alias back to an earlier version (see `policy`). As `promote`."""
        return Rollout(self.namespace, request, signer, tell).carry_out()

    def canary(
        self,
        request: PromoteRequest,
        plan: CanaryPlan,
        source: MetricSource | None = None,
        signer: Signer | None = None,
        tell: Tell = silent,
    ) -> CanaryResult:
        """Promote step by step, as long as a guard holds; takes as long as that takes.

        Args:
            request: The promotion that is wanted in the end.
            plan: The stages, the guard and the bounds.
            source: Where metrics come from; what was pushed, by default.
            signer: Approves of every move.
            tell: Gets every measurement.

        Raises:
            RefusedError: The alias cools down after an automatic rollback; or as `promote`.
            AliasMovedError: Somebody else moved the alias meanwhile: the canary is over.
        """
        run = CanaryRun(self.namespace, request, plan, source or self.metrics, tell, signer)
        return run.run()

    @property
    def metrics(self) -> PushedMetrics:
        """What nodes and clients measure of versions; push into it, or read it."""
        parts = self.namespace
        return PushedMetrics(parts.backend, parts.name, parts.now)

    def plan(self, request: Request) -> Move:
        """Return what `promote` or `rollback` would do now; raise what it would raise."""
        return Rollout(self.namespace, request).plan()

    def operations(self, actor: str) -> OpenOperations:
        """Return the open operations, to resume, abort or approve as `actor`."""
        return OpenOperations(self.namespace, check_actor(actor))

    def situation(self, model: str, alias: str) -> Situation:
        """Return where an alias points, its open operation, and the nodes that serve it."""
        driver = Driver(self.namespace, check_model(model), check_alias(alias), actor="")
        return driver.look()[0]
