"""Plays a world to its end: what happens in it meanwhile is the caller's matter."""

import gc
from collections.abc import Awaitable, Callable

from simulation.virtual_loop import quiet_burial
from simulation.world import Run, World


def play_in(world: World, happen: Callable[[World], Awaitable[None]]) -> Run:
    """Start all processes of a world and let things happen until that returns."""

    async def live() -> None:
        for name in (*world.coordinators, *world.workers):
            world.start(name)
        await happen(world)

    gc.freeze()  # a million objects of torch that no burial need look through
    try:
        with quiet_burial(), world.taking_place():
            world.open()
            try:
                world.loop.run_until_complete(live())
            finally:
                run = world.finish()
        return run
    finally:
        gc.unfreeze()
