"""Prefer instances of one's own zone, and spill over to others when it is too small for its share.

Callers are taken to be spread evenly over the zones, as Envoy's zone-aware
routing does. A zone whose instances are fewer than its share of the whole would
be overrun by its own callers, so they send the missing part elsewhere, by
chance. A zone of which too many are unusable is treated as if it were not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pliska.discovery.instance import Instance

INSTANCES_MIN = 1
HEALTHY_SHARE_MIN = 0.5


@dataclass(frozen=True, slots=True)
class ZoneOptions:
    """When a zone is good enough.

    Attributes:
        instances_min: Fewer usable instances than these do not make a zone.
        healthy_share_min: A zone of which a smaller part can be used is avoided.
    """

    instances_min: int = INSTANCES_MIN
    healthy_share_min: float = HEALTHY_SHARE_MIN


def in_zone(
    zone: str,
    usable: Sequence[Instance],
    known: Sequence[Instance],
    options: ZoneOptions,
    random: Random,
) -> tuple[Sequence[Instance], str]:
    """Whom to choose from, and why.

    Args:
        zone: The caller's own; empty when it has none.
        usable: Who may be chosen: at least one.
        known: All instances of the service, usable or not.
        options: When a zone is good enough.
        random: Where chance comes from.

    Returns:
        Some of `usable`, in their order, at least one.
    """
    local = [instance for instance in usable if instance.zone == zone]
    if not zone or not local or len(local) == len(usable):
        return usable, f"zone {zone or 'unknown'} makes no difference"
    known_count = sum(instance.zone == zone for instance in known)
    if len(local) < options.instances_min or len(local) < known_count * options.healthy_share_min:
        return usable, f"only {len(local)} of {known_count} instances of zone {zone} can be used"
    zones = {instance.zone for instance in usable}
    fair_share = sum(instance.weight for instance in usable) / len(zones)
    stay = sum(instance.weight for instance in local) / fair_share
    if stay >= 1 or random.random() < stay:
        return local, f"zone {zone}"
    others = [instance for instance in usable if instance.zone != zone]
    return others, f"spilled over: zone {zone} can take {stay:.0%} of its callers' work"
