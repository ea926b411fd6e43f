"""Which instance gets the next piece of work: policies, each a pure function of what it is given.

A policy sees the instances that may be asked, what this process knows of their
load, and a source of randomness; it returns its choice with the reason and the
state for the next time. It neither filters (`outliers` and `resolver` do) nor
remembers.

Sources: smooth weighting as in nginx (ngx_http_upstream_round_robin); the power
of two choices, Mitzenmacher 2001, "The Power of Two Choices in Randomized Load
Balancing"; why the least loaded of all is no default: everybody who looks at
the same old numbers runs to the same instance.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Protocol

from pliska.discovery.errors import ServiceUsageError
from pliska.discovery.instance import Instance

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BalancingState:
    """What a policy carries from one choice to the next.

    Attributes:
        last_id: The instance that was chosen last; empty at the beginning.
        credits: Of smooth weighting: what each instance has coming.
    """

    last_id: str = ""
    credits: Mapping[str, int] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Choice:
    """Who gets the work, why, and the state for the next choice."""

    instance: Instance
    reason: str
    state: BalancingState


class Policy(Protocol):
    """A way to choose."""

    def __call__(
        self,
        instances: Sequence[Instance],
        in_flight: Mapping[str, int],
        state: BalancingState,
        random: Random,
    ) -> Choice:
        """Choose one instance.

        Args:
            instances: Who may be chosen: at least one, ordered by id.
            in_flight: How much work this process has with each instance, by id;
                an instance that is missing has none.
            state: From the last choice.
            random: Where chance comes from.
        """


def round_robin(
    instances: Sequence[Instance],
    in_flight: Mapping[str, int],  # noqa: ARG001 - a policy's signature
    state: BalancingState,
    random: Random,  # noqa: ARG001
) -> Choice:
    """One after the other in the order of ids, whoever comes and goes."""
    position = bisect_right(instances, state.last_id, key=lambda instance: instance.id)
    chosen = instances[position % len(instances)]
    return Choice(chosen, f"next after {state.last_id or 'none'}", BalancingState(chosen.id))


def smooth_weighted(
    instances: Sequence[Instance],
    in_flight: Mapping[str, int],  # noqa: ARG001
    state: BalancingState,
    random: Random,  # noqa: ARG001
) -> Choice:
    """Each in proportion to its weight, spread evenly: 5, 1, 1 gives a a b a c a a.

    Each instance earns its weight a turn; the richest is chosen and pays what
    all earned together. O(instances).
    """
    earned = {each.id: state.credits.get(each.id, 0) + each.weight for each in instances}
    chosen = max(instances, key=lambda instance: earned[instance.id])
    reason = f"credit {earned[chosen.id]} at weight {chosen.weight}"
    earned[chosen.id] -= sum(each.weight for each in instances)
    return Choice(chosen, reason, BalancingState(chosen.id, earned))


def least_in_flight(
    instances: Sequence[Instance],
    in_flight: Mapping[str, int],
    state: BalancingState,
    random: Random,
) -> Choice:
    """The least loaded of all by this process's own count; chance decides between equals."""
    loads = [_load(instance, in_flight) for instance in instances]
    least = min(loads)
    chosen = random.choice(
        [each for each, load in zip(instances, loads, strict=True) if load == least]
    )
    reason = f"{in_flight.get(chosen.id, 0)} in flight, the least of {len(instances)}"
    return Choice(chosen, reason, BalancingState(chosen.id, state.credits))


def power_of_two_choices(
    instances: Sequence[Instance],
    in_flight: Mapping[str, int],
    state: BalancingState,
    random: Random,
) -> Choice:
    """The less loaded of two that chance picks: nearly as even as the least of all, no herd."""
    if len(instances) == 1:
        return Choice(instances[0], "the only one", BalancingState(instances[0].id))
    first, second = random.sample(instances, 2)
    chosen, other = first, second
    if _load(second, in_flight) < _load(first, in_flight):
        chosen, other = second, first
    reason = (
        f"{in_flight.get(chosen.id, 0)} in flight against {in_flight.get(other.id, 0)} "
        f"of {other.id}"
    )
    return Choice(chosen, reason, BalancingState(chosen.id, state.credits))


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "power-of-two": power_of_two_choices,
        "round-robin": round_robin,
        "weighted": smooth_weighted,
        "least-in-flight": least_in_flight,
    }
)
"""By the name that people write."""
DEFAULT_POLICY = "power-of-two"


def policy_named(name: str) -> Policy:
    """The policy of this name.

    Raises:
        ServiceUsageError: There is none such.
    """
    policy = POLICIES.get(name)
    if policy is None:
        raise ServiceUsageError(f"no policy is called {name!r}: choose of {', '.join(POLICIES)}")
    return policy


def _load(instance: Instance, in_flight: Mapping[str, int]) -> float:
    """What it would carry with one more, in proportion to its weight."""
    return (in_flight.get(instance.id, 0) + 1) / instance.weight
