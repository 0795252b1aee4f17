"""The situations of jobs that the embedded cluster plays, with their controllers themselves."""

import itertools
from collections.abc import Iterator

import pytest

from hived_lab.embedded.nodes import Machine
from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import JOBSET, TRAINING_OPERATOR
from tests.e2e.plane import ControlPlane
from tests.lab.embedded.job_situations import JOB_SETS, KUBEFLOW, NODE, SITUATIONS, play

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[None]:
    """The node of all pods."""
    plane.add_nodes([Machine(NODE, {"cpu": "8", "memory": "8Gi", "pods": "100"})])
    yield
    plane.clear()


@pytest.fixture
def namespace(plane: ControlPlane, node: None) -> Iterator[str]:
    """A namespace that only this test uses."""
    name = f"situation-{next(_numbers)}"
    plane.kubectl("create", "namespace", name)
    plane.wait_for("its service account", lambda: "default" in plane.kubectl("get", "sa", "-n", name).stdout)
    yield name
    plane.kubectl("delete", "jobs.batch", "--all", "-n", name)  # or it would go on to make pods
    plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_job_goes_on_as_on_the_embedded_cluster(plane: ControlPlane, namespace: str, name: str) -> None:
    play(SITUATIONS[name], plane.kube, namespace)


@pytest.fixture(scope="module")
def training_operator(plane: ControlPlane) -> Iterator[None]:
    """The controller of Kubeflow's jobs."""
    with installed(plane, TRAINING_OPERATOR):
        yield


@pytest.mark.parametrize("name", KUBEFLOW)
def test_a_job_of_kubeflow_goes_on_as_on_the_embedded_cluster(
    plane: ControlPlane, training_operator: None, namespace: str, name: str
) -> None:
    play(KUBEFLOW[name], plane.kube, namespace)
    plane.kubectl("delete", "pytorchjobs,tfjobs", "--all", "-n", namespace)


@pytest.fixture(scope="module")
def jobset(plane: ControlPlane) -> Iterator[None]:
    """The controller of JobSets."""
    with installed(plane, JOBSET):
        yield


@pytest.mark.parametrize("name", JOB_SETS)
def test_a_job_set_goes_on_as_on_the_embedded_cluster(
    plane: ControlPlane, jobset: None, namespace: str, name: str
) -> None:
    play(JOB_SETS[name], plane.kube, namespace)
    plane.kubectl("delete", "jobsets", "--all", "-n", namespace)
