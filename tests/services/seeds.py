"""Which runs a suite plays that draws them from seeds: `make sim SEEDS=10000`, `SEED=17`."""

import os


def seeds(variable: str, ordinary: range) -> range:
    """Return the seeds that an environment variable names, `ordinary` if it is not set.

    Args:
        variable: Its value is a number of seeds, counted from 1, or `FIRST-LAST`.
        ordinary: Those of `make test`.
    """
    chosen = os.environ.get(variable, "")
    if not chosen:
        return ordinary
    first, dash, last = chosen.partition("-")
    return range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
