"""Messages of the extender protocol, as kube-scheduler sends them and as it must receive them."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.jobs.wire import (
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    MetaPod,
    MetaVictims,
    Node,
    NodeSelector,
    Pod,
    PreemptArgs,
    PreemptResult,
    decode_args,
    encode,
)

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": None, "creationTimestamp": None}}


def decode_pod(**parts: object) -> Pod:
    return msgspec.json.decode(json.dumps(POD | parts), type=Pod)


def test_filter_arguments_are_read_with_nulls_where_go_has_nil() -> None:
    body = json.dumps({"Pod": POD | {"spec": {"nodeName": "", "initContainers": None}}, "Nodes": None, "NodeNames": []})
    args = decode_args(body.encode(), FilterArgs)
    assert (args.pod.metadata.uid, dict(args.pod.annotations)) == ("u", {})
    assert bytes(args.node_names) == b"[]"


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase])
def test_keys_of_the_protocol_are_read_in_any_case(spell: Any) -> None:
    body = json.dumps({spell("PodName"): "p", spell("PodNamespace"): "n", spell("PodUID"): "u", spell("Node"): "x"})
    assert decode_args(body.encode(), BindArgs) == BindArgs("p", "n", "u", "x")


def test_candidates_are_the_nodes_of_whichever_map_is_given() -> None:
    for key in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        body = json.dumps({"Pod": POD, key: {"b": {"Pods": []}, "a": None}})
        assert decode_args(body.encode(), PreemptArgs).candidates == ["a", "b"]
    assert decode_args(json.dumps({"Pod": POD, "NodeNameToVictims": None}).encode(), PreemptArgs).candidates == []


def test_results_have_the_keys_of_go_with_null_where_go_has_nil() -> None:
    assert json.loads(encode(FilterResult(node_names=["a"]))) == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": "",
    }
    assert json.loads(encode(PreemptResult({"a": MetaVictims([MetaPod("u")])}))) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
    }
    assert json.loads(encode(BindResult())) == {"Error": ""}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"Pod": {}, "NodeNames": []}',
        b'{"Pod": {"metadata": {"uid": NaN}}, "NodeNames": []}',
        b'{"Pod": {"metadata": {"uid": "\\ud800"}}, "NodeNames": []}',
        b'{"Pod": {"metadata": {"annotations": {"a": 1}}}, "NodeNames": []}',
        b'{"Pod":' + b"[" * 100_000,
        b'{"Pod":' + b'{"x":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"NodeNames":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_does_not_fit_is_the_callers_error(body: bytes) -> None:
    with pytest.raises(UserError, match="not valid FilterArgs JSON"):
        decode_args(body, FilterArgs)


@given(st.binary(max_size=200), st.sampled_from([FilterArgs, PreemptArgs, BindArgs]))
def test_any_bytes_are_arguments_or_the_callers_error(body: bytes, kind: type[Any]) -> None:
    with suppress(UserError):
        assert isinstance(decode_args(body, kind), kind)


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_is_ours_when_any_container_has_the_limit(where: str) -> None:
    limits = {"cpu": "1", "hivedscheduler.microsoft.com/pod-scheduling-enable": 1}
    containers = [{"resources": None}, {}, {"resources": {"limits": None}}, {"resources": {"limits": limits}}]
    assert decode_pod(spec={where: containers}).is_ours
    assert not decode_pod(spec={where: containers[:3]}).is_ours


def test_a_pod_whose_limit_is_zero_is_not_ours() -> None:
    limits = {"hivedscheduler.microsoft.com/pod-scheduling-enable": "0"}
    assert not decode_pod(spec={"containers": [{"resources": {"limits": limits}}]}).is_ours
    assert not decode_pod().is_ours


@pytest.mark.parametrize(("phase", "is_over"), [("Succeeded", True), ("Failed", True), ("Running", False)])
def test_succeeded_and_failed_pods_are_over(phase: str, is_over: bool) -> None:
    assert decode_pod(status={"phase": phase}).is_over is is_over


def test_a_pod_that_is_being_deleted_is_over_if_it_has_no_node() -> None:
    leaving = {"metadata": POD["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert decode_pod(**leaving, spec={}).is_over
    assert not decode_pod(**leaving, spec={"nodeName": "n"}).is_over


@pytest.mark.parametrize(
    ("spec", "conditions", "healthy"),
    [
        ({}, [{"type": "Ready", "status": "True"}], True),
        (None, [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}], True),
        ({"unschedulable": True}, [{"type": "Ready", "status": "True"}], False),
        ({}, [{"type": "Ready", "status": "False"}], False),
        ({}, [{"type": "Ready", "status": "Unknown"}], False),
        ({}, [], False),
        ({}, None, False),
    ],
)
def test_a_node_is_healthy_when_ready_and_not_cordoned(spec: object, conditions: object, healthy: bool) -> None:
    node = {"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}
    assert msgspec.json.decode(json.dumps(node), type=Node).is_healthy is healthy


CORDON = "node.kubernetes.io/unschedulable"
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("taints", "fields", "moment"),
    [
        ([{"key": CORDON, "effect": "NoSchedule", "timeAdded": EARLY}], {"f:unschedulable": {}}, EARLY),
        ([{"key": CORDON, "effect": "NoSchedule"}], {"f:unschedulable": {}}, LATE),
        ([{"key": "other", "effect": "NoSchedule", "timeAdded": EARLY}], {"f:unschedulable": {}}, LATE),
        ([], {"f:taints": {}}, ""),
    ],
)
def test_the_moment_of_a_cordon_is_that_of_its_taint_or_of_the_field(
    taints: object, fields: object, moment: str
) -> None:
    managed = [{"manager": "kubelet", "time": EARLY, "fieldsV1": {"f:status": {}}}, {"manager": "none"}]
    managed.append({"manager": "kubectl-cordon", "time": LATE, "fieldsV1": {"f:spec": fields}})
    metadata = {"name": "n", "managedFields": managed}
    node = {"metadata": metadata, "spec": {"unschedulable": True, "taints": taints}}
    assert msgspec.json.decode(json.dumps(node), type=Node).cordoned_at(CORDON) == moment


# ---- the node that a selector names


def name(*values: str, key: str = "metadata.name", operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "node"),
    [
        ([{"matchFields": [name("n0")]}], "n0"),
        ([{"matchFields": [name("n0")], "matchExpressions": [name("b", key="zone")]}], "n0"),
        ([{"matchFields": [name("n0", "n1")]}], ""),
        ([{"matchFields": [name("n0"), name("n1")]}], ""),
        ([{"matchFields": [name("n0")]}, {"matchFields": [name("n1")]}], ""),
        ([{"matchFields": [name("n0")]}, {}], ""),
        ([{"matchFields": [name("n0", operator="NotIn")]}], ""),
        ([{"matchFields": [name("n0", key="metadata.uid")]}], ""),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In"}]}], ""),
        ([{"matchFields": None}], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_only_one_node_in_one_term_is_the_node(terms: list[dict[str, Any]] | None, node: str) -> None:
    assert msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector).only_node == node
