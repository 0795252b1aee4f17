"""The rules about nodes for all nodes at once."""

import random
from typing import Any

import numpy as np
import pytest

from hived_extender.kube_rules.demands import MOST_PARTS
from hived_extender.kube_rules.nodes import NOT_THERE, NodeRules, static_refusal
from hived_extender.kube_rules.selectors import MOST
from tests.extender.kube_rules.objects import (
    HOSTNAME,
    LARGE,
    ZONE,
    expression,
    make_node,
    make_pod,
    node_affinity,
    spread,
    taint,
    wire_node,
)

NAMES = ("n0", "n1", "n2", "n3")


def table(**labels: dict[str, str]) -> NodeRules:
    """All four nodes, with labels by name."""
    rules = NodeRules(NAMES)
    for name in NAMES:
        rules.put(wire_node(name, labels.get(name)))
    return rules


def test_nodes_are_in_their_configured_order_and_others_are_left_out() -> None:
    rules = NodeRules(NAMES)
    for name in ("other", "n2", "n0"):
        rules.put(wire_node(name))
    assert rules.mask(make_pod().demands).tolist() == [True, False, True, False]


def test_a_mask_follows_the_node_that_changes() -> None:
    rules, pod = table(), make_pod()
    before = rules.mask(pod.demands)
    rules.put(wire_node("n1", taints=[taint()]))
    assert rules.mask(pod.demands).tolist() == [True, False, True, True]
    rules.put(wire_node("n1"))
    assert rules.mask(pod.demands).tolist() == before.tolist() == [True] * 4


def test_taints_keep_no_pod_away_whose_rules_have_too_many_parts() -> None:
    rules = NodeRules(["n0"])
    rules.put(wire_node("n0", taints=[taint()]))
    avoided = [f"n{number}" for number in range(1, MOST_PARTS + 1)]
    large = node_affinity({"matchExpressions": [expression(HOSTNAME, "NotIn", *avoided)]})
    bearing = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    assert rules.mask(make_pod(bearing | large).demands).all()
    assert not rules.mask(make_pod().demands).any()


def test_the_most_that_a_node_has_follows_the_nodes() -> None:
    rules = NodeRules(["n0", "n1"])
    rules.put(wire_node("n0", allocatable={"cpu": "2"}))
    rules.put(wire_node("n1", allocatable={"cpu": "3"}))
    assert (rules.most_allocatable("cpu"), rules.most_allocatable("made.up/0")) == (3000, 0)
    rules.remove("n1")
    assert rules.most_allocatable("cpu") == 2000
    rules.put(wire_node("n1", allocatable=None))
    assert rules.most_allocatable("made.up/0") == MOST


def test_labels_that_pods_ask_about_are_kept_in_bounds() -> None:
    rules = table(n1={f"k{number}": "" for number in range(600)})
    absent = make_pod({"nodeSelector": {f"absent{number}": "" for number in range(200)}})
    assert not rules.mask(absent.demands).any()
    terms = node_affinity({"matchExpressions": [expression(f"absent{number}", "Exists") for number in range(200)]})
    assert not rules.mask(make_pod(terms).demands).any()
    assert len(rules._labels) <= 2
    parts = [range(200), range(200, 400), range(400, 600)]
    present = [make_pod({"nodeSelector": {f"k{number}": "" for number in part}}) for part in parts]
    for _ in range(2):
        for pod in present:
            assert rules.mask(pod.demands).tolist() == [False, True, False, False]
            assert len(rules._labels) <= 256
        rules.put(wire_node("n0", {"k599": str(len(rules._labels))}))


def test_a_node_that_is_gone_takes_nobody() -> None:
    rules, pod = table(), make_pod()
    rules.remove("n3")
    assert rules.mask(pod.demands).tolist() == [True, True, True, False]
    assert rules.refusal(pod.demands, "n3") == NOT_THERE


def test_a_mask_is_kept_as_long_as_no_node_changes() -> None:
    rules, pod = table(), make_pod()
    mask = rules.mask(pod.demands)
    assert not rules.put(wire_node("n1"))
    assert rules.mask(pod.demands) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = False


