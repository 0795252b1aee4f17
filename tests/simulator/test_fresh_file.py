"""The first configuration for a trace."""

import pytest

from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_simulator.fresh_file import Hardware, first_text
from hived_simulator.traces.jobs import Trace
from tests.simulator.builders import job


def nodes(trace: Trace, hardware: Hardware) -> dict[str, int]:
    cluster = load_text(first_text(trace, hardware), "f", environ={}).cluster
    return {name: sum(cell.cell_count for cell in vc.virtual_cells) for name, vc in cluster.virtual_clusters.items()}


def test_tenants_have_nodes_by_their_work() -> None:
    trace = Trace("t", (job("1", "a", 0, 300, (1, 4)), job("2", "b: #'", 0, 100, (1, 4))))
    assert nodes(trace, Hardware(8, 4, 2)) == {"a": 6, "b: #'": 2}


def test_every_tenant_can_hold_its_largest_job() -> None:
    trace = Trace("t", (job("1", "a", 0, 3000, (1, 4)), job("2", "b", 0, 1, (3, 4))))
    assert nodes(trace, Hardware(4, 4, 2)) == {"a": 1, "b": 3}


def test_jobs_without_a_tenant_have_a_virtual_cluster_of_their_own() -> None:
    assert nodes(Trace("t", (job("1", "", 0, 3, (1, 4)),)), Hardware(4, 4, 2)) == {"default": 4}


def test_the_smallest_tenants_share_one_virtual_cluster() -> None:
    trace = Trace(
        "t", tuple(job(name, name, 0, work, (1, 4)) for name, work in zip("abcd", (2, 30, 3, 20), strict=True))
    )
    cluster = load_text(first_text(trace, Hardware(8, 4, 2), 3), "f", environ={}).cluster
    assert list(cluster.virtual_clusters) == ["others", "b", "d"]


@pytest.mark.parametrize(
    ("tenants", "hardware", "message"),
    [
        ("abc", Hardware(2, 4, 2), "has 3 tenants with guaranteed jobs, for 2 nodes; with --vcs N"),
        ("a", Hardware(3, 4, 2), "3 nodes make no whole racks of 2: name another number with --rack"),
        ("/", Hardware(2, 4, 2), "tenant '/' can be no virtual cluster"),
    ],
)
def test_wishes_that_cannot_be_met_are_told(tenants: str, hardware: Hardware, message: str) -> None:
    trace = Trace("t", tuple(job(name, name, 0, 1, (1, 1)) for name in tenants))
    with pytest.raises(UserError, match=message):
        first_text(trace, hardware)
