"""Why nodes cannot take a pod beside those that run."""

from typing import Any

import pytest

from hived_extender.kube_rules.demands import RuledPod
from hived_extender.kube_rules.nodes import NO_MATCH, UNSCHEDULABLE, RuledNode
from hived_extender.kube_rules.residents import (
    NO_AFFINITY,
    NO_ANTI_AFFINITY,
    NO_ANTI_AFFINITY_OF_OTHERS,
    NO_PORTS,
    NO_SPREAD,
    NO_SPREAD_LABEL,
    Refusal,
    Residents,
    refusals,
)
from tests.extender.kube_rules.objects import LARGE, ZONE, host_port, make_node, make_pod, pod_affinity, spread, taint

MATE = make_pod(labels={"app": "train"})


class Cluster:
    """Four nodes in the zones a, a, b and none, and pods on them."""

    def __init__(self, **pods: tuple[str, RuledPod]) -> None:
        zones = {"n0": "a", "n1": "a", "n2": "b", "n3": ""}
        self.nodes = {name: make_node(name, {ZONE: zone} if zone else {}) for name, zone in zones.items()}
        self.residents = Residents()
        for uid, (node, pod) in pods.items():
            self.residents.put(uid, node, pod)

    def change(self, *nodes: RuledNode) -> "Cluster":
        self.nodes |= {node.name: node for node in nodes}
        return self

    def refuse(self, pod: RuledPod) -> dict[str, Refusal]:
        return refusals(pod, self.nodes, self.residents, {})

    def reasons(self, pod: RuledPod) -> dict[str, str]:
        return {name: ", ".join(refusal.reasons) for name, refusal in self.refuse(pod).items()}


WEB = make_pod(labels={"app": "web"})
ANTI, ANTI_ZONE, WITH_ZONE = (
    pod_affinity("podAntiAffinity"),
    pod_affinity("podAntiAffinity", key=ZONE),
    pod_affinity("podAffinity", key=ZONE),
)
EVERY = ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize(
    ("there", "pod", "expected"),
    [
        ({}, make_pod(limits={"nvidia.com/gpu": "8"}), {}),
        ({"n0": make_pod(host_port())}, make_pod(host_port(ip="10.0.0.1")), {"n0": NO_PORTS}),
        ({"n0": make_pod(host_port())}, make_pod(host_port(port=8081)), {}),
        # anti-affinity of the pod, and of those that run; never across namespaces
        ({"n0": MATE}, make_pod(ANTI), {"n0": NO_ANTI_AFFINITY}),
        ({"n0": MATE}, make_pod(ANTI_ZONE), {"n0": NO_ANTI_AFFINITY, "n1": NO_ANTI_AFFINITY}),
        ({"n2": make_pod(ANTI)}, MATE, {"n2": NO_ANTI_AFFINITY_OF_OTHERS}),
        ({"n2": make_pod(ANTI)}, WEB, {}),
        ({"n0": make_pod(labels={"app": "train"}, namespace="other")}, make_pod(ANTI), {}),
        # the first pod of a series that means itself may go where the label is
        ({}, make_pod(WITH_ZONE, labels={"app": "train"}), {"n3": NO_AFFINITY}),
        ({}, make_pod(WITH_ZONE), dict.fromkeys(EVERY, NO_AFFINITY)),
    ],
)
def test_pods_beside_each_other(there: dict[str, RuledPod], pod: RuledPod, expected: dict[str, str]) -> None:
    assert Cluster(**{name: (name, each) for name, each in there.items()}).reasons(pod) == expected


def test_rules_of_a_node_alone_are_final() -> None:
    cluster = Cluster().change(
        make_node("n0", taints=[taint()]), make_node("n1", unschedulable=True), make_node("n2", {"disk": "fast"})
    )
    refused = cluster.refuse(make_pod({"nodeSelector": {"disk": "fast"}}))
    assert all(refusal.is_final for refusal in refused.values())
    assert [refused[name].reasons for name in ("n0", "n1", "n3")] == [
        ("node(s) had untolerated taint {gpu: maintenance}",),
        (UNSCHEDULABLE,),
        (NO_MATCH,),
    ]


