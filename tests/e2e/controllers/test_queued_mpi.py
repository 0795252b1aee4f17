"""MPIJobs of version v2beta1 held back and let go by the calls that queues make, beside mpi-operator."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.controllers.installing import installed
from tests.e2e.controllers.kinds import MPI_OPERATOR
from tests.e2e.controllers.queued import COURSE, named, owners_of_pods, take_its_course
from tests.e2e.controllers.racks import Racks, template
from tests.e2e.plane import ControlPlane

Json = dict[str, Any]


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, podgroup_kinds: None) -> Iterator[None]:
    """mpi-operator, without gangs of its own."""
    with installed(plane, MPI_OPERATOR):
        yield


@pytest.fixture
def racks(shared_racks: Racks, operator: None) -> Iterator[Racks]:
    """The racks without jobs, before and after."""
    yield shared_racks
    shared_racks.clean(("mpijobs.kubeflow.org", "jobs.batch"))


def mpi_job() -> Json:
    """A launcher with one device, and a worker on a whole node."""
    roles = {
        "Launcher": {"replicas": 1, "template": template(1, name="launcher")},
        "Worker": {"replicas": 1, "template": template(name="worker")},
    }
    spec = {"slotsPerWorker": 4, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}


def test_a_job_is_born_held_let_go_and_called_back(racks: Racks) -> None:
    assert take_its_course(racks, named(mpi_job())) == COURSE


def test_its_pods_belong_to_it(racks: Racks) -> None:
    document = named(mpi_job())
    assert owners_of_pods(racks, document) == [f"{document['kind']}/train"]
