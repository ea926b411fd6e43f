"""`pliska model pack`: versions that nobody uses take less room."""

import dataclasses
from datetime import timedelta
from typing import Annotated

import typer

from pliska.coordinator.commands.model_options import (
    ActorOption,
    Place,
    default_actor,
    duration_s,
    with_place,
)
from pliska.coordinator.registry.packing import pack_cold
from pliska.locks.presentation import show_json, show_rows


@with_place
def pack(
    place: Place,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Leave alone what is younger.")
    ] = "30d",
    actor: ActorOption = None,
) -> None:
    """Pack versions that no alias ever pointed at and nothing uses; unpack all others.

    Nothing is lost, and packed versions can be used as all others; they take longer to load.
    """
    with place.open() as registry:
        age_min = timedelta(seconds=duration_s(older_than))
        packed = pack_cold(registry.namespace, actor or default_actor(), age_min)
    if place.is_json:
        show_json(dataclasses.asdict(packed))
    else:
        row = {
            "cold_versions": packed.versions,
            "tensors_packed": packed.packed,
            "bytes_saved": packed.saved,
            "tensors_unpacked": packed.unpacked,
        }
        show_rows(place.output, "packed", list(row), [row])
