"""The demands that are read of pods."""

import time
from typing import Any

import msgspec
import pytest

from hived.values.errors import UserError
from hived_extender.jobs.wire import Pod
from hived_extender.kube_rules import demands
from hived_extender.kube_rules.demands import (
    ANY_IP,
    EVERY_TAINT,
    MOST_PARTS,
    MOST_RESOURCES,
    TOO_LARGE,
    Demands,
    DemandsReader,
    HostPort,
    needs_kube_scheduler,
)
from hived_extender.kube_rules.selectors import MOST
from tests.extender.kube_rules.objects import (
    expression,
    host_port,
    make_pod,
    node_affinity,
    pod_affinity,
    reader,
    spread,
)


def container(cpu: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


def cpu_of(**spec: Any) -> int:
    return dict(make_pod({"containers": [], **spec}).demands.requests).get("cpu", 0)


def test_containers_add_up() -> None:
    assert cpu_of(containers=[container("1"), container("500m")]) == 1500


def test_containers_that_ask_for_more_than_any_node_has_add_up_to_so_much() -> None:
    assert cpu_of(containers=[container("9223372036854775807")] * 10_000) == MOST


def test_many_init_containers_and_resources_are_added_up_at_once() -> None:
    many = {"resources": {"limits": {f"made.up/{number}": 1 for number in range(4000)}}, "restartPolicy": "Always"}
    began = time.thread_time()
    assert cpu_of(containers=[], initContainers=[many, *[container("1")] * 4000]) == 1000
    assert time.thread_time() - began < 2.0


def test_a_limit_stands_for_a_request_that_is_missing() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}}
    assert make_pod({"containers": [{"resources": resources}]}).demands.requests == (("cpu", 1000), ("memory", 1024))


def test_an_init_container_counts_if_it_needs_more_than_all_that_run_later() -> None:
    assert cpu_of(containers=[container("1")], initContainers=[container("4"), container("2")]) == 4000
    assert cpu_of(containers=[container("5")], initContainers=[container("4")]) == 5000


def test_a_sidecar_runs_beside_the_init_containers_after_it_and_beside_all_containers() -> None:
    sidecar = container("1", restartPolicy="Always")
    assert cpu_of(containers=[container("2")], initContainers=[sidecar, container("4")]) == 5000
    assert cpu_of(containers=[container("4")], initContainers=[container("2"), sidecar]) == 5000


def test_pod_level_requests_stand_in_place_of_the_containers() -> None:
    resources = {"requests": {"cpu": "60", "nvidia.com/gpu": "8"}}
    pod = make_pod({"containers": [container("1")], "resources": resources})
    assert pod.demands.requests == (("cpu", 60_000),)


def test_a_pod_level_limit_counts_only_if_nobody_requests_that_resource() -> None:
    assert cpu_of(containers=[], resources={"limits": {"cpu": "3"}}) == 3000
    assert cpu_of(containers=[container("1")], resources={"limits": {"cpu": "3"}}) == 1000


def test_overhead_comes_on_top() -> None:
    assert cpu_of(containers=[container("1")], overhead={"cpu": "250m"}) == 1250


def test_the_limit_that_marks_our_pods_is_no_resource() -> None:
    limits = {"hivedscheduler.microsoft.com/pod-scheduling-enable": "1"}
    assert make_pod(limits=limits).demands.requests == ()


def test_host_ports_of_containers_and_sidecars_count() -> None:
    ports = [{"containerPort": 80}, {"hostPort": 81}, {"hostPort": 82, "hostIP": "10.0.0.1", "protocol": "UDP"}]
    spec = {
        "containers": [{"ports": ports}],
        "initContainers": [{"ports": [{"hostPort": 83}]}, {"ports": [{"hostPort": 84}], "restartPolicy": "Always"}],
    }
    assert make_pod(spec).demands.ports == (
        HostPort("TCP", 84, ANY_IP),
        HostPort("TCP", 81, ANY_IP),
        HostPort("UDP", 82, "10.0.0.1"),
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (HostPort("TCP", 80, ANY_IP), HostPort("TCP", 80, ANY_IP), True),
        (HostPort("TCP", 80, ANY_IP), HostPort("TCP", 80, "10.0.0.1"), True),
        (HostPort("TCP", 80, "10.0.0.1"), HostPort("TCP", 80, "10.0.0.2"), False),
        (HostPort("TCP", 80, ANY_IP), HostPort("UDP", 80, ANY_IP), False),
        (HostPort("TCP", 80, ANY_IP), HostPort("TCP", 81, ANY_IP), False),
    ],
)
def test_ports_conflict_as_on_one_machine(one: HostPort, other: HostPort, expected: bool) -> None:
    assert one.conflicts(other) is other.conflicts(one) is expected


