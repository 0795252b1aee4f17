"""Messages about waiting jobs name the cells, the resource or the label that they wait for."""

from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.inspection import ConfigClient
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from tests.cases.played import Played, played_on, pod
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

CONFIG = """
rules: 2
physicalCluster:
  skuTypes:
    H100: {gpu: 1, cpu: 28, memory: 200Gi, nodeLabels: {gpu: h100}}
    A10: {gpu: 1, cpu: 8, memory: 32Gi, nodeLabels: {gpu: a10}}
  cellTypes:
    H100-NODE: {childCellType: H100, childCellNumber: 8, isNodeLevel: true}
    A10-NODE: {childCellType: A10, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: H100-NODE, cellAddress: big}
  - {cellType: A10-NODE, cellAddress: small-1}
  - {cellType: A10-NODE, cellAddress: small-2}
  - {cellType: A10-NODE, cellAddress: small-3}
virtualClusters:
  default:
    namespaces: [default]
    virtualCells: [{cellType: H100-NODE, cellNumber: 1}, {cellType: A10-NODE, cellNumber: 3}]
"""


def asking(name: str, leaves: int, group: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A pod that asks in our own words."""
    spec = {"virtualCluster": "default", "priority": 1, "leafCellNumber": leaves, **more}
    if group is not None:
        spec["affinityGroup"] = group
    return pod(name, leaves, annotations={SCHEDULING_SPEC: str(spec)})


def test_a_pod_too_large_is_told_the_type_with_the_largest_cell(played: Played) -> None:
    played.create(asking("late", 16))
    assert played.why("late").sentence == (
        "needs 1 pod of 16 H100; it can never run: a pod can have at most 8 H100 in default"
    )


def test_so_is_one_whose_largest_cell_is_full(played: Played) -> None:
    played.create(asking("first", 8, leafCellType="H100"))
    played.expect_running("first")
    played.create(asking("late", 16))
    assert "at most 8 H100 in default" in played.why("late").sentence


@pytest.mark.parametrize(
    ("requests", "size", "because"),
    [
        ({"cpu": "300"}, 11, "its 300 CPU (28 a cell)"),
        ({"memory": "2000Gi"}, 10, "its 2000 GiB of memory (200 a cell)"),
    ],
)
def test_a_pod_that_is_large_by_another_resource_is_told_by_which(
    played: Played, requests: dict[str, str], size: int, because: str
) -> None:
    played.create(pod("late", 1, requests=requests, nodeSelector={"gpu": "h100"}))
    assert played.why("late").sentence == (
        f"needs 1 pod of {size} H100 for {because}; it can never run: a pod can have at most 8 H100 in default"
    )


def test_a_pod_that_is_large_by_its_devices_is_told_no_other_resource(played: Played) -> None:
    played.create(pod("late", 16, requests={"cpu": "16"}, nodeSelector={"gpu": "h100"}))
    assert played.why("late").sentence.startswith("needs 1 pod of 16 H100; ")


def test_a_plan_names_labels_that_no_node_has(played: Played) -> None:
    played.create(pod("late", 1, nodeSelector={"gpu": "h100", "zone": "moon"}))
    played.why("late")
    report = ConfigClient(played.inspector).plan(CONFIG, "new.yaml")
    assert [(one.verdict, one.reason) for one in report.waiting] == [
        ("waits", "no node has the labels that it selects: zone=moon")
    ]


def test_a_plan_knows_the_nodes_that_a_pod_may_use(played: Played) -> None:
    for node in ("small-1", "small-2", "small-3"):
        taint = {"key": "team", "effect": "NoSchedule"}
        played.patch_node(node, {"spec": {"taints": [taint]}})
    played.create(pod("first", 8, nodeSelector={"gpu": "h100"}))
    played.expect_running("first")
    played.create(pod("late", 4, nodeSelector={"gpu": "a10"}))
    played.why("late")
    (found,) = ConfigClient(played.inspector).plan(CONFIG, "new.yaml").waiting
    assert found.verdict == "waits"
    assert "untolerated taint {team: }: small-1 and 2 more" in found.reason


def test_a_pod_that_is_submitted_twice_is_told_of_the_first(played: Played) -> None:
    group = {"name": "train", "members": [{"podNumber": 1, "leafCellNumber": 4}]}
    played.create(asking("one", 4, group))
    played.expect_running("one")
    played.create(asking("again", 4, group))
    told = expect_soon(lambda: "train" in str(played.why("again").sentence) and played.why("again").sentence)
    assert told == (
        "affinity group default:train has all its pods of 4 leaf cells: default/one has its cells; delete that, "
        "or name another affinity group"
    )


def test_a_gang_over_two_types_is_told_both(played: Played) -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    played.create(pod("first", 8, nodeSelector={"gpu": "h100"}))
    played.expect_running("first")
    played.create(
        pod("late", 4, annotations=words, nodeSelector={"gpu": "a10"}),
        *(pod(f"late-{i}", 8, annotations=words, nodeSelector={"gpu": "h100"}) for i in range(2)),
    )
    played.why("late-1")  # the whole gang is known then
    assert played.why("late").asks == "1 pod of 4 A10 and 2 pods of 8 H100 each at once"


@pytest.mark.parametrize("much", [{"cpu": "300"}, {"memory": "2100Gi"}], ids=["cpu", "memory"])
def test_a_pod_too_large_by_something_else_is_told_the_cells_of_the_type_that_comes_closest(
    played: Played, much: dict[str, str]
) -> None:
    played.create(pod("late", 1, requests=much))
    told = played.why("late").sentence
    assert told.startswith("needs 1 pod of 11 H100 for its ")
    assert told.endswith(" a cell); it can never run: a pod can have at most 8 H100 in default")


def test_a_pod_counts_by_the_types_whose_nodes_are_large_enough(played: Played) -> None:
    played.create(pod("late", 1, requests={"cpu": "100"}))
    played.expect_running("late")
    assert played.running_pods() == {"late": "big"}


@pytest.mark.parametrize("priority", [1, -1])
def test_a_gang_over_two_types_is_told_never_if_one_part_can_never_run(played: Played, priority: int) -> None:
    played.create(asking("holder", 4, leafCellType="A10"), asking("other", 4, leafCellType="A10"))
    played.expect_running("holder", "other")
    notes = {f"gang.scheduling.koordinator.sh/{key}": value for key, value in (("name", "g"), ("min-available", "3"))}
    for number, (gpus, kind) in enumerate(((8, "h100"), (8, "h100"), (4, "a10"))):
        played.create(pod(f"g-{number}", gpus, priority=priority, nodeSelector={"gpu": kind}, annotations=notes))
    found = played.why("g-2")
    assert found.never
    assert "needs 1 pod of 4 A10 and 2 pods of 8 H100 each at once; it can never run" in found.sentence


def test_a_queued_job_too_large_by_its_cpu_is_told_so(tmp_path: Path) -> None:
    with played_on(
        tmp_path, CONFIG.replace("rules: 2", "rules: 2\nqueues: {enabled: true}"), has_webhook=True
    ) as queued:
        made = pod("of-job", 1, requests={"cpu": "600"}, restartPolicy="Never")
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "late"}, "spec": {"template": made}}
        queued.create(job)
        told = expect_soon(lambda: (found := queued.inspector.queued_job("late")) and found.reason)
        assert "it asks for 22 GPUs for its 600 CPU (28 a cell), and the cluster has 20" in told
