"""The life of a pod between kube-scheduler, the core and the API server."""

import pytest

from hived.errors import UserError
from hived_extender.kube.client import KubeError
from hived_extender.pods.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.service.forced import FORCE_WAITS_S
from hived_extender.service.notices import CONDITION_TYPE
from hived_extender.service.verbs import Patience
from hived_extender.service.waiting import NO_CHAIN_REASON
from hived_extender.service.writes.binding import RETRY_ANNOTATION
from tests.extender.service.world import (
    NODES,
    World,
    filter_args,
    node,
    pod_json,
    preempt_args,
    spec_text,
    to_pod,
)

LOST = KubeError(0, "NoAnswer", "connection reset")


def test_filter_answers_one_node_and_the_pod_is_binding() -> None:
    world = World()
    assert world.filter(world.create("p")) == {"NodeNames": ["n0"]}
    assert world.pod_counts() == {"Binding": 1}
    assert world.groups()["ns/p"]["allocatedPods"] == ["uid-p"]


def test_a_pod_that_is_binding_is_answered_with_its_node_again() -> None:
    world = World()
    pod = world.create("p")
    first = world.filter(pod)
    before = world.snapshot()
    assert world.filter(pod) == first
    assert world.snapshot() == before


def test_bind_writes_the_annotations_and_the_watch_makes_the_pod_bound() -> None:
    world = World()
    _, where = world.place("p", spec_text(leaf_cells=2))
    stored = world.kube.pods["p"]
    assert stored["spec"]["nodeName"] == where
    assert stored["metadata"]["annotations"][LEAF_CELL_ISOLATION] == "0,1"
    assert where in stored["metadata"]["annotations"][BIND_INFO]
    assert world.pod_counts() == {"Bound": 1}


def test_no_lock_is_held_while_the_api_server_is_asked() -> None:
    world = World()
    pod, other = world.create("p"), world.create("q")
    where = world.filter(pod)["NodeNames"][0]
    world.kube.on_bind = lambda: world.filter(other)
    world.bind(pod, where)
    assert world.pod_counts() == {"Binding": 2}


def test_binding_again_after_success_is_a_success() -> None:
    world = World()
    pod = world.create("p")
    where = world.filter(pod)["NodeNames"][0]
    world.bind(pod, where)
    world.bind(pod, where)
    world.see(pod)
    world.bind(pod, where)
    assert world.kube.bind_calls == [("p", where)] * 2


def test_binding_again_after_the_answer_got_lost_is_a_success() -> None:
    world = World()
    pod = world.create("p")
    where = world.filter(pod)["NodeNames"][0]
    world.kube.refusals.append(LOST)
    with pytest.raises(UserError, match="connection reset"):
        world.bind(pod, where)
    world.bind(pod, where)
    assert world.kube.pods["p"]["spec"]["nodeName"] == where


def test_binding_to_another_node_is_refused_before_and_after() -> None:
    world = World()
    pod = world.create("p")
    assert world.filter(pod) == {"NodeNames": ["n0"]}
    with pytest.raises(UserError, match="its node is n0"):
        world.bind(pod, "n1")
    world.bind(pod, "n0")
    world.see(pod)
    with pytest.raises(UserError, match="its node is n0"):
        world.bind(pod, "n1")
    assert world.kube.bind_calls == [("p", "n0")]


def test_binding_a_pod_without_a_decision_is_refused() -> None:
    world = World()
    with pytest.raises(UserError, match="no node has been decided"):
        world.bind(world.create("p"), "n0")


def test_a_conflict_with_another_pod_of_the_name_is_no_success() -> None:
    world = World()
    pod = world.create("p")
    where = world.filter(pod)["NodeNames"][0]
    world.kube.add(pod_json("p", uid="another", node=where))
    with pytest.raises(UserError, match="uid differs"):
        world.bind(pod, where)


