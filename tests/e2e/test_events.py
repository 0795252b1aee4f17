"""Events tell people of a pod on a real API server, and do not make kube-scheduler try for ever."""

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import pod_path
from hived_extender.machine.notices import CONDITION_TYPE
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import POD_LIST, configuration, pod

EVENT_LIST = "/api/v1/namespaces/default/events"
WATCHED_S = 10.0
"""kube-scheduler tries a pod again after a second: a circle of writing and trying would show many times over."""


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[RealCluster]:
    """One node of four GPUs, all of them for the virtual cluster a."""
    with RealCluster(plane, configuration(tmp_path, {"a": 1}, gpus=4)) as running:
        yield running


def submit(cluster: RealCluster, name: str) -> str:
    """A pod that wants the whole node; returns its uid."""
    return str(cluster.kube.create(POD_LIST, pod(name, gpus=4))["metadata"]["uid"])


def condition(cluster: RealCluster, name: str, kind: str = CONDITION_TYPE) -> tuple[str, str]:
    """Status and reason of a pod's condition, empty if it has none."""
    conditions = cluster.kube.get(pod_path("default", name))["status"].get("conditions", ())
    found = next((one for one in conditions if one["type"] == kind), {})
    return found.get("status", ""), found.get("reason", "")


def told(cluster: RealCluster, uid: str) -> dict[str, str]:
    """The last message for each reason of our events."""
    selector = f"involvedObject.uid={uid},source=hived"
    found = cluster.kube.list_objects(EVENT_LIST, dict[str, Any], field_selector=selector).items
    return {event["reason"]: event["message"] for event in found}


def decision_count(cluster: RealCluster) -> float:
    with urllib.request.urlopen(f"{cluster.url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(float(number) for number in re.findall(r"^hived_decisions_total\{.*\} (\S+)$", text, re.MULTILINE))


def test_a_pod_says_why_it_waits_and_where_it_runs(cluster: RealCluster) -> None:
    first = submit(cluster, "first")
    cluster.plane.wait_for("the first pod to be told of", lambda: "Scheduled" in told(cluster, first))
    second = submit(cluster, "second")
    cluster.plane.wait_for("the wait to be told", lambda: condition(cluster, "second") == ("False", "Waiting"))
    cluster.plane.wait_for("the wait to be an event", lambda: "Waiting" in told(cluster, second))
    assert condition(cluster, "first") == ("", "")
    assert told(cluster, second)["Waiting"].startswith("needs 1 ")

    time.sleep(1)
    before = decision_count(cluster)
    time.sleep(WATCHED_S)
    assert decision_count(cluster) - before <= 1

    cluster.kube.delete_pod("default", "first", grace_period_s=0)
    cluster.plane.wait_for("the second to run", lambda: condition(cluster, "second", "Ready")[0] == "True")
    cluster.plane.wait_for("the wait to be over", lambda: condition(cluster, "second") == ("True", "Allocated"))
    assert condition(cluster, "second", "PodScheduled")[0] == "True"
    assert told(cluster, second)["Scheduled"].startswith("node n0, leaf cells 0,1,2,3, virtual cluster a")