def random_node(rng: random.Random, name: str) -> Any:
    labels = {key: rng.choice("ab") for key in ("disk", "rack") if rng.random() < 0.7}
    taints = [taint(rng.choice(("NoSchedule", "NoExecute")), value=rng.choice("xy"))] if rng.random() < 0.3 else []
    allocatable = {**LARGE, "nvidia.com/gpu": rng.choice("048")}
    return wire_node(name, labels, unschedulable=rng.random() < 0.1, taints=taints, allocatable=allocatable)


SPECS: list[dict[str, Any]] = [
    {},
    {"nodeSelector": {"disk": "a"}},
    {"nodeSelector": {"disk": "a", "rack": "b"}, "tolerations": [{"key": "gpu", "value": "x"}]},
    {"tolerations": [{"operator": "Exists"}]},
    node_affinity({"matchExpressions": [expression("disk", "NotIn", "a"), expression("rack", "Exists")]}),
    node_affinity(
        {"matchFields": [expression("metadata.name", "In", "n2")]},
        {"matchExpressions": [expression("rack", "In", "a")]},
    ),
]


@pytest.mark.parametrize("seed", range(5))
def test_a_mask_says_of_each_node_what_the_plain_rule_says(seed: int) -> None:
    rng, rules = random.Random(seed), NodeRules(NAMES)
    pods = [make_pod(spec, limits={"nvidia.com/gpu": count}) for spec in SPECS for count in ("1", "8")]
    for _ in range(40):
        name = rng.choice(NAMES)
        if rng.random() < 0.2:
            rules.remove(name)
        else:
            rules.put(random_node(rng, name))
        for pod in pods:
            nodes = [rules.get(each) for each in NAMES]
            plain = [node is not None and not static_refusal(pod.demands, node) for node in nodes]
            assert rules.mask(pod.demands).tolist() == plain


def test_domains_are_the_values_of_a_label_in_the_order_of_the_nodes() -> None:
    rules = table(n0={ZONE: "z"}, n1={ZONE: "a"}, n3={ZONE: "z"})
    assert rules.domains(ZONE).tolist() == [0, 1, -1, 0]
    assert rules.domains(HOSTNAME).tolist() == [0, 1, 2, 3]


def test_domains_follow_the_node_that_changes() -> None:
    rules = table(n0={ZONE: "z"}, n1={ZONE: "a"})
    assert rules.domains(ZONE).tolist() == [0, 1, -1, -1]
    rules.put(wire_node("n0"))
    rules.remove("n2")
    assert rules.domains(ZONE).tolist() == [-1, 0, -1, -1]


ZONES = {name: {ZONE: zone, "disk": disk} for name, zone, disk in zip(NAMES, "aabb", "xxxy", strict=True)}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spread(), [0, 0, 1, 1, 2]),
        ({**spread(), "nodeSelector": {"disk": "x"}}, [0, 0, 1, -1, -1]),
        ({**spread(nodeAffinityPolicy="Ignore"), "nodeSelector": {"disk": "x"}}, [0, 0, 1, 1, 2]),
        (spread(nodeTaintsPolicy="Honor"), [0, 0, 1, 1, -1]),
    ],
)
def test_spread_is_kept_between_all_nodes_that_its_policies_count(spec: dict[str, Any], expected: list[int]) -> None:
    rules = table(**ZONES)
    rules.put(wire_node("other", {ZONE: "c"}, taints=[taint()]))
    demands = make_pod(spec).demands
    domain, count = rules.spread_domains(demands, demands.spread[0])
    assert domain.tolist() == expected
    assert count == max(expected) + 1


def test_spread_leaves_out_nodes_that_lack_a_label_of_another_constraint() -> None:
    rules = table(n0={ZONE: "a", "rack": "r"}, n1={ZONE: "b"})
    constraints = [one for key in (ZONE, "rack") for one in spread(key=key)["topologySpreadConstraints"]]
    demands = make_pod({"topologySpreadConstraints": constraints}).demands
    assert rules.spread_domains(demands, demands.spread[0])[0].tolist() == [0, -1, -1, -1]


def test_allocatable_is_by_node_and_nothing_where_there_is_none() -> None:
    rules = NodeRules(NAMES[:2])
    rules.put(make_node("n1", allocatable={"cpu": "2"}))
    assert rules.allocatable("cpu").tolist() == [0, 2000]
    assert rules.allocatable("cpu").dtype == np.int64