def test_repeated_filters_for_a_pod_that_ignores_offers_make_the_scheduler_bind_by_itself() -> None:
    world = World(patience=Patience(force_bind_threshold=2))
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    for _ in range(2):
        world.filter(pod)
    assert world.kube.bind_calls == []
    assert world.filter(pod) == {"NodeNames": ["n0"]}
    world.until(world.kube.done.is_set)
    assert world.kube.bind_calls == [("p", "n0")]


def test_a_pod_that_ignores_offers_is_bound_by_force_to_a_node_that_was_not_offered() -> None:
    world = World()
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    failed = world.filter(pod, ["n3", "elsewhere"])["FailedNodes"]
    assert "being bound to node n0" in failed["hivedscheduler"]
    world.until(world.kube.done.is_set)
    assert world.kube.pods["p"]["spec"]["nodeName"] == "n0"


def test_a_forced_binding_that_failed_is_tried_again() -> None:
    world = World()
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    world.kube.refusals.append(LOST)
    world.filter(pod, ["n3"])
    world.until(lambda: pod["spec"]["nodeName"] == "n0")


def test_a_waiting_pod_reads_its_reason_under_the_key_of_the_scheduler() -> None:
    world = World()
    for name in ("p", "q"):
        world.place(name)
    assert world.filter(world.create("r")) == {
        "FailedNodes": {"hivedscheduler": "insufficient capacity when scheduling in VC a"}
    }
    assert world.pod_counts() == {"Waiting": 1, "Bound": 2}


def test_a_pod_without_any_chain_to_try_reads_a_reason_too() -> None:
    world = World()
    failed = world.filter(world.create("p", spec_text(vc="empty")))["FailedNodes"]
    assert failed == {"hivedscheduler": NO_CHAIN_REASON}


def fill_vc_a(world: World, priority: int = 0) -> list[str]:
    """Two pods fill VC a; returns their nodes."""
    return [world.place(name, spec_text(priority=priority))[1] for name in ("low-0", "low-1")]


def test_filter_lists_the_nodes_of_the_victims() -> None:
    world = World()
    nodes = fill_vc_a(world)
    failed = world.filter(world.create("high", spec_text(priority=5)))["FailedNodes"]
    assert set(failed) <= set(nodes)
    assert all("ns/low-" in text for text in failed.values())
    assert "high" not in "".join(world.groups())


def test_preempt_names_the_victims_on_one_candidate_and_reserves() -> None:
    world = World()
    fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5))
    (victim_node,) = world.filter(pod)["FailedNodes"]
    answer = world.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims
    assert answer is not None
    assert list(answer) == [victim_node]
    assert [victim.uid for victim in answer[victim_node].pods] == ["uid-low-0"]
    assert world.groups()["ns/high"]["state"] == "Preempting"
    assert world.pod_counts() == {"Preempting": 1, "Bound": 2}


def test_preempt_names_one_node_even_when_the_gang_has_victims_on_two() -> None:
    world = World()
    fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5, group="g", pods=2))
    assert len(world.filter(pod)["FailedNodes"]) == 2
    answer = world.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims
    assert answer is not None
    assert len(answer) == 1


def test_preempt_names_no_node_that_is_not_a_candidate() -> None:
    world = World()
    nodes = fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5, group="g", pods=2))
    answer = world.service.preempt_victims(preempt_args(pod, nodes[1:])).node_name_to_meta_victims
    assert answer is not None
    assert list(answer) == nodes[1:]
    others = [name for name in NODES if name not in nodes]
    assert world.service.preempt_victims(preempt_args(pod, others)).node_name_to_meta_victims == {}


def test_the_preemptor_is_bound_when_its_victims_are_gone() -> None:
    world = World()
    fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5))
    (victim_node,) = world.filter(pod)["FailedNodes"]
    world.service.preempt_victims(preempt_args(pod))
    world.delete(world.kube.pods["low-0"])
    assert world.filter(pod) == {"NodeNames": [victim_node]}
    assert world.groups()["ns/high"]["state"] == "Allocated"


