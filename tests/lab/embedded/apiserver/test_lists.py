"""Lists: selectors, pages, versions and tables."""

import pytest

from hived_lab.embedded.apiserver.server import ApiServer
from tests.lab.embedded.helpers import TABLE, Http, api_server, config_map, pod


def names(answer: dict) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_a_list_is_ordered_by_namespace_and_name(http: Http, config_maps: str) -> None:
    for name in ("b", "a.b", "a", "c"):
        http.ok("POST", config_maps, config_map(name))
    answer = http.ok("GET", config_maps)
    assert (answer["kind"], answer["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(answer) == ["a", "a.b", "b", "c"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=a", ["one"]),
        ("tier==a", ["one"]),
        ("tier!=a", ["three", "two"]),
        ("tier in (a, b)", ["one", "two"]),
        ("tier notin (a,b)", ["three"]),
        ("tier", ["one", "two"]),
        ("!tier", ["three"]),
        ("rank>1", ["two"]),
        ("rank<2,tier=a", ["one"]),
        ("tier=a,tier=b", []),
        ("example.com/x=", ["three"]),
    ],
)
def test_labels_select(http: Http, config_maps: str, selector: str, expected: list[str]) -> None:
    http.ok("POST", config_maps, config_map("one", {"tier": "a", "rank": "1"}))
    http.ok("POST", config_maps, config_map("two", {"tier": "b", "rank": "2"}))
    http.ok("POST", config_maps, config_map("three", {"example.com/x": ""}))
    assert names(http.ok("GET", config_maps, labelSelector=selector)) == expected


def test_a_selector_of_labels_that_cannot_be_read_is_refused(http: Http, config_maps: str) -> None:
    code, said = http.call("GET", config_maps, labelSelector="tier=a=b")[:2]
    assert (code, "unable to parse label selector 'tier=a=b'" in said["message"]) == (400, True)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=one", ["one"]),
        ("metadata.name!=one", ["three", "two"]),
        ("spec.nodeName=n1", ["two"]),
        ("spec.nodeName=", ["one", "three"]),
        ("spec.schedulerName=other", ["three"]),
        ("status.phase!=Succeeded,status.phase!=Failed", ["one", "three", "two"]),
        ("status.phase=Running", []),
    ],
)
def test_fields_select(http: Http, pods: str, selector: str, expected: list[str]) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", pods, pod("two", nodeName="n1"))
    http.ok("POST", pods, pod("three", schedulerName="other"))
    assert names(http.ok("GET", pods, fieldSelector=selector)) == expected


def test_a_namespace_can_be_selected_in_a_list_of_all(http: Http, namespace: str, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", "/api/v1/namespaces/default/pods", pod(f"in-{namespace}"))
    assert names(http.ok("GET", "/api/v1/pods", fieldSelector=f"metadata.namespace={namespace}")) == ["one"]
    assert {"one", f"in-{namespace}"} <= set(names(http.ok("GET", "/api/v1/pods")))


def test_pages_show_one_moment_whatever_changes_in_between(http: Http, config_maps: str) -> None:
    for number in range(7):
        http.ok("POST", config_maps, config_map(f"c{number}", v="old"))
    first = http.ok("GET", config_maps, limit=3)
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["c0", "c1", "c2"], 4)
    http.ok("DELETE", f"{config_maps}/c3")
    http.patch(f"{config_maps}/c4", {"data": {"v": "new"}})
    http.ok("POST", config_maps, config_map("c35"))
    second = http.ok("GET", config_maps, limit=3, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c3", "c4", "c5"]
    assert {item["data"]["v"] for item in second["items"]} == {"old"}
    last = http.ok("GET", config_maps, limit=3, **{"continue": second["metadata"]["continue"]})
    assert names(last) == ["c6"]
    assert "continue" not in last["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, last)} == {
        first["metadata"]["resourceVersion"]
    }


def test_a_list_can_be_asked_for_at_an_exact_version(http: Http, config_maps: str) -> None:
    before = http.ok("POST", config_maps, config_map("one"))["metadata"]["resourceVersion"]
    http.ok("POST", config_maps, config_map("two"))
    exact = {"resourceVersion": before, "resourceVersionMatch": "Exact"}
    assert names(http.ok("GET", config_maps, **exact)) == ["one"]
    assert names(http.ok("GET", config_maps, resourceVersion=before)) == ["one", "two"]
    assert names(http.ok("GET", config_maps, resourceVersion="0")) == ["one", "two"]


@pytest.fixture
def forgetful() -> Http:
    with api_server(history_limit=5) as server:
        yield Http(server.port)


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_page_of_a_forgotten_moment_is_gone(forgetful: Http) -> None:
    for number in range(4):
        forgetful.ok("POST", CONFIG_MAPS, config_map(f"c{number}"))
    page = forgetful.ok("GET", CONFIG_MAPS, limit=2)
    for number in range(6):
        forgetful.patch(f"{CONFIG_MAPS}/c0", {"data": {"v": str(number)}})
    token = page["metadata"]["continue"]
    assert forgetful.refused("GET", CONFIG_MAPS, limit=2, **{"continue": token})[:2] == (410, "Expired")


def test_a_version_from_before_a_restart_is_gone_and_so_is_one_from_the_future(forgetful: Http) -> None:
    for version in ("1", "9" * 18):
        exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        assert forgetful.refused("GET", CONFIG_MAPS, **exact)[:2] == (410, "Expired")


def test_a_table_has_the_columns_that_kubectl_prints(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="n1"))
    _, table = http.call("GET", pods, headers={"Accept": TABLE})
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert table["kind"] == "Table"
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["one", "0/1", "Pending", "0"]
    assert row["cells"][columns.index("Node")] == "n1"
    assert row["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("include", "kind"), [("Object", "Pod"), ("Metadata", "PartialObjectMetadata"), ("None", None)]
)
def test_a_row_carries_what_is_asked_for(http: Http, pods: str, include: str, kind: str | None) -> None:
    http.ok("POST", pods, pod("one"))
    _, table = http.call("GET", f"{pods}/one", headers={"Accept": TABLE}, includeObject=include)
    assert table["rows"][0].get("object", {}).get("kind") == kind


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
        ("/api/v1/configmaps", ["Name", "Data", "Age"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]),
        (
            "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
            ["Name", "Phase", "MinMember", "Running", "Succeeded", "Failed", "Age"],
        ),
        ("/apis/scheduling.volcano.sh/v1beta1/podgroups", ["Name", "Status", "minMember", "Runnings", "Age"]),
        ("/apis/scheduling.k8s.io/v1alpha2/podgroups", ["Name", "Age"]),
    ],
)
def test_every_resource_has_a_table(http: Http, path: str, columns: list[str]) -> None:
    _, table = http.call("GET", path, headers={"Accept": TABLE})
    assert [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0] == columns


@pytest.mark.long
def test_a_thousand_objects_are_listed_in_a_moment(server: ApiServer, http: Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(1000):
        http.ok("POST", path, pod(f"p{number}"))
    answer = http.ok("GET", path, limit=500)
    assert len(answer["items"]) == 500
    assert answer["metadata"]["remainingItemCount"] == 500
    assert len(http.ok("GET", path)["items"]) == 1000
