"""Where evidence lies: `jobs/JOB/evidence/ROUND-KIND-DIGEST.evidence`, named by its own bytes.

Written once, never removed. A name that does not fit its content is damage.
"""

import re
from dataclasses import dataclass

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.evidence import (
    EVIDENCE_BYTES_MAX,
    KINDS,
    Evidence,
    digest_of,
    kind_of,
    read_evidence,
)
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.encoding import encode

_NAME = re.compile(rf"(\d{{12}})-({'|'.join(KINDS)})-([0-9a-f]{{64}})\.evidence")


@dataclass(frozen=True, slots=True)
class KeptEvidence:
    """One file of evidence, read but not judged.

    Attributes:
        round: As its name has it.
        digest: SHA-256 of its bytes.
    """

    name: str
    round: int
    digest: bytes
    evidence: Evidence


class EvidenceStore:
    """The evidence of one job. Blocks on the disk; no thread of its own."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the evidence of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._folder = f"jobs/{job}/evidence/"

    def write(self, evidence: Evidence, round_number: int) -> str:
        """Store evidence durably; return its name."""
        kind, digest = kind_of(evidence), digest_of(evidence)
        name = f"{self._folder}{round_number:012d}-{kind}-{digest.hex()}.evidence"
        self._storage.write(name, [encode(evidence)])
        return name

    def names(self) -> list[str]:
        """Return the names of what is stored, by round."""
        return self._storage.names(self._folder)

    def read(self, name: str) -> KeptEvidence:
        """Read one of `names`.

        Raises:
            DamagedStateError: It is not what its name says.
        """
        matched = _NAME.fullmatch(name.removeprefix(self._folder))
        if matched is None:
            raise DamagedStateError(f"{name}: no evidence has such a name")
        evidence = read_evidence(self._storage.read(name, EVIDENCE_BYTES_MAX), matched[2])
        digest = digest_of(evidence)
        if digest.hex() != matched[3]:
            raise DamagedStateError(f"{name}: its content is not the one that it is named by")
        return KeptEvidence(name, int(matched[1]), digest, evidence)

    def names_since(self, round_number: int) -> list[str]:
        """Return the names of what is about this round or a later one."""
        first = f"{self._folder}{round_number:012d}"
        return [name for name in self.names() if name >= first]
