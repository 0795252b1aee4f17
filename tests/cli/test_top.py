"""`hived top` where the output is no terminal: one frame, as text or JSON. The screen is tested beside `helpers`."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from hived_cli import main
from hived_extender.api.waiting import FreeCells, NodeView
from tests.cli.waiting_service import WaitingService


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as service:
        yield service


def top(service: WaitingService, *options: str) -> Result:
    return CliRunner().invoke(main, ["top", "--server", service.url, *options])


def test_a_frame_has_the_virtual_clusters_the_bad_nodes_and_the_jobs_that_wait(service: WaitingService) -> None:
    text = top(service).output
    assert text.startswith(f"hived {service.url}   jobs: 1 waiting, 2 running   1 bad node\n")
    rows = [line.split() for line in text.splitlines()]
    assert ["vision", "H100-POOL", "24", "8", "0", "0", "8", "1", "H100-NODE,", "8", "H100"] in rows
    assert ["dgx-3", "NotReady"] in [row[:2] for row in rows]
    assert rows[-1][:3] == ["podgroup/lab/gang", "vision", "Waiting"]
    assert "\x1b" not in text


def test_bad_gpus_count_while_a_job_uses_them_and_so_do_those_of_pinned_cells(service: WaitingService) -> None:
    used = FreeCells(vc="vision", chain="RACK", level="GPU", leaves=1, promised=8, in_use=8, in_use_bad=4)
    pinned = FreeCells(vc="vision", chain="RACK", level="GPU", leaves=1, promised=4, bad=1, free=3, pinned="p")
    service.free = [used, pinned]
    rows = [line.split() for line in top(service).output.splitlines()]
    assert ["vision", "RACK", "12", "8", "0", "0", "5", "3", "GPU"] in rows


def test_gpus_count_once_where_nodes_have_one_each(service: WaitingService) -> None:
    node = FreeCells(vc="vision", chain="RACK", level="NODE", leaves=1, promised=2, in_use=1, free=1)
    service.free = [node, replace(node, level="GPU"), replace(node, pinned="p"), replace(node, level="GPU", pinned="p")]
    rows = [line.split() for line in top(service).output.splitlines()]
    assert ["vision", "RACK", "4", "2", "0", "0", "0", "2", "NODE,", "2", "GPU"] in rows


def test_one_virtual_cluster_may_be_shown_alone(service: WaitingService) -> None:
    text = top(service, "--vc", "lang").output
    assert "vision" not in text
    assert text.endswith("No job waits.\n")


def test_the_help_names_no_option_that_there_is_not(service: WaitingService) -> None:
    assert "--watch" not in top(service, "--help").output


def test_a_virtual_cluster_that_is_not_there_is_a_mistake(service: WaitingService) -> None:
    result = top(service, "--vc", "none")
    assert (result.exit_code, result.stderr) == (1, "Error: no virtual cluster 'none'; there are vision, lang\n")


def test_many_bad_nodes_leave_room_for_the_jobs(service: WaitingService) -> None:
    bad = NodeView(node="n", is_bad=True, reason="NotReady", cells=8)
    service.nodes = [replace(bad, node=f"n{number}") for number in range(20)]
    text = top(service).output
    assert "n7 " in text
    assert "n8 " not in text
    assert "and 12 more: hived get nodes --bad" in text


def test_held_jobs_are_counted_apart_from_those_that_wait(service: WaitingService) -> None:
    held = [replace(service.jobs[0], name=f"podgroup/lab/held-{number}", state="Held") for number in range(2)]
    service.jobs = [*service.jobs[:1], *held, *service.jobs[1:]]
    assert "jobs: 1 waiting, 2 held, 2 running" in top(service).output
    service.jobs = held
    assert "jobs: 0 waiting, 2 held   " in top(service).output


def test_a_frame_may_be_json(service: WaitingService) -> None:
    frame = json.loads(top(service, "-o", "json").output)
    assert frame["jobs"][0]["name"] == "podgroup/lab/gang"
    assert [node["node"] for node in frame["bad_nodes"]] == ["dgx-3"]
    assert {cells["vc"] for cells in frame["free_cells"]} == {"vision", "lang"}
