import dataclasses
import hashlib
import json
import math

import pytest

from pliska.coordinator.registry import (
    IntegrityError,
    Lineage,
    Manifest,
    RegistryUsageError,
    TensorEntry,
    TensorType,
)
from pliska.coordinator.registry.digest import digest_of

LINEAGE = Lineage(
    parent=3,
    job="digits",
    rounds=(1, 40),
    rule="multi-krum",
    f=2,
    contributing=("w1", "w2"),
    rejected={"w9": "score far above the others"},
    metrics={"accuracy": 0.975, "loss": 1},
    data_digest=digest_of(b"data"),
    code_digest=digest_of(b"code"),
)
MANIFEST = Manifest(
    namespace="default",
    model="digits",
    tensors=(
        TensorEntry("a", TensorType("F32", (2, 3)), digest_of(b"a")),
        TensorEntry("b", TensorType("BF16", ()), digest_of(b"b")),
    ),
    metadata={"format": "pt"},
    lineage=LINEAGE,
)


def test_a_manifest_is_read_back_whole() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes(), "it") == MANIFEST


def test_a_manifest_with_nothing_known_is_read_back() -> None:
    bare = dataclasses.replace(MANIFEST, lineage=Lineage(), metadata={})
    assert Manifest.from_bytes(bare.to_bytes(), "it") == bare


def test_the_content_id_depends_on_the_tensors_alone() -> None:
    same = dataclasses.replace(
        MANIFEST, model="other", namespace="x", metadata={}, lineage=Lineage()
    )
    assert same.content_id == MANIFEST.content_id


@pytest.mark.parametrize(
    "change",
    [
        {"name": "aa"},
        {"type": TensorType("I32", (2, 3))},
        {"type": TensorType("F32", (3, 2))},
        {"type": TensorType("F32", (6,))},
        {"digest": digest_of(b"other")},
    ],
)
def test_the_content_id_depends_on_name_dtype_shape_and_bytes(change: dict[str, object]) -> None:
    entry = dataclasses.replace(MANIFEST.tensors[0], **change)
    other = dataclasses.replace(MANIFEST, tensors=(entry, MANIFEST.tensors[1]))
    assert other.content_id != MANIFEST.content_id


def test_the_content_id_is_the_sha256_of_this_text() -> None:
    a, b = hashlib.sha256(b"a").hexdigest(), hashlib.sha256(b"b").hexdigest()
    text = (
        '{"format":"pliska-content-1","tensors":'
        f'[["a","F32",[2,3],"sha256:{a}"],["b","BF16",[],"sha256:{b}"]]}}'
    )
    assert MANIFEST.content_id == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def changed(path: str, value: object) -> bytes:
    """Return the manifest's canonical bytes with one value replaced; `del` removes it."""
    document = json.loads(MANIFEST.to_bytes())
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    if value is del_:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


del_ = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "pliska-manifest-2"),
        ("format", del_),
        ("more", 1),
        ("tensors", []),
        ("tensors", {}),
        ("tensors.0", ["a", "F32", [2, 3]]),
        ("tensors.0.0", ""),
        ("tensors.0.0", "a\0"),
        ("tensors.0.0", "b"),
        ("tensors.0.0", "c"),
        ("tensors.0.1", "OBJECT"),
        ("tensors.0.2", [-2, 3]),
        ("tensors.0.2", [2.0, 3]),
        ("tensors.0.2", [True]),
        ("tensors.0.3", "../../etc/passwd"),
        ("tensors.0.3", "sha256:" + "A" * 64),
        ("metadata", {"k": 1}),
        ("lineage", None),
        ("lineage.more", 1),
        ("lineage.parent", 0),
        ("lineage.parent", del_),
        ("lineage.rounds", [1]),
        ("lineage.rounds", [2, 1]),
        ("lineage.rounds", [True, 2]),
        ("lineage.f", -1),
        ("lineage.metrics", {"accuracy": "high"}),
        ("lineage.rejected", {"w1": None}),
        ("lineage.data_digest", "md5:0"),
    ],
)
def test_a_malformed_manifest_is_refused(path: str, value: object) -> None:
    with pytest.raises(IntegrityError):
        Manifest.from_bytes(changed(path, value), "it")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_cannot_be_written(number: float) -> None:
    bad = dataclasses.replace(MANIFEST, lineage=Lineage(metrics={"accuracy": number}))
    with pytest.raises(RegistryUsageError):
        bad.to_bytes()


def test_lineage_that_a_person_writes_may_leave_fields_out() -> None:
    assert Lineage.from_given({"job": "digits"}, "it") == Lineage(job="digits")
    with pytest.raises(IntegrityError, match="unknown fields jbo"):
        Lineage.from_given({"jbo": "digits"}, "it")
