"""Pods that require a placement that hived does not know wait, and are told by which key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cases.played import GPU, Played, pod
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import FOR_EVER, JOBS, jobs_on, template

pytestmark = pytest.mark.sample(3)

CONFIG = """\
rules: 2
topologyLevels: {example.com/rack: RACK}
physicalCluster:
  skuTypes: {GPU: {gpu: 1, cpu: 8, memory: 32Gi}}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 3}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: n1}, {cellAddress: n2}, {cellAddress: n3}]
  - cellType: RACK
    cellChildren: [{cellAddress: m1}, {cellAddress: m2}, {cellAddress: m3}]
virtualClusters:
  default:
    namespaces: [default]
    virtualCells: [{cellType: RACK, cellNumber: 2}]
"""
SLICES = {
    "kueue.x-k8s.io/podset-slice-required-topology": "example.com/rack",
    "kueue.x-k8s.io/podset-slice-size": "2",
}
NETWORK = "gang.scheduling.koordinator.sh/network-topology-spec"
SEGMENT = "kai.scheduler/segment-topology-required-placement"


def gang(size: int, notes: Mapping[str, str], gpus: int = 4) -> list[dict[str, Any]]:
    """Pods of a gang that start together, each with more annotations."""
    prefix = "gang.scheduling.koordinator.sh/"
    said = {f"{prefix}name": "g", f"{prefix}min-available": str(size), **notes}
    return [pod(f"w-{index}", gpus, annotations=said) for index in range(size)]


def events(played: Played, name: str) -> list[str]:
    """What hived has told a pod that cannot be scheduled as it is."""
    items = played.kube.get("/api/v1/namespaces/default/events")["items"]
    return [one["message"] for one in items if one["involvedObject"]["name"] == name and one["reason"] == "InvalidSpec"]


@pytest.mark.parametrize(
    ("notes", "key", "value"),
    [
        (SLICES, "kueue.x-k8s.io/podset-slice-required-topology", "example.com/rack"),
        ({NETWORK: '{"gatherStrategy": [{"layer": "rack", "strategy": "MustGather"}]}'}, NETWORK, "MustGather"),
        ({SEGMENT: "example.com/rack", "kai.scheduler/segment-size": "2"}, SEGMENT, "example.com/rack"),
    ],
    ids=["slices of Kueue", "the network of Koordinator", "segments of KAI"],
)
def test_a_gang_that_requires_it_waits_and_is_told_the_key_and_its_value(
    played: Played, notes: Mapping[str, str], key: str, value: str
) -> None:
    played.create(*gang(4, notes))
    said = expect_soon(lambda: [text for text in events(played, "w-0") if key in text and value in text])
    assert "it requires" in said[0]
    why = expect_soon(lambda: (found := played.inspector.why("default/w-0")) and found.certificate)
    assert key in why.sentence
    assert value in why.sentence
    played.create(pod("another", 4))
    played.expect_running("another")
    assert set(played.running_pods()) == {"another"}


def test_a_gang_that_only_prefers_it_starts(played: Played) -> None:
    spec = '{"gatherStrategy": [{"layer": "rack", "strategy": "PreferGather"}]}'
    played.create(*gang(4, {NETWORK: spec, "kai.scheduler/segment-topology-preferred-placement": "example.com/rack"}))
    played.expect_running(*(f"w-{index}" for index in range(4)))
    racks = {node[0] for node in played.running_pods().values()}
    assert racks == {"n", "m"}, "a rack has three nodes, and what is only preferred keeps no pod waiting"


def test_it_starts_when_the_key_is_taken_away(played: Played) -> None:
    played.create(*gang(2, SLICES))
    expect_soon(lambda: events(played, "w-0") and events(played, "w-1"))
    assert played.running_pods() == {}
    for name in ("w-0", "w-1"):
        path = f"/api/v1/namespaces/default/pods/{name}"
        played.kube.patch(path, {"metadata": {"annotations": dict.fromkeys(SLICES)}})
    played.expect_running("w-0", "w-1")


def test_so_does_a_pod_without_devices_of_a_gang(played: Played) -> None:
    played.create(*gang(2, SLICES, gpus=0))
    expect_soon(lambda: events(played, "w-0") and events(played, "w-1"))
    assert GPU not in played.pods()["w-0"]["spec"]["containers"][0]["resources"]["limits"]
    assert played.running_pods() == {}


def test_a_queued_job_whose_template_requires_it_is_not_let_go_and_is_told_the_key(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        made = template("a", 8, "10", FOR_EVER)
        made["metadata"]["annotations"] |= SLICES
        spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": made}
        jobs.kube.create(JOBS, {"metadata": {"name": "sliced"}, "spec": spec})
        jobs.create("plain")
        key = "annotation kueue.x-k8s.io/podset-slice-required-topology is 'example.com/rack'"
        jobs.expect(lambda: jobs.runs("plain"), lambda: key in jobs.reason("sliced"))
        found = jobs.inspector.why("default/sliced")
        assert found is not None
        assert key in found.job.sentence
        assert jobs.waits("sliced")
