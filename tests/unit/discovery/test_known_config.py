from datetime import UTC, datetime

from pliska.discovery.known_config import (
    KnownConfig,
    after_listing,
    after_silence,
    from_snapshot,
)
from pliska.discovery.schema import Schema, ValueKind
from pliska.discovery.setting import ChangeKind, Setting
from pliska.locks import Listing, Record, Revision

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def setting(key: str, value: object, revision: int = 1, schema: Schema | None = None) -> Setting:
    return Setting(
        key=key,
        revision=revision,
        is_set=True,
        value=value,
        schema=schema,
        change=ChangeKind.SET,
        written_at=NOON,
    )


def record(stored: Setting, created: int, modified: int) -> Record:
    key = f"config/values/{stored.key}"
    return Record(key, stored.to_bytes(), Revision(created), Revision(modified))


def listing(*records: Record) -> Listing:
    newest = max((each.modified for each in records), default=Revision(1))
    return Listing(records, newest)


def test_the_first_listing_is_all_news() -> None:
    a, b = setting("a", 1), setting("b", 2)
    known, news = after_listing(5.0, KnownConfig(), listing(record(a, 1, 1), record(b, 2, 2)))
    assert news == (a, b)
    assert (known.settings, known.confirmed_s, known.reason) == ({"a": a, "b": b}, 5.0, "")


def test_only_what_changed_is_news() -> None:
    a, b, c = setting("a", 1), setting("b", 2), setting("b", 3, revision=2)
    known, _ = after_listing(5.0, KnownConfig(), listing(record(a, 1, 1), record(b, 2, 2)))
    known, news = after_listing(6.0, known, listing(record(a, 1, 1), record(c, 2, 3)))
    assert news == (c,)
    known, news = after_listing(7.0, known, listing(record(a, 1, 1), record(c, 2, 3)))
    assert news == ()
    assert known.confirmed_s == 7.0


def test_a_record_made_anew_with_the_same_revision_and_another_value_is_news() -> None:
    known, _ = after_listing(5.0, KnownConfig(), listing(record(setting("a", 1), 1, 1)))
    again = setting("a", 2)
    known, news = after_listing(6.0, known, listing(record(again, 4, 4)))
    assert news == (again,)


def test_one_record_that_is_gone_is_a_deletion_and_all_at_once_are_not_believed() -> None:
    a, b = record(setting("a", 1), 1, 1), record(setting("b", 2), 2, 2)
    known, _ = after_listing(5.0, KnownConfig(), listing(a, b))
    fewer, news = after_listing(6.0, known, listing(a))
    assert [(each.key, each.is_set, each.value) for each in news] == [("b", False, None)]
    assert set(fewer.settings) == {"a"}
    none, news = after_listing(6.0, known, listing())
    assert news == ()
    assert none.settings == known.settings
    assert none.reason == "the store has no settings any more"
    reading = none.reading(9.0, "a")
    assert reading is not None
    assert (reading.is_stale, reading.age_s) == (True, 4.0)


def test_what_cannot_be_delivered_leaves_the_last_good_value_and_its_age() -> None:
    schema = Schema(kind=ValueKind.INTEGER)
    good, bad = setting("a", 1, schema=schema), setting("a", "x", revision=2, schema=schema)
    known, _ = after_listing(5.0, KnownConfig(), listing(record(good, 1, 1)))
    known, news = after_listing(6.0, known, listing(record(bad, 1, 2)))
    known, _ = after_listing(8.0, known, listing(record(bad, 1, 2)))
    assert news == ()
    reading = known.reading(9.0, "a")
    assert reading is not None
    assert (reading.setting, reading.is_stale, reading.age_s) == (good, True, 3.0)
    assert "is no integer" in reading.reason
    fixed = setting("a", 3, revision=3, schema=schema)
    known, news = after_listing(9.0, known, listing(record(fixed, 1, 3)))
    assert news == (fixed,)
    assert known.undeliverable == {}


def test_a_bad_value_that_never_was_good_is_unknown_until_it_goes() -> None:
    bad = Record("config/values/a", b"garbage", Revision(1), Revision(1))
    other = record(setting("b", 1), 2, 2)
    known, news = after_listing(5.0, KnownConfig(), listing(bad, other))
    assert [each.key for each in news] == ["b"]
    assert known.reading(5.0, "a") is None
    assert set(known.undeliverable) == {"a"}
    known, news = after_listing(6.0, known, listing(other))
    assert (news, known.undeliverable) == ((), {})


def test_silence_makes_everything_stale_and_changes_nothing_else() -> None:
    known, _ = after_listing(5.0, KnownConfig(), listing(record(setting("a", 1), 1, 1)))
    silent = after_silence(known, "away")
    reading = silent.reading(8.0, "a")
    assert reading is not None
    assert (reading.setting, reading.age_s, reading.is_stale, reading.reason) == (
        setting("a", 1),
        3.0,
        True,
        "away",
    )


def test_what_a_snapshot_knew_is_no_news_when_the_store_confirms_it() -> None:
    a = setting("a", 1)
    known = from_snapshot(100.0, [a], age_s=30.0)
    reading = known.reading(101.0, "a")
    assert reading is not None
    assert (reading.age_s, reading.is_stale) == (31.0, True)
    known, news = after_listing(102.0, known, listing(record(a, 1, 1)))
    assert news == ()
    reading = known.reading(102.0, "a")
    assert reading is not None
    assert not reading.is_stale
