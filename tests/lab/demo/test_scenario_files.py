"""The scenarios of `make e2e` on the embedded cluster: the same expectations hold on both."""

import time

import pytest

from hived_lab.demo.experiment import Loaded
from hived_lab.demo.report import Report
from hived_lab.demo.runner import LabCluster, run_experiment
from tests.e2e.scenarios import SCENARIOS

LARGEST = "five-hundred-pods"


@pytest.mark.parametrize(
    "loaded",
    [pytest.param(each, id=each.name, marks=pytest.mark.long if each.name == LARGEST else ()) for each in SCENARIOS],
)
def test_every_expectation_of_a_scenario_holds_on_the_embedded_cluster(loaded: Loaded) -> None:
    began = time.monotonic()
    with LabCluster(loaded.folder / loaded.experiment.configuration) as cluster:
        result = run_experiment(loaded, Report(print), cluster, began)
    assert not result.error
    assert [check.found for check in result.checks if check.found] == []
    assert len(result.checks) == sum(step.is_checked for step in loaded.experiment.steps)
