"""The cases of tests/reconfiguration with kube-scheduler, and a service that is a process of its own."""

from collections.abc import Iterator

import pytest

from hived_config.loader import load_text
from hived_deploy.installation import NAMESPACE
from hived_lab.embedded.nodes import machines_of
from tests.e2e.cluster import RealCluster
from tests.e2e.machines import node, node_path
from tests.e2e.plane import ControlPlane
from tests.reconfiguration.cases import all_machines, load_base, load_cases
from tests.reconfiguration.cluster import CONFIG_MAP
from tests.reconfiguration.runner import Runner

BASE = load_base()
CASES = load_cases()
PATIENCE = 12.0


class RealCaseCluster:
    """A `RealCluster` as the cases need it."""

    patience = PATIENCE

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self.kube = cluster.kube
        self.url = cluster.url

    def restart(self) -> None:
        """Stop the process of the service and start another one."""
        self._cluster.restart_service()

    def memory(self) -> bytes:
        """That is another process's."""
        return b""


@pytest.fixture(scope="module")
def runner(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One for all cases, as in tests/reconfiguration."""
    file = tmp_path_factory.mktemp("reconfiguration") / "base.yaml"
    file.write_text(BASE.text)
    with RealCluster(plane, file, config_map=f"{NAMESPACE}/{CONFIG_MAP}") as cluster:
        plane.add_nodes(one for one in all_machines() if one.name not in BASE.nodes)
        # The nodes have their devices before a configuration says so.
        for machine in machines_of(load_text(BASE.changed(CASES["grow-node"]), "hardware.yaml", environ={}).cluster):
            plane.kube.patch(f"{node_path(machine.name)}/status", {"status": node(machine)["status"]})
        yield Runner(RealCaseCluster(cluster), BASE)


@pytest.mark.parametrize("name", CASES)
def test_a_change_does_to_everybody_what_was_planned(runner: Runner, name: str) -> None:
    case = CASES[name]
    stays = bool(case.refusals) or case.back is not None
    assert runner.expect_as_planned(name, case) == (BASE.text if stays else BASE.changed(case))