def test_pods_of_one_template_share_what_they_demand() -> None:
    spec = {"tolerations": [{"key": "gpu", "operator": "Exists"}], **pod_affinity("podAntiAffinity")}
    one, other = make_pod(spec, labels={"index": "0"}), make_pod(spec, labels={"index": "1"})
    assert one.demands is other.demands


def test_a_term_means_pods_of_its_own_namespace_unless_it_names_others() -> None:
    (own,) = make_pod(pod_affinity("podAffinity")).demands.affinity
    (named,) = make_pod(pod_affinity("podAffinity", namespaces=["b", "a"])).demands.affinity
    assert own.namespaces == ("team",)
    assert named.namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"kind": "lab"}}, {"elsewhere": {"kind": "lab"}}, True),
        ({"matchLabels": {"kind": "lab"}}, {"elsewhere": {"kind": "prod"}}, False),
        ({"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}, {}, True),
    ],
)
def test_a_term_can_mean_namespaces_by_their_labels(
    selector: dict[str, Any], labels: dict[str, dict[str, str]], expected: bool
) -> None:
    (term,) = make_pod(pod_affinity("podAffinity", namespaceSelector=selector)).demands.affinity
    other = make_pod(labels={"app": "train"}, namespace="elsewhere")
    assert other.is_meant(term, labels) is expected


def test_label_keys_are_matched_against_the_pods_own_values() -> None:
    spec = pod_affinity("podAntiAffinity", matchLabelKeys=["hash", "missing"], mismatchLabelKeys=["tenant"])
    (term,) = make_pod(spec, labels={"hash": "1", "tenant": "a"}).demands.anti_affinity
    assert make_pod(labels={"app": "train", "hash": "1", "tenant": "b"}).is_meant(term, {})
    assert not make_pod(labels={"app": "train", "hash": "2", "tenant": "b"}).is_meant(term, {})
    assert not make_pod(labels={"app": "train", "hash": "1", "tenant": "a"}).is_meant(term, {})


def test_a_term_without_a_selector_means_nobody() -> None:
    spec = pod_affinity("podAntiAffinity", labelSelector=None, matchLabelKeys=["app"])
    (term,) = make_pod(spec, labels={"app": "train"}).demands.anti_affinity
    assert not make_pod(labels={"app": "train"}).is_meant(term, {})


def test_a_spread_constraint_has_kubernetes_defaults() -> None:
    (constraint,) = make_pod(spread()).demands.spread
    assert (constraint.min_domains, constraint.honors_affinity, constraint.honors_taints) == (1, True, False)


def test_a_spread_constraint_that_is_only_a_wish_is_left_out() -> None:
    assert make_pod(spread(whenUnsatisfiable="ScheduleAnyway")).demands.spread == ()


