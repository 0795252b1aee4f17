"""Creating, reading, changing and deleting objects by plain HTTP."""

import socket

import pytest

from tests.expecting import PATIENCE_S, expect_soon
from tests.lab.embedded.helpers import JSON, Http, api_server, config_map, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_created_object_is_read_back_with_what_the_server_adds(http: Http, config_maps: str) -> None:
    created = http.ok("POST", config_maps, config_map("one", a="b"))
    assert created["data"] == {"a": "b"}
    assert {"uid", "resourceVersion", "creationTimestamp"} <= created["metadata"].keys()
    assert http.ok("GET", f"{config_maps}/one") == created


def test_a_name_is_generated_from_its_base(http: Http, config_maps: str) -> None:
    names = {
        http.ok("POST", config_maps, {"metadata": {"generateName": "job-"}})["metadata"]["name"] for _ in range(20)
    }
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_a_second_object_of_the_same_name_is_refused(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one"))
    assert http.refused("POST", config_maps, config_map("one"))[:2] == (409, "AlreadyExists")


def test_nulls_are_absent(http: Http, config_maps: str) -> None:
    body = {"metadata": {"name": "one", "creationTimestamp": None, "labels": None}, "data": None}
    assert "data" not in http.ok("POST", config_maps, body)


def test_json_is_answered_to_those_who_would_rather_have_protobuf(http: Http, config_maps: str) -> None:
    accept = f"application/vnd.kubernetes.protobuf, {JSON}"
    assert http.call("GET", config_maps, headers={"Accept": accept})[0] == 200


def test_an_update_replaces_the_object(http: Http, config_maps: str) -> None:
    created = http.ok("POST", config_maps, config_map("one", a="b"))
    updated = http.ok("PUT", f"{config_maps}/one", config_map("one", c="d"))
    assert updated["data"] == {"c": "d"}
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert updated["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


def test_an_update_of_an_older_version_is_a_conflict(http: Http, config_maps: str) -> None:
    created = http.ok("POST", config_maps, config_map("one", a="b"))
    http.ok("PUT", f"{config_maps}/one", {**created, "data": {"a": "c"}})
    assert http.refused("PUT", f"{config_maps}/one", {**created, "data": {"a": "d"}})[:2] == (409, "Conflict")
    assert http.ok("GET", f"{config_maps}/one")["data"] == {"a": "c"}


def test_an_update_that_changes_nothing_makes_no_version(http: Http, config_maps: str) -> None:
    created = http.ok("POST", config_maps, config_map("one", a="b"))
    assert http.ok("PUT", f"{config_maps}/one", created) == created


def test_a_status_is_written_by_its_own_path_alone(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    status, kept = http.patch(f"{pods}/one", {"status": {"phase": "Running"}})
    assert (status, kept["status"]["phase"]) == (200, "Pending")
    status, changed = http.patch(f"{pods}/one/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})
    assert (status, changed["status"]["phase"]) == (200, "Running")
    assert "nodeName" not in changed["spec"]


def test_a_dry_run_stores_nothing(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one", a="b"), dryRun="All")
    assert http.refused("GET", f"{config_maps}/one")[0] == 404
    http.ok("POST", config_maps, config_map("one", a="b"))
    assert http.patch(f"{config_maps}/one", {"data": {"a": "c"}}, dryRun="All")[1]["data"] == {"a": "c"}
    http.ok("DELETE", f"{config_maps}/one", dryRun="All")
    assert http.ok("GET", f"{config_maps}/one")["data"] == {"a": "b"}


def test_a_misspelt_field_is_refused_if_the_client_wants_so(http: Http, pods: str) -> None:
    body = pod("one", contianers=[])
    code, _, message = http.refused("POST", pods, body, fieldValidation="Strict")
    assert code == 400
    assert 'unknown field "spec.contianers"' in message
    http.ok("POST", pods, body, fieldValidation="Ignore")


def test_deleting_answers_a_success(http: Http, config_maps: str) -> None:
    created = http.ok("POST", config_maps, config_map("one"))
    answer = http.ok("DELETE", f"{config_maps}/one")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "one", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert http.refused("DELETE", f"{config_maps}/one")[:2] == (404, "NotFound")


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_propagation_policy_is_accepted(http: Http, config_maps: str, policy: str) -> None:
    http.ok("POST", config_maps, config_map("one"))
    assert http.ok("DELETE", f"{config_maps}/one", propagationPolicy=policy)["status"] == "Success"


def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_off(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, {"metadata": {"name": "one", "finalizers": ["test/hold"]}})
    http.ok("DELETE", f"{config_maps}/one")
    held = http.ok("GET", f"{config_maps}/one")
    assert "deletionTimestamp" in held["metadata"]
    http.patch(f"{config_maps}/one", {"metadata": {"finalizers": None}})
    assert http.refused("GET", f"{config_maps}/one")[0] == 404


def test_deleting_a_collection_deletes_what_is_selected(http: Http, config_maps: str) -> None:
    for name, tier in (("one", "a"), ("two", "b"), ("three", "a")):
        http.ok("POST", config_maps, config_map(name, {"tier": tier}))
    gone = http.ok("DELETE", config_maps, labelSelector="tier=a")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["one", "three"]
    assert [item["metadata"]["name"] for item in http.ok("GET", config_maps)["items"]] == ["two"]


def test_a_deleted_namespace_goes_with_its_last_object(http: Http, namespace: str, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="somewhere"))
    http.ok("DELETE", f"/api/v1/namespaces/{namespace}")
    assert http.ok("GET", f"/api/v1/namespaces/{namespace}")["status"]["phase"] == "Terminating"
    assert http.refused("POST", pods, pod("two"))[:2] == (403, "Forbidden")
    http.ok("DELETE", f"{pods}/one", gracePeriodSeconds=0)
    assert http.refused("GET", f"/api/v1/namespaces/{namespace}")[0] == 404


def test_an_immutable_config_map_keeps_its_data(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, {**config_map("one", a="b"), "immutable": True})
    assert http.patch(f"{config_maps}/one", {"data": {"a": "c"}})[0] == 422


def test_events_of_both_groups_are_the_same_objects(http: Http, namespace: str) -> None:
    core, new = (f"{prefix}/namespaces/{namespace}/events" for prefix in ("/api/v1", "/apis/events.k8s.io/v1"))
    about = {"kind": "Pod", "namespace": namespace, "name": "one"}
    body = {
        "metadata": {"name": "e"},
        "regarding": about,
        "note": "hello",
        "reportingController": "c",
        "type": "Normal",
    }
    assert http.ok("POST", new, body)["note"] == "hello"
    seen = http.ok("GET", f"{core}/e")
    assert (seen["apiVersion"], seen["message"], seen["involvedObject"]) == ("v1", "hello", about)
    assert http.patch(f"{new}/e", {"note": "again"})[1]["apiVersion"] == "events.k8s.io/v1"
    assert http.ok("GET", core, fieldSelector="involvedObject.name=one")["items"][0]["message"] == "again"


def test_events_expire() -> None:
    events = "/api/v1/namespaces/default/events"
    with api_server(event_ttl_s=0.2) as server:
        http = Http(server.port)
        http.ok("POST", events, {"metadata": {"name": "old"}, "lastTimestamp": "2026-01-01T00:00:00Z"})
        http.ok("POST", events, {"metadata": {"name": "new"}, "lastTimestamp": "2999-01-01T00:00:00Z"})
        http.ok("POST", CONFIG_MAPS, config_map("kept"))
        expect_soon(lambda: http.call("GET", f"{events}/old")[0] == 404)
        assert http.call("GET", f"{events}/new")[0] == http.call("GET", f"{CONFIG_MAPS}/kept")[0] == 200


def test_half_a_request_is_not_carried_out(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one"))
    with socket.create_connection(("127.0.0.1", http.port), timeout=PATIENCE_S) as connection:
        head = f"DELETE {config_maps}/one HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n"
        connection.sendall(head.encode() + b'{"preconditions":')
    http.ok("POST", config_maps, config_map("two"))
    assert http.call("GET", f"{config_maps}/one")[0] == 200


def test_the_server_answers_under_a_loopback_name(http: Http) -> None:
    for host in ("localhost", "localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert http.call("GET", "/api/v1/nodes", headers={"Host": host})[0] == 200
