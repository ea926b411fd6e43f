"""Who must let others go first where single gradients make versions.

Kardam's frequency filter, asked before a payload is read: a worker that is
turned away here may come again with the same gradient once others have
contributed. Pure.
"""

from collections import Counter
from collections.abc import Sequence


def is_too_frequent(worker: str, accepted: Sequence[str], f: int) -> bool:
    """Whether one more gradient of this worker would make too few of the latest honest.

    Among the last 2f accepted and this one, the f most frequent workers may have
    at most f, so that at least f + 1 of any 2f + 1 in a row are honest.

    Source: Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, "Asynchronous
    Byzantine machine learning (the case of SGD)", ICML 2018, Section 3.

    Args:
        worker: Whose gradient is offered.
        accepted: Whose gradients were accepted lately, oldest first.
        f: Faults to bear; with 0 nobody is too frequent.
    """
    if f == 0:
        return False
    crowd = Counter((*accepted[-2 * f :], worker)).most_common(f)
    return sum(count for _, count in crowd) > f
