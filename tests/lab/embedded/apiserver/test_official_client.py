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


@pytest.mark.parametrize(
    ("group", "noun", "body"),
    [
        ("CoreV1Api", "node", {"spec": {"podCIDR": "10.0.0.0/24"}}),
        ("CoreV1Api", "namespace", {}),
        ("CoreV1Api", "namespaced_config_map", {"data": {"a": "b"}}),
        ("CoordinationV1Api", "namespaced_lease", {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        ("SchedulingV1Api", "priority_class", {"value": 10}),
    ],
)
def test_every_verb_of_a_resource(
    api: client.ApiClient, namespace: str, group: str, noun: str, body: dict[str, Any]
) -> None:
    calls, name = getattr(client, group)(api), f"one-{namespace}"
    where = [namespace] if noun.startswith("namespaced_") else []

    def call(verb: str, *arguments: Any) -> Any:
        return getattr(calls, f"{verb}_{noun}")(*arguments)

    created = call("create", *where, {"metadata": {"name": name}, **body})
    assert call("read", name, *where).metadata.uid == created.metadata.uid
    assert name in [item.metadata.name for item in call("list", *where).items]
    patched = call("patch", name, *where, {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels["a"] == "b"
    patched.metadata.labels = {"c": "d"}
    assert call("replace", name, *where, patched).metadata.labels == {"c": "d"}
    assert code_of(call, "replace", name, *where, patched) == 409
    assert code_of(call, "create", *where, {"metadata": {"name": name}, **body}) == 409
    call("delete", name, *where)
    assert code_of(call, "read", name, *where) == 404


def test_events_of_both_groups(api: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    about = client.V1ObjectReference(kind="Pod", name="one", namespace=namespace)
    event = client.CoreV1Event(metadata={"name": "e"}, involved_object=about, message="hello", type="Normal")
    core.create_namespaced_event(namespace, event)
    assert core.list_namespaced_event(namespace, field_selector="involvedObject.name=one").items[0].message == "hello"
    newer = client.EventsV1Api(api)
    found = newer.read_namespaced_event("e", namespace, _preload_content=False).json()
    assert (found["note"], found["regarding"]["name"]) == ("hello", "one")
    newer.delete_namespaced_event("e", namespace)


def test_a_collection_is_listed_in_pages_and_deleted(core: client.CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{number}"))
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names.append([item.metadata.name for item in page.items])
        token = page.metadata._continue or ""
    assert names == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    core.delete_collection_namespaced_config_map(namespace)
    assert core.list_namespaced_config_map(namespace).items == []


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
