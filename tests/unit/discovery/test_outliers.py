from pliska.discovery.instance import Instance
from pliska.discovery.outliers import (
    ErrorTimes,
    OutlierOptions,
    after_error,
    sieve,
    still_counting,
)

OPTIONS = OutlierOptions()


def instances(count: int) -> list[Instance]:
    return [Instance(service="s", id=f"i{n}", address="h") for n in range(count)]


def failed(*moments: tuple[float, str]) -> ErrorTimes:
    errors: ErrorTimes = {}
    for now_s, instance_id in moments:
        errors = after_error(now_s, errors, instance_id, OPTIONS)
    return errors


def usable(now_s: float, count: int, errors: ErrorTimes) -> list[str]:
    return [each.id for each in sieve(now_s, instances(count), errors, OPTIONS).usable]


def test_one_error_is_forgiven_and_two_within_the_window_are_not() -> None:
    assert usable(1, 3, failed((0, "i0"))) == ["i0", "i1", "i2"]
    errors = failed((0, "i0"), (29.9, "i0"))
    assert usable(29.9, 3, errors) == ["i1", "i2"]
    assert sieve(29.9, instances(3), errors, OPTIONS).ejected == {"i0": "2 errors in 30 s"}


def test_errors_older_than_the_window_do_not_count() -> None:
    errors = failed((0, "i0"), (20, "i0"))
    assert usable(29.9, 3, errors) == ["i1", "i2"]
    assert usable(30, 3, errors) == ["i0", "i1", "i2"]
    assert still_counting(50, errors, OPTIONS) == {}


def test_when_too_few_would_be_left_none_is_left_out() -> None:
    errors = failed(*[(0, f"i{n}") for n in (0, 1, 2)] * 2)
    assert not sieve(1, instances(6), errors, OPTIONS).is_panic
    assert usable(1, 6, errors) == ["i3", "i4", "i5"]
    panicking = sieve(1, instances(5), errors, OPTIONS)
    assert panicking.is_panic
    assert len(panicking.usable) == 5
    assert len(panicking.ejected) == 3


def test_what_is_remembered_is_bounded() -> None:
    errors: ErrorTimes = {}
    for n in range(1_000):
        errors = after_error(float(n), errors, f"i{n % 50}", OPTIONS)
    assert len(errors) <= 31
    assert max(len(times) for times in errors.values()) <= OPTIONS.errors_max
