"""The causes of refusals that are kept for pods alike say nothing about one pod that belongs to another."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from hived.values.events import Offer
from hived.values.specs import GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_extender.api.waiting import PodOutcome, WhatIfArgs
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.machine import explaining, what_if
from hived_extender.machine.certificates import once_others_left
from hived_extender.machine.explaining import Ration
from hived_extender.machine.offers import Offers
from tests.extender.machine.small_cluster import node_json, to_node
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

NODES = ("n0", "n1", "n2", "n3")


def manifest(name: str, gpus: int, annotations: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]
    metadata = {"name": name, "namespace": "ns", "annotations": annotations}
    return {"metadata": metadata, "spec": {"schedulerName": "hived", "containers": containers}}


def outcomes(small: SmallGangCluster, *pods: dict[str, Any]) -> list[PodOutcome]:
    return small.service.what_if(decode_args(encode({"pods": list(pods)}), WhatIfArgs).pods)


def test_a_pod_is_told_the_rules_that_refuse_itself() -> None:
    small = SmallGangCluster()
    for name in NODES:
        tainted = node_json(name)
        tainted["metadata"]["labels"] = {"zone": "east"}
        tainted["spec"]["taints"] = [{"key": "dedicated", "effect": "NoSchedule"}]
        small.service.node_seen(to_node(tainted))
    small.pod("one", tolerations=[{"key": "dedicated", "operator": "Exists"}], nodeSelector={"zone": "west"})
    small.pod("two")
    told = [str(small.filter(small.kube.pods[name], [])) for name in ("one", "two")]
    assert ["selects: zone=west" in text for text in told] == [True, False]
    assert ["taint" in text for text in told] == [False, True]


def test_a_gang_is_told_no_message_about_another_one_of_its_shape() -> None:
    small = SmallGangCluster()
    for index in range(2):
        small.pod(f"w-{index}")
        small.ask(f"w-{index}")
    for index in range(2):
        small.pod(f"hidden-{index}", annotations=koordinator("hidden", 2))
    small.ask("hidden-0")
    found = outcomes(small, *(manifest(f"m-{index}", 4, koordinator("mine", 2)) for index in range(2)))
    assert {one.outcome for one in found} == {"wait"}
    assert "hidden" not in str(found)


def test_offers_of_pods_alike_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    of = Offers.of
    monkeypatch.setattr(Offers, "of", lambda *args, **words: seen.append(of(*args, **words)) or seen[-1])
    small = SmallGangCluster()
    for index in range(4):
        small.pod(f"w-{index}", annotations=koordinator("gang", 4))
    small.ask("w-0")
    assert {rows.strides[0] for offer in seen for rows in (offer.nodes, offer.after) if len(rows) > 1} == {0}


def test_one_question_has_so_many_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MOST_AT_ONCE", 3)
    small = SmallGangCluster()
    for index in range(2):
        small.pod(f"w-{index}")
        small.ask(f"w-{index}")
    pods = [manifest(f"m-{index}", 1 + index // 2, koordinator(f"gang-{index}", 1)) for index in range(8)]
    found = outcomes(small, *pods)
    assert [(one.outcome, one.certificate is not None) for one in found] == [("wait", index < 6) for index in range(8)]


def test_a_ration_fills_with_time_and_no_further_than_it_holds() -> None:
    ration = Ration(0.5, 2.0)
    assert [ration.take(at_s) for at_s in (0.0, 0.0, 0.0, 2.0, 2.0, 100.0, 100.0, 100.0)] == [
        *(True, True, False), *(True, False), *(True, True, False),
    ]  # fmt: skip


def test_an_error_of_an_explanation_leaves_the_message_of_the_core(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small = SmallGangCluster()
    for index in range(3):
        small.pod(f"w-{index}")
    told = [small.ask(f"w-{index}") for index in range(2)]
    monkeypatch.setattr(explaining, "explain_wait", lambda *args: told[9])
    assert "insufficient capacity" in str(small.ask("w-2"))
    assert "cannot explain" in caplog.text


def with_room(small: SmallGangCluster, *tainted: str) -> None:
    """Every node has four GPUs, and these have a taint."""
    for name in NODES:
        body = node_json(name)
        body["status"]["allocatable"] = {"nvidia.com/gpu": "4", "cpu": "8", "pods": "110"}
        if name in tainted:
            body["spec"]["taints"] = [{"key": "dedicated", "effect": "NoSchedule"}]
        small.service.node_seen(to_node(body))


OPPORTUNISTIC = {"hivedscheduler.microsoft.com/priority": "-1"}


def refused(small: SmallGangCluster, name: str, *offered: str) -> str:
    """The words for a pod that kube-scheduler offers these nodes."""
    return str(small.filter(small.kube.pods[name], list(offered)))


def test_an_opportunistic_pod_is_told_who_has_the_nodes_that_kubernetes_does_not_offer() -> None:
    small = SmallGangCluster()
    with_room(small)
    for index in range(4):
        small.pod(f"w-{index}", annotations={} if index < 2 else OPPORTUNISTIC)
        assert small.ask(f"w-{index}") in NODES
    small.pod("opp", annotations=OPPORTUNISTIC)
    told = refused(small, "opp")
    assert "the cluster has 4 of 4 in use by" in told
    assert "Kubernetes" not in told


def test_an_opportunistic_gang_is_told_so_too() -> None:
    small = SmallGangCluster()
    with_room(small)
    for index in range(3):
        small.pod(f"w-{index}", annotations={} if index < 2 else OPPORTUNISTIC)
        assert small.ask(f"w-{index}") in NODES
    for index in range(2):
        small.pod(f"opp-{index}", annotations=OPPORTUNISTIC | koordinator("opp", 2))
    for index in range(2):
        refused(small, f"opp-{index}", "n3")
    told = small.ask("opp-0")
    assert "in use by" in told
    assert "Kubernetes" not in told


def test_an_opportunistic_pod_is_told_the_rules_that_keep_it_from_free_nodes() -> None:
    small = SmallGangCluster()
    with_room(small, "n2", "n3")
    for index in range(2):
        small.pod(f"w-{index}")
        assert small.ask(f"w-{index}") in NODES
    small.pod("opp", annotations=OPPORTUNISTIC)
    assert "Kubernetes rules out" in refused(small, "opp")


def test_an_opportunistic_pod_that_no_full_node_would_take_is_told_the_rules_as_well() -> None:
    small = SmallGangCluster()
    with_room(small, *NODES)
    tolerates = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    for index in range(4):
        small.pod(f"w-{index}", annotations={} if index < 2 else OPPORTUNISTIC, **tolerates)
        assert small.ask(f"w-{index}") in NODES
    small.pod("opp", annotations=OPPORTUNISTIC)
    assert "Kubernetes rules out" in refused(small, "opp")


def test_only_an_opportunistic_request_is_explained_as_if_others_had_left() -> None:
    offer, fit = Offer(np.zeros((2, 4), np.bool_), np.zeros((2, 4), np.bool_)), np.ones((1, 4), np.bool_)
    spec = PodSpec("a", -1, 4, GroupSpec("g", (MemberSpec(2, 4),)))
    request = PodRequest("u", "p", "ns", spec)
    assert once_others_left(request, offer, fit).after.all()
    assert not once_others_left(request, offer, ~fit).after.any()
    owner = dataclasses.replace(request, spec=dataclasses.replace(spec, priority=0))
    assert once_others_left(owner, offer, fit) is offer
