"""How good the versions of one leadership are: every so many of them, and the last one, measured.

Beside the rounds, which wait for no measurement. What measures one is `evaluator`.
"""

import logging

from pliska.coordinator.errors import ModelStateError
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.publisher import Published, Publisher
from pliska.coordinator.wire.thread import in_thread

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long one wait for a version lasts before it is begun anew."""


class Measurements:
    """The accuracies of what a leader publishes. Belongs to one event loop."""

    def __init__(self, evaluator: Evaluator, publisher: Publisher, every: int) -> None:
        """Begin with none.

        Args:
            evaluator: Measures one version.
            publisher: Has the versions.
            every: So many versions apart.
        """
        self.accuracy: dict[int, float] = {}
        """By version."""
        self._evaluator = evaluator
        self._publisher = publisher
        self._every = every

    async def run(self) -> None:
        """Measure until the last version is.

        The version that this leader began with is measured only if it is due:
        a takeover has better things to do.
        """
        done = self._publisher.published.version - 1
        while True:
            published = await self._publisher.newer_than(done, PATIENCE_S)
            if published is None:
                continue
            if published.is_final or published.version // self._every > done // self._every:
                await self._measure(published)
            if published.is_final:
                return
            done = published.version

    async def _measure(self, published: Published) -> None:
        """Measure one version; one that cannot be measured is trained all the same."""
        try:
            accuracy = await in_thread(self._evaluator.accuracy, published.parameters)
        except ModelStateError as error:
            log.warning("version=%d reason=%s", published.version, f"not measured: {error}")
        else:
            self.accuracy[published.version] = accuracy
            log.info("version=%d accuracy=%.4f", published.version, accuracy)
