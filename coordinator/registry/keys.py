"""Where the records of one namespace lie in the coordination store."""

from dataclasses import dataclass

from pliska.coordinator.registry.digest import Digest, hex_of


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a namespace. Numbers are padded, so that names sort as numbers do."""

    namespace: str

    @property
    def models(self) -> str:
        """Directory of one head record a model."""
        return f"registry/{self.namespace}/models"

    def model(self, model: str) -> str:
        """The head record: the newest version number of the model."""
        return f"{self.models}/{model}"

    def versions(self, model: str) -> str:
        """Directory of the model's versions."""
        return f"registry/{self.namespace}/versions/{model}"

    def version(self, model: str, version: int) -> str:
        """One version."""
        return f"{self.versions(model)}/{version:012d}"

    def marks(self, model: str) -> str:
        """Directory of every change of the state of the model's versions."""
        return f"registry/{self.namespace}/marks/{model}"

    def mark(self, model: str, version: int, number: int) -> str:
        """One change of the state of a version."""
        return f"{self.marks(model)}/{version:012d}.{number:06d}"

    def content(self, model: str, content_id: Digest) -> str:
        """Which version has this content."""
        return f"registry/{self.namespace}/contents/{model}/{hex_of(content_id)}"

    def aliases(self, model: str) -> str:
        """Directory of the directories of the model's aliases."""
        return f"registry/{self.namespace}/aliases/{model}"

    @property
    def sweep(self) -> str:
        """Whether files are being removed."""
        return f"registry/{self.namespace}/sweep"

    @property
    def charters(self) -> str:
        """Directory of the charters: whose signatures count."""
        return f"registry/{self.namespace}/charters"

    def charter(self, number: int) -> str:
        """One charter."""
        return f"{self.charters}/{number:012d}"

    def pins(self, model: str) -> str:
        """Directory of the versions that were pinned."""
        return f"registry/{self.namespace}/pins/{model}"

    def pin(self, model: str, version: int) -> str:
        """Why a version must stay."""
        return f"{self.pins(model)}/{version:012d}"

    def alias_directory(self, model: str, alias: str) -> str:
        """Directory of an alias and its open operation, which are read and watched together."""
        return f"{self.aliases(model)}/{alias}"

    def alias(self, model: str, alias: str) -> str:
        """Where an alias points."""
        return f"{self.alias_directory(model, alias)}/alias"

    def operation(self, model: str, alias: str) -> str:
        """The open operation on an alias."""
        return f"{self.alias_directory(model, alias)}/operation"

    def ended(self, model: str, alias: str) -> str:
        """Directory of how the operations on an alias ended."""
        return f"registry/{self.namespace}/ended/{model}/{alias}"

    def ended_operation(self, model: str, alias: str, op_id: str) -> str:
        """How one operation ended."""
        return f"{self.ended(model, alias)}/{op_id}"

    def nodes(self, model: str, alias: str) -> str:
        """Directory of the processes that serve what an alias points at."""
        return f"registry/{self.namespace}/nodes/{model}/{alias}"

    def node(self, model: str, alias: str, node: str, incarnation: str) -> str:
        """One life of such a process. No incarnation has a dot."""
        return f"{self.nodes(model, alias)}/{node}.{incarnation}"

    def history(self, model: str, alias: str) -> str:
        """Directory of everything an alias has pointed at."""
        return f"registry/{self.namespace}/history/{model}/{alias}"

    def history_entry(self, model: str, alias: str, gen: int) -> str:
        """What the alias pointed at in generation `gen`."""
        return f"{self.history(model, alias)}/{gen:012d}"

    def metrics(self, model: str, version: int) -> str:
        """Directory of what was measured of a version while it served."""
        return f"registry/{self.namespace}/metrics/{model}/{version:012d}"

    def sample(self, model: str, version: int, source: str) -> str:
        """What one source last measured."""
        return f"{self.metrics(model, version)}/{source}"
