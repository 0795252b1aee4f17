"""The life of a pod between kube-scheduler, the core and the API server."""

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.kube.client import KubeError
from hived_extender.kube.logs import fields_of
from hived_extender.machine.acceptance import FORCE_WAITS_S
from hived_extender.machine.notices import CONDITION_TYPE
from hived_extender.machine.verbs import VerbSettings
from hived_extender.machine.writes.binding import RETRY_ANNOTATION
from tests.extender.machine.small_cluster import (
    NODES,
    SmallCluster,
    filter_args,
    node,
    pod_json,
    preempt_args,
    spec_text,
    to_pod,
)

LOST = KubeError(0, "NoAnswer", "connection reset")


def test_filter_answers_one_node_and_the_pod_is_binding() -> None:
    cluster = SmallCluster()
    assert cluster.filter(cluster.create("p")) == {"NodeNames": ["n0"]}
    assert cluster.pod_counts() == {"Binding": 1}
    assert cluster.groups()["ns/p"]["allocatedPods"] == ["uid-p"]


def test_a_pod_that_is_binding_is_answered_with_its_node_again() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    first = cluster.filter(pod)
    before = cluster.snapshot()
    assert cluster.filter(pod) == first
    assert cluster.snapshot() == before


def test_bind_writes_the_annotations_and_the_watch_makes_the_pod_bound() -> None:
    cluster = SmallCluster()
    _, where = cluster.place("p", spec_text(leaf_cells=2))
    stored = cluster.kube.pods["p"]
    assert stored["spec"]["nodeName"] == where
    assert stored["metadata"]["annotations"][LEAF_CELL_ISOLATION] == "0,1"
    assert where in stored["metadata"]["annotations"][BIND_INFO]
    assert cluster.pod_counts() == {"Bound": 1}


def test_no_lock_is_held_while_the_api_server_is_asked() -> None:
    cluster = SmallCluster()
    pod, other = cluster.create("p"), cluster.create("q")
    where = cluster.filter(pod)["NodeNames"][0]
    cluster.kube.on_bind = lambda: cluster.filter(other)
    cluster.bind(pod, where)
    assert cluster.pod_counts() == {"Binding": 2}


def test_binding_again_after_success_is_a_success() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    where = cluster.filter(pod)["NodeNames"][0]
    cluster.bind(pod, where)
    cluster.bind(pod, where)
    cluster.see(pod)
    cluster.bind(pod, where)
    assert cluster.kube.bind_calls == [("p", where)] * 2


def test_binding_again_after_the_answer_got_lost_is_a_success() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    where = cluster.filter(pod)["NodeNames"][0]
    cluster.kube.refusals.append(LOST)
    with pytest.raises(UserError, match="connection reset"):
        cluster.bind(pod, where)
    cluster.bind(pod, where)
    assert cluster.kube.pods["p"]["spec"]["nodeName"] == where


def test_binding_to_another_node_is_refused_before_and_after() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    assert cluster.filter(pod) == {"NodeNames": ["n0"]}
    with pytest.raises(UserError, match="its node is n0"):
        cluster.bind(pod, "n1")
    cluster.bind(pod, "n0")
    cluster.see(pod)
    with pytest.raises(UserError, match="its node is n0"):
        cluster.bind(pod, "n1")
    assert cluster.kube.bind_calls == [("p", "n0")]


def test_binding_a_pod_without_a_decision_is_refused() -> None:
    cluster = SmallCluster()
    with pytest.raises(UserError, match="no node has been decided"):
        cluster.bind(cluster.create("p"), "n0")


def test_a_conflict_with_another_pod_of_the_name_is_no_success() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    where = cluster.filter(pod)["NodeNames"][0]
    cluster.kube.add(pod_json("p", uid="another", node=where))
    with pytest.raises(UserError, match="uid differs"):
        cluster.bind(pod, where)


def test_repeated_filters_for_a_pod_that_ignores_offers_make_the_scheduler_bind_by_itself() -> None:
    cluster = SmallCluster(verb_settings=VerbSettings(force_bind_threshold=2))
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    for _ in range(2):
        cluster.filter(pod)
    assert cluster.kube.bind_calls == []
    assert cluster.filter(pod) == {"NodeNames": ["n0"]}
    cluster.until(cluster.kube.done.is_set)
    assert cluster.kube.bind_calls == [("p", "n0")]


