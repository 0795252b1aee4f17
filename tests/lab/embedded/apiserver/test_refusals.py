"""A refused request gets a `Status` with its code and reason, and changes nothing; some in the words of a real one."""

from functools import partial
from typing import Any

import pytest

from tests.lab.embedded.helpers import Http, binding, config_map, pod
from tests.lab.embedded.refusals import REFUSALS, TAKEN, Json, play

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HUGE = b" " * (3 * 1024 * 1024 + 1)
REASONS = {
    400: "BadRequest", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 406: "NotAcceptable",
    409: "Conflict", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
}  # fmt: skip


def named(**metadata: Any) -> Json:
    return {"metadata": {"name": "two", **metadata}}


def containers(*each: Json, **spec: Any) -> Json:
    return pod("two", containers=list(each), **spec)


def eviction(**options: Any) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}, "deleteOptions": options}


MAIN = {"name": "main", "image": "x"}
CONFIG_MAPS = [
    *((config_map(name), 422) for name in ("Upper", "under_score", "-dash", "dot.", "a" * 254, "a/b", "", " ")),
    ({"data": {}}, 422),
    (named(labels={"a b": "c"}), 422),
    (named(labels={"a": "b c"}), 422),
    (named(labels={"a": "x" * 64}), 422),
    (named(annotations={"a b": "c"}), 422),
    (named(annotations={"a": "x" * 262_144}), 422),
    *((body, 400) for body in (b"{", b"", b"[]", b'"text"', b"nul", b'{"metadata": []}')),
    *((named(**wrong), 400) for wrong in ({"name": 1}, {"labels": {"a": 1}}, {"namespace": "other"})),
    *((named(**wrong), 400) for wrong in ({"resourceVersion": "1"}, {"ownerReferences": [None]})),
    (named(ownerReferences=[{"controller": "yes"}]), 400),
    *(({**named(), **wrong}, 400) for wrong in ({"data": {"a": 1}}, {"kind": "Secret"}, {"apiVersion": "v2"})),
    *((b'{"metadata": {"name": "two"}, "x": ' + b"[" * deep + b"]" * deep + b"}", 400) for deep in (70, 100_000)),
    (b'{"metadata": {"name": "\xff"}}', 400),
    (HUGE, 413),
]
PODS = [
    *((containers(*each), 422) for each in ([], [{"name": "main"}], [{"image": "x"}], [MAIN, MAIN])),
    (containers({"name": "Main", "image": "x"}), 422),
    (pod("two", restartPolicy="Sometimes"), 422),
    (pod("two", terminationGracePeriodSeconds=-1), 422),
    (pod("two", workloadRef={"name": 5}), 400),
    (pod("two", schedulingGroup={"podGroupName": []}), 400),
    (pod("two", limits={"cpu": "lots"}), 400),
    *((pod("two", **{field: 3}), 400) for field in ("affinity", "tolerations", "topologySpreadConstraints")),
    (pod("two", priority=9), 403),
    (pod("two", preemptionPolicy="Never"), 403, "PreemptionPolicy (Never) must not be provided"),
    (pod("two", priorityClassName="nobody"), 403, "no PriorityClass with name nobody was found"),
]
BINDINGS = [
    ({**binding("one", "n1"), "target": {"name": ""}}, 422),
    ({**binding("one", "n1"), "target": {"kind": "Pod", "name": "x"}}, 422),
    ({**binding("one", "n1"), "kind": "Pod"}, 400),
    (binding("two", "n1"), 400),
    ({"target": "n1"}, 400),
    (binding("one", "n1", uid="other"), 409),
]
LISTS = [
    *({"labelSelector": text} for text in ("a in b", "a=b c", ",,")),
    *({"fieldSelector": text} for text in ("status.x=1", "metadata.name")),
    *({"limit": text} for text in ("-1", "many")),
    {"continue": "nonsense"},
    {"resourceVersion": "x"},
    {"watch": "maybe"},
    {"watch": "true", "timeoutSeconds": "soon"},
]
UNFIT_LISTS = [
    {"resourceVersionMatch": "Exact"},
    {"resourceVersionMatch": "Roughly", "resourceVersion": "1"},
    {"watch": "true", "sendInitialEvents": "true"},
]
PATCHES = [
    {"kind": "Secret"},
    {"apiVersion": "v2"},
    {"metadata": {"name": "two"}},
    {"data": {"a": 1}},
    [],
    "x",
    b"null",
]
UNKNOWN = (
    "/nothing", "/api/v2/pods", "/api/v1/secrets", "/api/v1/namespaces/default/nodes", "/api/v1/pods/one",
    "pods/one/log/more", "pods/one/scale", "/apis/apps/v1/daemonsets", "/api/v1/namespaces/default//one",
)  # fmt: skip
EVENT = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "one"}}

