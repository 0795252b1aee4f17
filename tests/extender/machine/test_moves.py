"""Groups on the move: new cells are held before the evictions, until pods come back (rules 28.1, 28.6 to 28.10)."""

from typing import Any

import pytest

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodPlacement
from hived_extender.api.defrag import MovingReport, PlannedPod
from hived_extender.jobs.bind_info import bind_annotations
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.kube.client import KubeError
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.stimuli import MoveOrder, MovesAsked, MovesLookedAt, MovesStopped
from tests.extender.machine.small_cluster import Json, SmallCluster, node, pod_json, preempt_args, spec_text, to_pod

Place = tuple[str, tuple[int, ...]]
PAIRS = ((0, 1), (2, 3))


class Half:
    """VC a has two nodes, each half used: by g, which may move, and by other. `spare` is free beside other."""

    def __init__(self, name: str = "g", group: str = "g") -> None:
        self.cluster = SmallCluster()
        text = spec_text(leaf_cells=2, group=group)
        blocker, _ = self.cluster.place("blocker")
        self.other, other_node = self.cluster.place("other", spec_text(leaf_cells=2, group="other"))
        filler, _ = self.cluster.place("filler", spec_text(leaf_cells=2, group="filler"))
        self.cluster.delete(blocker)
        self.pod, node = self.cluster.place(name, text, annotations={MAY_MOVE: "true"})
        self.cluster.delete(filler)
        self.text, self.group = text, f"ns:{group}" if group else f"ns/{name}"
        (self.home,) = [(node, cells) for cells in PAIRS if self.leaves(self.group) == {node: list(cells)}]
        self.spare = next(
            (other_node, cells) for cells in PAIRS if self.leaves("ns:other") != {other_node: list(cells)}
        )
        assert node != other_node

    def leaves(self, group: str) -> Json:
        found: Json = self.cluster.groups()[group]["physicalPlacement"]
        return found

    def order(self, was: Place, becomes: Place | None, step: int = 1, group: str = "") -> MoveOrder:
        info = None
        if becomes is not None:
            info = BindInfo(*becomes, "RACK", ((PodPlacement(*becomes, ("NODE",) * len(becomes[1])),),))
        return MoveOrder(step, group or self.group, "", (PlannedPod(*was),), info)

    def move(self, becomes: Place | None = None, **more: Any) -> MovingReport:
        order = self.order(self.home, becomes or self.spare)
        return self.ask(MovesAsked((order,), "somebody", "a", 60.0, **more))

    def ask(self, asked: MovesAsked | MovesStopped | MovesLookedAt) -> MovingReport:
        found: MovingReport = self.cluster.service.runner.handle(asked)
        if isinstance(found, UserError):
            raise found
        return found

    @property
    def report(self) -> MovingReport:
        return self.ask(MovesLookedAt())

    @property
    def states(self) -> list[str]:
        return [self.report.state, *(move.state for move in self.report.moves)]

    def come_back(self, name: str = "g-2", text: str = "") -> Json:
        """The owner's controller makes another pod."""
        return self.cluster.create(name, text or self.text, annotations={MAY_MOVE: "true"})


def test_a_group_gets_the_cells_that_were_held_for_it() -> None:
    half = Half()
    assert half.move().state == "moving"
    half.cluster.pass_time()
    assert half.cluster.kube.leaving == [("evicted", "g")]
    assert half.states == ["moving", "leaving"]
    half.cluster.delete(half.pod)
    assert half.states == ["moving", "returning"]
    again = half.come_back()
    assert half.cluster.filter(again)["NodeNames"] == [half.spare[0]]
    assert half.leaves("ns:g") == {half.spare[0]: list(half.spare[1])}
    assert half.states == ["done", "done"]
    check_invariants(half.cluster.state)


def test_the_owner_is_told() -> None:
    half = Half()
    half.move()
    half.cluster.pass_time(5.0)
    assert ("g", "Moved") in half.cluster.kube.events
    assert "moved to make room in virtual cluster a; its new cells are held for it" in half.cluster.kube.messages


