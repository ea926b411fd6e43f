"""Receipts of gradients that no commit record names: late ones, and those of workers in quarantine.

A receipt is the coordinator's signed word; with the worker's own signed header
it proves what became of a gradient that was not counted. At most one is kept
for each worker and round: `jobs/JOB/receipts/ROUND/DIGEST.receipt`, named by its
own bytes, on the disk of the coordinator that gave it. The annex of the next commit
record takes it in, so that every coordinator has it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.encoding import decode, encode
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.limits import ENVELOPE_BYTES_MAX, MEMBERS_MAX
from pliska.coordinator.wire.messages import Receipt
from pliska.coordinator.wire.signing import Signed, peek

RECEIPT_BYTES_MAX = 2 * ENVELOPE_BYTES_MAX
RECEIPTS_MAX = MEMBERS_MAX
"""So many receipts one annex takes in; others wait for the next one."""
RECEIPTS_BYTES_MAX = 4 * 2**20
"""They have at most so many bytes together."""

_NAME = re.compile(r"(\d{12})/([0-9a-f]{64})\.receipt")


@dataclass(frozen=True, slots=True)
class KeptReceipt:
    """A worker's signed header and the coordinator's signed receipt of it. Nothing is checked."""

    wire_type: ClassVar[str] = "pliska/kept-receipt/1"

    header: Signed
    receipt: Signed

    @property
    def claim(self) -> Receipt:
        """What the receipt says, its signature not checked.

        Raises:
            MalformedError: It is no receipt.
        """
        return peek(self.receipt, Receipt).claim


def that_fit(waiting: Iterable[KeptReceipt]) -> tuple[KeptReceipt, ...]:
    """Take as many receipts as one annex has room for, in their order."""
    taken: list[KeptReceipt] = []
    size = 0
    for receipt in waiting:
        size += len(encode(receipt))
        if len(taken) == RECEIPTS_MAX or size > RECEIPTS_BYTES_MAX:
            break
        taken.append(receipt)
    return tuple(taken)


def about(round_number: int, receipts: Iterable[KeptReceipt]) -> tuple[KeptReceipt, ...]:
    """Pick those of one round, each once, in the order of their workers.

    Raises:
        DamagedStateError: One of them is no receipt.
    """
    try:
        found = dict.fromkeys(each for each in receipts if each.claim.round == round_number)
        return tuple(sorted(found, key=lambda each: each.claim.worker))
    except WireError as error:
        raise DamagedStateError(f"a kept receipt cannot be read: {error}") from error


class ReceiptStore:
    """The kept receipts of one job. Blocks on the disk; safe from any thread."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the receipts of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._folder = f"jobs/{job}/receipts/"

    def write(self, round_number: int, kept: KeptReceipt) -> None:
        """Keep a receipt durably."""
        content = encode(kept)
        name = f"{self._folder}{round_number:012d}/{sha256(content).hexdigest()}.receipt"
        self._storage.write(name, [content])

    def names(self) -> list[str]:
        """Return the names of what is kept, by round."""
        return self._storage.names(self._folder)

    def of_round(self, round_number: int) -> tuple[KeptReceipt, ...]:
        """Read the receipts of one round, in the order of their workers.

        Raises:
            DamagedStateError: One of them is not what its name says.
        """
        names = self._storage.names(f"{self._folder}{round_number:012d}/")
        kept = [self.read(name) for name in names]
        return tuple(sorted(kept, key=lambda each: each.claim.worker))

    def read(self, name: str) -> KeptReceipt:
        """Read one of `names`.

        Raises:
            DamagedStateError: It is not what its name says.
        """
        matched = _NAME.fullmatch(name.removeprefix(self._folder))
        if matched is None:
            raise DamagedStateError(f"{name}: no receipt has such a name")
        content = self._storage.read(name, RECEIPT_BYTES_MAX)
        if sha256(content).hexdigest() != matched[2]:
            raise DamagedStateError(f"{name}: its content is not the one that it is named by")
        try:
            kept = decode(KeptReceipt, content, RECEIPT_BYTES_MAX)
            round_number = kept.claim.round
        except WireError as error:
            raise DamagedStateError(f"{name}: {error}") from error
        if round_number != int(matched[1]):
            raise DamagedStateError(f"{name}: it is about round {round_number}")
        return kept
