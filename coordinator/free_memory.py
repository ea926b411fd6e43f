"""Memory that was freed goes back to the system: between the tasks of a round that differ.

The C library keeps what is freed for what is asked for next, and finds little
use for it: a thousand gradients that arrive leave holes of some KiB, the rule
wants megabytes, and each thread has a heap of its own. Called by `stepper`.
"""

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Give back what can be, where the C library is asked to (glibc). Takes some milliseconds."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))