def test_a_bind_decided_in_the_preempting_phase_is_not_carried_out_but_asks_for_another_try() -> None:
    world = World()
    pod = world.create("p")
    before = world.snapshot()
    # n0 is empty, and kube-scheduler has not named it among the nodes that it could clear.
    assert world.service.preempt_victims(preempt_args(pod, NODES[1:])).node_name_to_meta_victims == {}
    assert world.snapshot() == before
    world.until(world.kube.done.is_set)
    ((path, body),) = world.kube.patches
    assert path == "/api/v1/namespaces/ns/pods/p"
    assert RETRY_ANNOTATION in body["metadata"]["annotations"]


def test_a_pod_refused_on_the_eve_of_a_release_is_asked_to_try_again() -> None:
    world = World()
    first, _ = world.place("p")
    world.place("q")
    world.kube.done.clear()
    refused = world.create("r")
    assert "FailedNodes" in world.filter(refused)
    world.delete(first)
    world.until(world.kube.done.is_set)
    assert [path for path, _ in world.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert "NodeNames" in world.filter(refused)


def test_a_pod_that_could_not_be_asked_to_try_again_is_asked_later() -> None:
    world = World()
    first, _ = world.place("p")
    world.place("q")
    refused = world.create("r")
    assert "FailedNodes" in world.filter(refused)
    world.kube.refusals += [LOST, LOST]
    world.delete(first)
    world.until(lambda: world.kube.patches)
    assert [path for path, _ in world.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert world.kube.refusals == []


def test_a_pod_is_woken_when_binding_it_by_force_was_given_up() -> None:
    world = World()
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    world.kube.refusals += [LOST] * (1 + len(FORCE_WAITS_S))
    assert "FailedNodes" in world.filter(pod, ["n3"])
    world.until(lambda: world.kube.patches)
    assert world.filter(pod, ["n3"])["FailedNodes"]
    world.until(lambda: pod["spec"]["nodeName"])
    assert pod["spec"]["nodeName"] == "n0"


def test_a_pod_that_is_binding_has_nothing_to_preempt() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    before = world.snapshot()
    assert world.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    assert world.snapshot() == before


def test_a_pod_that_stops_preempting_gives_the_cells_back() -> None:
    world = World()
    fill_vc_a(world)
    before = world.snapshot()[0]
    pod = world.create("high", spec_text(priority=5))
    world.service.preempt_victims(preempt_args(pod))
    world.delete(pod)
    assert world.snapshot()[0] == before


def test_a_pod_whose_preemption_was_cancelled_waits_again() -> None:
    world = World()
    fill_vc_a(world)
    world.service.preempt_victims(preempt_args(world.create("high", spec_text(priority=5))))
    assert world.pod_counts() == {"Preempting": 1, "Bound": 2}
    urgent = world.create("urgent", spec_text(priority=9, group="g", pods=2))
    world.service.preempt_victims(preempt_args(urgent))
    assert "ns/high" not in world.groups()
    assert world.pod_counts() == {"Waiting": 1, "Preempting": 1, "Bound": 2}


def test_the_end_of_a_reservation_wakes_pods_that_were_refused_long_ago() -> None:
    world = World()
    victims = [world.place(name, spec_text(priority=0))[0] for name in ("low-0", "low-1")]
    high = world.create("high", spec_text(priority=5, group="g", pods=2))
    world.service.preempt_victims(preempt_args(high))
    for victim in victims:
        world.delete(victim)
    world.until(lambda: "/api/v1/namespaces/ns/pods/high" in [path for path, _ in world.kube.patches])
    refused = world.create("r")
    assert "FailedNodes" in world.filter(refused)
    world.kube.patches.clear()
    world.delete(high)
    world.until(lambda: world.kube.patches)
    assert [path for path, _ in world.kube.patches] == ["/api/v1/namespaces/ns/pods/r"]
    assert "NodeNames" in world.filter(refused)


def preempting_beside_a_waiting_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[World, dict[str, str], list[dict[str, str]]]:
    """VC a's gang of two preempts; one node is cleared for it already, which an opportunistic pod waits for.

    Returns the world, the gang's node that is cleared and the one that is not, and (gang's pod, waiting pod).
    """
    world = World()
    lent = dict(reversed(world.place(f"o{i}", spec_text(vc="b", priority=-1))) for i in range(4))
    for name in ("n1", "n2"):
        world.service.node_seen(node(name, is_ready=False))
    gang = world.create("p", spec_text(group="gang", pods=2))
    world.service.preempt_victims(preempt_args(gang))
    cleared, other = world.groups()["ns:gang"]["physicalPlacement"]
    world.delete(lent[cleared])
    waiting = world.create("q", spec_text(vc="b", priority=-1))
    assert "FailedNodes" in world.filter(waiting)
    world.pass_time(1.0)  # it has looked at both
    world.pass_time(0.1)
    world.kube.patches.clear()
    world.kube.done.clear()
    return world, {"cleared": cleared, "other": other}, [gang, waiting]


def test_a_preemption_that_its_own_pod_gives_up_wakes_the_pods_that_were_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world, nodes, (gang, waiting) = preempting_beside_a_waiting_pod(monkeypatch)
    world.service.node_seen(node(nodes["other"], is_ready=False))
    assert world.service.preempt_victims(preempt_args(gang)).node_name_to_meta_victims == {}
    assert "ns:gang" not in world.groups()
    assert "preemption cancelled" in caplog.messages
    world.until(world.kube.done.is_set)
    assert "/api/v1/namespaces/ns/pods/q" in [path for path, _ in world.kube.patches]
    assert world.filter(waiting) == {"NodeNames": [nodes["cleared"]]}


@pytest.mark.parametrize(
    "annotation",
    ["garbage: [", spec_text(vc="nosuch"), spec_text(vc="b", group="other", leaf_cells=99, pinnedCellId="x")],
)
def test_an_annotation_that_is_refused_does_not_end_a_preemption(annotation: str) -> None:
    world = World()
    fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5))
    world.service.preempt_victims(preempt_args(pod))
    before = world.snapshot()
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = annotation
    with pytest.raises(UserError):
        world.filter(pod)
    assert world.snapshot() == before


