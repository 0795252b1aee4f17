"""One cluster of racks for all tests of a file, without jobs before each."""

from collections.abc import Iterator

import pytest

from hived_extender.jobs.kinds import coscheduling, volcano
from tests.e2e.controllers.racks import Racks, running_racks
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import definition


@pytest.fixture(scope="module")
def podgroup_kinds(plane: ControlPlane) -> Iterator[None]:
    """The PodGroups of scheduler-plugins and of Volcano."""
    with plane.defined(definition(coscheduling.PODGROUPS), definition(volcano.PODGROUPS)):
        yield


@pytest.fixture(scope="module")
def shared_racks(
    plane: ControlPlane, podgroup_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Racks]:
    """See `Racks`."""
    with running_racks(plane, tmp_path_factory.mktemp("racks")) as running:
        yield running
