"""The versions of a namespace in the store: numbers, contents, and damage to either."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.coordinator.registry import (
    IntegrityError,
    Lineage,
    Manifest,
    NotFoundError,
    TensorEntry,
    TensorType,
)
from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.registry.version_store import Versions
from pliska.locks import Backend


def manifest(content: int) -> Manifest:
    entry = TensorEntry("a", TensorType("U8", (1,)), digest_of(b"%d" % content))
    return Manifest("default", "digits", (entry,), {}, Lineage())


@pytest.fixture
def versions(backend: Backend) -> Versions:
    return Versions(backend, "default")


def reserve(versions: Versions, content: int) -> int:
    return versions.reserve(manifest(content), "2031-05-04T03:02:01.000Z", "ann").record.version


def test_numbers_go_up_by_one_and_the_same_content_keeps_its_number(versions: Versions) -> None:
    assert [reserve(versions, content) for content in (7, 8, 7, 9, 8)] == [1, 2, 1, 3, 2]
    assert list(versions.of_model("digits")) == [1, 2, 3]
    assert versions.models() == ["digits"]


def test_registrations_at_once_get_numbers_without_gaps_or_doubles(versions: Versions) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda content: reserve(versions, content % 20), range(60)))
    assert sorted(set(numbers)) == list(range(1, 21))
    by_content = {(index % 20, number) for index, number in enumerate(numbers)}
    assert len(by_content) == 20


def test_a_model_that_is_not_there_is_not_found(versions: Versions) -> None:
    with pytest.raises(NotFoundError):
        versions.of_model("digits")


def test_namespaces_do_not_see_each_other(versions: Versions, backend: Backend) -> None:
    reserve(versions, 1)
    assert Versions(backend, "other").models() == []


@pytest.mark.parametrize("changed", ["version", "model", "namespace"])
def test_a_record_moved_to_another_place_is_refused(
    versions: Versions, backend: Backend, changed: str
) -> None:
    reserve(versions, 1)
    (record,) = backend.list("registry/default/versions/digits").records
    fields = {**json.loads(record.value), changed: 9 if changed == "version" else "other"}
    content = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    backend.update(record.key, content, record.modified)
    with pytest.raises(IntegrityError, match="another record"):
        versions.of_model("digits")


def test_a_content_record_that_names_another_version_is_refused(
    versions: Versions, backend: Backend
) -> None:
    reserve(versions, 1)
    reserve(versions, 2)
    first = backend.list("registry/default/contents/digits").records[0]
    backend.update(first.key, first.value.replace(b":1", b":2"), first.modified)
    with pytest.raises(IntegrityError, match="another content"):
        reserve(versions, 1)


@pytest.mark.parametrize("newest", ["0", '"1"', "1.0", "null"])
def test_a_damaged_head_gives_no_number(versions: Versions, backend: Backend, newest: str) -> None:
    reserve(versions, 1)
    head = backend.get("registry/default/models/digits")
    assert head is not None
    backend.update(head.key, head.value.replace(b"1}", newest.encode() + b"}"), head.modified)
    with pytest.raises(IntegrityError):
        reserve(versions, 2)
