"""How operations ended: a record for each, written once when the open one is removed.

Records only, as in `operations`; kept, since the log shows them and a rollback does not
go back to what some nodes could not serve.
"""

from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.operations import (
    OPERATION_BYTES_MAX,
    REQUIRED_NODES_MAX,
    Operation,
)

_FORMAT = "pliska-ended-operation-1"


class Ending(StrEnum):
    """What became of an operation in the end."""

    DONE = "DONE"
    """The alias moved and every live node it waited for serves it."""
    DEGRADED = "DEGRADED"
    """The alias moved; some nodes do not serve it."""
    ABORTED = "ABORTED"
    """The alias was not moved by it, and never will be."""


class Cause(StrEnum):
    """Why an operation ended as it did."""

    COMPLETE = "complete"
    """Nothing was left to do."""
    NODES = "nodes"
    """Nodes could not load the target, or were gone."""
    DEADLINE = "deadline"
    """Somebody did not answer in time."""
    POLICY = "policy"
    """The target may not be pointed at any more."""
    OVERTAKEN = "overtaken"
    """Another operation moved the alias, or took its place."""
    ORDER = "order"
    """A person called it off."""


@dataclass(frozen=True, slots=True)
class EndedOperation:
    """How an operation ended: written once.

    Attributes:
        ending: What became of it.
        cause: Why, as a word.
        gen: The generation that it gave the alias; None where it was aborted.
        failed: Nodes that could not load or serve the target.
        late: Nodes that had not answered.
        why: Why, for a person.
        at: UTC time, ISO 8601.
        operation: The operation as it was last.
    """

    ending: Ending
    cause: Cause
    gen: int | None
    failed: tuple[str, ...]
    late: tuple[str, ...]
    why: str
    at: str
    operation: Operation

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _FORMAT,
                "ending": self.ending,
                "cause": self.cause,
                "gen": self.gen,
                "failed": list(self.failed),
                "late": list(self.late),
                "why": self.why,
                "at": self.at,
                "operation": self.operation.to_fields(),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "EndedOperation":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, OPERATION_BYTES_MAX, what)
        document.check_format(_FORMAT)
        ended = cls(
            ending=document.choice("ending", Ending),
            cause=document.choice("cause", Cause),
            gen=document.optional_integer("gen", minimum=1),
            failed=document.texts("failed", REQUIRED_NODES_MAX),
            late=document.texts("late", REQUIRED_NODES_MAX),
            why=document.text("why"),
            at=document.time("at"),
            operation=Operation.from_document(document.document("operation")),
        )
        document.finish()
        if (ended.gen is None) != (ended.ending is Ending.ABORTED):
            raise document.bad("gen", "there exactly when the alias was moved")
        return ended


def ended_key(ended: EndedOperation) -> str:
    """Return where the record of an ended operation lies."""
    operation = ended.operation
    keys = Keys(operation.namespace)
    return keys.ended_operation(operation.model, operation.alias, operation.op_id)
