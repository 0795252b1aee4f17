"""Whatever is sent, the answer is a Status of the 400s or a success, and the server goes on."""

import copy
import json
import socket
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hived_lab.embedded.apiserver.registry import Registry
from hived_lab.embedded.apiserver.resources import PODS, RESOURCES, ResourceType
from hived_lab.embedded.apiserver.rest import TABLE, Request, Response, Rest
from hived_lab.embedded.apiserver.store import Store
from tests.expecting import PATIENCE_S
from tests.lab.embedded.helpers import Http, binding, pod
from tests.property.examples import examples

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]
MEDIA_TYPES = [
    "application/json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
]
PARAMETERS = [
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "watch", "dryRun",
    "fieldValidation", "gracePeriodSeconds", "propagationPolicy", "sendInitialEvents", "timeoutSeconds",
    "allowWatchBookmarks", "includeObject",
]  # fmt: skip

words = ["one", "default", "kube-system", "", "true", "0", "1", "9" * 30, "a=b", "a in (b", "\x00é%"]
texts = st.sampled_from(words) | st.text(max_size=8)
plurals = sorted({one.plural for one in RESOURCES})
segments = st.sampled_from([*plurals, "namespaces", "bindings", "status", "binding", "eviction", "log"]) | texts
group_paths = sorted({one.base_path for one in RESOURCES})
roots = st.sampled_from([path.strip("/").split("/") for path in [*group_paths, "/api/v1/namespaces/default"]])
paths = st.tuples(roots, st.lists(segments, max_size=3)).map(lambda pair: pair[0] + pair[1])
field_names = st.sampled_from(
    [
        "apiVersion", "kind", "metadata", "name", "namespace", "generateName", "labels", "annotations", "finalizers",
        "uid", "resourceVersion", "spec", "containers", "image", "resources", "limits", "status", "conditions", "type",
        "target", "deleteOptions", "preconditions", "data", "value", "involvedObject", "regarding", "series", "op",
        "path", "nodeName", "schedulingGates", "deletionTimestamp", "gracePeriodSeconds",
    ]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(field_names | texts, inner, max_size=5),
    max_leaves=20,
)
SOUND = [
    pod("two", limits={"cpu": 1}, labels={"a": "b"}, schedulingGates=[{"name": "x"}]),
    {**pod("one"), "status": {"conditions": [{"type": "Ready"}], "containerStatuses": [{"name": "main", "state": {}}]}},
    binding("one", "n1", annotations={"a": "b"}),
    {"metadata": {"name": "n1"}, "spec": {"taints": []}, "status": {"capacity": {"cpu": 1}, "addresses": [{}]}},
    {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "series": {"count": 1}, "source": {}},
    {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}},
    {"metadata": {"name": "c", "finalizers": ["a/b"]}, "data": {"a": "b"}, "binaryData": {"c": ""}},
    {"metadata": {"name": "p"}, "value": 1, "globalDefault": True},
]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) inside `value`."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A sound object with one part of it, at any depth, replaced by nonsense."""
    body = copy.deepcopy(draw(st.sampled_from(SOUND)))
    container, key = draw(st.sampled_from(_places(body)))
    container[key] = draw(values)
    return body


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _versions(registry: Registry) -> dict[str, Any]:
    return {
        one.collection_name: {key: revision.version for key, revision in registry.collection(one).revisions.items()}
        for one in RESOURCES
    }


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    method=st.sampled_from(METHODS),
    parts=paths | st.lists(texts, max_size=5),
    query=st.dictionaries(st.sampled_from(PARAMETERS), texts, max_size=3),
    content_type=st.sampled_from(MEDIA_TYPES),
    accept=st.sampled_from(["application/json", TABLE, "*/*", "text/html", "", ";;=,"]),
    body=st.binary(max_size=40) | (values | spoilt()).map(_encoded),
)
def test_any_request_is_served_or_refused_and_a_refused_one_changes_nothing(
    method: str, parts: list[str], query: dict[str, str], content_type: str, accept: str, body: bytes
) -> None:
    registry = Registry(Store(1))
    registry.create(PODS, {**pod("one"), "metadata": {"name": "one", "namespace": "default"}})
    rest = Rest(registry, 30.0)
    before = _versions(registry)
    path, text = "/" + "/".join(quote(part) for part in parts), urlencode(query)
    answer = rest.handle(Request(method, path, text, {"content-type": content_type, "accept": accept}, body))
    if isinstance(answer, Response) and answer.code >= 300:
        assert 400 <= answer.code < 500
        assert json.loads(answer.content)["kind"] == "Status"
        assert _versions(registry) == before


@settings(max_examples=examples(300), deadline=None)
@given(
    resource=st.sampled_from(RESOURCES),
    body=spoilt(),
    patch=values,
    kind=st.sampled_from(MEDIA_TYPES[1:4]),
    subresource=st.sampled_from(["", "/status", "/binding", "/eviction"]),
)
def test_whatever_got_in_can_still_be_listed(
    resource: ResourceType, body: Any, patch: Any, kind: str, subresource: str
) -> None:
    rest = Rest(Registry(Store(1)), 30.0)
    scope = "/namespaces/default" if resource.is_namespaced else ""
    path = f"{resource.base_path}{scope}/{resource.plural}"
    rest.handle(Request("POST", path, body=_encoded(body)))
    for name in ("one", "two", "n1", "e", "l", "c", "p"):
        target = f"{path}/{name}{subresource}"
        rest.handle(Request("PATCH", target, headers={"content-type": kind}, body=_encoded(patch)))
        rest.handle(Request("POST", target, body=_encoded(body)))
        rest.handle(Request("PUT", target, body=_encoded(body)))
    for accept in ("application/json", TABLE):
        listed = rest.handle(Request("GET", path, "fieldSelector=metadata.name!=x", {"accept": accept}))
        assert isinstance(listed, Response)
        assert listed.code == 200
        json.loads(listed.content)


@pytest.mark.parametrize("field", ["spec", "status", "metadata"])
@pytest.mark.parametrize(
    "value", [[], "x", 1, {"conditions": "x"}, {"containerStatuses": [1]}, {"labels": []}, {"priority": "x"}]
)
def test_a_pod_cannot_be_patched_into_nonsense(http: Http, pods: str, field: str, value: Any) -> None:
    http.ok("POST", pods, pod("one"))
    status, _ = http.patch(f"{pods}/one/status", {field: value})
    assert status < 500
    for accept in ("application/json", TABLE):
        assert http.call("GET", "/api/v1/pods", headers={"Accept": accept})[0] == 200


@pytest.mark.parametrize(
    "data", [b"\x00" * 20, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n"]
)
def test_the_server_survives_what_is_not_even_http(http: Http, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", http.port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100)[:12] in (b"", b"HTTP/1.1 400")
    assert http.call("GET", "/readyz") == (200, "ok")


def test_a_body_that_never_ends_holds_nobody_up(http: Http) -> None:
    with socket.create_connection(("127.0.0.1", http.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"POST /api/v1/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert http.call("GET", "/readyz") == (200, "ok")
