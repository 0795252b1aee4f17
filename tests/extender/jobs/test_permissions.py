"""The access of a namespace, asked of the webhook and before `hived submit` creates anything (rules 21.9, 22.6)."""

import json
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.jobs.admission import Admission, review
from hived_extender.jobs.annotations import BIND_INFO, PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.asks import LabelsOf, no_labels
from hived_extender.jobs.wire import ENABLE_LIMIT

CONFIGURATION = """\
access: namespaces
opportunistic: {{namespaces: [labs]}}
priorityClasses: {{high: 200, low: 5, spare: oppo}}
physicalCluster:
  cellTypes: {{NODE: {{childCellType: V100, childCellNumber: 8, isNodeLevel: true}}}}
  physicalCells: [{{cellType: NODE, cellAddress: a}}, {{cellType: NODE, cellAddress: b}}]
virtualClusters:
  research:
    namespaces: [labs, {{name: ci, maxPriority: test}}{more}]
    virtualCells: [{{cellType: NODE, cellNumber: 1}}]
  other:
    namespaces: [elsewhere]
    virtualCells: [{{cellType: NODE, cellNumber: 1}}]
"""
NVIDIA = "nvidia.com/gpu"
NOT_LISTED = "may not use virtual cluster {0}: have the configuration list it under virtualClusters.{0}.namespaces"
NO_VC = "it names no virtual cluster: have the configuration list namespace evil under virtualClusters.NAME.namespaces"
POD_GROUP = {"scheduling.x-k8s.io/pod-group": "train"}
OWN_GANG = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}


def admission_of(more: str = "", labels_of: LabelsOf = no_labels) -> Admission:
    configuration = load_text(CONFIGURATION.format(more=more), "f", environ={})
    return Admission(configuration.cluster, configuration.rules, labels_of=labels_of)


@pytest.fixture(scope="module")
def admission() -> Admission:
    return admission_of()


def pod(resource: str = NVIDIA, vc: str = "", priority: str = "", **more: Any) -> Any:
    """A pod in the words of Kubernetes, with annotations of ours for what is given."""
    said = {f"{PREFIX}virtual-cluster": vc, f"{PREFIX}priority": priority}
    annotations = {key: value for key, value in said.items() if value} | more.pop("annotations", {})
    spec = {"schedulerName": "hived", **more.pop("spec", {})}
    limits = {resource: "1"} if resource else {}
    metadata = {"name": "p", "annotations": annotations, **more}
    return {"metadata": metadata, "spec": {**spec, "containers": [{"name": "m", "resources": {"limits": limits}}]}}


def own(vc: str, priority: int, **more: Any) -> Any:
    """A pod with HiveD's own annotation, and the limit for any scheduler."""
    text = f"virtualCluster: {vc}\npriority: {priority}\nleafCellNumber: 1\n"
    return pod(ENABLE_LIMIT, annotations={SCHEDULING_SPEC: text}, spec={"schedulerName": "another"}, **more)


def refusal(admission: Admission, given: Any, namespace: str) -> str:
    """The refusal that the API server is told, "" if the pod is let in."""
    request = {"uid": "u", "operation": "CREATE", "namespace": namespace, "object": given}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = json.loads(review(admission, json.dumps(body).encode()))["response"]
    assert answer["allowed"] is ("status" not in answer)
    return answer["status"]["message"].removeprefix("hived: ") if "status" in answer else ""


@pytest.mark.parametrize(
    ("namespace", "given", "text"),
    [
        ("labs", pod(vc="other"), f"namespace labs {NOT_LISTED.format('other')}"),
        ("evil", pod(vc="research"), f"namespace evil {NOT_LISTED.format('research')}"),
        ("evil", pod(), NO_VC),
        ("evil", own("research", 1000), f"namespace evil {NOT_LISTED.format('research')}"),
        ("ci", own("research", 1000), "namespace ci may use virtual cluster research up to priority 10, not 1000"),
        ("ci", pod(priority="11"), "namespace ci may use virtual cluster research up to priority 10, not 11"),
        (
            "ci",
            pod(spec={"priorityClassName": "high"}),
            "namespace ci may use virtual cluster research up to priority 10, not 200",
        ),
        (
            "ci",
            own("research", -1),
            "namespace ci may not run opportunistically: have the configuration list it under opportunistic.namespaces",
        ),
        ("labs", pod(labels={"kai.scheduler/queue": "other"}), f"namespace labs {NOT_LISTED.format('other')}"),
        ("evil", pod("", annotations=OWN_GANG), NO_VC),
    ],
)
def test_a_pod_that_asks_for_more_than_its_namespace_may_have_is_refused(
    admission: Admission, namespace: str, given: Any, text: str
) -> None:
    assert refusal(admission, given, namespace) == text


@pytest.mark.parametrize(
    ("namespace", "given"),
    [
        ("labs", pod()),
        ("labs", own("research", 1000)),
        ("labs", own("research", -1)),
        ("ci", pod(priority="test")),
        ("ci", pod(spec={"priorityClassName": "low"})),
        ("elsewhere", pod()),
        # not for hived
        ("evil", pod("")),
        ("kube-system", pod(spec={"schedulerName": "default-scheduler"}, vc="research")),
        # cannot be read: the scheduler says why
        ("evil", pod(ENABLE_LIMIT, annotations={SCHEDULING_SPEC: "{"})),
        ("ci", pod(priority="urgent")),
        ("evil", pod(ENABLE_LIMIT, annotations={SCHEDULING_SPEC: f"virtualCluster: a\npriority: {'9' * 5000}"})),
    ],
)
def test_other_pods_pass(admission: Admission, namespace: str, given: Any) -> None:
    assert refusal(admission, given, namespace) == ""


