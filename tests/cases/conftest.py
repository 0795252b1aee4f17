"""An embedded cluster of the configuration of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.played import Played, played_on


@pytest.fixture
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Played]:
    """A cluster of the module's CONFIG."""
    with played_on(tmp_path, request.module.CONFIG) as running:
        yield running
