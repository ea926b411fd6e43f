"""The round machine with four workers, fed by hand. Times are seconds on an invented clock."""

from collections.abc import Iterable

from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.rounds.gathering import Gathering, Gatherings
from pliska.coordinator.rounds.round import advance
from pliska.coordinator.rounds.round_events import (
    Aggregate,
    Aggregated,
    Answer,
    Asked,
    Committed,
    Effect,
    Event,
    MembersChanged,
    ModeRequested,
    Received,
)
from pliska.coordinator.rounds.round_state import Offered, RoundOptions, RoundState, Sealed
from pliska.coordinator.training.floor import Floor
from pliska.coordinator.wire import ReplyCode


def options_of(
    *, quorum: int = 3, rounds: int = 2, hybrid: Gathering | None = None, buffers: int = 1
) -> RoundOptions:
    """Return a job's options: a rule that needs three rows, a filter that needs four workers."""
    rule, enough = Floor({n: f"{n} rows are too few" for n in range(3)}), Floor({})
    filtered = Floor({n: f"{n} workers are too few" for n in range(4)})
    late = Gathering(quorum, rule, rows_full=quorum, lag_max=2, damping=0.5)
    alone = Gathering(1, enough, 1, 2, 0.5, buffers=1, is_filtered=True, members=filtered)
    free = alone if buffers == 1 else Gathering(buffers, rule, buffers, 2, 0.5, buffers=buffers)
    priming = Gathering(quorum, rule, quorum, 2, 0.5, members=filtered)
    return RoundOptions(
        workers=4,
        gatherings=Gatherings(Gathering(quorum, rule), hybrid or late, free, priming),
        soft_deadline_s=2.0,
        deadline_s=10.0,
        rounds=rounds,
        aborts_max=3,
    )


OPTIONS = options_of()
QUORUM = OPTIONS.gatherings.synchronous.rows_least
FIRST_LIFE = b"1" * 16
SECOND_LIFE = b"2" * 16


class Machine:
    """Drives the machine and keeps the effects of the last event."""

    def __init__(self, options: RoundOptions = OPTIONS, mode: Mode = Mode.SYNCHRONOUS) -> None:
        self.options = options
        setting = ModeSetting(mode)
        self.state = RoundState(
            round=1, expected=options.workers, since=0.0, setting=setting, requested=setting
        )
        self.effects: tuple[Effect, ...] = ()

    def feed(self, event: Event, now: float = 0.0) -> "Machine":
        step = advance(self.state, event, now, self.options)
        self.state, self.effects = step.state, step.effects
        return self

    def offer(
        self, worker: str, root: bytes = b"", life: bytes = FIRST_LIFE, made_for: int | None = None
    ) -> Offered:
        """Offer a gradient of its batch, unless it says otherwise for the round at hand."""
        made_for, slot = made_for or self.state.round, self.state.slot_of(worker)
        if slot is not None and slot.offer.round == made_for:
            lease = slot.offer.lease
        else:
            self.state = advance(self.state, Asked(worker), 0.0, self.options).state
            lease = self.state.leases.of(worker) or 0
        return Offered(worker, life, root or worker.encode(), made_for, lease)

    def fill(
        self, workers: Iterable[str], now: float = 0.0, made_for: int | None = None
    ) -> "Machine":
        for worker in workers:
            offer = self.offer(worker, made_for=made_for)
            self.feed(offer, now)
            self.feed(Received(offer), now)
        return self

    def commit(self, now: float = 0.0) -> "Machine":
        return self.feed(Aggregated(), now).feed(self.committed(), now)

    def committed(self) -> Committed:
        """The commit of the sealed round, which counts what the gate did not refuse."""
        sealed = self.state.sealed
        assert sealed is not None
        slots = (slot for worker, slot in sealed.slots.items() if worker not in sealed.refused)
        return Committed(self.state.leases.cursor.settle(slot.offer.lease for slot in slots))

    def switch(self, mode: Mode, now: float = 0.0) -> "Machine":
        setting = self.state.requested.followed_by(mode, "a test")
        return self.feed(ModeRequested(setting), now)

    def aggregated(self) -> Sealed:
        """The round that the last event closed."""
        (sealed,) = [effect.sealed for effect in self.effects if isinstance(effect, Aggregate)]
        return sealed

    def contributors(self) -> tuple[str, ...]:
        return self.aggregated().contributors

    def answer(self) -> ReplyCode:
        (code,) = [effect.code for effect in self.effects if isinstance(effect, Answer)]
        return code


def present(*workers: str, life: bytes = FIRST_LIFE) -> MembersChanged:
    return MembersChanged(dict.fromkeys(workers, life))


def collecting(
    *workers: str, mode: Mode = Mode.SYNCHRONOUS, options: RoundOptions = OPTIONS
) -> Machine:
    return Machine(options, mode).feed(present(*(workers or ("a", "b", "c", "d"))))
