"""Jobs go through every situation as with their own controllers."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.job_controllers import JobControllers
from hived_lab.embedded.nodes import Machine, Nodes, Timing
from tests.lab.embedded.helpers import api_server
from tests.lab.embedded.job_situations import JOB_SETS, KUBEFLOW, NODE, SITUATIONS, play


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with one node and controllers."""
    with api_server() as running:
        nodes = Nodes(running.registry, Timing())
        running.call(lambda: nodes.register([Machine(NODE, {"cpu": "8"})]))
        running.spawn(nodes.run)
        running.spawn(JobControllers(running.registry).run)
        yield running


@pytest.fixture
def kube(server: ApiServer) -> Iterator[KubeClient]:
    """A client of it."""
    with closing(KubeClient.connect(server.url)) as client:
        yield client


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_job_goes_on_as_with_kubernetes(kube: KubeClient, namespace: str, name: str) -> None:
    play(SITUATIONS[name], kube, namespace)


@pytest.mark.parametrize("name", KUBEFLOW)
def test_a_job_goes_on_as_with_its_operator(kube: KubeClient, namespace: str, name: str) -> None:
    play(KUBEFLOW[name], kube, namespace)


@pytest.mark.parametrize("name", JOB_SETS)
def test_a_job_set_goes_on_as_with_its_controller(kube: KubeClient, namespace: str, name: str) -> None:
    play(JOB_SETS[name], kube, namespace)
