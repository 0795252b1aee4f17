"""From a decided place to the binding: kube-scheduler may refuse it (rules 26.7, 26.8 and 27.13)."""

import pytest

from hived.values.errors import UserError
from hived_extender.kube.client import KubeError
from hived_extender.machine import acceptance, emptied
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import (
    NODES,
    Json,
    SmallCluster,
    node_json,
    pod_json,
    spec_text,
    to_node,
    to_pod,
)
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

OTHERS = ["n1", "n2", "n3"]


def test_a_place_that_is_not_offered_any_more_is_given_up_for_one_that_is() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    assert cluster.filter(pod)["NodeNames"] == ["n0"]
    assert cluster.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    cluster.bind(pod, "n1")
    assert cluster.kube.bind_calls == [("p", "n1")]


def test_a_pod_is_not_bound_where_no_place_is_offered() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    for _ in range(5):
        assert "FailedNodes" in cluster.filter(pod, ["elsewhere"])
    assert cluster.kube.bind_calls == []


def test_a_nominated_node_that_is_offered_alone_costs_nobody_his_place() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    assert cluster.filter(pod)["NodeNames"] == ["n0"]
    assert "FailedNodes" in cluster.filter(pod, ["n3"])
    assert cluster.filter(pod)["NodeNames"] == ["n0"]


def test_a_node_that_is_offered_alone_twice_is_all_there_is() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.filter(pod, ["n3"])
    assert cluster.filter(pod, ["n3"])["NodeNames"] == ["n3"]


def test_a_pod_whose_binding_is_under_way_keeps_its_place() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    answers: list[object] = []
    cluster.kube.on_bind = lambda: answers.append(cluster.filter(pod, OTHERS).get("FailedNodes"))
    cluster.bind(pod, "n0")
    assert pod["spec"]["nodeName"] == "n0"
    assert "being bound to node n0" in str(answers)


def test_a_pod_keeps_its_place_while_one_of_two_bindings_is_under_way() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    answers: list[object] = []

    def fail_the_second() -> None:
        cluster.kube.on_bind = lambda: cluster.kube.touch(pod)
        with pytest.raises(UserError, match="changed 5 times"):
            cluster.bind(pod, "n0")
        cluster.kube.on_bind = lambda: None
        answers.append(cluster.filter(pod, OTHERS).get("FailedNodes"))

    cluster.kube.on_bind = fail_the_second
    cluster.bind(pod, "n0")
    assert "being bound to node n0" in str(answers)


def test_all_of_a_gang_moves_while_none_of_it_is_bound() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    for pod in pods:
        cluster.filter(pod)
    others = sorted(set(NODES) - set(cluster.decided().values()))
    cluster.filter(pods[0], others)
    cluster.filter(pods[1], others)
    assert sorted(cluster.decided().values()) == others


def test_a_pod_of_a_gang_moves_alone_once_another_is_bound() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    for pod in pods:
        cluster.filter(pod)
    places = cluster.decided()
    cluster.bind(pods[0], places["w-0"])
    others = sorted(set(NODES) - set(places.values()))
    assert cluster.filter(pods[1], others)["NodeNames"][0] in others
    assert cluster.decided()["w-0"] == places["w-0"]


def test_pods_of_an_own_group_move_together() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    assert cluster.filter(pods[0])["NodeNames"] == ["n0"]
    assert cluster.filter(pods[0], ["n2", "n3"])["NodeNames"] == ["n2"]
    assert cluster.filter(pods[1], ["n2", "n3"])["NodeNames"] == ["n3"]


def test_a_later_pod_of_an_own_group_takes_the_place_that_it_is_offered() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    assert cluster.filter(pods[0])["NodeNames"] == ["n0"]
    cluster.bind(pods[0], "n0")
    assert "FailedNodes" in cluster.filter(pods[1], ["n1", "n2"])
    assert cluster.filter(pods[1])["NodeNames"] == ["n3"]


def test_a_pod_that_is_refused_place_after_place_waits_for_a_change() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    for turn in range(2 * acceptance.MOST_REFUSALS + 2):
        reason = cluster.filter(pod, NODES[:2] if turn % 2 else NODES[2:]).get("FailedNodes")
        if reason:
            break
    assert "places for it in a row" in str(reason)


