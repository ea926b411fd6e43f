"""Does a function meet the definition it is named after? Golden vectors, for any library.

    findings = examine("krum", lambda rows, f: my_krum(rows, f))

The function takes rows, float32 [n, d], and f, and returns a vector [d] of any
array type. Every claim is small enough to be worked by hand, and most stand for
a way in which some published implementation departs from its paper. It judges
this package and others alike; `benchmarks/conformance.py` prints the table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor, int], Any]
"""What is examined: (rows, f) -> vector."""

REFUSAL = "refuses n = 2f"
"""The one claim that only a function that is told f can meet."""
TOLERANCE = 1e-4
"""Relative error that a golden vector allows; definitions differ by more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that a definition says.

    Attributes:
        text: The claim, as a sentence about the function.
        complaint: Tries it; says what was found instead, or None where it holds.
    """

    text: str
    complaint: Callable[[Function], str | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one claim.

    Attributes:
        claim: Its text.
        complaint: What was found instead; None where it holds.
    """

    claim: str
    complaint: str | None

    @property
    def is_met(self) -> bool:
        """Whether the claim holds."""
        return self.complaint is None


def definitions() -> tuple[str, ...]:
    """Return the names that `examine` knows."""
    return tuple(CLAIMS)


def examine(definition: str, function: Function) -> tuple[Finding, ...]:
    """Try every claim of a definition on a function.

    A function that raises where it should answer does not meet the claim; the
    exception is the complaint.

    Raises:
        KeyError: There is no such definition.
    """
    findings = []
    for claim in CLAIMS[definition]:
        try:
            complaint = claim.complaint(function)
        except Exception as error:  # noqa: BLE001 - whatever another library raises is a finding
            complaint = f"{type(error).__name__}: {str(error)[:80]}"
        findings.append(Finding(claim.text, complaint))
    return tuple(findings)


def column(*values: float) -> Tensor:
    """Return rows with one coordinate."""
    return torch.tensor(values, dtype=torch.float32)[:, None]


def vector_of(answer: Any) -> Tensor:
    """Read whatever a function returned as one flat float64 vector."""
    return torch.as_tensor(answer).detach().cpu().to(torch.float64).reshape(-1)


def golden(text: str, rows: Tensor, f: int, *expected: float) -> Claim:
    """Claim that these rows give this vector."""

    def complaint(function: Function) -> str | None:
        found = vector_of(function(rows.clone(), f))
        wanted = torch.tensor(expected, dtype=torch.float64)
        is_met = found.shape == wanted.shape and torch.allclose(
            found, wanted, rtol=TOLERANCE, atol=1e-12
        )
        return None if is_met else f"{_short(found)} instead of {_short(wanted)}"

    return Claim(text, complaint)


def _short(vector: Tensor) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in vector[:4].tolist()) + ")"


def _sample(n: int, d: int = 20) -> Tensor:
    return 1 + torch.randn(n, d, generator=torch.Generator().manual_seed(1))


def _keeps_input(function: Function) -> str | None:
    rows = _sample(12)
    before = rows.clone()
    function(rows, 2)
    return None if torch.equal(rows, before) else "the rows were changed"


