import pytest

from pliska.coordinator.registry import RegistryUsageError
from pliska.coordinator.registry.oci_reference import OciReference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "origin", "name", "end"),
    [
        ("ghcr.example/a/digits:prod", "https://ghcr.example:443", "a/digits", "prod"),
        ("localhost/digits:v1.0_x", "http://localhost:80", "digits", "v1.0_x"),
        ("127.0.0.1:5000/d:1", "http://127.0.0.1:5000", "d", "1"),
        ("[::1]:5000/d:1", "http://[::1]:5000", "d", "1"),
        (f"h.example:8443/a-b__c/d.e@{DIGEST}", "https://h.example:8443", "a-b__c/d.e", DIGEST),
    ],
)
def test_a_reference_says_where_an_artifact_is(text: str, origin: str, name: str, end: str) -> None:
    reference = OciReference.parse(text)
    assert (reference.origin, reference.name) == (origin, name)
    assert (reference.tag or reference.digest) == end


@pytest.mark.parametrize(
    "text",
    [
        "", "digits:prod", "h/digits", "h/:prod", "h/a/../b:prod", "h/a/./b:1", "h/a//b:1", "h/a:",
        "h/A:prod", "H/a:prod", "h/a%2e%2e/b:1", "h/a\\b:1", "h/a:pr/od", "h/a:p?x=1", "h/a:p#x",
        "h/a b:1", "h/a\0:1", "h/a:1\n", "h:0/a:1", "h:65536/a:1", "h:x/a:1", "u:p@h/a:1",
        "https://h/a:1", "-h/a:1", "h..x/a:1", "h/a@sha256:zz", f"h/a:1@{DIGEST}", "h/-a:1",
        "h/" + "a" * 256 + ":1", "h/a:" + "t" * 129, "h/" + "a/" * 300 + "a:1",
    ],
)  # fmt: skip
def test_what_is_not_a_reference_is_refused(text: str) -> None:
    with pytest.raises(RegistryUsageError):
        OciReference.parse(text)


def test_names_and_tags_may_be_as_long_as_the_specification_allows() -> None:
    assert OciReference.parse("h/" + "a" * 255 + ":1").name == "a" * 255
    assert OciReference.parse("h/a:" + "t" * 128).tag == "t" * 128
