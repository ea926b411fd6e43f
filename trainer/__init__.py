"""What runs inside a training process: workers, and robust rules for loops of one's own.

    from pliska.trainer import RobustOptimizer

The names are imported when they are first used, so that the command line does
not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliska.coordinator.training.computation import Computation as Computation
    from pliska.trainer.gradient_source import GradientSource as GradientSource
    from pliska.trainer.gradient_source import HonestSource as HonestSource
    from pliska.trainer.optimizer import RobustOptimizer as RobustOptimizer
    from pliska.trainer.worker import Worker as Worker
    from pliska.trainer.worker import WorkerOptions as WorkerOptions

_HOMES = {
    "Computation": "pliska.coordinator.training.computation",
    "GradientSource": "pliska.trainer.gradient_source",
    "HonestSource": "pliska.trainer.gradient_source",
    "RobustOptimizer": "pliska.trainer.optimizer",
    "Worker": "pliska.trainer.worker",
    "WorkerOptions": "pliska.trainer.worker",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
