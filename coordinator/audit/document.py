"""One file that proves something by itself: a proof of a worker's fate, or evidence.

What it is stands at its beginning. Written by `pliska audit prove` and by
coordinators, read by `pliska audit check`.
"""

from pliska.coordinator.audit.proof import PROOF_BYTES_MAX, Proof, read_proof
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.evidence import EVIDENCE_BYTES_MAX, KINDS, Evidence, read_evidence
from pliska.coordinator.wire.limits import NAME_BYTES_MAX

DOCUMENT_BYTES_MAX = max(EVIDENCE_BYTES_MAX, PROOF_BYTES_MAX)
"""Largest document that is read."""


def read_document(data: bytes) -> Proof | Evidence:
    """Read a document; what it claims is not checked here.

    Raises:
        DamagedStateError: It is none.
    """
    length = min(int.from_bytes(data[:4]), NAME_BYTES_MAX)
    kind = data[4 : 4 + length].decode("ascii", "replace")
    if kind == Proof.wire_type:
        return read_proof(data)
    for name, evidence in KINDS.items():
        if kind == evidence.wire_type:
            return read_evidence(data, name)
    raise DamagedStateError("neither a proof nor evidence, or damaged")
