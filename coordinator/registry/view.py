"""What a node serves at one moment, as values that are replaced as a whole."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pliska.coordinator.registry.digest import Digest

ModelT = TypeVar("ModelT")


@dataclass(frozen=True, slots=True)
class Held(Generic[ModelT]):
    """A model in memory.

    Attributes:
        model: What the caller's `load` made of it.
        version: Its number.
        manifest_digest: Its manifest.
    """

    model: ModelT
    version: int
    manifest_digest: Digest


@dataclass(frozen=True, slots=True)
class View(Generic[ModelT]):
    """What a node serves: always of one generation.

    Attributes:
        gen: The generation.
        main: What the alias points at.
        canary: What a part of the requests is given to.
        percent: How many of a hundred.
    """

    gen: int
    main: Held[ModelT]
    canary: Held[ModelT] | None
    percent: int


@dataclass(frozen=True, slots=True)
class Standing(Generic[ModelT]):
    """What the node has to say to those who ask it.

    Attributes:
        view: What it serves; None where it serves nothing yet.
        problem: Why that may be out of date, or is nothing; empty when all is well.
        incarnation: The life in which the store last confirmed it.
    """

    view: View[ModelT] | None
    problem: str
    incarnation: str
