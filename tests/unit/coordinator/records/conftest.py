"""A short chain of commits, as a leader makes it."""

from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.storage.storage import LocalStorage


@pytest.fixture
def commits(lead: Any, tiny_job: Any, tmp_path: Path) -> list[Commit]:
    leader = lead(tiny_job(), LocalStorage(tmp_path / "storage"))
    return [leader.run_round() for _ in range(3)]
