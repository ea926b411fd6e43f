from random import Random

from pliska.discovery.instance import Instance
from pliska.discovery.zones import ZoneOptions, in_zone


def instances(**zones: int) -> list[Instance]:
    return [
        Instance(service="s", id=f"{zone}{n}", address="h", zone=zone)
        for zone, count in zones.items()
        for n in range(count)
    ]


def stayed(usable: list[Instance], known: list[Instance] | None = None) -> float:
    """Which part of the choices stayed in zone a."""
    random, options = Random(11), ZoneOptions()
    picked = [in_zone("a", usable, known or usable, options, random)[0] for _ in range(2_000)]
    return sum(all(each.zone == "a" for each in some) for some in picked) / len(picked)


def test_a_zone_that_is_large_enough_keeps_its_callers() -> None:
    assert stayed(instances(a=2, b=2)) == 1.0
    assert stayed(instances(a=3, b=1, c=1)) == 1.0


def test_a_zone_that_is_too_small_spills_over_what_it_cannot_take() -> None:
    # One of four instances, but half of the callers: it can take half of theirs.
    assert 0.45 < stayed(instances(a=1, b=3)) < 0.55


def test_what_spills_over_goes_to_the_other_zones_only() -> None:
    usable, random = instances(a=1, b=9), Random(2)
    for _ in range(50):
        some, reason = in_zone("a", usable, usable, ZoneOptions(), random)
        if reason.startswith("spilled over"):
            assert {each.zone for each in some} == {"b"}
            return
    raise AssertionError("nothing spilled over")


def test_weights_count_not_heads() -> None:
    heavy = [Instance(service="s", id="a0", address="h", zone="a", weight=3)]
    assert stayed(heavy + instances(b=3)) == 1.0


def test_a_zone_most_of_which_is_out_of_order_is_left_alone() -> None:
    known = instances(a=5, b=5)
    usable = [each for each in known if each.zone == "b" or each.id in ("a0", "a1")]
    some, reason = in_zone("a", usable, known, ZoneOptions(), Random(1))
    assert some == usable
    assert reason == "only 2 of 5 instances of zone a can be used"


def test_without_a_zone_or_without_a_difference_all_are_candidates() -> None:
    usable = instances(a=1, b=1)
    for zone in ("", "c"):
        assert in_zone(zone, usable, usable, ZoneOptions(), Random(1))[0] == usable
    only = instances(a=3)
    assert in_zone("a", only, only, ZoneOptions(), Random(1))[0] == only
