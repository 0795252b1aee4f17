"""Pods and objects as KubeRay writes them for each scheduler that it knows, and what they are to us."""

import json
from typing import Any

import pytest

from hived.values.specs import ClusterSpec
from hived_config.loader import load_text
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds import coscheduling, kai, koordinator, volcano, yunikorn
from hived_extender.jobs.kinds.description import GangKey, NoObjects
from hived_extender.jobs.wire import PodSpec
from tests.extender.jobs.kinds.descriptions import NAMESPACE, Cluster, describe, make_pod, podgroups

NAMES = ("volcano", "scheduler-plugins", "yunikorn", "koordinator", "kai-scheduler")
CONFIG = f"""\
schedulerNames: [hived, "hived-{{vc}}", {", ".join(NAMES)}]
physicalCluster:
  cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: 1, isNodeLevel: true}}}}
  physicalCells: [{{cellType: NODE, cellAddress: a}}]
virtualClusters: {{default: {{}}}}
"""
RAY_LABELS = {"ray.io/cluster": "demo", "ray.io/node-type": "worker", "ray.io/group": "gpus"}


def task_groups(*minimums: tuple[str, int]) -> str:
    return json.dumps([{"name": name, "minMember": count, "minResource": {"cpu": "1"}} for name, count in minimums])


def koordinator_words(role: str, minimum: int) -> dict[str, str]:
    groups = json.dumps([f"{NAMESPACE}/ray-demo-{each}" for each in ("headgroup", "gpus")])
    words = {"name": f"ray-demo-{role}", "min-available": str(minimum), "total-number": "4", "mode": "Strict"}
    return {koordinator.PREFIX + key: value for key, value in (words | {"groups": groups}).items()}


OF_YUNIKORN = {yunikorn.OLD_APPLICATION: "demo-app", "queue": "root.research"}
CASES: list[tuple[str, dict[str, str], dict[str, str], Cluster, dict[str, Any]]] = [
    (
        "volcano",
        {"volcano.sh/queue-name": "research"},
        {volcano.GROUP_NAMES[0]: "ray-demo-pg", volcano.TASK: "gpus"},
        podgroups(
            volcano.PODGROUPS.group,
            {"minMember": 5, "queue": "research", "minResources": {"cpu": 9}},
            name="ray-demo-pg",
        ),
        {"gang": "ray-demo-pg", "minimum": 5, "task": "gpus", "queue": "research"},
    ),
    (
        "scheduler-plugins",
        {coscheduling.LABEL: "demo"},
        {},
        podgroups(coscheduling.PODGROUPS.group, {"minMember": 5, "minResources": {"cpu": 9}}, name="demo"),
        {"gang": "demo", "minimum": 5},
    ),
    (
        "yunikorn",
        OF_YUNIKORN,
        {yunikorn.TASK_GROUP: "gpus", yunikorn.TASK_GROUPS: task_groups(("headgroup", 1), ("gpus", 4))},
        Cluster(),
        {"gang": "demo-app", "minimum": 5, "task": "gpus", "task_minimums": {"headgroup": 1, "gpus": 4}},
    ),
    (
        "yunikorn with an autoscaler",
        OF_YUNIKORN,
        {yunikorn.TASK_GROUP: "gpus", yunikorn.TASK_GROUPS: task_groups(("headgroup", 1), ("gpus", 0))},
        Cluster(),
        {"gang": "demo-app", "minimum": 1, "task": "gpus", "task_minimums": {"headgroup": 1, "gpus": 0}},
    ),
    (
        "koordinator",
        {},
        koordinator_words("gpus", 4),
        Cluster(),
        {
            "gang": "ray-demo-gpus",
            "minimum": 4,
            "groups": (GangKey(NAMESPACE, "ray-demo-gpus"), GangKey(NAMESPACE, "ray-demo-headgroup")),
        },
    ),
    ("kai-scheduler", {kai.QUEUE: "research"}, {}, Cluster(), {"queue": "research"}),
]


@pytest.mark.parametrize(
    ("labels", "annotations", "objects", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_pods_of_a_ray_cluster_say(
    labels: dict[str, str], annotations: dict[str, str], objects: Cluster, said: dict[str, Any]
) -> None:
    found = describe(RAY_LABELS | labels, annotations, objects)
    assert found is not None
    gang = GangKey(NAMESPACE, said["gang"]) if "gang" in said else None
    for name, value in ({"minimum": None, "queue": None, "task": None} | said | {"gang": gang}).items():
        assert getattr(found, name) == value, name


@pytest.fixture(scope="module")
def configured() -> Interpreter:
    configuration = load_text(CONFIG, "kuberay.yaml", environ={})
    cluster: ClusterSpec = configuration.cluster
    return Interpreter(cluster, configuration.rules, NoObjects())


@pytest.mark.parametrize(("name", "labels", "annotations"), [case[:3] for case in CASES])
def test_they_are_ours_where_the_configuration_has_the_schedulers_name(
    configured: Interpreter, name: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    spec = PodSpec(scheduler_name=name.split(maxsplit=1)[0])
    assert configured.is_ours(make_pod(RAY_LABELS | labels, annotations, spec))
    assert not configured.is_ours(
        make_pod(RAY_LABELS | labels, annotations, PodSpec(scheduler_name="default-scheduler"))
    )