def test_nobody_else_gets_cells_that_are_held() -> None:
    half = Half()
    half.move()
    stranger = half.cluster.create("stranger", spec_text(leaf_cells=2, group="stranger"))
    half.cluster.delete(half.pod)
    assert half.cluster.filter(stranger)["NodeNames"] != [half.spare[0]]
    assert half.cluster.filter(half.come_back())["NodeNames"] == [half.spare[0]]


def test_nobody_leaves_if_the_new_cells_are_taken() -> None:
    half = Half()
    half.cluster.place("thief", spec_text(leaf_cells=2, group="thief"))
    place = next(iter(half.leaves("ns:thief").items()))
    with pytest.raises(UserError, match="the new cells of ns:g are not free any more"):
        half.move((place[0], tuple(place[1])))
    half.cluster.pass_time(5.0)
    assert half.cluster.kube.leaving == []
    assert not [name for name in half.cluster.groups() if name.startswith(STAND_IN)]


def test_a_group_that_is_elsewhere_by_now_is_not_moved() -> None:
    half = Half()
    with pytest.raises(UserError, match="ns:g is not where it was when the plan was made"):
        half.ask(MovesAsked((half.order(half.spare, half.home),), "somebody", "a", 60.0))


def test_a_group_that_is_gone_is_not_moved() -> None:
    half = Half()
    half.cluster.delete(half.pod)
    with pytest.raises(UserError, match="ns:g is not what it was"):
        half.move()


def test_a_group_has_to_allow_it_unless_its_virtual_cluster_does() -> None:
    half = Half()
    half.cluster.kube.pods["g"]["metadata"]["annotations"][MAY_MOVE] = "false"
    half.cluster.kube.touch(half.pod)
    half.cluster.see(half.pod)
    with pytest.raises(UserError, match="ns:g does not allow to be moved any more"):
        half.move()
    assert half.move(movable=frozenset({"a"})).state == "moving"


def test_two_plans_at_once_are_refused() -> None:
    half = Half()
    half.move()
    with pytest.raises(UserError, match="groups are being moved already"):
        half.move()


def test_a_pod_that_comes_too_soon_waits_for_the_old_ones_to_leave() -> None:
    half = Half()
    half.move()
    early = half.come_back()
    assert "is being moved" in str(half.cluster.filter(early))
    half.cluster.delete(half.pod)
    assert half.cluster.filter(early)["NodeNames"] == [half.spare[0]]


def test_held_cells_are_given_back_if_nobody_returns() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    half.cluster.pass_time(59.0)
    assert half.states == ["moving", "returning"]
    half.cluster.pass_time(2.0)
    assert half.states == ["stopped", "given up"]
    assert half.report.reason == "ns:g has not come back in 60 s"
    assert set(half.cluster.groups()) == {"ns:other"}
    check_invariants(half.cluster.state)


def test_a_group_that_does_not_leave_keeps_its_cells() -> None:
    half = Half()
    half.move()
    half.cluster.pass_time(61.0)
    assert half.report.reason == "ns:g has not left in 60 s"
    assert set(half.cluster.groups()) == {"ns:other", "ns:g"}


def test_a_disruption_budget_is_respected() -> None:
    half = Half()
    half.cluster.kube.refusals = [KubeError(429, "TooManyRequests", "the budget has no disruption left")] * 2
    half.move()
    half.cluster.pass_time(0.5)
    assert half.cluster.kube.leaving == []
    half.cluster.pass_time(10.0)
    assert half.cluster.kube.leaving == [("evicted", "g")]


def test_a_pod_of_another_name_that_asks_for_the_same_gets_the_cells() -> None:
    half = Half("job-abc", group="")
    half.move()
    half.cluster.delete(half.pod)
    assert half.cluster.filter(half.come_back("job-xyz"))["NodeNames"] == [half.spare[0]]
    assert half.states == ["done", "done"]


