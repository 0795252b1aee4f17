"""From a decided place to the binding: kube-scheduler's refusal is final, and binding without it is the exception."""

import pytest

from hived.errors import UserError
from hived_extender.kube.client import KubeError
from hived_extender.service import acceptance
from hived_extender.service.preemptions import PreemptionPolicy
from tests.extender.service.gang_world import GangWorld, koordinator
from tests.extender.service.world import NODES, Json, World, node_json, pod_json, spec_text, to_node, to_pod

OTHERS = ["n1", "n2", "n3"]


def test_a_place_that_is_not_offered_any_more_is_given_up_for_one_that_is() -> None:
    world = World()
    pod = world.create("p")
    assert world.filter(pod)["NodeNames"] == ["n0"]
    assert world.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    world.bind(pod, "n1")
    assert world.kube.bind_calls == [("p", "n1")]


def test_a_pod_is_not_bound_where_no_place_is_offered() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    for _ in range(5):
        assert "FailedNodes" in world.filter(pod, ["elsewhere"])
    assert world.kube.bind_calls == []


def test_a_nominated_node_that_is_offered_alone_costs_nobody_his_place() -> None:
    world = World()
    pod = world.create("p")
    assert world.filter(pod)["NodeNames"] == ["n0"]
    assert "FailedNodes" in world.filter(pod, ["n3"])
    assert world.filter(pod)["NodeNames"] == ["n0"]


def test_a_node_that_is_offered_alone_twice_is_all_there_is() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    world.filter(pod, ["n3"])
    assert world.filter(pod, ["n3"])["NodeNames"] == ["n3"]


def test_a_pod_whose_binding_is_under_way_keeps_its_place() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    answers: list[object] = []
    world.kube.on_bind = lambda: answers.append(world.filter(pod, OTHERS).get("FailedNodes"))
    world.bind(pod, "n0")
    assert pod["spec"]["nodeName"] == "n0"
    assert "being bound to node n0" in str(answers)


def test_a_pod_keeps_its_place_while_one_of_two_bindings_is_under_way() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    answers: list[object] = []

    def fail_the_second() -> None:
        world.kube.on_bind = lambda: world.kube.touch(pod)
        with pytest.raises(UserError, match="changed 5 times"):
            world.bind(pod, "n0")
        world.kube.on_bind = lambda: None
        answers.append(world.filter(pod, OTHERS).get("FailedNodes"))

    world.kube.on_bind = fail_the_second
    world.bind(pod, "n0")
    assert "being bound to node n0" in str(answers)


def test_all_of_a_gang_moves_while_none_of_it_is_bound() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    for pod in pods:
        world.filter(pod)
    others = sorted(set(NODES) - set(world.decided().values()))
    world.filter(pods[0], others)
    world.filter(pods[1], others)
    assert sorted(world.decided().values()) == others


def test_a_pod_of_a_gang_moves_alone_once_another_is_bound() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    for pod in pods:
        world.filter(pod)
    places = world.decided()
    world.bind(pods[0], places["w-0"])
    others = sorted(set(NODES) - set(places.values()))
    assert world.filter(pods[1], others)["NodeNames"][0] in others
    assert world.decided()["w-0"] == places["w-0"]