def test_affinity_that_cannot_be_read_is_an_error_that_names_the_pod() -> None:
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"affinity": {"podAffinity": 3}}}, Pod)
    with pytest.raises(UserError, match="of pod ns/p cannot be read: Expected `object"):
        reader.read_pod(pod)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ""),
        ({"tolerations": [{"operator": "Exists"}]}, ""),
        ({"volumes": [{"name": "home", "emptyDir": {}}]}, ""),
        ({"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "x"}}]}, "its volume home is a claim"),
        ({"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}]}, "its volume tmp is a claim"),
        ({"volumes": [{"name": "old", "iscsi": {}}]}, "its volume old is a disk"),
        ({"resourceClaims": [{"name": "gpu"}]}, "it has resource claims"),
        ({"nodeSelector": {"disk": "fast"}}, "it has a nodeSelector"),
        (node_affinity(), "it has node affinity"),
        (pod_affinity("podAffinity"), "it has pod affinity"),
        (pod_affinity("podAntiAffinity"), "it has pod anti-affinity"),
        (spread(), "it has topology spread constraints"),
        (host_port(), "it has host ports"),
    ],
)
def test_only_pods_with_taints_and_resources_alone_do_without_kube_scheduler(
    spec: dict[str, Any], expected: str
) -> None:
    assert needs_kube_scheduler(make_pod(spec).demands) == expected


TERMS = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(MOST_PARTS // 2)]
VALUES = [str(number) for number in range(MOST_PARTS)]


@pytest.mark.parametrize(
    "spec",
    [
        node_affinity(*TERMS, TERMS[0]),
        node_affinity({"matchExpressions": [expression("k", "NotIn", *VALUES)]}),
        pod_affinity("podAffinity", namespaces=VALUES),
        pod_affinity("podAntiAffinity", matchLabelKeys=VALUES),
        spread(labelSelector={"matchExpressions": [expression("k", "In", *VALUES)]}),
        {"nodeSelector": dict.fromkeys([*VALUES, "k"], "v")},
        {"tolerations": [{"operator": "Exists"}] * (MOST_PARTS + 1)},
        {"containers": [{"ports": [{"hostPort": 1}] * (MOST_PARTS + 1)}]},
    ],
)
def test_rules_of_too_many_parts_are_left_to_kube_scheduler(spec: dict[str, Any]) -> None:
    assert make_pod(spec).demands == Demands(tolerations=(EVERY_TAINT,), beyond=TOO_LARGE)
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)
    assert not DemandsReader(is_unbounded=True).read_pod(pod).demands.beyond


def test_rules_of_just_few_enough_parts_are_read() -> None:
    demands = make_pod(node_affinity(*TERMS)).demands
    assert not demands.beyond
    assert len(demands.node_terms or ()) == len(TERMS)


def test_of_too_many_resources_those_of_kubernetes_count() -> None:
    demands = make_pod(limits={f"a.made/{number}": "1" for number in range(MOST_RESOURCES)} | {"memory": "1"}).demands
    assert demands.beyond == TOO_LARGE
    assert len(demands.requests) == MOST_RESOURCES
    assert dict(demands.requests)["memory"] == 1


# ---- pods of one template are read once


def pod_of_template(number: int, spec: dict[str, Any], **meta: Any) -> Pod:
    volumes = [{"name": f"kube-api-access-{number}", "projected": {}}]
    containers = [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]
    whole = {"containers": containers, "volumes": volumes, "nodeName": f"n{number}", **spec}
    return msgspec.convert({"metadata": {"name": f"p{number}", "namespace": "team", **meta}, "spec": whole}, Pod)


def test_pods_of_one_template_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Pod] = []
    read = demands.demands_of
    monkeypatch.setattr(demands, "demands_of", lambda pod, **options: reads.append(pod) or read(pod, **options))
    own = DemandsReader()
    kept = [own.read_pod(pod_of_template(number, {}, labels={"index": str(number)})) for number in range(10)]
    assert len(reads) == 1, kept


@pytest.mark.parametrize(
    ("spec", "meta"),
    [
        ({"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}, {}),
        ({"initContainers": [{"resources": {"limits": {"cpu": "3"}}}]}, {}),
        ({"initContainers": [{"resources": {"limits": {"cpu": "3"}}, "restartPolicy": "Always"}]}, {}),
        ({"containers": [{"ports": [{"hostPort": 1}]}]}, {}),
        ({"resources": {"requests": {"cpu": "7"}}}, {}),
        ({"overhead": {"cpu": "7"}}, {}),
        ({"tolerations": [{"operator": "Exists"}]}, {}),
        ({"nodeSelector": {"k": "v"}}, {}),
        ({"volumes": [{"name": "disk", "persistentVolumeClaim": {}}]}, {}),
        ({"resourceClaims": [{"name": "gpu"}]}, {}),
        (node_affinity({"matchExpressions": [expression("k", "Exists")]}), {}),
        (pod_affinity("podAffinity"), {}),
        (pod_affinity("podAffinity"), {"namespace": "other"}),
        (pod_affinity("podAntiAffinity", matchLabelKeys=["k"]), {"labels": {"k": "v"}}),
        (spread(matchLabelKeys=["k"]), {"labels": {"k": "v"}}),
        (spread(matchLabelKeys=["k"]), {"labels": {"k": "w"}}),
    ],
)
def test_a_pod_that_differs_from_those_read_before_is_read_by_itself(
    spec: dict[str, Any], meta: dict[str, Any]
) -> None:
    own, pod = DemandsReader(), pod_of_template(1, spec, **meta)
    kept = [own.read_pod(pod_of_template(0, each)) for each in ({}, spec)]
    assert own.read_pod(pod) == DemandsReader().read_pod(pod), kept
