"""What unit tests of several packages share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from training.leadership import Lead


@pytest.fixture
def lead_toy(tmp_path: Path) -> Iterator[Callable[..., "Lead"]]:
    """Make coordinators of the small job over one store in memory; close them at the end."""
    from training.leadership import Lead
    from training.toy_job import toy_job

    leads: list[Lead] = []

    def make(name: str = "c1", **options: Any) -> Lead:
        lead = Lead(toy_job(**options), tmp_path, f"memory:{tmp_path}", name)
        leads.append(lead)
        return lead

    yield make
    for lead in leads:
        lead.close()
