"""Pods: defaults, priorities, binding, eviction, graceful deletion."""

from typing import Any

import pytest

from tests.lab.embedded.helpers import Http, binding, pod


def test_a_pod_gets_defaults(http: Http, pods: str) -> None:
    created = http.ok("POST", pods, pod("one", limits={"cpu": 2, "memory": "1Gi"}))
    spec = created["spec"]
    assert (spec["schedulerName"], spec["restartPolicy"], spec["priority"]) == ("default-scheduler", "Always", 0)
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert created["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_a_pod_may_have_the_preemption_policy_of_its_class(http: Http, namespace: str, pods: str) -> None:
    never = priority_class(http, namespace, 4, preemptionPolicy="Never")
    made = http.ok("POST", pods, pod("one", priorityClassName=never, preemptionPolicy="Never"))
    assert made["spec"]["preemptionPolicy"] == "Never"


def test_all_mistakes_of_a_pod_are_named_at_once(http: Http, pods: str) -> None:
    _, answer = http.call("POST", pods, pod("Bad_Name", containers=[{"name": "a"}], restartPolicy="x"))
    fields = [cause["field"] for cause in answer["details"]["causes"]]
    assert fields == ["metadata.name", "spec.restartPolicy", "spec.containers[0].image"]


def priority_class(http: Http, namespace: str, value: int, **fields: Any) -> str:
    name = f"class-{namespace}"
    http.ok(
        "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value, **fields}
    )
    return name


def test_a_priority_class_gives_a_pod_its_priority(http: Http, namespace: str, pods: str) -> None:
    name = priority_class(http, namespace, 77, preemptionPolicy="Never")
    spec = http.ok("POST", pods, pod("one", priorityClassName=name))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (77, "Never")


def test_the_global_default_is_the_class_of_pods_without_one(http: Http, namespace: str, pods: str) -> None:
    name = priority_class(http, namespace, 5, globalDefault=True)
    spec = http.ok("POST", pods, pod("one"))["spec"]
    http.ok("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    assert (spec["priority"], spec["priorityClassName"]) == (5, name)


def test_a_pod_may_have_the_priority_of_its_class(http: Http, pods: str) -> None:
    assert http.ok("POST", pods, pod("one", priority=0))["spec"]["priority"] == 0


def test_a_priority_class_keeps_its_value(http: Http, namespace: str) -> None:
    name = priority_class(http, namespace, 3)
    path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"
    assert http.patch(path, {"value": 4})[0] == 422
    assert http.patch(path, {"description": "three"})[0] == 200


def test_binding_sets_the_node_and_hands_over_annotations(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", annotations={"a": "1", "b": "2"}))
    answer = http.ok("POST", f"{pods}/one/binding", binding("one", "n1", annotations={"b": "3", "c": "4"}))
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    bound = http.ok("GET", f"{pods}/one")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"a": "1", "b": "3", "c": "4"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


def test_a_pod_can_be_bound_by_the_path_of_bindings(http: Http, namespace: str, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", f"/api/v1/namespaces/{namespace}/bindings", binding("one", "n1"))
    assert http.ok("GET", f"{pods}/one")["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_bound_pod_cannot_be_bound_again_not_even_to_its_node(http: Http, pods: str, node: str) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", f"{pods}/one/binding", binding("one", "n1"))
    code, reason, message = http.refused("POST", f"{pods}/one/binding", binding("one", node, annotations={"a": "b"}))
    assert (code, reason) == (409, "Conflict")
    assert 'already assigned to node "n1"' in message
    bound = http.ok("GET", f"{pods}/one")
    assert (bound["spec"]["nodeName"], bound["metadata"].get("annotations")) == ("n1", None)


def test_a_pod_that_is_being_deleted_cannot_be_bound(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", finalizers=["test/hold"]))
    http.ok("DELETE", f"{pods}/one")
    code, reason, message = http.refused("POST", f"{pods}/one/binding", binding("one", "n1"))
    assert (code, reason) == (409, "Conflict")
    assert "is being deleted" in message


def test_a_gated_pod_cannot_be_bound(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", schedulingGates=[{"name": "test/wait"}]))
    assert http.refused("POST", f"{pods}/one/binding", binding("one", "n1"))[:2] == (409, "Conflict")
    http.patch(f"{pods}/one", {"spec": {"schedulingGates": None}})
    http.ok("POST", f"{pods}/one/binding", binding("one", "n1"))


def eviction(name: str, **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


def test_an_evicted_pod_is_deleted_gracefully_and_says_why(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="n1", terminationGracePeriodSeconds=7))
    http.ok("POST", f"{pods}/one/eviction", eviction("one"))
    leaving = http.ok("GET", f"{pods}/one")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 7
    (condition,) = leaving["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


def test_a_pod_without_a_node_is_evicted_at_once(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    http.ok("POST", f"{pods}/one/eviction", eviction("one"))
    assert http.refused("GET", f"{pods}/one")[0] == 404


def test_an_eviction_may_have_options(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="n1"))
    http.ok("POST", f"{pods}/one/eviction", eviction("one", dryRun=["All"]))
    assert "deletionTimestamp" not in http.ok("GET", f"{pods}/one")["metadata"]
    http.ok("POST", f"{pods}/one/eviction", eviction("one", gracePeriodSeconds=0))
    assert http.refused("GET", f"{pods}/one")[0] == 404


def test_a_bound_pod_stays_until_its_node_has_stopped_it(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="n1"))
    answer = http.ok("DELETE", f"{pods}/one")
    assert (answer["kind"], answer["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 30)
    assert http.ok("GET", f"{pods}/one")["metadata"] == answer["metadata"]
    http.ok("DELETE", f"{pods}/one", gracePeriodSeconds=0)
    assert http.refused("GET", f"{pods}/one")[0] == 404


def test_a_grace_period_can_only_be_shortened(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one", nodeName="n1"))

    def grace(**options: int) -> int:
        return int(http.ok("DELETE", f"{pods}/one", options)["metadata"]["deletionGracePeriodSeconds"])

    assert grace(gracePeriodSeconds=20) == 20
    assert grace(gracePeriodSeconds=25) == 20
    assert grace() == 20
    assert grace(gracePeriodSeconds=5) == 5


def test_a_pod_without_a_node_or_at_its_end_is_deleted_at_once(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("waiting"))
    http.ok("POST", pods, pod("done", nodeName="n1"))
    http.patch(f"{pods}/done/status", {"status": {"phase": "Succeeded"}})
    for name in ("waiting", "done"):
        http.ok("DELETE", f"{pods}/{name}")
        assert http.refused("GET", f"{pods}/{name}")[0] == 404


def test_logs_say_that_there_are_none(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    status, text = http.call("GET", f"{pods}/one/log")
    assert status == 200
    assert "no processes" in text
