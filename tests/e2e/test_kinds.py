"""Every kind and shape of job on a real control plane: what Kubernetes has, and pods that `hived submit` makes."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from hived_jobs.submission import SCHEDULER
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import CUSTOM, definition
from tests.e2e.pods import configuration
from tests.e2e.test_queues import admitting, kinds
from tests.kinds.played import Played, Table
from tests.kinds.table import ROWS, Row

__all__ = ["kinds"]

NODES = 30


def play(plane: ControlPlane, folder: Path, rows: Iterable[Row], *, has_queues: bool = False) -> Mapping[str, Played]:
    """The jobs of rows after all steps, by name. Their objects are deleted. With queues there is the webhook too."""
    vcs = {"default": {"namespaces": ["default"]}}
    file = configuration(folder, {"default": NODES}, of_vcs=vcs, rules=2, queues={"enabled": has_queues})
    running = admitting(plane, file, SCHEDULER) if has_queues else RealCluster(plane, file)
    with running as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr("hived_cli.helpers.names.AGAIN_S", 0.0)
        service, api = ("--server", cluster.url), ("--kubeconfig", str(plane.admin_kubeconfig))
        table = Table(plane.kube, folder, service=service, api=api, has_queues=has_queues)
        try:
            return {str(each): each for each in table.play(rows)}
        finally:
            table.clean()


def jobs_of(rows: Iterable[Row]) -> list[str]:
    """The names of the jobs that rows make."""
    return [f"{row.name}-{way}" for row in rows for way in row.ways]


@pytest.fixture(scope="module", params=[False, True], ids=["no queues", "queues"])
def played(
    request: pytest.FixtureRequest, plane: ControlPlane, kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Played]]:
    """All jobs, with the custom resources of PodGroups and without controllers of other projects."""
    with plane.defined(*map(definition, CUSTOM)):
        yield play(plane, tmp_path_factory.mktemp("kinds"), ROWS, has_queues=request.param)


@pytest.mark.parametrize("name", jobs_of(ROWS))
def test_a_job_is_known_from_its_creation_to_its_end(played: Mapping[str, Played], name: str) -> None:
    if played[name].skipped:
        pytest.skip(played[name].skipped)
    assert played[name].wrong == {}
