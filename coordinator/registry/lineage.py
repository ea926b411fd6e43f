"""Where a version comes from: what it takes to judge it and to find what else is affected."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import Document

WORKERS_MAX = 10_000
METRICS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Lineage:
    """The origin of one version. Whatever is not known is left out.

    Attributes:
        parent: The version of the same model that training began from.
        job: Name of the training job.
        rounds: First and last round that went into it, both included.
        rule: Aggregation rule, such as `multi-krum`.
        f: Faulty workers that the rule was set to tolerate.
        contributing: Workers whose gradients went in.
        rejected: Worker to the reason its gradients were refused.
        metrics: Name to finite number, such as `accuracy`.
        data_digest: Digest of the data set.
        code_digest: Digest of the training code.
    """

    parent: int | None = None
    job: str | None = None
    rounds: tuple[int, int] | None = None
    rule: str | None = None
    f: int | None = None
    contributing: tuple[str, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    data_digest: Digest | None = None
    code_digest: Digest | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the JSON form; what is not known is null or empty."""
        return {
            "parent": self.parent,
            "job": self.job,
            "rounds": None if self.rounds is None else list(self.rounds),
            "rule": self.rule,
            "f": self.f,
            "contributing": list(self.contributing),
            "rejected": dict(self.rejected),
            "metrics": {name: float(value) for name, value in self.metrics.items()},
            "data_digest": self.data_digest,
            "code_digest": self.code_digest,
        }

    @classmethod
    def from_document(cls, document: Document) -> "Lineage":
        """Read the JSON form. Raises `IntegrityError` where a field is missing or wrong."""
        lineage = cls(
            parent=document.optional_integer("parent", minimum=1),
            job=document.optional_text("job"),
            rounds=_rounds(document),
            rule=document.optional_text("rule"),
            f=document.optional_integer("f"),
            contributing=document.texts("contributing", WORKERS_MAX),
            rejected=document.text_map("rejected", WORKERS_MAX),
            metrics=document.number_map("metrics", METRICS_MAX),
            data_digest=document.optional_digest("data_digest"),
            code_digest=document.optional_digest("code_digest"),
        )
        document.finish()
        return lineage

    @classmethod
    def from_given(cls, given: Mapping[str, Any], what: str) -> "Lineage":
        """Read what a person wrote: as `from_document`, but fields may be left out."""
        return cls.from_document(Document({**cls().to_fields(), **given}, what))


def _rounds(document: Document) -> tuple[int, int] | None:
    rounds = document.optional_items("rounds", count_max=2)
    if rounds is None:
        return None
    if (
        len(rounds) != 2
        or any(type(number) is not int for number in rounds)
        or not 0 <= rounds[0] <= rounds[1]
    ):
        raise document.bad("rounds", "the first and the last round")
    return rounds[0], rounds[1]