Row = tuple[Any, ...]
"""Method, path (below the namespace unless it begins with /), body, code, and perhaps a part of the message."""

ROWS: list[Row] = [
    *(("POST", "configmaps", *row) for row in CONFIG_MAPS),
    ("POST", "/api/v1/namespaces/nowhere/configmaps", named(), 404, 'namespaces "nowhere" not found'),
    ("PUT", "configmaps/one", {"metadata": {"name": "one", "uid": "other"}}, 409),
    ("PUT", "configmaps/one", named(), 400),
    ("DELETE", "configmaps/one", {"preconditions": {"uid": "other"}}, 409),
    ("DELETE", "configmaps/one", {"preconditions": {"resourceVersion": "1"}}, 409),
    ("DELETE", "configmaps/one", {"propagationPolicy": "Sideways"}, 422),
    ("DELETE", "configmaps/one?dryRun=Some", None, 422),
    *(("PATCH", "configmaps/one", patch, 400) for patch in PATCHES),
    ("DELETE", "/api/v1/namespaces/default", None, 403),
    ("POST", "events", EVENT, 422),
    *(("POST", "pods", *row) for row in PODS),
    ("POST", "pods?fieldValidation=Sometimes", pod("two"), 422),
    ("POST", "pods?fieldValidation=Strict", pod("two", contianers=[]), 400, 'unknown field "spec.contianers"'),
    *(("PATCH", "pods/one", {"spec": {field: "x"}}, 422) for field in ("nodeName", "schedulerName")),
    *(("POST", "pods/one/binding", *row) for row in BINDINGS),
    ("POST", "pods/two/binding", binding("two", "n1"), 404),
    ("POST", "pods/one/eviction", eviction(preconditions={"uid": "other"}), 409),
    *(("GET", f"pods/one/{below}", None, 400) for below in ("exec", "attach", "portforward", "proxy")),
    *(("POST", CLASSES, {**named(), "value": value}, 422) for value in (1_000_000_001, -(2**31) - 1)),
    ("POST", CLASSES, {**named(), "value": 1, "preemptionPolicy": "Maybe"}, 422),
    *(("GET", "pods", None, 400, "", parameters) for parameters in LISTS),
    *(("GET", "pods", None, 422, "", parameters) for parameters in UNFIT_LISTS),
    *(("POST", path, {}, 405) for path in ("/api/v1/pods", "pods/one", "/version")),
    *((method, path, {}, 405) for method, path in (("PUT", "pods"), ("OPTIONS", "pods"), ("GET", "pods/one/binding"))),
    *(("GET", path, None, 404) for path in UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(map(str, row))[:60])
def test_a_refused_request_changes_nothing(http: Http, namespace: str, pods: str, config_maps: str, row: Row) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", config_maps, config_map("one"))
    before = [http.ok("GET", path)["items"] for path in (pods, config_maps, CLASSES)]
    method, path, body, code, *more = row
    part, parameters = (more + ["", {}][len(more) :]) if len(more) < 2 else more
    where = path if path.startswith("/") else f"/api/v1/namespaces/{namespace}/{path}"
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    status, answer = http.call(method, where, body, headers, **parameters)
    assert (status, answer["kind"], answer["status"], answer["code"]) == (code, "Status", "Failure", code)
    assert (answer["reason"], part in answer["message"]) == (REASONS[code], True)
    assert [http.ok("GET", path)["items"] for path in (pods, config_maps, CLASSES)] == before


@pytest.mark.parametrize(
    ("method", "headers", "code", "part"),
    [
        ("POST", {"Content-Type": "application/yaml"}, 415, ""),
        ("PATCH", {"Content-Type": "application/apply-patch+yaml"}, 415, "client-side apply"),
        ("GET", {"Accept": "application/vnd.kubernetes.protobuf"}, 406, ""),
        ("GET", {"Host": "evil.example"}, 403, ""),
        ("GET", {"Origin": "http://evil.example"}, 403, ""),
    ],
)
def test_a_request_of_the_wrong_kind_is_refused(
    http: Http, config_maps: str, method: str, headers: dict[str, str], code: int, part: str
) -> None:
    http.ok("POST", config_maps, config_map("one"))
    path = config_maps if method == "POST" else f"{config_maps}/one"
    status, answer = http.call(method, path, None if method == "GET" else b"a: b", headers)
    assert (status, answer["reason"], part in answer["message"]) == (code, REASONS[code], True)


def call(http: Http, method: str, path: str, body: Json) -> tuple[int, Any]:
    return http.patch(path, body, "strategic-merge-patch") if method == "PATCH" else http.call(method, path, body)


@pytest.mark.parametrize("name", [*REFUSALS, *TAKEN])
def test_a_request_is_answered_as_by_a_real_api_server(http: Http, namespace: str, name: str) -> None:
    play({**REFUSALS, **TAKEN}[name], partial(call, http), namespace)