def test_an_annotation_that_asks_for_something_else_ends_the_preemption() -> None:
    world = World()
    fill_vc_a(world)
    pod = world.create("high", spec_text(priority=5))
    world.service.preempt_victims(preempt_args(pod))
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(priority=6)
    world.service.preempt_victims(preempt_args(pod))
    assert world.groups()["ns/high"]["priority"] == 6


def test_a_preempting_gang_can_be_changed_pod_by_pod() -> None:
    world = World()
    fill_vc_a(world)
    gang = [world.create(name, spec_text(priority=5, group="gang", pods=2)) for name in ("p", "q")]
    for pod in gang:
        world.service.preempt_victims(preempt_args(pod))
    for pod in gang:
        pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(priority=6, group="gang", pods=2)
    with pytest.raises(UserError, match="does not match its affinity group"):
        world.service.preempt_victims(preempt_args(gang[0]))
    for pod in reversed(gang):
        world.service.preempt_victims(preempt_args(pod))
    assert (world.groups()["ns:gang"]["priority"], len(world.groups()["ns:gang"]["preemptingPods"])) == (6, 2)


def test_requests_that_are_refused_before_the_core_is_asked_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    pod, _ = world.place("p")
    other = world.create("q")
    for body in (filter_args(pod), filter_args(other, 3)):
        caplog.clear()
        with pytest.raises(UserError):
            world.service.filter_nodes(body)
        assert caplog.messages == ["decision"]
    count = world.service.metrics.registry.get_sample_value
    assert count("hived_decisions_total", {"verb": "filter", "outcome": "error"}) == 2


