"""What befalls a simulated job, drawn from the seed: deaths, stops, cuts, and calm at last."""

import asyncio
from random import Random

from simulation.network import Weather
from simulation.virtual_loop import Process
from simulation.world import SESSION_S, Failure, World

from pliska.coordinator.rollback_order import RollbackOrder, place_order

PEACE_S = 20.0
"""Faults happen up to this time; after it the job must come to its end."""
LATEST_S = PEACE_S + 60.0
"""When the job must have come to its end."""
DOWN_S_MAX = 4.0


def draw_weather(lots: Random) -> Weather:
    """Draw how bad the network is while faults happen."""
    if lots.random() < 0.3:
        return Weather()
    return Weather(
        delay_s=lots.choice([0.005, 0.05, 0.3]),
        loss=lots.choice([0.0, 0.02, 0.1]),
        reply_loss=lots.choice([0.0, 0.02, 0.1]),
        cut=lots.choice([0.0, 0.02, 0.1]),
    )


async def trouble(world: World) -> None:
    """Let things happen until the peace. Who died is started again, also after it."""
    lots = world.lots
    world.network.weather = draw_weather(lots)
    world.chance_of_death = lots.choice([0.0, 0.0, 0.005, 0.02])
    world.chance_of_stop = lots.choice([0.0, 0.001, 0.004])
    world.troubles.failing = lots.choice([0.0, 0.0, 0.01])
    world.troubles.losing = lots.choice([0.0, 0.0, 0.01])
    world.loop.thread_s_max = lots.choice([0.004, 0.02, 0.1])
    world.loop.before_step = _death_between_steps(lots, lots.choice([0.0, 0.0, 2e-4]))
    pause_s = lots.choice([0.5, 2.0, 6.0])
    restarting = asyncio.ensure_future(_restart_the_dead(world))
    ordering = asyncio.ensure_future(_order_rollback(world))
    while (left_s := PEACE_S - world.loop.time()) > 0:
        await asyncio.sleep(min(lots.expovariate(1 / pause_s), left_s))
        _befall(world, lots.choice([*world.processes.values()]))
    world.network.calm()
    world.troubles.calm()
    world.chance_of_death = world.chance_of_stop = 0.0
    world.loop.before_step = lambda _process: None
    await restarting
    await ordering


def _befall(world: World, process: Process) -> None:
    lots, others = world.lots, [*world.processes.values()]
    match lots.choice(["kill", "kill", "stop", "link", "store", "fire"]):
        case "kill":
            process.is_dead = True
        case "stop":
            process.stop(lots.uniform(0.0, 2 * SESSION_S))
        case "link":
            world.network.cut(process, lots.choice(others), lots.uniform(0.0, 2 * SESSION_S))
        case "store":
            world.troubles.cut(process, lots.uniform(0.0, 2 * SESSION_S))
        case "fire" if world.can_burn(process.name):
            world.burn(process.name)


async def _restart_the_dead(world: World) -> None:
    """Start again who died, or ended with an error, until everybody came to the end."""
    while world.loop.time() < LATEST_S and not world.is_finished():
        await asyncio.sleep(world.lots.uniform(0.0, DOWN_S_MAX))
        for name, process in list(world.processes.items()):
            if process.is_dead or isinstance(world.ended.get(name), Failure):
                process.is_dead = True
                world.start(name)


async def _order_rollback(world: World) -> None:
    """Put the job back on an older version some time after that was committed."""
    target = world.scenario.target
    if target is None:
        return
    directory = world.store_directory()
    due = target + world.lots.randint(2, 6)
    while directory.committed_version() < due:
        if world.loop.time() >= LATEST_S:
            return
        await asyncio.sleep(world.lots.uniform(0.0, 0.2))
    # One row a round takes four workers here: without the liar such a job would wait for ever.
    can_spare = world.job.mode.start != "asynchronous"
    excluded = tuple(sorted(world.scenario.liars)) if can_spare else ()
    place_order(
        directory,
        RollbackOrder(number=1, target=target, actor="ann", reason="poison", excluded=excluded),
    )


def _death_between_steps(lots: Random, chance: float):
    def may_die(process: Process) -> None:
        if chance and lots.random() < chance:
            process.is_dead = True

    return may_die