def test_a_pod_of_another_namespace_does_not() -> None:
    half = Half("job-abc", group="")
    half.move()
    half.cluster.delete(half.pod)
    foreign = pod_json("job-xyz", half.text)
    foreign["metadata"]["namespace"] = "elsewhere"
    half.cluster.kube.add(foreign)
    half.cluster.service.pod_seen(to_pod(foreign))
    assert half.cluster.filter(foreign)["NodeNames"] != [half.spare[0]]
    assert half.states == ["moving", "returning"]


def test_cells_of_its_own_are_held_once_it_has_left() -> None:
    half = Half()
    mine = (
        half.home[0],
        tuple(sorted({half.home[1][0], 1 - half.home[1][0] % 2 + half.home[1][0] - half.home[1][0] % 2})),
    )
    half.move(mine)
    assert not [name for name in half.cluster.groups() if name.startswith(STAND_IN)]
    half.cluster.delete(half.pod)
    assert [name for name in half.cluster.groups() if name.startswith(STAND_IN)]
    assert half.cluster.filter(half.come_back())["NodeNames"] == [half.home[0]]


def test_a_job_of_higher_priority_takes_held_cells() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    half.cluster.place("second", spec_text(leaf_cells=4, priority=5, group="second"))
    strong = half.cluster.create("strong", spec_text(leaf_cells=4, priority=5, group="strong"))
    half.cluster.filter(strong)
    half.cluster.service.preempt_victims(preempt_args(strong))
    half.cluster.pass_time(1.0)
    assert half.states == ["stopped", "given up"]
    assert half.report.reason == "cells held for ns:g are needed by a job of higher priority"
    half.cluster.delete(half.other)
    assert half.cluster.filter(strong)["NodeNames"] == [half.spare[0]]
    check_invariants(half.cluster.state)


def test_cells_that_are_held_say_for_whom() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    held = half.cluster.groups()
    assert held["_moving:1:ns:g"]["heldFor"] == "ns:g"
    assert "heldFor" not in held["ns:other"]


def test_a_namespace_of_a_like_name_is_nothing_special() -> None:
    half = Half()
    pod = pod_json("x-0", spec_text(leaf_cells=2, group="1:ns:g"))
    pod["metadata"]["namespace"] = "moving"
    half.cluster.kube.add(pod)
    half.cluster.service.pod_seen(to_pod(pod))
    assert len(half.cluster.filter(pod)["NodeNames"]) == 1
    assert "heldFor" not in half.cluster.groups()["moving:1:ns:g"]


def test_a_group_of_a_bare_name_comes_back_under_a_name_of_its_namespace() -> None:
    cluster = SmallCluster()
    info = BindInfo("n0", (0, 1), "RACK", ((PodPlacement("n0", (0, 1), ("NODE", "NODE")),),))
    text = spec_text(leaf_cells=2, group="g")
    pod = pod_json("old", text, node="n0", phase="Running", annotations=bind_annotations(info) | {MAY_MOVE: "true"})
    cluster.kube.add(pod)
    cluster.service.pod_seen(to_pod(pod))
    assert set(cluster.groups()) == {"g"}
    there = BindInfo("n1", (0, 1), "RACK", ((PodPlacement("n1", (0, 1), ("NODE", "NODE")),),))
    order = MoveOrder(1, "g", "", (PlannedPod("n0", (0, 1)),), there)
    assert cluster.service.runner.handle(MovesAsked((order,), "somebody", "a", 60.0)).state == "moving"
    cluster.delete(pod)
    assert cluster.filter(cluster.create("new", text))["NodeNames"] == ["n1"]
    assert set(cluster.groups()) == {"ns:g"}
    assert cluster.service.runner.handle(MovesLookedAt()).state == "done"


def test_a_node_that_turns_bad_is_not_forced_on_anybody() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    half.cluster.service.node_seen(node(half.spare[0], is_ready=False))
    assert half.cluster.filter(half.come_back())["NodeNames"] != [half.spare[0]]