def test_a_deleted_pod_releases_its_cells_whatever_its_state() -> None:
    world = World()
    empty = world.snapshot()
    waiting, binding = world.create("w"), world.create("p")
    world.filter(binding)
    bound, _ = world.place("q")
    for pod in (waiting, binding, bound):
        world.delete(pod)
    assert world.snapshot() == empty
    assert world.pod_counts() == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_completed_pod_releases_its_cells(phase: str) -> None:
    world = World()
    empty = world.snapshot()
    pod, _ = world.place("p")
    pod["status"]["phase"] = phase
    world.see(pod)
    assert world.snapshot() == empty


def test_a_pod_that_is_being_deleted_keeps_its_cells_until_it_is_gone() -> None:
    world = World()
    pod, _ = world.place("p")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    before = world.snapshot()
    world.see(pod)
    assert world.snapshot() == before


def test_a_pod_that_was_recreated_under_its_name_is_another_pod() -> None:
    world = World()
    first, _ = world.place("p")
    world.delete(first)
    second = world.create("p", uid="second")
    assert world.filter(second) == {"NodeNames": ["n0"]}
    with pytest.raises(UserError, match="not known"):
        world.filter(first)


@pytest.mark.parametrize("change", [{"uid": "stranger"}, {"name": "another"}, {"namespace": "elsewhere"}, {"uid": ""}])
def test_a_pod_that_kubernetes_has_not_told_of_is_refused(change: dict[str, str]) -> None:
    world = World()
    pod = world.create("p")
    pod["metadata"] |= change
    with pytest.raises(UserError, match="is not known"):
        world.filter(pod)


