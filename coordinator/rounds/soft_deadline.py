"""How long a round waits for the rest once it has its quorum.

Nobody can guess that in advance, so it follows from the turns of late (see
`turns`): most of a round's gradients come within a few median absolute
deviations of the median. Pure.
"""

from collections.abc import Sequence
from statistics import median

SAMPLE_MIN = 8
"""With fewer turns than this the job's own soft deadline holds."""


def soft_deadline_s(
    turns_s: Sequence[float], least_s: float, most_s: float, spread: float
) -> float:
    """Return the soft deadline of the next round: median + spread * MAD, within bounds.

    Median and MAD move little while fewer than half of the turns are lies.

    Args:
        turns_s: How long recent gradients took.
        least_s: The job's soft deadline.
        most_s: The job's hard deadline.
        spread: Median absolute deviations beyond the median.
    """
    if len(turns_s) < SAMPLE_MIN:
        return least_s
    middle = median(turns_s)
    deviation = median(abs(turn_s - middle) for turn_s in turns_s)
    return min(max(middle + spread * deviation, least_s), most_s)