def test_a_pod_that_comes_with_a_node_and_a_binding_is_asked_too(admission: Admission) -> None:
    given = pod("", vc="research", annotations={BIND_INFO: "{}"}, spec={"nodeName": "a", "schedulerName": "another"})
    assert refusal(admission, given, "evil") == f"namespace evil {NOT_LISTED.format('research')}"


# ---- what an object decides


def test_the_queue_of_a_pod_group_may_say_another_virtual_cluster(admission: Admission) -> None:
    assert refusal(admission, pod(labels=POD_GROUP), "evil") == ""
    assert "may not use" in refusal(admission, pod(labels=POD_GROUP, vc="research"), "evil")


def test_the_priority_class_of_a_pod_group_may_be_any(admission: Admission) -> None:
    given = pod(labels=POD_GROUP, vc="research")
    assert refusal(admission, given, "ci") == ""
    given["spec"]["priorityClassName"] = "high"
    assert "up to priority 10, not 200" in refusal(admission, given, "ci")
    only = admission_of(more=", {name: idle, maxPriority: oppo}")
    assert "only opportunistically" in refusal(only, pod(labels=POD_GROUP, vc="research"), "idle")


def test_a_pod_whose_priority_is_not_known_passes_where_an_opportunistic_one_would() -> None:
    text = CONFIGURATION.format(more="").replace("[elsewhere]", "[elsewhere, {name: labs, maxPriority: oppo}]")
    configuration = load_text(text, "f", environ={})
    admission = Admission(configuration.cluster, configuration.rules)
    assert refusal(admission, pod(labels=POD_GROUP, vc="other"), "labs") == ""
    assert "only opportunistically" in refusal(admission, pod(vc="other"), "labs")


# ---- labels of namespaces


def test_a_selector_lets_namespaces_in_by_their_labels() -> None:
    labels = {"blue-1": {"team": "blue"}, "red-1": {"team": "red"}}
    admission = admission_of(", {matchLabels: {team: blue}, maxPriority: 50}", lambda namespace: labels[namespace])
    assert refusal(admission, pod(), "blue-1") == ""
    assert "up to priority 50, not 51" in refusal(admission, pod(priority="51"), "blue-1")
    assert "it names no virtual cluster" in refusal(admission, pod(), "red-1")


def test_a_pod_passes_while_the_labels_that_decide_are_not_known() -> None:
    admission = admission_of(", {matchLabels: {team: blue}}")
    assert refusal(admission, own("research", 0), "blue-1") == ""


def test_another_configuration_brings_its_own_rules(admission: Admission) -> None:
    changed = admission_of()
    text = CONFIGURATION.format(more="").replace("access: namespaces", "access: everybody")
    opened = load_text(text.replace("{name: ci, maxPriority: test}", "ci"), "f", environ={})
    changed.configure(opened.cluster, opened.rules)
    assert refusal(changed, own("research", 1000), "evil") == ""
    assert "may not run opportunistically" in refusal(changed, own("research", -1), "evil")


# ---- the time to leave

DECADES_S = 315_360_000


def slow(grace_s: int = DECADES_S, **more: Any) -> Any:
    return pod(spec={"terminationGracePeriodSeconds": grace_s, **more.pop("spec", {})}, **more)


def graces(admission: Admission, given: Any, namespace: str = "labs") -> Any:
    return admission.admit(given, namespace).pod["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    "given",
    [slow(priority="oppo"), slow(spec={"priorityClassName": "spare"}), slow(301, priority="-1")],
)
def test_an_opportunistic_pod_is_created_with_no_more_time_to_leave_than_the_ceiling(
    admission: Admission, given: Any
) -> None:
    assert graces(admission, given) == 300
    warning = "terminationGracePeriodSeconds is 300 now, as much as an opportunistic pod has to leave"
    assert warning in admission.admit(given, "labs").warnings


def test_an_opportunistic_pod_in_own_words_has_no_more_time_either(admission: Admission) -> None:
    given = own("research", -1)
    given["spec"] |= {"schedulerName": "hived", "terminationGracePeriodSeconds": DECADES_S}
    assert graces(admission, given) == 300


def test_a_guaranteed_pod_keeps_its_time_until_it_is_preempted(admission: Admission) -> None:
    assert graces(admission, slow(priority="prod")) == DECADES_S
    assert graces(admission, slow(30, priority="oppo")) == 30


def test_a_virtual_cluster_may_have_a_ceiling_of_its_own() -> None:
    text = CONFIGURATION.replace("  research:\n", "  research:\n    lentGraceSeconds: 45\n").format(more="")
    configuration = load_text(text, "f", environ={})
    assert configuration.rules.grace.lent_of_vc == {"research": 45}
    given = slow(priority="oppo", vc="research")
    assert graces(Admission(configuration.cluster, configuration.rules), given) == 45
