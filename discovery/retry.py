"""How long to wait before the store is tried again."""

from random import Random

RETRY_S_MIN = 0.1
RETRY_S_MAX = 5.0


def retry_pause_s(failures: int, random: Random) -> float:
    """The pause after so many failures in a row, at least 1: it doubles, and half of it is chance.

    All who lost the store at the same time do not come back at the same time.
    """
    longest_s = min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(failures - 1, 16))
    return longest_s * (0.5 + 0.5 * random.random())
