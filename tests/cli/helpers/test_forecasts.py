"""A dry run tells who would be preempted: jobs by name, those of other tenants by number."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hived_cli.helpers.forecasts import print_forecasts
from hived_extender.api.waiting import MASKED
from hived_extender.api.what_if import PodOutcome, Victim, WhatIfResult
from hived_extender.client.inspection import Inspector
from hived_jobs.submission import PlannedJob, PlannedPod
from tests.stub_server import Request, StubServer


class Foreteller(StubServer):
    """Answers with the outcomes that a test has put there."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.outcomes: list[PodOutcome] = []

    def _answer(self, _: Request) -> tuple[Any, ...]:
        return 200, msgspec.json.encode(WhatIfResult(self.outcomes))


@pytest.fixture
def foreteller() -> Iterator[Foreteller]:
    with Foreteller() as server:
        yield server


def told(server: Foreteller, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The lines below the table, and standard error."""
    pods = [PlannedPod({"metadata": {"name": one.name}, "spec": {}}, None) for one in server.outcomes]
    assert print_forecasts(Inspector(server.url), [PlannedJob(pods)], "cv") == 0
    shown = capsys.readouterr()
    return shown.out.splitlines()[1 + len(pods) :], shown.err


def outcome(name: str, *victims: Victim, more: int = 0) -> PodOutcome:
    return PodOutcome(namespace="cv", name=name, outcome="preempt", victims=list(victims), more_victims=more)


def test_victims_are_named_and_hidden_ones_counted(foreteller: Foreteller, capsys: pytest.CaptureFixture[str]) -> None:
    foreteller.outcomes = [outcome("p", Victim("cv/a", "cv"), Victim(MASKED, "", 3), Victim(MASKED), more=2)]
    lines, errors = told(foreteller, capsys)
    assert lines == ["It would preempt cv/a (1 pod), 2 jobs of other tenants (4 pods), 2 more jobs"]
    assert errors == ""


def test_of_several_pods_the_one_that_needs_the_cells_is_named(
    foreteller: Foreteller, capsys: pytest.CaptureFixture[str]
) -> None:
    foreteller.outcomes = [outcome("p", Victim("podgroup/cv/a", "cv", 2)), outcome("q")]
    assert told(foreteller, capsys)[0] == ["p would preempt podgroup/cv/a (2 pods)"]


def test_an_older_service_that_names_nobody_leaves_a_way_to_find_out(
    foreteller: Foreteller, capsys: pytest.CaptureFixture[str]
) -> None:
    foreteller.outcomes = [outcome("p")]
    assert "hived get jobs --node NODE" in told(foreteller, capsys)[1]
