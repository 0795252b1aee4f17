"""Fixtures that tests of commands about jobs share with those of jobs."""

import pytest

from hived_jobs.served import Resource, Served
from tests.jobs.conftest import write

__all__ = ["asks_again_at_once", "without_operators", "write"]

_OPERATORS = ("batch.volcano.sh/", "elastic.iml.github.io/")


@pytest.fixture(autouse=True)
def asks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the service does not know is asked for once more without the pause."""
    monkeypatch.setattr("hived_cli.helpers.names.AGAIN_S", 0.0)


@pytest.fixture
def without_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that has no kinds of Volcano and DLRover, so that `hived submit` makes their pods."""
    found = Served.find

    def find(self: Served, api_version: str, kind: str) -> Resource | None:
        return None if api_version.startswith(_OPERATORS) else found(self, api_version, kind)

    monkeypatch.setattr(Served, "find", find)
