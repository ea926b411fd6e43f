"""Commands that run until somebody ends them, as a matter of course and not as an error."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ends_when_told() -> Iterator[None]:
    """Leave the block, cleaning up on the way, at an interrupt or a request to terminate."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