def test_a_pod_that_ignores_offers_is_bound_by_force_to_a_node_that_was_not_offered() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    failed = cluster.filter(pod, ["n3", "elsewhere"])["FailedNodes"]
    assert "being bound to node n0" in failed["hivedscheduler"]
    cluster.until(cluster.kube.done.is_set)
    assert cluster.kube.pods["p"]["spec"]["nodeName"] == "n0"


def test_a_forced_binding_that_failed_is_tried_again() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    cluster.kube.refusals.append(LOST)
    cluster.filter(pod, ["n3"])
    cluster.until(lambda: pod["spec"]["nodeName"] == "n0")


def test_a_waiting_pod_reads_its_reason_under_the_key_of_the_scheduler() -> None:
    cluster = SmallCluster()
    for name in ("p", "q"):
        cluster.place(name)
    told = "needs 1 node of 4 GPUs; a has 2 of 2 in use by p (priority 0) and q (priority 0)"
    assert cluster.filter(cluster.create("r")) == {"FailedNodes": {"hivedscheduler": told}}
    assert cluster.pod_counts() == {"Waiting": 1, "Bound": 2}


def test_a_pod_without_any_chain_to_try_reads_a_reason_too() -> None:
    cluster = SmallCluster()
    failed = cluster.filter(cluster.create("p", spec_text(vc="empty")))["FailedNodes"]
    assert failed == {"hivedscheduler": "needs 1 pod of 4 GPUs; it can never run: empty has no cells for it"}


def fill_vc_a(cluster: SmallCluster, priority: int = 0) -> list[str]:
    """Two pods fill VC a; returns their nodes."""
    return [cluster.place(name, spec_text(priority=priority))[1] for name in ("low-0", "low-1")]


def test_filter_lists_the_nodes_of_the_victims() -> None:
    cluster = SmallCluster()
    nodes = fill_vc_a(cluster)
    failed = cluster.filter(cluster.create("high", spec_text(priority=5)))["FailedNodes"]
    assert set(failed) <= set(nodes)
    assert all("ns/low-" in text for text in failed.values())
    assert "high" not in "".join(cluster.groups())


def test_preempt_names_the_victims_on_one_candidate_and_reserves() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5))
    (victim_node,) = cluster.filter(pod)["FailedNodes"]
    answer = cluster.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims
    assert answer is not None
    assert list(answer) == [victim_node]
    assert [victim.uid for victim in answer[victim_node].pods] == ["uid-low-0"]
    assert cluster.groups()["ns/high"]["state"] == "Preempting"
    assert cluster.pod_counts() == {"Preempting": 1, "Bound": 2}


def test_preempt_names_one_node_even_when_the_gang_has_victims_on_two() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5, group="g", pods=2))
    assert len(cluster.filter(pod)["FailedNodes"]) == 2
    answer = cluster.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims
    assert answer is not None
    assert len(answer) == 1


def test_preempt_names_no_node_that_is_not_a_candidate() -> None:
    cluster = SmallCluster()
    nodes = fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5, group="g", pods=2))
    answer = cluster.service.preempt_victims(preempt_args(pod, nodes[1:])).node_name_to_meta_victims
    assert answer is not None
    assert list(answer) == nodes[1:]
    others = [name for name in NODES if name not in nodes]
    assert cluster.service.preempt_victims(preempt_args(pod, others)).node_name_to_meta_victims == {}


def test_the_preemptor_is_bound_when_its_victims_are_gone() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5))
    (victim_node,) = cluster.filter(pod)["FailedNodes"]
    cluster.service.preempt_victims(preempt_args(pod))
    cluster.delete(cluster.kube.pods["low-0"])
    assert cluster.filter(pod) == {"NodeNames": [victim_node]}
    assert cluster.groups()["ns/high"]["state"] == "Allocated"


