"""Why a node can never take a pod."""

from typing import Any

import msgspec
import pytest

from hived_extender.jobs.wire import Node
from hived_extender.kube_rules.nodes import NO_MATCH, UNSCHEDULABLE, RuledNode, static_refusal
from tests.extender.kube_rules.objects import LARGE, expression, make_node, make_pod, node_affinity, taint

TAINTED = "node(s) had untolerated taint {gpu: maintenance}"


@pytest.mark.parametrize(
    ("spec", "node", "expected"),
    [
        ({}, {}, ""),
        ({}, {"taints": [taint()]}, TAINTED),
        ({}, {"taints": [taint("NoExecute")]}, TAINTED),
        ({}, {"taints": [taint("PreferNoSchedule")]}, ""),
        # the first that is not tolerated is named
        (
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"taints": [taint(), taint(key="team", value="")]},
            "node(s) had untolerated taint {team: }",
        ),
        ({}, {"unschedulable": True}, UNSCHEDULABLE),
        (
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            {"unschedulable": True},
            "",
        ),
    ],
)
def test_a_node_keeps_pods_away_by_taints_and_a_cordon(spec: dict[str, Any], node: Any, expected: str) -> None:
    assert static_refusal(make_pod(spec).demands, make_node(**node)) == expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "gpu", "value": "maintenance"}, ""),
        ({"key": "gpu", "operator": "Equal", "value": "maintenance", "effect": "NoSchedule"}, ""),
        ({"key": "gpu", "operator": "Equal", "value": "broken"}, TAINTED),
        ({"key": "gpu", "operator": "Exists"}, ""),
        ({"key": "cpu", "operator": "Exists"}, TAINTED),
        ({"operator": "Exists"}, ""),
        ({"operator": "Exists", "effect": "NoExecute"}, TAINTED),
        ({"key": "gpu", "operator": "Gt", "value": "1"}, TAINTED),
    ],
)
def test_a_taint_has_to_be_tolerated(toleration: dict[str, str], expected: str) -> None:
    pod = make_pod({"tolerations": [toleration]})
    assert static_refusal(pod.demands, make_node(taints=[taint()])) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"disk": "fast"}}, ""),
        ({"nodeSelector": {"disk": "slow"}}, NO_MATCH),
        ({"nodeSelector": {"rack": "r1"}}, NO_MATCH),
        (node_affinity({"matchExpressions": [expression("disk", "In", "fast", "slow")]}), ""),
        (node_affinity({"matchExpressions": [expression("slots", "Gt", "3"), expression("disk", "Exists")]}), ""),
        (node_affinity({"matchExpressions": [expression("slots", "Gt", "4")]}), NO_MATCH),
        (node_affinity({"matchFields": [expression("metadata.name", "In", "n0")]}), ""),
        (node_affinity({"matchFields": [expression("metadata.name", "NotIn", "n0")]}), NO_MATCH),
        (
            node_affinity(
                {"matchExpressions": [expression("disk", "DoesNotExist")]},
                {"matchFields": [expression("metadata.name", "In", "n0")]},
            ),
            "",
        ),
        (node_affinity({}), NO_MATCH),
        (node_affinity(), NO_MATCH),
    ],
)
def test_node_selector_and_affinity_have_to_match(spec: dict[str, Any], expected: str) -> None:
    assert static_refusal(make_pod(spec).demands, make_node(labels={"disk": "fast", "slots": "4"})) == expected


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        (LARGE, ""),
        ({**LARGE, "nvidia.com/gpu": "7"}, "Insufficient nvidia.com/gpu"),
        ({"cpu": "64", "pods": "110"}, "Insufficient nvidia.com/gpu"),
        ({**LARGE, "cpu": "7999m"}, "Insufficient cpu"),
        ({**LARGE, "pods": "0"}, "Too many pods"),
        ({}, "Too many pods"),
        (None, ""),
    ],
)
def test_a_node_has_to_be_large_enough(allocatable: dict[str, str] | None, expected: str) -> None:
    pod = make_pod(limits={"nvidia.com/gpu": "8", "cpu": "8"})
    assert static_refusal(pod.demands, make_node(allocatable=allocatable)) == expected


# ---- nodes are many and of few kinds: each keeps what is its own, and shares the rest


def read(name: str) -> RuledNode:
    """A node as it comes from a list: every text of it is a new object."""
    text = {
        "metadata": {"name": name, "labels": {"example.com/gpu": "A100 80 GB"}},
        "spec": {"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "96", "memory": "1Ti"}},
    }
    return RuledNode.of(msgspec.json.decode(msgspec.json.encode(text), type=Node))


def test_nodes_share_labels_taints_and_what_they_can_allocate() -> None:
    one, other = read("a"), read("b")
    pairs = zip(one.labels.items(), other.labels.items(), strict=True)
    assert all(x[0] is y[0] and x[1] is y[1] for x, y in pairs)
    assert one.allocatable is other.allocatable
    assert one.gate is other.gate
