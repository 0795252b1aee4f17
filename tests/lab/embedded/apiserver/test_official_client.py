"""The official Python client against the API server: every verb of every resource.

Annotations stay text: the client loads its hundreds of models when one is named, and every worker collects all tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from hived_lab.embedded.apiserver.resources import RESOURCES
from hived_lab.embedded.apiserver.server import ApiServer
from tests.lab.embedded.helpers import binding, config_map, pod

pytestmark = pytest.mark.sample(5)


@pytest.fixture
def api(server: ApiServer) -> Iterator[client.ApiClient]:
    """The client, made for `server`."""
    with client.ApiClient(client.Configuration(host=server.url)) as made:
        yield made


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    """Its calls for the core group."""
    return client.CoreV1Api(api)


def code_of(call: Any, *arguments: Any, **options: Any) -> int:
    with pytest.raises(ApiException) as refusal:
        call(*arguments, **options)
    return int(refusal.value.status)


def test_the_version_is_served(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().git_version == "v1.32.0+hived"


def test_groups_and_resources_are_discovered(api: client.ApiClient) -> None:
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert groups == {"policy"} | {resource.group for resource in RESOURCES if resource.group}
    resources = {resource.name for resource in client.CoreV1Api(api).get_api_resources().resources}
    assert {"pods", "pods/binding", "pods/eviction", "pods/status", "nodes", "events", "configmaps"} <= resources


def test_every_verb_of_pods(core: client.CoreV1Api, namespace: str) -> None:
    created = core.create_namespaced_pod(namespace, pod("one", labels={"a": "b"}))
    assert core.read_namespaced_pod("one", namespace).metadata.uid == created.metadata.uid
    assert [item.metadata.name for item in core.list_namespaced_pod(namespace, label_selector="a=b").items] == ["one"]
    assert "one" in [item.metadata.name for item in core.list_pod_for_all_namespaces().items]
    patched = core.patch_namespaced_pod("one", namespace, {"metadata": {"annotations": {"c": "d"}}})
    assert patched.metadata.annotations == {"c": "d"}
    patched.metadata.labels = {"a": "e"}
    assert core.replace_namespaced_pod("one", namespace, patched).metadata.labels == {"a": "e"}
    patched.metadata.labels = {"a": "f"}
    assert code_of(core.replace_namespaced_pod, "one", namespace, patched) == 409
    status = core.patch_namespaced_pod_status("one", namespace, {"status": {"phase": "Running"}})
    assert status.status.phase == "Running"
    assert core.read_namespaced_pod_status("one", namespace).status.phase == "Running"
    status.status.message = "hello"
    assert core.replace_namespaced_pod_status("one", namespace, status).status.message == "hello"
    assert "no processes" in core.read_namespaced_pod_log("one", namespace)
    assert core.delete_namespaced_pod("one", namespace).metadata.name == "one"
    assert code_of(core.read_namespaced_pod, "one", namespace) == 404


def test_binding_and_eviction(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("one"))
    body = binding("one", "n1", annotations={"a": "b"})
    core.create_namespaced_pod_binding("one", namespace, body, _preload_content=False)
    bound = core.read_namespaced_pod("one", namespace)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("n1", {"a": "b"})
    assert code_of(core.create_namespaced_pod_binding, "one", namespace, body, _preload_content=False) == 409
    core.create_namespaced_pod_eviction("one", namespace, client.V1Eviction(metadata={"name": "one"}))
    assert core.read_namespaced_pod("one", namespace).metadata.deletion_grace_period_seconds == 30


def test_every_verb_of_nodes(core: client.CoreV1Api, namespace: str) -> None:
    name = f"node-{namespace}"
    core.create_node({"metadata": {"name": name}})
    assert core.patch_node(name, {"spec": {"unschedulable": True}}).spec.unschedulable
    assert name in [node.metadata.name for node in core.list_node(field_selector="spec.unschedulable=true").items]
    conditions = [{"type": "Ready", "status": "True"}]
    assert core.patch_node_status(name, {"status": {"conditions": conditions}}).status.conditions[0].type == "Ready"
    node = core.read_node(name)
    node.spec.unschedulable = None
    assert core.replace_node(name, node).spec.unschedulable is None
    assert core.delete_node(name)["status"] == "Success"


def test_every_verb_of_config_maps(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("one", a="b"))
    core.create_namespaced_config_map(namespace, config_map("two"))
    patched = core.patch_namespaced_config_map("one", namespace, {"data": {"c": "d"}})
    assert patched.data == {"a": "b", "c": "d"}
    patched.data = {"e": "f"}
    assert core.replace_namespaced_config_map("one", namespace, patched).data == {"e": "f"}
    core.delete_namespaced_config_map("one", namespace)
    core.delete_collection_namespaced_config_map(namespace)
    assert core.list_namespaced_config_map(namespace).items == []


def test_every_verb_of_leases(api: client.ApiClient, namespace: str) -> None:
    leases = client.CoordinationV1Api(api)
    spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15)
    lease = leases.create_namespaced_lease(namespace, client.V1Lease(metadata={"name": "lock"}, spec=spec))
    lease.spec.holder_identity = "you"
    leases.replace_namespaced_lease("lock", namespace, lease)
    assert code_of(leases.replace_namespaced_lease, "lock", namespace, lease) == 409
    assert leases.read_namespaced_lease("lock", namespace).spec.holder_identity == "you"
    assert (
        leases.patch_namespaced_lease("lock", namespace, {"spec": {"leaseTransitions": 1}}).spec.lease_transitions == 1
    )
    assert len(leases.list_namespaced_lease(namespace).items) == 1
    assert code_of(leases.create_namespaced_lease, namespace, client.V1Lease(metadata={"name": "lock"})) == 409
    leases.delete_namespaced_lease("lock", namespace)


def test_every_verb_of_priority_classes(api: client.ApiClient, namespace: str) -> None:
    classes, name = client.SchedulingV1Api(api), f"class-{namespace}"
    classes.create_priority_class(client.V1PriorityClass(metadata={"name": name}, value=10))
    assert classes.read_priority_class(name).value == 10
    assert {"system-cluster-critical", name} <= {item.metadata.name for item in classes.list_priority_class().items}
    assert classes.patch_priority_class(name, {"description": "ten"}).description == "ten"
    classes.delete_priority_class(name)


def test_events_of_both_groups(api: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    about = client.V1ObjectReference(kind="Pod", name="one", namespace=namespace)
    event = client.CoreV1Event(metadata={"name": "e"}, involved_object=about, message="hello", type="Normal")
    core.create_namespaced_event(namespace, event)
    assert core.list_namespaced_event(namespace, field_selector="involvedObject.name=one").items[0].message == "hello"
    newer = client.EventsV1Api(api)
    found = newer.read_namespaced_event("e", namespace, _preload_content=False).json()
    assert (found["note"], found["regarding"]["name"]) == ("hello", "one")
    newer.delete_namespaced_event("e", namespace)


def test_namespaces(core: client.CoreV1Api, namespace: str) -> None:
    names = {item.metadata.name for item in core.list_namespace().items}
    assert {"default", "kube-system", namespace} <= names
    core.delete_namespace(namespace)
    assert code_of(core.read_namespace, namespace) == 404


def test_pages(core: client.CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names.append([item.metadata.name for item in page.items])
        token = page.metadata._continue or ""
    assert names == [["c0", "c1"], ["c2", "c3"], ["c4"]]


def test_a_watch_follows_a_list(core: client.CoreV1Api, namespace: str) -> None:
    start = core.list_namespaced_pod(namespace).metadata.resource_version
    core.create_namespaced_pod(namespace, pod("one"))
    core.delete_namespaced_pod("one", namespace)
    stream = watch.Watch().stream(core.list_namespaced_pod, namespace, resource_version=start, timeout_seconds=1)
    assert [(event["type"], event["object"].metadata.name) for event in stream] == [
        ("ADDED", "one"),
        ("DELETED", "one"),
    ]


def test_a_watch_of_an_expired_version_raises(core: client.CoreV1Api, namespace: str) -> None:
    stream = watch.Watch().stream(core.list_namespaced_pod, namespace, resource_version="1", timeout_seconds=1)
    with pytest.raises(ApiException) as refusal:
        list(stream)
    assert refusal.value.status == 410
