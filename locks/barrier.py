"""N members wait for each other, and go on together or not at all.

A generation is one gathering. A persistent record says who has arrived in the
present one and whether it is open or broken; each who arrived also has an
ephemeral record. The generation opens in the transaction that adds the last
of N while all others are there, and breaks in one that notes that somebody is
not. The next one begins when all who knew of the last have gone, so whatever
an earlier run left behind cannot count in it.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from pliska.locks.backends.base import Absent, Create, Record, Unmodified, Update
from pliska.locks.claim import Claim, this_process
from pliska.locks.contender import Contender, deadline_of
from pliska.locks.errors import BrokenBarrierError, LockUsageError, StoreFormatError
from pliska.locks.grant import Grant
from pliska.locks.name import check_name
from pliska.locks.owner import Holdings
from pliska.locks.session import Session
from pliska.locks.turn import Act, Enter, Turn, Wait

PARTIES_MAX = 100
"""Each arrival is looked at by all who wait."""


class Phase(StrEnum):
    """How far a generation is."""

    FILLING = "filling"
    OPEN = "open"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Generation:
    """One gathering at a barrier.

    Attributes:
        parties: How many it is for.
        arrived: The keys of the members, in the order of their arrival.
    """

    parties: int
    arrived: tuple[str, ...]
    phase: Phase = Phase.FILLING

    def joined_by(self, key: str) -> "Generation":
        """The generation with one more member; open when that is the last."""
        arrived = (*self.arrived, key)
        is_full = len(arrived) >= self.parties
        return replace(self, arrived=arrived, phase=Phase.OPEN if is_full else self.phase)

    def to_bytes(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_record(cls, record: Record) -> "Generation":
        """Read the record.

        Raises:
            StoreFormatError: It is not ours.
        """
        try:
            fields = json.loads(record.value)
            arrived = tuple(map(str, fields["arrived"]))
            return cls(int(fields["parties"]), arrived, Phase(fields["phase"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise StoreFormatError(
                f"{record.key!r} is no generation: it was not written by a barrier of Pliska"
            ) from error


class Barrier:
    """A meeting of `parties` members. Safe to use from any thread; each `enter` is one member."""

    def __init__(self, session: Session, name: str, parties: int) -> None:
        """Name the barrier; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed, or `parties` not 1 to `PARTIES_MAX`.
        """
        check_name(name)
        if not 1 <= parties <= PARTIES_MAX:
            raise LockUsageError(f"a barrier has 1 to {PARTIES_MAX} parties, not {parties}")
        self.name = name
        self.parties = parties
        self._session = session
        self._directory = f"barriers/{name}/members"
        self._holdings = Holdings()

    def enter(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """Wait until `parties` members have arrived who all live.

        Whoever stops waiting breaks the generation for the others, as a crash
        does. A member that could not tell the store, since it was killed or cut
        off, counts as waiting until its session ends: at once where the store
        detects crashes, else after its lease.

        Args:
            timeout_s: How long to wait; None waits for as long as the session lives.
            cancelled: Set it from another thread to call the wait off.

        Returns:
            The passage. The next generation begins when all have released
            theirs: `with barrier.enter(): ...`.

        Raises:
            BrokenBarrierError: Another member did not stay.
            AcquireTimeoutError: The others did not come in time.
            AcquireCancelledError: `cancelled` was set.
            LockUsageError: The others wait for another number of parties, or
                the caller has not released its last passage.
            SessionLostError: The session ended.
            StoreError: The store could not take the arrival.
        """
        self._session.check()
        if self._holdings.mine() is not None:
            raise LockUsageError(
                f"{self.name!r} was entered before by the caller: release that passage first, "
                "the others wait for it"
            )
        claim = Claim(this_process(), is_shared=True)
        contender = Contender(self._session, self._directory, claim.to_bytes(), self._turn)
        contender.acquire(deadline_of(self._session, timeout_s), cancelled)
        self._holdings.add(contender)
        return Grant(contender)

    def _turn(self, records: Sequence[Record], position: int) -> Turn:
        own_key, generation_key = records[position].key, f"{self._directory}/generation"
        record = next((each for each in records if each.key == generation_key), None)
        if record is None:
            value = Generation(self.parties, ()).joined_by(own_key).to_bytes()
            return Act((Absent(generation_key),), (Create(generation_key, value),))
        generation, unmodified = (
            Generation.from_record(record),
            Unmodified(record.key, record.modified),
        )
        present = {each.key for each in records}
        is_complete = present.issuperset(generation.arrived)

        def become(next_one: Generation) -> Act:
            return Act((unmodified,), (Update(generation_key, next_one.to_bytes()),))

        if generation.phase is Phase.FILLING and not is_complete:
            return become(replace(generation, phase=Phase.BROKEN))
        if own_key in generation.arrived:
            return self._turn_of_member(generation)
        if generation.phase is Phase.FILLING:
            self._check_parties(generation)
            return become(generation.joined_by(own_key))
        leaving = next((key for key in generation.arrived if key in present), None)
        if leaving is not None:
            return Wait(leaving)
        return become(Generation(self.parties, ()).joined_by(own_key))

    def _turn_of_member(self, generation: Generation) -> Turn:
        if generation.phase is Phase.BROKEN:
            raise BrokenBarrierError(
                f"the barrier {self.name!r} is broken: a member left or died while "
                f"{len(generation.arrived)} of {generation.parties} had arrived; enter again"
            )
        return Enter() if generation.phase is Phase.OPEN else Wait(self._directory)

    def _check_parties(self, generation: Generation) -> None:
        if generation.parties != self.parties:
            raise LockUsageError(
                f"{self.name!r} gathers {generation.parties} parties and not {self.parties}"
            )
