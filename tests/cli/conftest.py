"""Fixtures that tests of commands about jobs share with those of jobs."""

import pytest

from tests.jobs.conftest import write

__all__ = ["asks_again_at_once", "write"]


@pytest.fixture(autouse=True)
def asks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the service does not know is asked for once more without the pause."""
    monkeypatch.setattr("hived_cli.helpers.names.AGAIN_S", 0.0)