def test_a_pod_that_is_not_ours_passes() -> None:
    world = World()
    pod = pod_json("p", spec_text())
    pod["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    world.kube.add(pod)
    world.service.pod_seen(to_pod(pod))
    assert world.filter(pod)["NodeNames"] == list(NODES)
    assert world.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    world.bind(pod, "n3")
    assert world.kube.pods["p"]["spec"]["nodeName"] == "n3"
    assert world.groups() == {}


def test_a_pod_of_ours_that_nobody_knows_is_not_bound() -> None:
    world = World()
    pod = pod_json("p", spec_text())
    world.kube.add(pod)
    with pytest.raises(UserError, match="is not known"):
        world.bind(pod, "n3")
    assert not world.kube.pods["p"]["spec"]["nodeName"]


def test_a_bound_pod_is_refused_by_filter_and_preempt() -> None:
    world = World()
    pod, where = world.place("p")
    with pytest.raises(UserError, match=f"already bound to node {where}"):
        world.filter(pod)
    with pytest.raises(UserError, match=f"already bound to node {where}"):
        world.service.preempt_victims(preempt_args(pod))


@pytest.mark.parametrize("is_seen_before", [True, False], ids=["before it leads", "while it leads"])
def test_that_a_pod_waits_is_taken_back_by_who_finds_it_bound(is_seen_before: bool) -> None:
    pod, _ = World().place("p")
    waiting = {"type": CONDITION_TYPE, "status": "False", "reason": "Waiting", "message": "no room"}
    pod["status"]["conditions"] = [waiting]
    world = World(is_leading=not is_seen_before)
    world.kube.add(pod)
    world.see(pod)
    if is_seen_before:
        world.lead()
    world.service.close()
    (condition,) = world.kube.pods["p"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Allocated")
    assert world.kube.events == []


def test_an_annotation_that_cannot_be_used_is_the_users_error_and_changes_nothing() -> None:
    world = World()
    world.place("q")
    before = world.snapshot()
    for number, text in enumerate(["", "{", "virtualCluster: a", spec_text(vc="none"), spec_text(leaf_cells=-1)]):
        with pytest.raises(UserError):
            world.filter(world.create(f"p{number}", text))
    assert world.snapshot() == before


def test_an_annotation_that_was_repaired_is_read_again() -> None:
    world = World()
    pod = world.create("p", spec_text(vc="none"))
    with pytest.raises(UserError, match="VC none does not exist"):
        world.filter(pod)
    pod = pod_json("p", spec_text())
    assert world.filter(pod) == {"NodeNames": ["n0"]}


def test_a_spec_that_changes_while_preempting_gives_the_old_reservation_back() -> None:
    world = World()
    fill_vc_a(world)
    world.service.preempt_victims(preempt_args(world.create("high", spec_text(priority=5, group="g"))))
    assert world.groups()["ns:g"]["preemptingPods"] == ["uid-high"]
    world.filter(pod_json("high", spec_text(priority=5, group="h")))
    assert "ns:g" not in world.groups()


def test_node_names_that_are_null_are_an_error() -> None:
    world = World()
    with pytest.raises(UserError, match="nodeCacheCapable"):
        world.service.filter_nodes(filter_args(world.create("p"), None))


def test_verbs_are_refused_until_recovery_is_over() -> None:
    world = World(is_leading=False)
    pod = world.create("p")
    with pytest.raises(UserError, match="being replayed") as caught:
        world.filter(pod)
    assert caught.value.code == 503
    world.lead()
    assert world.filter(pod) == {"NodeNames": ["n0"]}


def test_nodes_that_are_not_ready_or_cordoned_or_gone_are_bad() -> None:
    world = World()
    world.service.node_seen(node("n0", is_ready=False))
    world.service.node_seen(node("n1", is_cordoned=True))
    world.service.node_gone(node("n2"))
    world.service.node_seen(node("not-configured"))
    assert world.filter(world.create("p")) == {"NodeNames": ["n3"]}
    assert world.service.metrics.registry.get_sample_value("hived_bad_nodes") == 3


def test_a_node_missing_from_a_full_list_is_bad() -> None:
    world = World()
    world.service.sync_nodes([node("n1")])
    assert world.filter(world.create("p")) == {"NodeNames": ["n1"]}


def test_a_pod_missing_from_a_full_list_is_gone() -> None:
    world = World()
    empty = world.snapshot()
    world.place("p")
    world.service.sync_pods([])
    assert world.snapshot() == empty


def test_a_binding_pod_bound_elsewhere_by_somebody_is_accounted_by_its_annotations() -> None:
    world = World()
    other, where = world.place("q")
    notes = dict(world.kube.pods["q"]["metadata"]["annotations"])
    world.delete(other)
    pod = world.create("p")
    world.service.node_seen(node(where, is_ready=False))
    assert world.filter(pod) != {"NodeNames": [where]}
    world.service.pod_seen(to_pod(pod_json("p", node=where, annotations=notes)))
    assert world.groups()["ns/p"]["physicalPlacement"] == {where: [0, 1, 2, 3]}
    assert world.pod_counts() == {"Bound": 1}


def test_a_binding_pod_bound_to_other_cells_of_its_node_is_accounted_by_its_annotations() -> None:
    world = World()
    world.place("other", spec_text(leaf_cells=1))
    second, where = world.place("q", spec_text(leaf_cells=1))
    notes = dict(second["metadata"]["annotations"])
    world.delete(second)
    world.delete(world.kube.pods["other"])
    pod = world.create("p", spec_text(leaf_cells=1))
    assert world.filter(pod) == {"NodeNames": [where]}
    assert world.groups()["ns/p"]["physicalPlacement"] == {where: [0]}
    world.service.pod_seen(to_pod(pod_json("p", node=where, annotations=notes)))
    assert world.groups()["ns/p"]["physicalPlacement"] == {where: [1]}
    assert world.pod_counts() == {"Bound": 1}


def test_a_binding_pod_bound_to_its_node_without_annotations_keeps_its_cells() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    before = world.snapshot()
    world.service.pod_seen(to_pod(pod_json("p", spec_text(), node="n0")))
    assert world.snapshot() == before
    assert world.pod_counts() == {"Bound": 1}


def test_a_pod_bound_without_our_annotations_is_known_but_holds_nothing() -> None:
    world = World()
    empty = world.snapshot()
    world.create("p", node="n0")
    assert world.pod_counts() == {"Bound": 1}
    assert world.snapshot() == empty
    assert world.service.metrics.registry.get_sample_value("hived_recovery_failures_total") == 1


def test_a_pod_that_runs_elsewhere_than_its_annotation_says_holds_nothing() -> None:
    world = World()
    empty = world.snapshot()
    world.place("q")
    notes = dict(world.kube.pods["q"]["metadata"]["annotations"])
    world.delete(world.kube.pods["q"])
    world.create("p", node="n3", annotations=notes)
    assert world.snapshot() == empty


def test_lazy_preemption_is_shown_with_its_time() -> None:
    world = World()
    for name in ("low-0", "low-1"):
        world.place(name, spec_text(lazyPreemptionEnable=True))
    world.place("high", spec_text(priority=5))
    status = world.groups()["ns/low-0"]["lazyPreemptionStatus"]
    assert status["preemptor"] == "ns/high"
    assert status["preemptionTime"].endswith("Z")


def test_lazy_preemption_by_a_preemptor_is_shown_with_its_time() -> None:
    world = World()
    world.place("lazy", spec_text(lazyPreemptionEnable=True))
    world.place("low")
    world.service.preempt_victims(preempt_args(world.create("high", spec_text(priority=5, group="g", pods=2))))
    status = world.groups()["ns/lazy"].get("lazyPreemptionStatus")
    assert status is not None
    assert status["preemptor"] == "ns:g"
    assert status["preemptionTime"].endswith("Z")


def test_decisions_are_logged_with_pod_group_vc_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level("INFO"):
        world.filter(world.create("p", spec_text(vc="b", group="g")))
    (fields,) = [record.__dict__["fields"] for record in caplog.records if record.message == "decision"]
    assert fields.pop("us") >= 0
    assert fields == {
        "pod": "ns/p",
        "group": "ns:g",
        "vc": "b",
        "verb": "filter",
        "outcome": "bind",
        "reason": "node n0",
    }


def test_leaf_cells_are_counted_per_virtual_cluster() -> None:
    world = World()
    world.place("p", spec_text(leaf_cells=2))
    world.place("q", spec_text(leaf_cells=1, priority=-1))
    read = world.service.metrics.registry.get_sample_value
    assert read("hived_leaf_cells", {"vc": "a", "use": "used"}) == 2
    assert read("hived_leaf_cells", {"vc": "a", "use": "free"}) == 6
    assert read("hived_groups", {"state": "Allocated"}) == 2


class TestAfterAnInternalError:
    """The core broke a rule of its own: nothing is answered with success any more."""

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> World:
        world = World()
        world.place("q")
        pod = world.create("p")

        def explode(*_: object) -> None:
            raise IndexError("list out of range")

        with monkeypatch.context() as patch:
            patch.setattr("hived_extender.service.ledger.handle", explode)
            with pytest.raises(Exception, match="stopped after an internal error"):
                world.filter(pod)
        return world

    def test_it_says_what_broke(self, broken: World) -> None:
        assert broken.service.fault == "IndexError: list out of range"
        assert not broken.service.is_ready

    def test_every_verb_is_refused(self, broken: World) -> None:
        pod = broken.kube.pods["p"]
        for call in (
            lambda: broken.filter(pod),
            lambda: broken.service.preempt_victims(preempt_args(pod)),
            lambda: broken.bind(broken.kube.pods["q"], "n0"),
        ):
            with pytest.raises(Exception, match="stopped after an internal error"):
                call()

    def test_facts_are_no_longer_taken_in(self, broken: World) -> None:
        before = broken.snapshot()
        broken.service.pod_gone("uid-q")
        broken.service.node_gone(node("n0"))
        assert broken.snapshot() == before
