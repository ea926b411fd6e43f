"""Memory that was freed goes back to the system: between the tasks of a round that differ.

The C library keeps what is freed for what is asked for next, and finds little
use for it: a thousand gradients that arrive leave holes of some KiB, the rule
wants megabytes, and each thread has a heap of its own. Called by `daemon` and
`stepper`.
"""

import ctypes

LARGE_BYTES = 4 * 1024 * 1024
"""Pieces from here on are the system's, each by itself."""

_library = ctypes.CDLL(None)
_trim = getattr(_library, "malloc_trim", None)
_set = getattr(_library, "mallopt", None)
_M_MMAP_THRESHOLD = -3


def keep_large_pieces_apart() -> None:
    """Have large pieces go back as soon as they are free, where the C library is asked to (glibc).

    By itself it puts all below the largest one that was ever freed (32 MiB at
    most) among the small ones, which then lie scattered over their memory.
    """
    if _trim is not None and _set is not None:
        _set(_M_MMAP_THRESHOLD, LARGE_BYTES)


def give_back() -> None:
    """Give back what can be, where the C library is asked to (glibc). Takes some milliseconds."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))
