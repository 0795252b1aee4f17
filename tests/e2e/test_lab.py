"""Every experiment of the lab and every scenario with kube-scheduler: what holds on the embedded cluster holds here."""

import time

import click
import pytest

from hived_lab.demo.experiment import Loaded, experiments_folder, load_experiments
from hived_lab.demo.report import Report, Result
from hived_lab.demo.runner import run_experiment
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.scenarios import SCENARIOS

PATIENCE = 3.0
"""kube-scheduler tries a pod again after a second at the earliest, and the machine may be busy."""

EXPERIMENTS = [*load_experiments(experiments_folder()), *SCENARIOS]


ASKED_AGAIN_SOON = "--pod-max-in-unschedulable-pods-duration=5s"
"""Offered by docs/install.md for pods with the limit that wait for a node: 1.37 does not ask about them by itself."""

PREEMPTING = ("opportunistic", "opportunistic-evicted", "gang-preemption")
"""Kube-scheduler can find their victims: of lower Kubernetes priority, with what the preemptor lacks."""


def run(plane: ControlPlane, loaded: Loaded, preemption_by: str) -> Result:
    report = Report(click.echo)
    report.begin(loaded, 1, 1)
    began = time.monotonic()
    is_late = loaded.name == "node-life" and plane.forgets_limits
    with RealCluster(
        plane,
        loaded.folder / loaded.experiment.configuration,
        preemption_by=preemption_by,
        scheduler_options=(ASKED_AGAIN_SOON,) if is_late else (),
    ) as cluster:
        return run_experiment(loaded, report, cluster, began, patience=PATIENCE)


@pytest.mark.parametrize("loaded", EXPERIMENTS, ids=lambda loaded: loaded.name)
def test_every_expectation_holds_on_a_real_control_plane(plane: ControlPlane, loaded: Loaded) -> None:
    result = run(plane, loaded, "service")
    assert not result.error
    assert [check.found for check in result.checks if check.found] == []
    assert len(result.checks) == sum(step.is_checked for step in loaded.experiment.steps)


@pytest.mark.parametrize(
    "loaded", [one for one in EXPERIMENTS if one.name in PREEMPTING], ids=lambda loaded: loaded.name
)
def test_victims_that_kube_scheduler_finds_leave_as_well(plane: ControlPlane, loaded: Loaded) -> None:
    result = run(plane, loaded, "kube-scheduler")
    assert not result.error
    assert [check.found for check in result.checks if check.found] == []