def _ignores_order(function: Function) -> str | None:
    rows = _sample(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    gap = vector_of(function(rows.clone(), 2)) - vector_of(function(rows[order], 2))
    return None if gap.abs().max() < 1e-4 else f"moved by {float(gap.norm()):.3g}"


def _repeats_itself(function: Function) -> str | None:
    rows = _sample(12)
    first = vector_of(function(rows.clone(), 2))
    gaps = [float((vector_of(function(rows.clone(), 2)) - first).norm()) for _ in range(19)]
    differing = sum(gap > 1e-6 for gap in gaps)
    return f"{differing} of 19 repetitions differ" if differing else None


def _bears(value: float) -> Callable[[Function], str | None]:
    """One row, or f of them, hold `value`; the answer must stay within reach of the honest."""

    def complaint(function: Function) -> str | None:
        rows = _sample(12)
        if value == value:
            rows[:2] = value
        else:
            rows[0, 3] = value
        found = vector_of(function(rows, 2))
        if not found.isfinite().all():
            return f"answered {_short(found)}"
        away = float((found - 1).norm())
        return None if away < 20 else f"{away:.3g} away from the honest"

    return complaint


def _refuses_too_few(function: Function) -> str | None:
    try:
        answer = function(_sample(4), 2)
    except Exception:  # noqa: BLE001 - any error is a refusal
        return None
    return f"answered {_short(vector_of(answer))} for n = 4, f = 2"


def _never_chooses_far_ones(offset: float) -> Callable[[Function], str | None]:
    def complaint(function: Function) -> str | None:
        wrong = 0
        for seed in range(10):
            generator = torch.Generator().manual_seed(seed)
            rows = offset + 1e-3 * torch.randn(30, 1000, generator=generator)
            rows[:7] += 0.03 * torch.randn(7, 1000, generator=generator)
            found = vector_of(function(rows.clone(), 7))
            nearest = int((rows.double() - found).norm(dim=1).argmin())
            wrong += nearest < 7
        return f"a liar 30 times farther away won {wrong} of 10 times" if wrong else None

    return complaint


def _stays_near(text: str, rows: Tensor, f: int, centre: Sequence[float], reach: float) -> Claim:
    def complaint(function: Function) -> str | None:
        found = vector_of(function(rows.clone(), f))
        away = float((found - torch.tensor(centre, dtype=torch.float64)).norm())
        return None if away <= reach else f"{_short(found)}, {away:.3g} away"

    return Claim(text, complaint)


ANY = (
    Claim("leaves its input alone", _keeps_input),
    Claim("gives the same answer for any order of the rows", _ignores_order),
    Claim("gives the same answer every time", _repeats_itself),
)
ROBUST = (
    *ANY,
    Claim("lets one NaN cost its sender, and not the round", _bears(float("nan"))),
    Claim("bears f rows of 1e38", _bears(1e38)),
    Claim(REFUSAL, _refuses_too_few),
)
FAR = Claim("never takes a far liar for a common offset of 1000", _never_chooses_far_ones(1000.0))
ISOLATED = (4.0, 11.0, 12.0, 17.0, 20.0, 24.0, 26.0)
UNSQUARED = (11.0, 15.0, 16.0, 17.0, 30.0, 31.0, 38.0)
RECURSIVE = (1.0, 14.0, 18.0, 22.0, 29.0, 35.0, 36.0, 38.0)
TRIANGLE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8660254]])
CLOSE = torch.vstack([torch.full((8, 2), 1.0), torch.full((2, 2), 1e6)])
CLOSE[:8] += torch.linspace(-0.05, 0.05, 8)[:, None]
CROSS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
SPREAD = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.5], [0.0, 9.0]])
FAR_HONEST = (1000.0, 1000.1, 1000.2, 1000.3, 1000.35, 1000.4, 1000.5, 1000.55, 1000.6)
SAME = torch.full((7, 3), 2.5)
TRUST = torch.tensor([[2.0, 0.0], [0.0, -3.0], [3.0, 3.0 * 3**0.5], [-7.0, 0.0]])
DISTRUST = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [-3.0, 1.0]])
SYBILS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])
VOTES = torch.tensor([[1.0, -2.0, 0.0], [3.0, -4.0, 1.0], [-5.0, 6.0, -1.0]])

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "mean": (*ANY, golden("averages", column(1, 2, 6), 0, 3)),
    "coordinate-median": (
        *ROBUST,
        golden("takes the middle value", column(9, 1, 4), 1, 4),
        golden("takes the mean of the middle two for even n", column(1, 2, 4, 100), 1, 3),
    ),
    "trimmed-mean": (
        *ROBUST,
        golden("drops f at either end, never a rounded fraction", column(1, 1, 1, 1000), 1, 1),
        golden("drops one of nine at either end", column(9, 8, 7, 6, 5, 4, 3, 2, 1), 1, 5),
        golden("leaves extremes out, never subtracts them", column(1, 2, 3, 1e20), 1, 2.5),
    ),
    "meamed": (
        *ROBUST,
        golden("averages the n - f nearest the median", column(0, 1, 2, 3, 10), 2, 2),
        golden("breaks ties by the order of rows", column(4, 0, 2, 9, 1), 2, 7 / 3),
    ),
    "krum": (
        *ROBUST,
        golden("counts n - f - 2 neighbours", column(*ISOLATED), 2, 20),
        golden("squares distances", column(*UNSQUARED), 1, 17),
        FAR,
    ),
    "krum (kappa)": (
        *ROBUST,
        golden("counts n - f - 1 neighbours", column(*ISOLATED), 2, 17),
        golden("squares distances", column(*UNSQUARED), 1, 17),
        FAR,
    ),
    "multi-krum": (
        *ROBUST,
        golden("averages the n - f - 2 best", column(*ISOLATED), 2, 61 / 3),
    ),
    "multi-krum (kappa)": (
        *ROBUST,
        golden("averages the n - f best", column(*ISOLATED), 2, 16.8),
    ),
    "bulyan": (
        *ROBUST,
        golden("scores anew after each choice", column(*RECURSIVE), 1, 30.5),
    ),
    "multi-bulyan": (
        *ROBUST,
        golden("averages the best of each turn", column(*RECURSIVE), 1, 27.875),
    ),
    "geometric-median": (
        *ROBUST,
        golden("finds the Fermat point", TRIANGLE, 1, 0.5, 0.28867513),
        golden("finds it at any scale", 1e-4 * TRIANGLE, 1, 0.5e-4, 0.28867513e-4),
        golden("may be a row", CROSS, 2, 0, 0),
        golden("is the median of short rows too", column(*[1e-4] * 9, 0.09, 0.09), 2, 1e-4),
        golden("has converged", column(*FAR_HONEST, -1e6, -1e6), 2, 1000.3),
        golden("returns equal rows", SAME, 2, 2.5, 2.5, 2.5),
    ),
    "centered-clipping": (
        *ROBUST,
        _stays_near("starts robustly (tau = 1)", CLOSE, 2, (1, 1), 1.5),
        golden("returns equal rows", SAME, 2, 2.5, 2.5, 2.5),
    ),
    "mda": (*ROBUST, golden("averages the tightest n - f", column(10, 0, 2, 1, 10.5), 2, 1)),
    "smea": (
        *ROBUST,
        golden("averages the flattest n - f", SPREAD, 1, 0, 0.125),
        golden("returns equal rows", SAME, 2, 2.5, 2.5, 2.5),
    ),
    "caf": (
        *ROBUST,
        golden("is the mean where f = 0", column(1, 2, 6), 0, 3),
        golden("returns equal rows", SAME, 2, 2.5, 2.5, 2.5),
    ),
    "monna": (
        Claim("leaves its input alone", _keeps_input),
        golden("averages the n - f nearest row 0", column(5, 6, 4, 100, -50), 2, 5),
    ),
    "cge": (*ROBUST, golden("drops the f longest", column(1, -2, 3, 4, 50), 1, 1.5)),
    "dnc": (
        Claim("leaves its input alone", _keeps_input),
        golden("drops the f farthest out along the top direction", column(0, 1, 2, 3, 100), 1, 1.5),
    ),
    "fltrust": (
        Claim("leaves its input alone", _keeps_input),
        golden("weighs by the cosine with row 0, at its length", TRUST, 2, 5 / 3, 3**-0.5),
        golden("is zero where nobody is trusted, never the mean", DISTRUST, 2, 0, 0),
    ),
    "foolsgold": (
        Claim("leaves its input alone", _keeps_input),
        golden("leaves no say to rows that point the same way", SYBILS, 2, 0.5, 0.5),
        golden("is zero where all are alike, never the mean", SAME, 2, 0, 0, 0),
    ),
    "sign-vote": (*ROBUST, golden("votes, and a tie is 0", VOTES, 1, 1, -1, 0)),
    "nnm, then mean": (
        *ANY,
        golden("mixes each row with its n - f nearest", column(0, 1, 10), 1, 6.5 / 3),
    ),
    "clipping at 2, then mean": (
        *ANY,
        golden("shortens long rows and no other", column(1, -4, 3), 0, 1 / 3),
    ),
    "arc, then mean": (*ANY, golden("shortens k rows", column(1, 2, 3, 10), 1, 2.25)),
    "bucketing by 2, then mean": (
        Claim("leaves its input alone", _keeps_input),
        golden("puts every row into exactly one bucket", column(1, 2, 3, 6), 1, 3),
    ),
}
"""Claims by definition; the names are those of the catalogue, where there is one."""
