r"""Names of namespaces, models and aliases, and references to a version.

A name is lower-case letters, digits, `.`, `_` and `-`, begins with a letter or
digit, and has at most 63 characters. So no two names differ only in case, none
is a path, and none needs escaping anywhere: `..`, `/`, `%2e`, `\` and NUL cannot
be written. An alias is further not `latest` (the newest ready version, computed)
and not a number or `v` and a number, which would read as a version.
"""

import re
from dataclasses import dataclass

from pliska.coordinator.registry.digest import Digest, is_digest
from pliska.coordinator.registry.errors import RegistryUsageError

NAME_CHARACTERS_MAX = 63
LATEST = "latest"
"""Reads as an alias, is never stored: the newest version that is READY."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VERSION = re.compile(r"[1-9][0-9]{0,11}")
_READS_AS_VERSION = re.compile(r"v?[0-9]+")


def check_namespace(name: str) -> str:
    """Return `name`. Raises `RegistryUsageError` where it cannot be a namespace."""
    return _checked("namespace", name)


def check_model(name: str) -> str:
    """Return `name`. Raises `RegistryUsageError` where it cannot be a model."""
    return _checked("model", name)


def check_alias(name: str) -> str:
    """Return `name`. Raises `RegistryUsageError` where it cannot be an alias."""
    _checked("alias", name)
    if name == LATEST:
        raise RegistryUsageError(
            "alias 'latest' is reserved: it always means the newest version that is ready; "
            "choose another name"
        )
    if _READS_AS_VERSION.fullmatch(name):
        raise RegistryUsageError(f"alias {name!r} reads as a version number; choose another name")
    return name


def check_node(name: str) -> str:
    """Return `name`. Raises `RegistryUsageError` where it cannot be a node."""
    return _checked("node", name)


def parse_version(text: str) -> int:
    """Return the version number in `text`. Raises `RegistryUsageError` where it is none."""
    if not _VERSION.fullmatch(text):
        raise RegistryUsageError(f"{text[:80]!r} is not a version number (1, 2, 3, ...)")
    return int(text)


@dataclass(frozen=True, slots=True)
class Reference:
    """One version of a model, as a person names it. At most one of the last three is set.

    Attributes:
        model: The model's name.
        version: From `MODEL:3`.
        alias: From `MODEL@prod`; may be `latest`.
        digest: From `MODEL@sha256:...`: a content id or a manifest digest.
    """

    model: str
    version: int | None = None
    alias: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Read `MODEL`, `MODEL:N`, `MODEL@alias` or `MODEL@sha256:...`.

        Raises:
            RegistryUsageError: `text` is none of them.
        """
        model, at, rest = text.partition("@")
        if at:
            check_model(model)
            if is_digest(rest):
                return cls(model, digest=Digest(rest))
            return cls(model, alias=rest if rest == LATEST else check_alias(rest))
        model, colon, rest = text.partition(":")
        check_model(model)
        return cls(model, version=parse_version(rest)) if colon else cls(model)

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.model}:{self.version}"
        named = self.alias or self.digest
        return f"{self.model}@{named}" if named else self.model


def _checked(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX or ".." in name:
        shown = name if len(name) <= NAME_CHARACTERS_MAX else name[:NAME_CHARACTERS_MAX] + "..."
        raise RegistryUsageError(
            f"{kind} {shown!r}: use 1 to {NAME_CHARACTERS_MAX} lower-case letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit, without '..'"
        )
    return name
