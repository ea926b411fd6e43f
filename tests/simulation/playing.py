"""Plays a world to its end: what happens in it meanwhile is the caller's matter."""

import gc
from collections.abc import Awaitable, Callable

from simulation.virtual_loop import quiet_burial
from simulation.world import Run, World


def play_in(make_world: Callable[[], World], happen: Callable[[World], Awaitable[None]]) -> Run:
    """Start all processes of a world, let things happen until that returns, and bury it.

    The world is made here, so that nobody holds on to it when it is buried.
    """
    gc.freeze()  # a million objects of torch that no burial need look through
    try:
        with quiet_burial():
            return _play(make_world(), happen)
    finally:
        gc.unfreeze()


def _play(world: World, happen: Callable[[World], Awaitable[None]]) -> Run:
    with world.taking_place():
        world.open()
        try:
            world.loop.run_until_complete(_live(world, happen))
        finally:
            run = world.finish()
    return run


async def _live(world: World, happen: Callable[[World], Awaitable[None]]) -> None:
    for name in (*world.coordinators, *world.workers):
        world.start(name)
    await happen(world)
