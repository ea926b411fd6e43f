"""Writes checkpoints in the background; the caller waits only for a copy of the state.

Called by the daemon after a commit. The format is `checkpoint_store`'s.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import torch

from pliska.coordinator.errors import CheckpointError, CoordinatorError
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.training.training_state import TrainingState
from pliska.locks import LockError


class CheckpointWriter:
    """One thread that writes checkpoints, and one kept copy of the state to write from.

    A failed write is never silent: the future that `save` returned carries it,
    and the next `save`, `flush` or `close` raises it. After that the writer
    works on. Not for two threads at once; closing it ends the last write first.
    """

    def __init__(
        self,
        store: CheckpointStore,
        permit: Callable[[], None],
        after: Callable[[Checkpoint], None],
    ) -> None:
        """Write to `store`.

        Args:
            store: Where to.
            permit: Raises a `LockError` where this coordinator may not write any more.
            after: Called in the writer's thread with each checkpoint that is complete;
                removes what it has made superfluous.
        """
        self._store = store
        self._permit = permit
        self._after = after
        self._staged: dict[str, torch.Tensor] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Checkpoint] | None = None

    def save(self, checkpoint: Checkpoint, state: TrainingState) -> "Future[Checkpoint]":
        """Copy the state and begin to write it; wait first while the last one is being written.

        Args:
            checkpoint: what the state is.
            state: may change as soon as this returns.

        Returns:
            A future that is done once the checkpoint is durable.

        Raises:
            CheckpointError: the last checkpoint failed; this one was not begun.
        """
        self.flush()
        self._stage(state.tensors)
        staged = TrainingState(self._staged, dict(state.settings))
        self._pending = self._thread.submit(self._write, checkpoint, staged)
        return self._pending

    def flush(self) -> None:
        """Wait until the last checkpoint is durable.

        Raises:
            CheckpointError: it failed.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Finish the last checkpoint and end the thread. Raises as `flush` does."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()
            self._staged = {}

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _stage(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy into memory that is kept: fresh pages would cost more than the copy itself."""
        fits = {name: (staged.shape, staged.dtype) for name, staged in self._staged.items()}
        if fits != {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}:
            self._staged = {
                name: torch.empty(tensor.shape, dtype=tensor.dtype)
                for name, tensor in tensors.items()
            }
        for name, tensor in tensors.items():
            self._staged[name].copy_(tensor.detach())

    def _write(self, checkpoint: Checkpoint, state: TrainingState) -> Checkpoint:
        try:
            self._store.write(checkpoint, state, self._permit)
            self._after(checkpoint)
        except (CoordinatorError, LockError, OSError) as error:
            raise CheckpointError(
                f"the checkpoint of version {checkpoint.version} failed: {error}"
            ) from error
        return checkpoint
