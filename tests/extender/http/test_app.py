"""Every path through Flask's test client: shapes, names and errors as the reference has them; Flask is made late."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import Client

from hived.kernels.jit import kernels_in_use
from hived_extender.api import paths
from hived_extender.api.paths import (
    CONFIG_PATH,
    DEFRAG_PATH,
    HISTORY_PATH,
    INPUTS_PATH,
    MOVES_PATH,
    PAGE_PATH,
    QUEUE_PATHS,
    RECORD_PATH,
    STATUS_PATH,
)
from hived_extender.http import app
from hived_extender.http.access import Gate, gate_of
from hived_extender.http.app import create_app
from hived_extender.http.routes import ROUTES
from hived_extender.http.shim import LateApp
from hived_extender.machine.verbs import RECOVERING
from tests.extender.machine.small_cluster import SmallCluster, filter_body, pod_json, preempt_body, spec_text
from tests.places import ROOT
from tests.property.examples import examples

DOCS = (ROOT / "docs" / "http.md").read_text()
INSPECT = "/v1/inspect"
WITH_PARTS = (CONFIG_PATH, DEFRAG_PATH, INPUTS_PATH, MOVES_PATH, STATUS_PATH, *QUEUE_PATHS)
SERVED = [route for route in ROUTES if not route.path.startswith(WITH_PARTS)]
"""The paths that exist without a configuration to show, plans for moves, the status, and queues."""


@pytest.fixture
def small() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def client(small: SmallCluster) -> FlaskClient:
    return create_app(small.service).test_client()


def get(client: FlaskClient, path: str) -> Any:
    response = client.get(path)
    assert (response.status_code, response.content_type) == (200, "application/json")
    return response.json


def post(client: FlaskClient, path: str, body: bytes | str | dict[str, Any]) -> Any:
    response = client.post(path, data=json.dumps(body) if isinstance(body, dict) else body)
    assert response.content_type == "application/json"
    return response.status_code, response.json


def bind_body(pod: Any, node: str) -> dict[str, str]:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


def test_the_root_lists_each_path_once(client: FlaskClient) -> None:
    paths = get(client, "/")["paths"]
    assert len(paths) == len(set(paths))
    assert set(paths) == {route.path for route in ROUTES}


def test_a_pod_goes_through_filter_and_bind(small: SmallCluster, client: FlaskClient) -> None:
    pod = small.create("p")
    assert post(client, "/v1/extender/filter", filter_body(pod)) == (
        200,
        {"Nodes": None, "NodeNames": ["n0"], "FailedNodes": None, "FailedAndUnresolvableNodes": None, "Error": ""},
    )
    assert post(client, "/v1/extender/bind", bind_body(pod, "n0")) == (200, {"Error": ""})
    assert small.kube.pods["p"]["spec"]["nodeName"] == "n0"


def test_preempt_answers_meta_victims(small: SmallCluster, client: FlaskClient) -> None:
    small.place("low-0")
    small.place("low-1")
    pod = small.create("high", spec_text(priority=1))
    status, answer = post(client, "/v1/extender/preempt", preempt_body(pod, ["n0"]))
    assert status == 200
    assert answer == {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "uid-low-0"}], "NumPDBViolations": 0}}}


@pytest.mark.parametrize("verb", ["filter", "bind"])
def test_filter_and_bind_report_errors_inside_a_200_answer(client: FlaskClient, verb: str) -> None:
    status, answer = post(client, f"/v1/extender/{verb}", b"{")
    assert status == 200
    assert "not valid" in answer["Error"]


def test_preempt_reports_errors_as_a_status_and_a_json_string(client: FlaskClient) -> None:
    status, answer = post(client, "/v1/extender/preempt", preempt_body(pod_json("stranger")))
    assert status == 400
    assert "is not known" in answer


def test_groups_are_null_when_there_are_none(client: FlaskClient) -> None:
    assert get(client, f"{INSPECT}/affinitygroups/") == {"items": None}


@pytest.mark.parametrize("name", ["plain", "ns/p", "user~job/default", "/a", "a//b", "a/", "ü %/?#", "..", "%2F"])
def test_a_group_is_found_whatever_its_name(small: SmallCluster, client: FlaskClient, name: str) -> None:
    small.place("p", spec_text(group=name))
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    group = get(client, f"{INSPECT}/affinitygroups/{quoted}")
    assert group["metadata"]["name"] == f"ns:{name}"
    assert group["status"]["allocatedPods"] == ["uid-p"]
    assert get(client, f"{INSPECT}/affinitygroups/") == {"items": [group]}


def test_an_unknown_group_and_an_unknown_vc_are_errors_with_a_json_string(client: FlaskClient) -> None:
    for path, message in (
        ("affinitygroups/none", "Affinity group none does not exist since it is not allocated or preempting"),
        ("clusterstatus/virtualclusters/none", "VC none not found"),
    ):
        response = client.get(f"{INSPECT}/{path}")
        assert response.status_code == 400
        assert response.json == message


def test_the_cluster_is_its_physical_and_its_virtual_half(small: SmallCluster, client: FlaskClient) -> None:
    small.place("p")
    cluster = get(client, f"{INSPECT}/clusterstatus")
    assert cluster == {
        "physicalCluster": get(client, f"{INSPECT}/clusterstatus/physicalcluster"),
        "virtualClusters": get(client, f"{INSPECT}/clusterstatus/virtualclusters/"),
    }
    assert list(cluster["virtualClusters"]) == ["a", "b", "empty"]
    assert cluster["virtualClusters"]["empty"] == []
    assert cluster["virtualClusters"]["a"] == get(client, f"{INSPECT}/clusterstatus/virtualclusters/a")
    (rack,) = cluster["physicalCluster"]
    assert [(cell["cellAddress"], cell["cellState"]) for cell in rack["cellChildren"]] == [
        ("0/n0", "Used"),
        ("0/n1", "Free"),
        ("0/n2", "Free"),
        ("0/n3", "Free"),
    ]


@pytest.mark.parametrize("route", [route for route in SERVED if route.method == "GET" and "{" not in route.path])
def test_a_slash_at_the_end_makes_no_difference(client: FlaskClient, route: Any) -> None:
    expected = 404 if route.path in {HISTORY_PATH, RECORD_PATH} else 200  # this service keeps neither
    bare = client.get(route.path.rstrip("/") or "/")
    assert bare.status_code == client.get(route.path.rstrip("/") + "/").status_code == expected


def test_health_and_readiness_follow_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster(is_leading=False)
    client = create_app(small.service).test_client()
    assert client.get("/healthz").status_code == 200
    assert (client.get("/readyz").status_code, client.get("/readyz").json) == (
        503,
        {"status": "not ready", "reason": RECOVERING, "kernels": kernels_in_use()},
    )
    small.lead()
    assert client.get("/readyz").status_code == 200

    def explode(*_: object) -> None:
        raise IndexError("boom")

    pod = small.create("p")
    monkeypatch.setattr("hived_extender.machine.core.handle", explode)
    assert "IndexError: boom" in post(client, "/v1/extender/filter", filter_body(pod))[1]["Error"]
    assert post(client, "/v1/extender/preempt", preempt_body(pod))[0] == 500
    assert "IndexError: boom" in post(client, "/v1/extender/bind", bind_body(pod, "n0"))[1]["Error"]
    assert (client.get("/healthz").status_code, client.get("/healthz").json["fault"]) == (500, "IndexError: boom")
    assert client.get("/readyz").status_code == 503


def test_metrics_are_in_the_format_of_prometheus(small: SmallCluster, client: FlaskClient) -> None:
    post(client, "/v1/extender/filter", filter_body(small.create("p")))
    response = client.get("/metrics")
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert 'hived_decisions_total{outcome="bind",verb="filter"} 1.0' in response.text
    assert 'hived_leaf_cells{use="used",vc="a"} 4.0' in response.text


def test_every_metric_is_documented(small: SmallCluster, client: FlaskClient) -> None:
    names = {line.split()[2] for line in client.get("/metrics").text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in names if not name.endswith("_created") and f"`{name}`" not in DOCS} == set()


def test_every_path_is_documented(client: FlaskClient) -> None:
    rules = {rule.rule.replace("<rest:name>", "{name}") for rule in client.application.url_map.iter_rules()}
    paths = {rule for rule in rules if not rule.startswith(f"{PAGE_PATH}/")}  # those of pages are for browsers alone
    assert paths == {route.path for route in SERVED}
    headings = {line for line in DOCS.splitlines() if line.startswith("### ")}
    assert headings == {f"### {route.method} {route.path}" for route in ROUTES}


def test_the_openapi_document_describes_every_path_with_resolvable_references(client: FlaskClient) -> None:
    document = get(client, "/openapi.json")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    schemas = document["components"]["schemas"]
    references = set(_references(document))
    assert references
    assert {reference.removeprefix("#/components/schemas/") for reference in references} <= set(schemas)


def test_the_openapi_document_knows_what_a_replica_answers_that_does_not_lead() -> None:
    client = create_app(SmallCluster(is_leading=False).service).test_client()
    document = get(client, "/openapi.json")
    for route in SERVED:
        if route.method == "GET":
            status = str(client.get(route.path.replace("{name}", "x")).status_code)
            assert status in document["paths"][route.path]["get"]["responses"], route.path
    schema = document["paths"]["/readyz"]["get"]["responses"]["503"]["content"]["application/json"]["schema"]
    properties = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
    assert set(client.get("/readyz").json) <= set(properties)


def _references(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_no_path_deletes() -> None:
    """Rule 34.3."""
    assert {route.method for route in ROUTES} == {"GET", "POST"}


def test_unknown_paths_and_wrong_methods_answer_a_json_string(client: FlaskClient) -> None:
    for method, path, status in (("GET", "/v2", 404), ("GET", "/v1/extender/filter", 405), ("DELETE", "/", 405)):
        response = client.open(path, method=method)
        assert response.status_code == status
        assert isinstance(response.json, str)


def test_a_body_that_is_too_large_is_refused(client: FlaskClient) -> None:
    client.application.config["MAX_CONTENT_LENGTH"] = 10
    response = client.post("/v1/extender/preempt", data=b"x" * 11)
    assert (response.status_code, response.json) == (413, "Request Entity Too Large: POST /v1/extender/preempt")


PODS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "uid", "name", "annotations", "nodeName"]) | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


class TestPoison:
    """Whatever is posted anywhere: an answer, and the state stays as it was."""

    small: SmallCluster
    client: FlaskClient
    before: Any

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def shared(cls) -> None:
        cls.small = SmallCluster()
        cls.small.place("q")
        cls.small.create("p", "")
        cls.client = create_app(cls.small.service).test_client()
        cls.before = cls.small.snapshot()

    def check(self, path: str, body: bytes, *, may_pass: bool = False) -> None:
        """`may_pass`: the body may be a pod of others, which is let pass without an error."""
        response = self.client.post(path, data=body)
        assert response.status_code < 500
        if response.status_code == 200:
            answer = response.json
            assert isinstance(answer, dict)
            assert may_pass or answer["Error"]
        assert self.small.snapshot() == self.before
        assert self.small.service.is_ready

    @given(st.sampled_from([route.path for route in ROUTES] + ["/x"]), st.binary(max_size=300))
    @settings(max_examples=examples(150), deadline=None)
    def test_any_bytes_to_any_path(self, path: str, body: bytes) -> None:
        self.check(path, body)

    @given(st.sampled_from(["filter", "preempt", "bind"]), PODS, PODS, PODS)
    @settings(max_examples=examples(150), deadline=None)
    def test_any_json_for_a_pod(self, verb: str, pod: Any, nodes: Any, victims: Any) -> None:
        body = {"Pod": pod, "NodeNames": nodes, "NodeNameToMetaVictims": victims, "PodUID": pod, "Node": nodes}
        self.check(
            f"/v1/extender/{verb}", json.dumps(body).encode(), may_pass=isinstance(pod, dict) and "metadata" in pod
        )

    @pytest.mark.parametrize(
        ("verb", "passed"), [("filter", {"NodeNames": ["n0"]}), ("preempt", {"NodeNameToMetaVictims": {}})]
    )
    def test_a_pod_without_any_word_of_ours_passes(self, verb: str, passed: dict[str, Any]) -> None:
        answer = post(self.client, f"/v1/extender/{verb}", {"Pod": {"metadata": {}}, "NodeNames": ["n0"]})
        assert passed.items() <= answer[1].items()

    @given(annotation=st.text(max_size=200))
    @settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
    def test_any_annotation_on_a_pod_that_waits(self, annotation: str) -> None:
        self.check("/v1/extender/filter", filter_body(pod_json("p", annotation)))

    @pytest.mark.parametrize(
        "annotation",
        [
            "[" * 120_000,
            "- " * 60_000,
            "{" * 200_000,
            "virtualCluster: a\nleafCellNumber: " + "9" * 100_000,
            "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]" * 50,
            "x" * 10_000_000,
            spec_text(vc="\x00"),
            spec_text(leaf_cells=2**31),
            spec_text(group="g", pods=2**40),
            spec_text(vc="a" * 100_000),
            "!!python/object/apply:os.system ['true']",
            "\ufeff\u0085\u2028",
        ],
    )
    def test_annotations_made_to_hurt(self, annotation: str) -> None:
        self.check("/v1/extender/filter", filter_body(pod_json("p", annotation)))

    @given(spec=st.text(max_size=100) | st.just(spec_text()), info=st.text(max_size=100), isolation=st.text(max_size=9))
    @settings(max_examples=examples(100), deadline=None)
    def test_any_annotations_on_a_pod_that_is_bound(self, spec: str, info: str, isolation: str) -> None:
        prefix = "hivedscheduler.microsoft.com/pod-"
        notes = {f"{prefix}bind-info": info, f"{prefix}leaf-cell-isolation": isolation}
        self.small.create("r", spec, node="n1", annotations=notes)
        self.small.service.pod_gone("uid-r")
        assert self.small.snapshot() == self.before
        assert self.small.service.is_ready

    @given(path=st.text(max_size=60))
    @settings(max_examples=examples(100), deadline=None)
    def test_any_path(self, path: str) -> None:
        response = self.client.get("/" + "".join(f"%{byte:02X}" for byte in path.encode("utf-8", "surrogatepass")))
        assert response.status_code in {200, 400, 404, 405}
        response.get_data()


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", [paths.READINESS_PATH, "/v1/inspect/clusterstatus", "/nowhere"])
def test_it_answers_as_the_application_itself(path: str) -> None:
    service = SmallCluster().service
    answers = [Client(each).get(path) for each in (LateApp(service), create_app(service))]
    assert answers[0].status_code == answers[1].status_code
    assert answers[0].data == answers[1].data


def test_it_has_the_gate_that_it_was_given() -> None:
    gate = Gate()
    assert gate_of(LateApp(SmallCluster().service, gate)) is gate


def test_it_is_made_once_for_requests_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(app, "create_app", lambda *given: made.append(given) or create_app(*given))
    client = Client(LateApp(SmallCluster().service))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.get("/healthz"), range(16)))
    assert len(made) == 1


def test_a_replica_does_not_import_flask_before_somebody_needs_it() -> None:
    code = "import sys, hived_extender.running; print('flask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("path", ["/v1/inspect/jobs", "/v1/inspect/jobs?user=ann"])
def test_jobs_of_a_caller_whom_nobody_knows_are_refused(path: str) -> None:
    client = create_app(SmallCluster().service).test_client()
    response = client.get(path + ("&" if "?" in path else "?") + "me=")
    assert (response.status_code, "me=''" in response.text) == (400, True)
    assert client.get("/v1/inspect/jobs?me=ann").status_code == 200