def started(cluster: SmallGangCluster) -> list[Json]:
    """Two pods that start together; kube-scheduler has asked about the first."""
    pods = [cluster.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    assert cluster.filter(pods[0])["NodeNames"]
    return pods


def test_the_first_question_gives_all_of_a_gang_their_places() -> None:
    cluster = SmallGangCluster()
    started(cluster)
    assert len(cluster.decided()) == 2


def test_no_pod_of_a_gang_is_bound_before_kube_scheduler_has_accepted_all() -> None:
    cluster = SmallGangCluster()
    pods = started(cluster)
    node = cluster.decided()["w-0"]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-1"):
        cluster.bind(pods[0], node)
    assert cluster.kube.bind_calls == []


def test_a_refused_binding_ends_the_acceptance_of_all_that_start_together() -> None:
    cluster = SmallGangCluster()
    pods = started(cluster)
    node = cluster.decided()["w-0"]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-1"):
        cluster.bind(pods[0], node)  # it was held back for too long: kube-scheduler gives its room to others
    for pod in reversed(pods):
        assert "it has its place" in str(cluster.filter(pod))
    cluster.pass_time(3)
    assert cluster.filter(pods[1])["NodeNames"]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-0"):
        cluster.bind(pods[1], cluster.decided()["w-1"])
    for pod in pods:
        cluster.filter(pod)
    cluster.pass_time(5)
    for pod in pods:
        assert cluster.filter(pod)["NodeNames"]
    cluster.bind(pods[0], node)
    assert cluster.kube.bind_calls == [("w-0", node)]


def test_a_binding_is_held_back_until_the_last_pod_is_accepted() -> None:
    cluster = SmallGangCluster()
    pods = started(cluster)
    hold = cluster.service.hold_of("uid-w-0")
    assert hold is not None
    assert not hold.done()
    cluster.filter(pods[1])
    assert hold.done()
    assert cluster.service.hold_of("uid-w-0") is None


def test_a_gang_of_which_one_pod_is_refused_everywhere_gives_all_places_back() -> None:
    cluster = SmallGangCluster()
    pods = started(cluster)
    hold = cluster.service.hold_of("uid-w-0")
    assert "FailedNodes" in cluster.filter(pods[1], ["elsewhere", "unknown"])
    assert "FailedNodes" in cluster.filter(pods[1], ["elsewhere", "unknown"])
    assert cluster.decided() == {}
    assert hold is not None
    assert hold.done()


def test_a_gang_of_which_a_pod_goes_gives_all_places_back() -> None:
    cluster = SmallGangCluster()
    started(cluster)
    cluster.drop("w-1")
    assert cluster.decided() == {}


def test_a_gang_that_is_not_accepted_in_time_has_to_be_asked_about_as_a_whole() -> None:
    cluster = SmallGangCluster()
    pods = started(cluster)
    cluster.until(lambda: cluster.decided() == {})
    assert "found no node yet for w-1" in str(cluster.filter(pods[0]))
    assert cluster.filter(pods[1])["NodeNames"]
    assert len(cluster.decided()) == 2
    cluster.service.close()


def test_a_pod_that_joins_a_gang_before_all_of_it_is_accepted_is_held_back_with_it() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{index}", 2, koordinator("train", 2)) for index in range(3)]
    cluster.filter(pods[0])
    node = cluster.filter(pods[2])["NodeNames"][0]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-1"):
        cluster.bind(pods[2], node)
    cluster.filter(pods[1])
    cluster.bind(pods[2], node)
    assert cluster.kube.bind_calls == [("w-2", node)]


def test_a_pod_that_joins_a_gang_takes_no_place_from_it_when_it_goes() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{index}", 2, koordinator("train", 2)) for index in range(3)]
    cluster.filter(pods[0])
    cluster.filter(pods[2])
    cluster.drop("w-2")
    assert cluster.decided().keys() == {"w-0", "w-1"}


def test_pods_without_cells_are_accepted_too() -> None:
    cluster = SmallGangCluster()
    worker, server = cluster.pod("w", 4, koordinator("train", 2)), cluster.pod("ps", 0, koordinator("train", 2))
    cluster.filter(worker)
    assert cluster.service.hold_of("uid-w") is not None
    cluster.filter(server)
    assert cluster.service.hold_of("uid-w") is None


def test_a_pod_that_kube_scheduler_has_forgotten_is_bound_all_the_same() -> None:
    cluster = SmallCluster()
    cluster.filter(cluster.create("p"))
    cluster.until(lambda: cluster.kube.patches)  # it was accepted, and is not bound: kube-scheduler is to ask again
    cluster.pass_time(acceptance.FORGOTTEN_S)
    assert cluster.kube.bind_calls == []
    cluster.pass_time(120)
    assert cluster.kube.pods["p"]["spec"]["nodeName"]
    assert ("p", "ForcedBinding") in cluster.kube.events
    assert cluster.service.metrics.registry.get_sample_value("hived_forced_bindings_total") == 1
    cluster.service.close()


@pytest.mark.parametrize(
    "need",
    [
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]},
        {"nodeSelector": {"disk": "ssd"}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}}},
    ],
    ids=["a volume", "a claim", "a node selector", "an affinity"],
)  # fmt: skip
def test_a_pod_that_needs_kube_scheduler_is_never_bound_without_it(need: dict[str, object]) -> None:
    cluster = SmallGangCluster()
    cluster.filter(cluster.pod("p", 4, **need))
    assert cluster.decided()
    cluster.pass_time(3 * acceptance.FORGOTTEN_S)
    assert ("p", "NotHandled") in cluster.kube.events
    assert cluster.kube.bind_calls == []
    cluster.service.close()


