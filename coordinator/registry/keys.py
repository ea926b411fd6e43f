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

    def content(self, model: str, content_id: Digest) -> str:
        """Which version has this content."""
        return f"registry/{self.namespace}/contents/{model}/{hex_of(content_id)}"

    def aliases(self, model: str) -> str:
        """Directory of the model's aliases."""
        return f"registry/{self.namespace}/aliases/{model}"

    def alias(self, model: str, alias: str) -> str:
        """One alias."""
        return f"{self.aliases(model)}/{alias}"

    def history(self, model: str, alias: str) -> str:
        """Directory of everything an alias has pointed at."""
        return f"registry/{self.namespace}/history/{model}/{alias}"

    def history_entry(self, model: str, alias: str, gen: int) -> str:
        """What the alias pointed at in generation `gen`."""
        return f"{self.history(model, alias)}/{gen:012d}"