def test_all_resources_that_are_short_are_named_and_may_be_had_once_pods_leave() -> None:
    cluster = Cluster(u=("n0", make_pod(limits={"nvidia.com/gpu": "8", "cpu": "60"})))
    refused = cluster.refuse(make_pod(limits={"nvidia.com/gpu": "1", "cpu": "8"}))
    assert refused == {"n0": Refusal(("Insufficient cpu", "Insufficient nvidia.com/gpu"), is_final=False)}


def test_a_node_that_is_too_small_even_when_empty_is_refused_for_good() -> None:
    cluster = Cluster().change(make_node("n0", allocatable={**LARGE, "nvidia.com/gpu": "7"}))
    refused = cluster.refuse(make_pod(limits={"nvidia.com/gpu": "8"}))
    assert refused == {"n0": Refusal(("Insufficient nvidia.com/gpu",), is_final=True)}


def test_a_node_takes_so_many_pods_and_no_more() -> None:
    cluster = Cluster(u=("n0", make_pod())).change(make_node("n0", allocatable={**LARGE, "pods": "1"}))
    assert cluster.reasons(make_pod()) == {"n0": "Too many pods"}


def test_what_a_pod_that_is_gone_used_is_free_again() -> None:
    cluster = Cluster(u=("n0", make_pod(limits={"nvidia.com/gpu": "8"})))
    cluster.residents.remove("u")
    assert cluster.refuse(make_pod(limits={"nvidia.com/gpu": "8"})) == {}


def test_a_pod_that_is_put_twice_counts_once() -> None:
    cluster = Cluster(u=("n0", make_pod(limits={"cpu": "40"})))
    cluster.residents.put("u", "n1", make_pod(limits={"cpu": "8"}), is_leaving=True)
    assert cluster.residents.used("n0") == {}
    assert cluster.residents.used("n1") == {"pods": 1, "cpu": 8000}


def test_affinity_leads_to_the_domains_of_pods_that_are_meant() -> None:
    cluster = Cluster(u=("n0", MATE))
    refused = cluster.refuse(make_pod(pod_affinity("podAffinity", key=ZONE)))
    assert refused == {name: Refusal((NO_AFFINITY,), is_final=True) for name in ("n2", "n3")}


def test_all_terms_of_affinity_have_to_mean_the_same_pod() -> None:
    spec, web = pod_affinity("podAffinity"), pod_affinity("podAffinity", "web")
    (key,) = spec["affinity"]["podAffinity"]
    spec["affinity"]["podAffinity"][key] += web["affinity"]["podAffinity"][key]
    assert set(Cluster(u=("n0", MATE), v=("n0", WEB)).reasons(make_pod(spec))) == set(EVERY)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spread(), {"n0": NO_SPREAD, "n1": NO_SPREAD, "n3": NO_SPREAD_LABEL}),
        (spread(max_skew=2), {"n3": NO_SPREAD_LABEL}),
        (spread(app="web"), {"n3": NO_SPREAD_LABEL}),
        (spread(labelSelector={}), {"n3": NO_SPREAD_LABEL}),
        (spread(max_skew=2, minDomains=3), {"n3": NO_SPREAD_LABEL}),
        (spread(minDomains=3), {"n0": NO_SPREAD, "n1": NO_SPREAD, "n3": NO_SPREAD_LABEL}),
        (spread(matchLabelKeys=["hash"]), {"n3": NO_SPREAD_LABEL}),
    ],
)
def test_spread_keeps_domains_alike(spec: dict[str, Any], expected: dict[str, str]) -> None:
    pod = make_pod(spec, labels={"app": "train", "hash": "1"})
    assert Cluster(u=("n1", MATE)).reasons(pod) == expected


def test_spread_does_not_count_pods_that_leave() -> None:
    cluster = Cluster()
    cluster.residents.put("u", "n0", MATE, is_leaving=True)
    assert cluster.reasons(make_pod(spread(), labels={"app": "train"})) == {"n3": NO_SPREAD_LABEL}


def test_a_domain_without_nodes_that_a_pod_may_use_counts_only_if_the_policy_says_so() -> None:
    cluster = Cluster(u=("n0", MATE)).change(make_node("n2", {ZONE: "b"}, taints=[taint()]))
    labels = {"app": "train"}
    assert cluster.reasons(make_pod(spread(), labels=labels))["n1"] == NO_SPREAD
    assert "n1" not in cluster.reasons(make_pod(spread(nodeTaintsPolicy="Honor"), labels=labels))
