from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliska.coordinator.registry import Reference, RegistryUsageError
from pliska.coordinator.registry.names import (
    NAME_CHARACTERS_MAX,
    check_alias,
    check_model,
    check_namespace,
)
from pliska.coordinator.storage.name import is_name

BAD_NAMES = [
    "",
    ".",
    "..",
    "a..b",
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "%2e%2e",
    "a%2fb",
    "a\0b",
    "a\n",
    "\na",
    " a",
    "a b",
    "-rf",
    ".hidden",
    "_x",
    "Prod",
    "PROD",
    "modèle",
    "\uff50rod",
    "prod\u200b",
    "a:1",
    "a@b",
    "a#b",
    "a?b",
    "~root",
    "$HOME",
    "a" * (NAME_CHARACTERS_MAX + 1),
]
GOOD_NAMES = ["a", "0", "digits", "resnet-50", "gpt_2.5", "a" * NAME_CHARACTERS_MAX, "con"]


@pytest.mark.parametrize("check", [check_namespace, check_model, check_alias])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_a_path_an_escape_or_differs_in_case_is_refused(
    check: Callable[[str], str], name: str
) -> None:
    with pytest.raises(RegistryUsageError) as refused:
        check(name)
    assert refused.value.exit_code == 2
    assert "\0" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_ordinary_names_are_taken(name: str) -> None:
    assert check_model(name) == name
    assert check_namespace(name) == name


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=70))
def test_whatever_is_taken_is_one_part_of_a_storage_name_and_the_same_in_lower_case(
    name: str,
) -> None:
    try:
        check_model(name)
    except RegistryUsageError:
        return
    assert is_name(name)
    assert "/" not in name
    assert name == name.lower() == name.casefold()


@pytest.mark.parametrize("alias", ["latest", "1", "007", "v1", "v23"])
def test_an_alias_that_reads_as_a_version_is_reserved(alias: str) -> None:
    with pytest.raises(RegistryUsageError):
        check_alias(alias)


@pytest.mark.parametrize("alias", ["prod", "stage", "v1.2", "v", "2fast"])
def test_other_aliases_are_taken(alias: str) -> None:
    assert check_alias(alias) == alias


DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("digits", Reference("digits")),
        ("digits:3", Reference("digits", version=3)),
        ("digits@prod", Reference("digits", alias="prod")),
        ("digits@latest", Reference("digits", alias="latest")),
        (f"digits@{DIGEST}", Reference("digits", digest=DIGEST)),
    ],
)
def test_a_reference_is_read_and_written_the_same(text: str, expected: Reference) -> None:
    assert Reference.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "@prod",
        "digits:",
        "digits:0",
        "digits:01",
        "digits:-1",
        "digits:1.5",
        "digits:٣",
        "digits:" + "9" * 13,
        "digits@",
        "digits@1",
        "digits@Prod",
        "digits@prod@stage",
        "digits@prod:1",
        "digits:1@prod",
        "digits@sha256:abc",
        f"digits@{DIGEST.upper()}",
        f"digits@{DIGEST}\n",
        "../digits:1",
    ],
)
def test_a_malformed_reference_is_refused(text: str) -> None:
    with pytest.raises(RegistryUsageError):
        Reference.parse(text)