def test_a_bind_decided_in_the_preempting_phase_is_not_carried_out_but_asks_for_another_try() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    before = cluster.snapshot()
    # n0 is empty, and kube-scheduler has not named it among the nodes that it could clear.
    assert cluster.service.preempt_victims(preempt_args(pod, NODES[1:])).node_name_to_meta_victims == {}
    assert cluster.snapshot() == before
    cluster.until(cluster.kube.done.is_set)
    ((path, body),) = cluster.kube.patches
    assert path == "/api/v1/namespaces/ns/pods/p"
    assert RETRY_ANNOTATION in body["metadata"]["annotations"]


def test_a_pod_refused_on_the_eve_of_a_release_is_asked_to_try_again() -> None:
    cluster = SmallCluster()
    first, _ = cluster.place("p")
    cluster.place("q")
    cluster.kube.done.clear()
    refused = cluster.create("r")
    assert "FailedNodes" in cluster.filter(refused)
    cluster.delete(first)
    cluster.until(cluster.kube.done.is_set)
    assert [path for path, _ in cluster.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert "NodeNames" in cluster.filter(refused)


def test_a_pod_that_could_not_be_asked_to_try_again_is_asked_later() -> None:
    cluster = SmallCluster()
    first, _ = cluster.place("p")
    cluster.place("q")
    refused = cluster.create("r")
    assert "FailedNodes" in cluster.filter(refused)
    cluster.kube.refusals += [LOST, LOST]
    cluster.delete(first)
    cluster.until(lambda: cluster.kube.patches)
    assert [path for path, _ in cluster.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert cluster.kube.refusals == []


def test_a_pod_is_woken_when_binding_it_by_force_was_given_up() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    cluster.kube.refusals += [LOST] * (1 + len(FORCE_WAITS_S))
    assert "FailedNodes" in cluster.filter(pod, ["n3"])
    cluster.until(lambda: cluster.kube.patches)
    assert cluster.filter(pod, ["n3"])["FailedNodes"]
    cluster.until(lambda: pod["spec"]["nodeName"])
    assert pod["spec"]["nodeName"] == "n0"


def test_a_pod_that_is_binding_has_nothing_to_preempt() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    before = cluster.snapshot()
    assert cluster.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    assert cluster.snapshot() == before


def test_a_pod_that_stops_preempting_gives_the_cells_back() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    before = cluster.snapshot()[0]
    pod = cluster.create("high", spec_text(priority=5))
    cluster.service.preempt_victims(preempt_args(pod))
    cluster.delete(pod)
    assert cluster.snapshot()[0] == before


def test_a_pod_whose_preemption_was_cancelled_waits_again() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    cluster.service.preempt_victims(preempt_args(cluster.create("high", spec_text(priority=5))))
    assert cluster.pod_counts() == {"Preempting": 1, "Bound": 2}
    urgent = cluster.create("urgent", spec_text(priority=9, group="g", pods=2))
    cluster.service.preempt_victims(preempt_args(urgent))
    assert "ns/high" not in cluster.groups()
    assert cluster.pod_counts() == {"Waiting": 1, "Preempting": 1, "Bound": 2}


def test_the_end_of_a_reservation_wakes_pods_that_were_refused_long_ago() -> None:
    cluster = SmallCluster()
    victims = [cluster.place(name, spec_text(priority=0))[0] for name in ("low-0", "low-1")]
    high = cluster.create("high", spec_text(priority=5, group="g", pods=2))
    cluster.service.preempt_victims(preempt_args(high))
    for victim in victims:
        cluster.delete(victim)
    cluster.until(lambda: "/api/v1/namespaces/ns/pods/high" in [path for path, _ in cluster.kube.patches])
    refused = cluster.create("r")
    assert "FailedNodes" in cluster.filter(refused)
    cluster.kube.patches.clear()
    cluster.delete(high)
    cluster.until(lambda: cluster.kube.patches)
    assert [path for path, _ in cluster.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert "NodeNames" in cluster.filter(refused)


def preempting_beside_a_waiting_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[SmallCluster, dict[str, str], list[dict[str, str]]]:
    """VC a's gang of two preempts; one node is cleared for it already, which an opportunistic pod waits for.

    Returns the cluster, the gang's node that is cleared and the one that is not, and (gang's pod, waiting pod).
    """
    cluster = SmallCluster()
    lent = dict(reversed(cluster.place(f"o{i}", spec_text(vc="b", priority=-1))) for i in range(4))
    for name in ("n1", "n2"):
        cluster.service.node_seen(node(name, is_ready=False))
    gang = cluster.create("p", spec_text(group="gang", pods=2))
    cluster.service.preempt_victims(preempt_args(gang))
    cleared, other = cluster.groups()["ns:gang"]["physicalPlacement"]
    cluster.delete(lent[cleared])
    waiting = cluster.create("q", spec_text(vc="b", priority=-1))
    assert "FailedNodes" in cluster.filter(waiting)
    cluster.pass_time(1.0)  # it has looked at both
    cluster.pass_time(0.1)
    cluster.kube.patches.clear()
    cluster.kube.done.clear()
    return cluster, {"cleared": cleared, "other": other}, [gang, waiting]


def test_a_preemption_that_its_own_pod_gives_up_wakes_the_pods_that_were_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    cluster, nodes, (gang, waiting) = preempting_beside_a_waiting_pod(monkeypatch)
    cluster.service.node_seen(node(nodes["other"], is_ready=False))
    assert cluster.service.preempt_victims(preempt_args(gang)).node_name_to_meta_victims == {}
    assert "ns:gang" not in cluster.groups()
    assert "preemption cancelled" in caplog.messages
    cluster.until(cluster.kube.done.is_set)
    assert "/api/v1/namespaces/ns/pods/q" in [path for path, _ in cluster.kube.patches]
    assert cluster.filter(waiting) == {"NodeNames": [nodes["cleared"]]}


@pytest.mark.parametrize(
    "annotation",
    ["garbage: [", spec_text(vc="nosuch"), spec_text(vc="b", group="other", leaf_cells=99, pinnedCellId="x")],
)
def test_an_annotation_that_is_refused_does_not_end_a_preemption(annotation: str) -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5))
    cluster.service.preempt_victims(preempt_args(pod))
    before = cluster.snapshot()
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = annotation
    with pytest.raises(UserError):
        cluster.filter(pod)
    assert cluster.snapshot() == before


def test_an_annotation_that_asks_for_something_else_ends_the_preemption() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    pod = cluster.create("high", spec_text(priority=5))
    cluster.service.preempt_victims(preempt_args(pod))
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(priority=6)
    cluster.service.preempt_victims(preempt_args(pod))
    assert cluster.groups()["ns/high"]["priority"] == 6


def test_a_preempting_gang_can_be_changed_pod_by_pod() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    gang = [cluster.create(name, spec_text(priority=5, group="gang", pods=2)) for name in ("p", "q")]
    for pod in gang:
        cluster.service.preempt_victims(preempt_args(pod))
    for pod in gang:
        pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(priority=6, group="gang", pods=2)
    with pytest.raises(UserError, match="does not match its affinity group"):
        cluster.service.preempt_victims(preempt_args(gang[0]))
    for pod in reversed(gang):
        cluster.service.preempt_victims(preempt_args(pod))
    assert (cluster.groups()["ns:gang"]["priority"], len(cluster.groups()["ns:gang"]["preemptingPods"])) == (6, 2)


def test_requests_that_are_refused_before_the_core_is_asked_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = SmallCluster()
    pod, _ = cluster.place("p")
    other = cluster.create("q")
    for body in (filter_args(pod), filter_args(other, 3)):
        caplog.clear()
        with pytest.raises(UserError):
            cluster.service.filter_nodes(body)
        assert caplog.messages == ["decision"]
    count = cluster.service.metrics.registry.get_sample_value
    assert count("hived_decisions_total", {"verb": "filter", "outcome": "error"}) == 2


def test_a_call_about_a_pod_whose_node_is_decided_counts_as_no_decision() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    for _ in range(2):
        cluster.filter(pod)
    count = cluster.service.metrics.registry.get_sample_value
    assert count("hived_decisions_total", {"verb": "filter", "outcome": "bind"}) == 1


def test_a_deleted_pod_releases_its_cells_whatever_its_state() -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    waiting, binding = cluster.create("w"), cluster.create("p")
    cluster.filter(binding)
    bound, _ = cluster.place("q")
    for pod in (waiting, binding, bound):
        cluster.delete(pod)
    assert cluster.snapshot() == empty
    assert cluster.pod_counts() == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_completed_pod_releases_its_cells(phase: str) -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    pod, _ = cluster.place("p")
    pod["status"]["phase"] = phase
    cluster.see(pod)
    assert cluster.snapshot() == empty


def test_a_pod_that_is_being_deleted_keeps_its_cells_until_it_is_gone() -> None:
    cluster = SmallCluster()
    pod, _ = cluster.place("p")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    before = cluster.snapshot()
    cluster.see(pod)
    assert cluster.snapshot() == before


def test_a_pod_that_was_recreated_under_its_name_is_another_pod() -> None:
    cluster = SmallCluster()
    first, _ = cluster.place("p")
    cluster.delete(first)
    second = cluster.create("p", uid="second")
    assert cluster.filter(second) == {"NodeNames": ["n0"]}
    with pytest.raises(UserError, match="not known"):
        cluster.filter(first)


@pytest.mark.parametrize("change", [{"uid": "stranger"}, {"name": "another"}, {"namespace": "elsewhere"}, {"uid": ""}])
def test_a_pod_that_kubernetes_has_not_told_of_is_refused(change: dict[str, str]) -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    pod["metadata"] |= change
    with pytest.raises(UserError, match="is not known"):
        cluster.filter(pod)


def test_a_pod_that_is_not_ours_passes() -> None:
    cluster = SmallCluster()
    pod = pod_json("p", spec_text())
    pod["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    cluster.kube.add(pod)
    cluster.service.pod_seen(to_pod(pod))
    assert cluster.filter(pod)["NodeNames"] == list(NODES)
    assert cluster.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    cluster.bind(pod, "n3")
    assert cluster.kube.pods["p"]["spec"]["nodeName"] == "n3"
    assert cluster.groups() == {}


def test_a_pod_of_ours_that_nobody_knows_is_not_bound() -> None:
    cluster = SmallCluster()
    pod = pod_json("p", spec_text())
    cluster.kube.add(pod)
    with pytest.raises(UserError, match="is not known"):
        cluster.bind(pod, "n3")
    assert not cluster.kube.pods["p"]["spec"]["nodeName"]


def test_a_bound_pod_is_refused_by_filter_and_preempt() -> None:
    cluster = SmallCluster()
    pod, where = cluster.place("p")
    with pytest.raises(UserError, match=f"already bound to node {where}"):
        cluster.filter(pod)
    with pytest.raises(UserError, match=f"already bound to node {where}"):
        cluster.service.preempt_victims(preempt_args(pod))


@pytest.mark.parametrize("is_seen_before", [True, False], ids=["before it leads", "while it leads"])
def test_that_a_pod_waits_is_taken_back_by_who_finds_it_bound(is_seen_before: bool) -> None:
    pod, _ = SmallCluster().place("p")
    waiting = {"type": CONDITION_TYPE, "status": "False", "reason": "Waiting", "message": "no room"}
    pod["status"]["conditions"] = [waiting]
    cluster = SmallCluster(is_leading=not is_seen_before)
    cluster.kube.add(pod)
    cluster.see(pod)
    if is_seen_before:
        cluster.lead()
    cluster.service.close()
    (condition,) = cluster.kube.pods["p"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Allocated")
    assert cluster.kube.events == []


def test_an_annotation_that_cannot_be_used_is_the_users_error_and_changes_nothing() -> None:
    cluster = SmallCluster()
    cluster.place("q")
    before = cluster.snapshot()
    for number, text in enumerate(["", "{", "virtualCluster: a", spec_text(vc="none"), spec_text(leaf_cells=-1)]):
        with pytest.raises(UserError):
            cluster.filter(cluster.create(f"p{number}", text))
    assert cluster.snapshot() == before


def test_an_annotation_that_was_repaired_is_read_again() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p", spec_text(vc="none"))
    with pytest.raises(UserError, match="VC none does not exist"):
        cluster.filter(pod)
    pod = pod_json("p", spec_text())
    assert cluster.filter(pod) == {"NodeNames": ["n0"]}


def test_a_spec_that_changes_while_preempting_gives_the_old_reservation_back() -> None:
    cluster = SmallCluster()
    fill_vc_a(cluster)
    cluster.service.preempt_victims(preempt_args(cluster.create("high", spec_text(priority=5, group="g"))))
    assert cluster.groups()["ns:g"]["preemptingPods"] == ["uid-high"]
    cluster.filter(pod_json("high", spec_text(priority=5, group="h")))
    assert "ns:g" not in cluster.groups()


def test_node_names_that_are_null_are_an_error() -> None:
    cluster = SmallCluster()
    with pytest.raises(UserError, match="nodeCacheCapable"):
        cluster.service.filter_nodes(filter_args(cluster.create("p"), None))


def test_verbs_are_refused_until_recovery_is_over() -> None:
    cluster = SmallCluster(is_leading=False)
    pod = cluster.create("p")
    with pytest.raises(UserError, match="being replayed") as caught:
        cluster.filter(pod)
    assert caught.value.code == 503
    cluster.lead()
    assert cluster.filter(pod) == {"NodeNames": ["n0"]}


def test_nodes_that_are_not_ready_or_cordoned_or_gone_are_bad() -> None:
    cluster = SmallCluster()
    cluster.service.node_seen(node("n0", is_ready=False))
    cluster.service.node_seen(node("n1", is_cordoned=True))
    cluster.service.node_gone(node("n2"))
    cluster.service.node_seen(node("not-configured"))
    assert cluster.filter(cluster.create("p")) == {"NodeNames": ["n3"]}
    assert cluster.service.metrics.registry.get_sample_value("hived_bad_nodes") == 3


def test_a_node_missing_from_a_full_list_is_bad() -> None:
    cluster = SmallCluster()
    cluster.service.sync_nodes([node("n1")])
    assert cluster.filter(cluster.create("p")) == {"NodeNames": ["n1"]}


def test_a_pod_missing_from_a_full_list_is_gone() -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    cluster.place("p")
    cluster.service.sync_pods([])
    assert cluster.snapshot() == empty


def test_a_binding_pod_bound_elsewhere_by_somebody_is_accounted_by_its_annotations() -> None:
    cluster = SmallCluster()
    other, where = cluster.place("q")
    notes = dict(cluster.kube.pods["q"]["metadata"]["annotations"])
    cluster.delete(other)
    pod = cluster.create("p")
    cluster.service.node_seen(node(where, is_ready=False))
    assert cluster.filter(pod) != {"NodeNames": [where]}
    cluster.service.pod_seen(to_pod(pod_json("p", node=where, annotations=notes)))
    assert cluster.groups()["ns/p"]["physicalPlacement"] == {where: [0, 1, 2, 3]}
    assert cluster.pod_counts() == {"Bound": 1}


def test_a_binding_pod_bound_to_other_cells_of_its_node_is_accounted_by_its_annotations() -> None:
    cluster = SmallCluster()
    cluster.place("other", spec_text(leaf_cells=1))
    second, where = cluster.place("q", spec_text(leaf_cells=1))
    notes = dict(second["metadata"]["annotations"])
    cluster.delete(second)
    cluster.delete(cluster.kube.pods["other"])
    pod = cluster.create("p", spec_text(leaf_cells=1))
    assert cluster.filter(pod) == {"NodeNames": [where]}
    assert cluster.groups()["ns/p"]["physicalPlacement"] == {where: [0]}
    cluster.service.pod_seen(to_pod(pod_json("p", node=where, annotations=notes)))
    assert cluster.groups()["ns/p"]["physicalPlacement"] == {where: [1]}
    assert cluster.pod_counts() == {"Bound": 1}


def test_a_binding_pod_bound_to_its_node_without_annotations_keeps_its_cells() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    before = cluster.snapshot()
    cluster.service.pod_seen(to_pod(pod_json("p", spec_text(), node="n0")))
    assert cluster.snapshot() == before
    assert cluster.pod_counts() == {"Bound": 1}


def test_a_pod_bound_without_our_annotations_is_known_but_holds_nothing() -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    cluster.create("p", node="n0")
    assert cluster.pod_counts() == {"Bound": 1}
    assert cluster.snapshot() == empty
    assert cluster.service.metrics.registry.get_sample_value("hived_recovery_failures_total") == 1


def test_a_pod_that_runs_elsewhere_than_its_annotation_says_holds_nothing() -> None:
    cluster = SmallCluster()
    empty = cluster.snapshot()
    cluster.place("q")
    notes = dict(cluster.kube.pods["q"]["metadata"]["annotations"])
    cluster.delete(cluster.kube.pods["q"])
    cluster.create("p", node="n3", annotations=notes)
    assert cluster.snapshot() == empty


def test_lazy_preemption_is_shown_with_its_time() -> None:
    cluster = SmallCluster()
    for name in ("low-0", "low-1"):
        cluster.place(name, spec_text(lazyPreemptionEnable=True))
    cluster.place("high", spec_text(priority=5))
    status = cluster.groups()["ns/low-0"]["lazyPreemptionStatus"]
    assert status["preemptor"] == "ns/high"
    assert status["preemptionTime"].endswith("Z")


def test_lazy_preemption_by_a_preemptor_is_shown_with_its_time() -> None:
    cluster = SmallCluster()
    cluster.place("lazy", spec_text(lazyPreemptionEnable=True))
    cluster.place("low")
    cluster.service.preempt_victims(preempt_args(cluster.create("high", spec_text(priority=5, group="g", pods=2))))
    status = cluster.groups()["ns/lazy"].get("lazyPreemptionStatus")
    assert status is not None
    assert status["preemptor"] == "ns:g"
    assert status["preemptionTime"].endswith("Z")


def test_decisions_are_logged_with_pod_group_vc_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SmallCluster()
    with caplog.at_level("INFO"):
        cluster.filter(cluster.create("p", spec_text(vc="b", group="g")))
    (fields,) = [fields_of(record) for record in caplog.records if record.message == "decision"]
    assert fields["us"] >= 0
    assert {**fields, "us": 0} == {
        "pod": "ns/p",
        "group": "ns:g",
        "vc": "b",
        "verb": "filter",
        "outcome": "bind",
        "reason": "node n0",
        "us": 0,
    }


def test_leaf_cells_are_counted_per_virtual_cluster() -> None:
    cluster = SmallCluster()
    cluster.place("p", spec_text(leaf_cells=2))
    cluster.place("q", spec_text(leaf_cells=1, priority=-1))
    read = cluster.service.metrics.registry.get_sample_value
    assert read("hived_leaf_cells", {"vc": "a", "use": "used"}) == 2
    assert read("hived_leaf_cells", {"vc": "a", "use": "free"}) == 6
    assert read("hived_groups", {"state": "Allocated"}) == 2


class TestAfterAnInternalError:
    """The core broke a rule of its own: nothing is answered with success any more."""

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> SmallCluster:
        cluster = SmallCluster()
        cluster.place("q")
        pod = cluster.create("p")

        def explode(*_: object) -> None:
            raise IndexError("list out of range")

        with monkeypatch.context() as patch:
            patch.setattr("hived_extender.machine.core.handle", explode)
            with pytest.raises(Exception, match="stopped after an internal error"):
                cluster.filter(pod)
        return cluster

    def test_it_says_what_broke(self, broken: SmallCluster) -> None:
        assert broken.service.fault == "IndexError: list out of range"
        assert not broken.service.is_ready

    def test_every_verb_is_refused(self, broken: SmallCluster) -> None:
        pod = broken.kube.pods["p"]
        for call in (
            lambda: broken.filter(pod),
            lambda: broken.service.preempt_victims(preempt_args(pod)),
            lambda: broken.bind(broken.kube.pods["q"], "n0"),
        ):
            with pytest.raises(Exception, match="stopped after an internal error"):
                call()

    def test_facts_are_no_longer_taken_in(self, broken: SmallCluster) -> None:
        before = broken.snapshot()
        broken.service.pod_gone("uid-q")
        broken.service.node_gone(node("n0"))
        assert broken.snapshot() == before
