"""What belongs to a commit record and is too large for the store: it lies beside it in the log.

The record names its digest, so that it is as good as signed. The signed headers
prove who contributed what; the standings let the next leader go on where this
one ended; evidence lies beside the conviction that rests on it, and receipts lie
where every coordinator has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, ClassVar

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.receipts import RECEIPTS_MAX, KeptReceipt
from pliska.coordinator.records.standing import STANDINGS_MAX, Standing
from pliska.coordinator.wire.encoding import Length, decode, encode
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.limits import ENVELOPE_BYTES_MAX, MEMBERS_MAX
from pliska.coordinator.wire.signing import Signed

PIECE_BYTES_MAX = 2 * ENVELOPE_BYTES_MAX + 4096
"""Largest piece of evidence against a worker."""
ANNEX_BYTES_MAX = 32 * 2**20
"""Largest annex that is read; the headers of `MEMBERS_MAX` workers fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annex:
    """The annex of one commit record.

    Attributes:
        headers: The workers' signed headers, one for each contribution, in the
            same order.
        standings: After the round, sorted by worker.
        evidence: In bytes, for each of the record's convictions, in the same order.
        receipts: Given since the record before for gradients that no record names, of
            this round or of earlier ones.
    """

    wire_type: ClassVar[str] = "pliska/annex/1"

    headers: Annotated[tuple[Signed, ...], Length(0, MEMBERS_MAX)] = ()
    standings: Annotated[tuple[Standing, ...], Length(0, STANDINGS_MAX)] = ()
    evidence: Annotated[
        tuple[Annotated[bytes, Length(1, PIECE_BYTES_MAX)], ...], Length(0, MEMBERS_MAX)
    ] = ()
    receipts: Annotated[tuple[KeptReceipt, ...], Length(0, RECEIPTS_MAX)] = ()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, digest: bytes) -> "Annex":
        """Read an annex that must have this digest.

        Raises:
            DamagedStateError: It is another one, or none.
        """
        if sha256(data).digest() != digest:
            raise DamagedStateError("the annex is not the one that the record names")
        try:
            return decode(cls, data, ANNEX_BYTES_MAX)
        except WireError as error:
            raise DamagedStateError(f"not an annex: {error}") from error

    def to_bytes(self) -> bytes:
        """Encode for the log."""
        return encode(self)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the annex's bytes, as its commit record names it."""
        return sha256(self.to_bytes()).digest()

    def by_worker(self) -> Mapping[str, Standing]:
        """Return the standings by worker."""
        return {standing.worker: standing for standing in self.standings}


NO_ANNEX = Annex()
"""Of a record that refers to nothing."""