def test_pods_of_an_own_group_move_together() -> None:
    world = World()
    pods = [world.create(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    assert world.filter(pods[0])["NodeNames"] == ["n0"]
    assert world.filter(pods[0], ["n2", "n3"])["NodeNames"] == ["n2"]
    assert world.filter(pods[1], ["n2", "n3"])["NodeNames"] == ["n3"]


def test_a_later_pod_of_an_own_group_takes_the_place_that_it_is_offered() -> None:
    world = World()
    pods = [world.create(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    assert world.filter(pods[0])["NodeNames"] == ["n0"]
    world.bind(pods[0], "n0")
    assert "FailedNodes" in world.filter(pods[1], ["n1", "n2"])
    assert world.filter(pods[1])["NodeNames"] == ["n3"]


def test_a_pod_that_is_refused_place_after_place_waits_for_a_change() -> None:
    world = World()
    pod = world.create("p")
    for turn in range(2 * acceptance.MOST_REFUSALS + 2):
        reason = world.filter(pod, NODES[:2] if turn % 2 else NODES[2:]).get("FailedNodes")
        if reason:
            break
    assert "places in a row" in str(reason)


def started(world: GangWorld) -> list[Json]:
    """Two pods that start together; kube-scheduler has asked about the first."""
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    assert world.filter(pods[0])["NodeNames"]
    return pods


def test_the_first_question_gives_all_of_a_gang_their_places() -> None:
    world = GangWorld()
    started(world)
    assert len(world.decided()) == 2


def test_no_pod_of_a_gang_is_bound_before_kube_scheduler_has_accepted_all() -> None:
    world = GangWorld()
    pods = started(world)
    node = world.decided()["w-0"]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-1"):
        world.bind(pods[0], node)
    world.filter(pods[1])
    world.bind(pods[0], node)
    assert world.kube.bind_calls == [("w-0", node)]


def test_a_binding_is_held_back_until_the_last_pod_is_accepted() -> None:
    world = GangWorld()
    pods = started(world)
    hold = world.service.hold_of("uid-w-0")
    assert hold is not None
    assert not hold.done()
    world.filter(pods[1])
    assert hold.done()
    assert world.service.hold_of("uid-w-0") is None


def test_a_gang_of_which_one_pod_is_refused_everywhere_gives_all_places_back() -> None:
    world = GangWorld()
    pods = started(world)
    hold = world.service.hold_of("uid-w-0")
    assert "FailedNodes" in world.filter(pods[1], ["elsewhere", "unknown"])
    assert "FailedNodes" in world.filter(pods[1], ["elsewhere", "unknown"])
    assert world.decided() == {}
    assert hold is not None
    assert hold.done()


def test_a_gang_of_which_a_pod_goes_gives_all_places_back() -> None:
    world = GangWorld()
    started(world)
    world.drop("w-1")
    assert world.decided() == {}


def test_a_gang_that_is_not_accepted_in_time_has_to_be_asked_about_as_a_whole() -> None:
    world = GangWorld()
    pods = started(world)
    world.until(lambda: world.decided() == {})
    assert "found no node yet for w-1" in str(world.filter(pods[0]))
    assert world.filter(pods[1])["NodeNames"]
    assert len(world.decided()) == 2
    world.service.close()


def test_a_pod_that_joins_a_gang_before_all_of_it_is_accepted_is_held_back_with_it() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{index}", 2, koordinator("train", 2)) for index in range(3)]
    world.filter(pods[0])
    node = world.filter(pods[2])["NodeNames"][0]
    with pytest.raises(UserError, match="accepted the nodes of its mates: w-1"):
        world.bind(pods[2], node)
    world.filter(pods[1])
    world.bind(pods[2], node)
    assert world.kube.bind_calls == [("w-2", node)]


def test_a_pod_that_joins_a_gang_takes_no_place_from_it_when_it_goes() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{index}", 2, koordinator("train", 2)) for index in range(3)]
    world.filter(pods[0])
    world.filter(pods[2])
    world.drop("w-2")
    assert world.decided().keys() == {"w-0", "w-1"}


def test_pods_without_cells_are_accepted_too() -> None:
    world = GangWorld()
    worker, server = world.pod("w", 4, koordinator("train", 2)), world.pod("ps", 0, koordinator("train", 2))
    world.filter(worker)
    assert world.service.hold_of("uid-w") is not None
    world.filter(server)
    assert world.service.hold_of("uid-w") is None


def test_a_pod_that_kube_scheduler_has_forgotten_is_bound_all_the_same() -> None:
    world = World()
    world.filter(world.create("p"))
    world.until(lambda: world.kube.patches)  # it was accepted, and is not bound: kube-scheduler is to ask again
    world.pass_time(acceptance.FORGOTTEN_S)
    assert world.kube.bind_calls == []
    world.pass_time(120)
    assert world.kube.pods["p"]["spec"]["nodeName"]
    assert ("p", "ForcedBinding") in world.kube.events
    assert world.service.metrics.registry.get_sample_value("hived_forced_bindings_total") == 1
    world.service.close()


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
    world = GangWorld()
    world.filter(world.pod("p", 4, **need))
    assert world.decided()
    world.pass_time(3 * acceptance.FORGOTTEN_S)
    assert ("p", "NotHandled") in world.kube.events
    assert world.kube.bind_calls == []
    world.service.close()


def test_a_pod_that_ignores_offers_is_not_forced_past_its_volumes() -> None:
    world = World()
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.kube.touch(pod)
    world.service.pod_seen(to_pod(pod))
    assert world.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    assert world.kube.bind_calls == []


def preempting(world: World) -> Json:
    """A pod that nobody asks about, whose victim has left; the other one of its VC runs on."""
    low = {name: world.place(name, spec_text(priority=1))[0] for name in ("low-0", "low-1")}
    pod = world.create("p", spec_text(priority=5))
    world.until(lambda: world.kube.leaving)
    world.delete(low[world.kube.leaving[0][1]])
    return pod


def test_cells_that_victims_have_left_in_vain_are_given_back() -> None:
    world = World(preemption=PreemptionPolicy())
    preempting(world)
    world.until(lambda: "ns/p" not in world.groups())
    assert "NodeNames" in world.filter(world.create("q", spec_text(priority=1)))
    assert len(world.kube.leaving) == 1
    world.service.close()


def test_cells_on_a_node_that_is_not_offered_when_it_is_empty_are_waited_for_and_then_given_back() -> None:
    world = World(preemption=PreemptionPolicy())
    pod = preempting(world)
    (node,) = (
        world.service.machine.facts.ledger.nodes_of("ns/p") if world.service.machine.facts.ledger is not None else [""]
    )
    others = sorted(set(NODES) - {node})
    for _ in range(acceptance.MOST_EMPTIED - 1):
        assert "others have left its cells" in str(world.filter(pod, others))
    world.filter(pod, others)
    assert world.groups().get("ns/p", {}).get("state") != "Preempting"
    world.service.close()


def test_a_pod_with_volumes_preempts_only_where_kube_scheduler_says() -> None:
    world = World(preemption=PreemptionPolicy())
    for name in ("low-0", "low-1"):
        world.place(name, spec_text(priority=1))
    pod = world.create("p", spec_text(priority=5))
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.kube.touch(pod)
    world.service.pod_seen(to_pod(pod))
    assert "FailedNodes" in world.filter(pod, [])
    assert world.kube.leaving == []
    world.service.close()


def test_a_node_that_is_offered_alone_says_nothing_of_pods_alike() -> None:
    world = World()
    pods = [world.create(name) for name in ("p", "q")]
    world.filter(pods[0])
    record = world.service.machine.facts.pods.get("uid-q")
    assert record is not None
    request = record.request
    assert request is not None
    before = world.service.machine.facts.offers.of(request, [record])
    world.filter(pods[0], ["n3"])
    after = world.service.machine.facts.offers.of(request, [record])
    assert before is not None
    assert after is not None
    assert before.nodes.tolist() == after.nodes.tolist()


def test_a_binding_without_an_answer_keeps_its_place_until_the_pod_has_another_version() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    world.kube.refusals = [KubeError(0, "NoAnswer", "it is away")] * 3  # nor can the pod be touched
    with pytest.raises(UserError):
        world.bind(pod, "n0")
    world.service.pod_seen(to_pod(pod), is_listed=True)
    assert "FailedNodes" in world.filter(pod, OTHERS)
    world.kube.refusals.clear()
    world.kube.touch(pod)
    world.service.pod_seen(to_pod(pod))
    assert world.filter(pod, OTHERS)["NodeNames"] == ["n1"]
    world.service.close()


def test_a_group_of_more_pods_than_any_cluster_has_waits_and_stops_nobody() -> None:
    world = World()
    huge = world.create("huge", spec_text(group="huge", pods=2**31 - 1))
    assert "insufficient capacity" in str(world.filter(huge)["FailedNodes"])
    assert world.filter(world.create("p"))["NodeNames"] == ["n0"]


@pytest.mark.parametrize("crowded", ["low-0", "low-1"])
def test_nobody_leaves_a_node_that_stays_too_full_of_pods_without_cells(crowded: str) -> None:
    world = World(preemption=PreemptionPolicy())
    for name in NODES:
        amounts = {"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"}
        body = node_json(name)
        world.service.node_seen(to_node(body | {"status": body["status"] | {"allocatable": amounts}}))
    places = {name: world.place(name, spec_text(priority=1))[1] for name in ("low-0", "low-1")}
    asks = [{"resources": {"requests": {"cpu": "6"}}}]
    other = pod_json("other", node=places[crowded], phase="Running")
    other["spec"]["containers"] = asks
    world.service.pod_seen(to_pod(other))
    pod = pod_json("p", spec_text(priority=5))
    pod["spec"]["containers"] += asks
    world.kube.add(pod)
    world.service.pod_seen(to_pod(pod))
    world.filter(pod, [])
    world.until(lambda: world.kube.leaving)
    assert {name for _, name in world.kube.leaving} == {"low-0", "low-1"} - {crowded}
    world.service.close()


def test_nothing_is_expected_of_a_pod_that_was_deleted_while_it_was_being_bound() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    world.kube.on_bind = lambda: world.delete(pod)
    with pytest.raises(UserError, match="not found"):
        world.bind(pod, "n0")
    assert not {kind for kind, _ in world.service.machine._outbox.timers._valid} & {*acceptance.TIMERS}
    world.service.close()


def test_a_binding_without_an_answer_is_not_forgotten_for_one_that_failed() -> None:
    world = World()
    pod = world.create("p")
    world.filter(pod)
    world.kube.refusals = [KubeError(0, "NoAnswer", "timed out")]
    with pytest.raises(UserError):
        world.bind(pod, "n0")
    world.kube.on_bind = lambda: world.kube.touch(pod)
    with pytest.raises(UserError, match="changed 5 times"):
        world.bind(pod, "n0")
    assert "being bound to node n0" in str(world.filter(pod, OTHERS).get("FailedNodes"))
    world.service.close()


def test_a_binding_of_another_term_counts_no_more() -> None:
    world = GangWorld()
    pod = world.pod("cpu", 0, koordinator("train", 1))
    world.filter(pod)

    def lose_the_lease() -> None:
        world.service.follow("the lease is lost")
        raise KubeError(0, "NoAnswer", "reset")

    world.kube.on_bind = lose_the_lease
    with pytest.raises(UserError):
        world.bind(pod, "n0")
    record = world.service.machine.facts.pods.get(pod["metadata"]["uid"])
    assert record is not None
    assert not record.is_writing
    world.service.close()


def test_an_own_group_starts_with_none_of_its_pods_if_one_that_is_there_may_run_nowhere() -> None:
    world = World()
    pods = [pod_json(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    pods[1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    for pod in pods:
        world.kube.add(pod)
        world.service.pod_seen(to_pod(pod))
    assert "refuses" in str(world.filter(pods[0]).get("FailedNodes"))
    world.delete(pods[1])
    assert world.filter(pods[0])["NodeNames"] == ["n0"]


def test_each_pod_of_an_own_group_gets_a_node_that_it_may_use() -> None:
    world = World()
    for name, zone in zip(NODES, "abab", strict=True):
        body = node_json(name)
        body["metadata"]["labels"] = {"zone": zone}
        world.service.node_seen(to_node(body))
    pods = [pod_json(f"p{number}", spec_text(group="g", pods=2)) for number in range(2)]
    for pod, zone in zip(pods, "ba", strict=True):
        pod["spec"]["nodeSelector"] = {"zone": zone}
        world.kube.add(pod)
        world.service.pod_seen(to_pod(pod))
    zones = {"a": NODES[::2], "b": NODES[1::2]}
    assert world.filter(pods[0], zones["b"])["NodeNames"][0] in zones["b"]
    assert world.filter(pods[1], zones["a"])["NodeNames"][0] in zones["a"]


def test_a_gang_that_gives_its_places_back_reserves_none_for_its_later_pods() -> None:
    world = GangWorld()
    for index in range(3):
        world.place(f"lent-{index}", spec_text("b", priority=-1, leaf_cells=4))
    pods = [world.pod(f"w-{index}", gpus, koordinator("train", 2)) for index, gpus in enumerate((1, 1, 4))]
    world.filter(pods[0])
    world.filter(pods[2])
    (alone,) = [name for name, group in world.groups().items() if group["state"] == "Preempting"]
    for _ in range(2):
        world.filter(pods[1], ["elsewhere", "unknown"])
    assert world.decided().keys() == {"lent-0", "lent-1", "lent-2"}
    assert alone not in world.groups()