def test_a_pod_that_ignores_offers_is_not_forced_past_its_volumes() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.kube.touch(pod)
    cluster.service.pod_seen(to_pod(pod))
    assert cluster.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    assert cluster.kube.bind_calls == []


def preempting(cluster: SmallCluster) -> Json:
    """A pod that nobody asks about, whose victim has left; the other one of its VC runs on."""
    low = {name: cluster.place(name, spec_text(priority=1))[0] for name in ("low-0", "low-1")}
    pod = cluster.create("p", spec_text(priority=5))
    cluster.until(lambda: cluster.kube.leaving)
    cluster.delete(low[cluster.kube.leaving[0][1]])
    return pod


def test_cells_that_victims_have_left_in_vain_are_given_back() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    preempting(cluster)
    cluster.until(lambda: "ns/p" not in cluster.groups())
    assert "NodeNames" in cluster.filter(cluster.create("q", spec_text(priority=1)))
    assert len(cluster.kube.leaving) == 1
    cluster.service.close()


def test_cells_on_a_node_that_is_not_offered_when_it_is_empty_are_waited_for_and_then_given_back() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    pod = preempting(cluster)
    (node,) = (
        cluster.service.machine.cache.core.nodes_of("ns/p") if cluster.service.machine.cache.core is not None else [""]
    )
    others = sorted(set(NODES) - {node})
    for _ in range(emptied.MOST_LOOKS - 1):
        assert "others have left its cells" in str(cluster.filter(pod, others))
    cluster.filter(pod, others)
    assert cluster.groups().get("ns/p", {}).get("state") != "Preempting"
    cluster.service.close()


def test_a_pod_with_volumes_preempts_only_where_kube_scheduler_says() -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    for name in ("low-0", "low-1"):
        cluster.place(name, spec_text(priority=1))
    pod = cluster.create("p", spec_text(priority=5))
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.kube.touch(pod)
    cluster.service.pod_seen(to_pod(pod))
    assert "FailedNodes" in cluster.filter(pod, [])
    assert cluster.kube.leaving == []
    cluster.service.close()


def test_a_node_that_is_offered_alone_says_nothing_of_pods_alike() -> None:
    cluster = SmallCluster()
    pods = [cluster.create(name) for name in ("p", "q")]
    cluster.filter(pods[0])
    record = cluster.service.machine.cache.pods.get("uid-q")
    assert record is not None
    request = record.request
    assert request is not None
    before = cluster.service.machine.cache.offers.of(request, [record])
    cluster.filter(pods[0], ["n3"])
    after = cluster.service.machine.cache.offers.of(request, [record])
    assert before is not None
    assert after is not None
    assert before.nodes.tolist() == after.nodes.tolist()


def test_a_binding_without_an_answer_keeps_its_place_until_the_pod_has_another_version() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.kube.refusals = [KubeError(0, "NoAnswer", "it is away")] * 3  # nor can the pod be touched
    with pytest.raises(UserError):
        cluster.bind(pod, "n0")
    cluster.service.pod_seen(to_pod(pod), is_listed=True)
    assert "FailedNodes" in cluster.filter(pod, OTHERS)
    cluster.kube.refusals.clear()
    cluster.kube.touch(pod)
    cluster.service.pod_seen(to_pod(pod))
    assert cluster.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    cluster.service.close()


def test_a_group_of_more_pods_than_any_cluster_has_waits_and_stops_nobody() -> None:
    cluster = SmallCluster()
    huge = cluster.create("huge", spec_text(group="huge", pods=2**31 - 1))
    assert "needs 2,147,483,647 nodes of 4 GPUs each at once; it can never run" in str(
        cluster.filter(huge)["FailedNodes"]
    )
    assert cluster.filter(cluster.create("p"))["NodeNames"] == ["n0"]


