"""What a gradient's header must say at this moment, read off the round and the last version.

Pure, but that it reads what the stepper holds now. `driver` asks for it; `admission`
compares headers with it.
"""

from collections.abc import Mapping

from pliska.coordinator.admission import Acceptable
from pliska.coordinator.rounds.collecting import gathering_of
from pliska.coordinator.rounds.frequency import is_too_frequent
from pliska.coordinator.rounds.gathering import Gathering
from pliska.coordinator.rounds.round_state import ENDED, Phase, RoundOptions, RoundState
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.training.floor import filter_faults


def acceptable_now(
    stepper: Stepper, state: RoundState, options: RoundOptions, quarantined: Mapping[str, str]
) -> Acceptable:
    """Return what a header must say.

    Args:
        stepper: Knows the last version, and what the rounds before settled.
        state: The round at hand.
        options: When rounds open and close.
        quarantined: Reason by worker whose gradients are refused.
    """
    gathering = gathering_of(state, options)
    sealed = state.sealed.slots if state.sealed is not None else {}
    return Acceptable(
        job=stepper.job.name,
        epoch=stepper.epoch,
        round=_round_joined(stepper, state, gathering),
        mode=state.setting.mode,
        mode_epoch=state.setting.mode_epoch,
        base_version=stepper.head.version,
        base_digest=stepper.head.parameters_digest,
        lag_max=gathering.lag_max,
        recent=stepper.recent,
        committed_round=stepper.committed_version,
        slot_taken_by=frozenset({*state.slots, *sealed}),
        quarantined=quarantined,
        too_frequent=_too_frequent(stepper, state, gathering),
    )


def _round_joined(stepper: Stepper, state: RoundState, gathering: Gathering) -> int:
    """The round that a gradient which comes now would count in; none follows the last."""
    if state.phase is Phase.FINISHED:
        return stepper.head.version + 1
    return state.joined if gathering.lag_max else state.round


def _too_frequent(stepper: Stepper, state: RoundState, gathering: Gathering) -> frozenset[str]:
    """The workers that must let others go first, where others can still come."""
    if not gathering.is_filtered or state.phase in ENDED:
        return frozenset()
    f = filter_faults(stepper.combiner.rule.f, len(state.members))
    accepted = stepper.recent.accepted(2 * f)
    return frozenset(worker for worker in state.members if is_too_frequent(worker, accepted, f))