def test_a_node_that_kubernetes_does_not_offer_is_not_either() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    others = tuple(name for name in ("n0", "n1", "n2", "n3") if name != half.spare[0])
    assert half.cluster.filter(half.come_back(), others)["NodeNames"] != [half.spare[0]]


def test_the_end_of_a_term_gives_everything_back() -> None:
    half = Half()
    half.move()
    half.cluster.delete(half.pod)
    half.cluster.has_lease = False
    half.cluster.service.follow("another replica leads")
    half.cluster.has_lease = True
    half.cluster.lead()
    assert half.states == ["stopped", "given up"]
    assert set(half.cluster.groups()) == {"ns:other"}
    assert len(half.cluster.filter(half.come_back())["NodeNames"]) == 1


def test_moves_can_be_stopped() -> None:
    half = Half()
    half.move()
    assert half.ask(MovesStopped("somebody said so")).reason == "somebody said so"
    assert set(half.cluster.groups()) == {"ns:other", "ns:g"}
    half.cluster.delete(half.pod)
    assert set(half.cluster.groups()) == {"ns:other"}


def test_steps_come_one_after_the_other() -> None:
    half = Half()
    there, back = half.order(half.home, half.spare), half.order(half.spare, half.home, step=2)
    half.ask(MovesAsked((there, back), "somebody", "a", 60.0))
    half.cluster.delete(half.pod)
    again = half.come_back()
    assert half.states == ["moving", "returning", "pending"]
    half.cluster.filter(again)
    half.cluster.pass_time()
    assert half.states[0] == "moving"
    assert half.states[2] == "leaving"


@pytest.mark.parametrize("is_first", [False, True])
def test_two_groups_exchange_their_cells_whichever_leaves_first(is_first: bool) -> None:
    """Rules 28.6 and 28.7."""
    half = Half()
    (there,) = [(half.spare[0], cells) for cells in PAIRS if half.leaves("ns:other") == {half.spare[0]: list(cells)}]
    orders = half.order(half.home, there), half.order(there, half.home, group="ns:other")
    half.ask(MovesAsked(orders, "somebody", "a", 60.0, movable=frozenset({"a"})))
    first, second = (half.pod, half.other) if is_first else (half.other, half.pod)
    half.cluster.delete(first)
    assert half.states == ["moving", "leaving", "leaving"]
    assert len([name for name in half.cluster.groups() if name.startswith(STAND_IN)]) == 1
    half.cluster.delete(second)
    assert half.states == ["moving", "returning", "returning"]
    assert half.cluster.filter(half.come_back())["NodeNames"] == [there[0]]
    other = half.come_back("other-2", spec_text(leaf_cells=2, group="other"))
    assert half.cluster.filter(other)["NodeNames"] == [half.home[0]]
    assert half.states == ["done", "done", "done"]
    check_invariants(half.cluster.state)


def test_an_opportunistic_group_only_leaves() -> None:
    half = Half()
    half.ask(MovesAsked((half.order(half.home, None),), "somebody", "a", 60.0))
    half.cluster.delete(half.pod)
    assert half.states == ["done", "done"]


def test_no_further_step_begins_once_the_job_does_not_wait_any_more() -> None:
    half = Half()
    big = half.cluster.create("big", spec_text(leaf_cells=4, group="big"))
    assert "in pieces of at most 2" in str(half.cluster.filter(big))
    orders = half.order(half.home, half.spare), half.order(half.spare, half.home, step=2)
    half.ask(MovesAsked(orders, "somebody", "a", 60.0, jobs=frozenset({"ns:big", "ns/big"})))
    half.cluster.delete(big)
    half.cluster.delete(half.pod)
    half.cluster.filter(half.come_back())
    half.cluster.pass_time()
    assert half.states == ["stopped", "done", "given up"]
    assert half.report.reason == "the job that wants the room does not wait any more"
    check_invariants(half.cluster.state)