@pytest.mark.parametrize("crowded", ["low-0", "low-1"])
def test_nobody_leaves_a_node_that_stays_too_full_of_pods_without_cells(crowded: str) -> None:
    cluster = SmallCluster(preemption=PreemptionPolicy())
    for name in NODES:
        amounts = {"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"}
        body = node_json(name)
        cluster.service.node_seen(to_node(body | {"status": body["status"] | {"allocatable": amounts}}))
    places = {name: cluster.place(name, spec_text(priority=1))[1] for name in ("low-0", "low-1")}
    asks = [{"resources": {"requests": {"cpu": "6"}}}]
    other = pod_json("other", node=places[crowded], phase="Running")
    other["spec"]["containers"] = asks
    cluster.service.pod_seen(to_pod(other))
    pod = pod_json("p", spec_text(priority=5))
    pod["spec"]["containers"] += asks
    cluster.kube.add(pod)
    cluster.service.pod_seen(to_pod(pod))
    cluster.filter(pod, [])
    cluster.until(lambda: cluster.kube.leaving)
    assert {name for _, name in cluster.kube.leaving} == {"low-0", "low-1"} - {crowded}
    cluster.service.close()


def test_nothing_is_expected_of_a_pod_that_was_deleted_while_it_was_being_bound() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.kube.on_bind = lambda: cluster.delete(pod)
    with pytest.raises(UserError, match="not found"):
        cluster.bind(pod, "n0")
    assert not {kind for kind, _ in cluster.service.machine._outbox.timers._valid} & {
        *acceptance.TIMERS,
        *emptied.TIMERS,
    }
    cluster.service.close()


def test_a_binding_without_an_answer_is_not_forgotten_for_one_that_failed() -> None:
    cluster = SmallCluster()
    pod = cluster.create("p")
    cluster.filter(pod)
    cluster.kube.refusals = [KubeError(0, "NoAnswer", "timed out")]
    with pytest.raises(UserError):
        cluster.bind(pod, "n0")
    cluster.kube.on_bind = lambda: cluster.kube.touch(pod)
    with pytest.raises(UserError, match="changed 5 times"):
        cluster.bind(pod, "n0")
    assert "being bound to node n0" in str(cluster.filter(pod, OTHERS).get("FailedNodes"))
    cluster.service.close()


def test_a_binding_of_another_term_counts_no_more() -> None:
    cluster = SmallGangCluster()
    pod = cluster.pod("cpu", 0, koordinator("train", 1))
    cluster.filter(pod)

    def lose_the_lease() -> None:
        cluster.service.follow("the lease is lost")
        raise KubeError(0, "NoAnswer", "reset")

    cluster.kube.on_bind = lose_the_lease
    with pytest.raises(UserError):
        cluster.bind(pod, "n0")
    record = cluster.service.machine.cache.pods.get(pod["metadata"]["uid"])
    assert record is not None
    assert not record.writing.count
    cluster.service.close()


def test_an_own_group_starts_with_none_of_its_pods_if_one_that_is_there_may_run_nowhere() -> None:
    cluster = SmallCluster()
    pods = [pod_json(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    pods[1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    for pod in pods:
        cluster.kube.add(pod)
        cluster.service.pod_seen(to_pod(pod))
    assert "Kubernetes rules out the nodes with room of a" in str(cluster.filter(pods[0]).get("FailedNodes"))
    cluster.delete(pods[1])
    assert cluster.filter(pods[0])["NodeNames"] == ["n0"]


def test_each_pod_of_an_own_group_gets_a_node_that_it_may_use() -> None:
    cluster = SmallCluster()
    for name, zone in zip(NODES, "abab", strict=True):
        body = node_json(name)
        body["metadata"]["labels"] = {"zone": zone}
        cluster.service.node_seen(to_node(body))
    pods = [pod_json(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    for pod, zone in zip(pods, "ba", strict=True):
        pod["spec"]["nodeSelector"] = {"zone": zone}
        cluster.kube.add(pod)
        cluster.service.pod_seen(to_pod(pod))
    zones = {"a": NODES[::2], "b": NODES[1::2]}
    assert cluster.filter(pods[0], zones["b"])["NodeNames"][0] in zones["b"]
    assert cluster.filter(pods[1], zones["a"])["NodeNames"][0] in zones["a"]


def test_a_gang_that_gives_its_places_back_reserves_none_for_its_later_pods() -> None:
    cluster = SmallGangCluster()
    for index in range(3):
        cluster.place(f"lent-{index}", spec_text("b", priority=-1, leaf_cells=4))
    pods = [cluster.pod(f"w-{index}", gpus, koordinator("train", 2)) for index, gpus in enumerate((1, 1, 4))]
    cluster.filter(pods[0])
    cluster.filter(pods[2])
    (alone,) = [name for name, group in cluster.groups().items() if group["state"] == "Preempting"]
    for _ in range(2):
        cluster.filter(pods[1], ["elsewhere", "unknown"])
    assert cluster.decided().keys() == {"lent-0", "lent-1", "lent-2"}
    assert alone not in cluster.groups()
