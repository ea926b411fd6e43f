"""Instances that fail their callers are left out for a while: pure decisions on counted errors.

As Curator's down-instance policy: two errors within 30 s take an instance out
until they are 30 s old. The panic threshold is Envoy's: when too few would be
left, the errors are more likely ours or the network's, and all are used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliska.discovery.instance import Instance

ERRORS_MAX = 2
WINDOW_S = 30.0
PANIC_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class OutlierOptions:
    """When an instance is left out.

    Attributes:
        errors_max: So many errors within the window take it out.
        window_s: How long an error counts.
        panic_share: If a smaller part than this would be left, nobody is left out.
    """

    errors_max: int = ERRORS_MAX
    window_s: float = WINDOW_S
    panic_share: float = PANIC_SHARE


ErrorTimes = Mapping[str, tuple[float, ...]]
"""When each instance failed, by id; only errors that still count."""


def after_error(
    now_s: float, errors: ErrorTimes, instance_id: str, options: OutlierOptions
) -> ErrorTimes:
    """What is known once an instance has failed; at most `errors_max` times are kept of each."""
    counting = still_counting(now_s, errors, options)
    times = (*counting.get(instance_id, ()), now_s)[-options.errors_max :]
    return {**counting, instance_id: times}


def still_counting(now_s: float, errors: ErrorTimes, options: OutlierOptions) -> ErrorTimes:
    """Forget the errors that are older than the window."""
    recent = {
        instance_id: tuple(time_s for time_s in times if now_s - time_s < options.window_s)
        for instance_id, times in errors.items()
    }
    return {instance_id: times for instance_id, times in recent.items() if times}


@dataclass(frozen=True, slots=True)
class Sieve:
    """Who may be asked.

    Attributes:
        usable: In the order they came in.
        ejected: Why each of the others is left out, by id; filled in a panic, too.
        is_panic: Whether too many would have been left out, so that none is.
    """

    usable: tuple[Instance, ...]
    ejected: Mapping[str, str]
    is_panic: bool


def sieve(
    now_s: float, instances: Sequence[Instance], errors: ErrorTimes, options: OutlierOptions
) -> Sieve:
    """Leave out the instances that failed too often.

    Args:
        now_s: The time, on the clock of `errors`.
        instances: Who takes work at all.
        errors: When each failed.
        options: When to leave one out.
    """
    ejected = {}
    counting = still_counting(now_s, errors, options)
    for instance in instances:
        count = len(counting.get(instance.id, ()))
        if count >= options.errors_max:
            ejected[instance.id] = f"{count} errors in {options.window_s:g} s"
    usable = tuple(instance for instance in instances if instance.id not in ejected)
    if ejected and len(usable) < len(instances) * options.panic_share:
        return Sieve(tuple(instances), ejected, is_panic=True)
    return Sieve(usable, ejected, is_panic=False)
