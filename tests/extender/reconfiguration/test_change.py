"""One change on a service with pods: what becomes of whom, and that what was agreed to is what happens."""

from collections.abc import Mapping

import pytest

from hived.cells.state import GroupState
from hived.scenario import Asked
from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodRequest, PodSpec, Rules
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import Configuration, load_text
from hived_extender.machine.offers import Asking
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.reconfiguration import change as changes
from hived_extender.reconfiguration.change import Change, Disagreement, Outcome, configure, tell_affected, waiting_jobs
from hived_extender.reconfiguration.judging import Waiting, refused_by
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, preempt_args, spec_text

CANCELLED = "preemption cancelled"
BY_SERVICE = PreemptionPolicy(by_service=True)


def configuration(text: str = CONFIG) -> Configuration:
    return load_text(text, "file")


def without_vc(name: str) -> Configuration:
    """The configuration without the cells of a VC."""
    number = {"a": 2, "b": 1}[name]
    return configuration(CONFIG.replace(f"[{{cellType: RACK.NODE, cellNumber: {number}}}]", "[]"))


def without_node(name: str) -> Configuration:
    return configuration(CONFIG.replace(f"{{cellAddress: {name}}}", "{cellAddress: other}"))


def change(small: SmallCluster, new: Configuration) -> tuple[Change, Outcome]:
    one = Change(configuration(), new, small.service.draft("text"), 1)
    return one, one.outcome(*one.catch_up_with(small.service))


def verdicts(outcome: Outcome) -> Mapping[str, str]:
    return {one.name: one.verdict.value for one in outcome.affected}


def test_what_is_answered_is_what_became_of_the_groups_at_the_switch() -> None:
    """A group may come and go between the judgement and the switch."""
    small = SmallCluster()
    pod, _ = small.place("p", spec_text("a"))
    one, outcome = change(small, without_vc("a"))
    assert verdicts(outcome) == {"ns/p": "lazilyPreempted"}
    small.delete(pod)
    small.place("q", spec_text("b"))
    switch = one.switch(small.service, verdicts(outcome))
    told = outcome.at(switch)
    assert (verdicts(told), told.unaffected_count) == ({}, 1)
    assert outcome.at(switch._replace(affected=None)) is outcome


def test_a_group_whose_vc_loses_its_cells_is_lazily_preempted() -> None:
    """Rule 33.1."""
    small = SmallCluster()
    small.place("p", spec_text("a"))
    small.place("q", spec_text("b"))
    one, outcome = change(small, without_vc("a"))
    assert verdicts(outcome) == {"ns/p": "lazilyPreempted"}
    assert outcome.affected[0].reason == "a is not guaranteed any NODE in RACK any more"
    assert (outcome.affected[0].pods, outcome.affected[0].vc) == (("ns/p",), "a")
    assert (outcome.locked_out, outcome.unaffected_count) == (["ns/p"], 1)
    one.switch(small.service, verdicts(outcome))
    assert small.state.groups["ns/p"].virtual is None
    assert small.groups()["ns/p"]["lazyPreemptionStatus"]["preemptor"] == "ns/p"
    assert small.state.groups["ns/q"].virtual is not None


def test_other_rules_keep_all_groups_reservations_and_promises() -> None:
    small = SmallCluster(preemption=BY_SERVICE)
    small.place("p", spec_text("a"))
    small.place("q", spec_text("a", priority=-1))
    small.place("victim", spec_text("b", priority=0))
    small.service.preempt_victims(preempt_args(small.create("preemptor", spec_text("b", priority=5))))
    before = small.snapshot()
    assert small.state.groups["ns/preemptor"].state is GroupState.PREEMPTING
    for text, rules in ((f"rules: 2\n{CONFIG}", Rules.BETTER), (CONFIG, Rules.HIVED)):
        one = Change(configuration(), configuration(text), None, 1)
        assert one.outcome(*one.catch_up_with(small.service)).affected == []
        one.switch(small.service, {})
        assert small.state.spec.rules is rules
        assert small.snapshot() == before


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages about groups that lose something."""
    return [text for each in caplog.records if (text := each.getMessage()) in ("lazily preempted", CANCELLED)]


def test_a_change_that_is_only_planned_logs_no_lazy_preemption(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    small = SmallCluster()
    small.place("p", spec_text("a"))
    change(small, without_vc("a"))[0].drop()
    assert logged(caplog) == []


def test_a_lazy_preemption_by_a_switch_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    small = SmallCluster()
    small.place("p", spec_text("a"))
    for _ in range(2):
        change(small, without_vc("a"))[0].switch(small.service, None)
    assert logged(caplog) == ["lazily preempted"]


def test_a_preemption_that_a_switch_cancels_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    small = SmallCluster(preemption=BY_SERVICE)
    _, node = small.place("victim", spec_text("b", priority=0))
    small.service.preempt_victims(preempt_args(small.create("preemptor", spec_text("b", priority=5))))
    change(small, without_node(node))[0].switch(small.service, None)
    assert logged(caplog) == [CANCELLED]


def test_who_took_the_place_of_a_group_is_known_after_another_configuration_too() -> None:
    small = SmallCluster()
    for name in ("low-0", "low-1"):
        small.place(name, spec_text(lazyPreemptionEnable=True))
    small.place("high", spec_text(priority=5))
    before = small.groups()["ns/low-0"]["lazyPreemptionStatus"]
    assert before["preemptor"] == "ns/high"
    for _ in range(2):
        change(small, without_vc("b"))[0].switch(small.service, None)
        assert small.groups()["ns/low-0"]["lazyPreemptionStatus"] == before


def test_a_group_whose_node_goes_is_unaccounted_and_runs_on() -> None:
    small = SmallCluster()
    pod, node = small.place("p", spec_text("a"))
    one, outcome = change(small, without_node(node))
    assert verdicts(outcome) == {"ns/p": "unaccounted"}
    assert outcome.affected[0].reason == f"node {node} is not configured any more"
    one.switch(small.service, {"ns/p": "unaccounted"})
    small.delete(pod)
    assert small.state.groups == {}


def test_opportunistic_work_is_not_locked_out_by_losing_its_vc() -> None:
    small = SmallCluster()
    small.place("p", spec_text("a", priority=-1))
    _, outcome = change(small, without_vc("a"))
    assert verdicts(outcome) == {}


def test_what_was_taken_is_given_back_by_the_way_back() -> None:
    small = SmallCluster()
    small.place("p", spec_text("a"))
    before = small.snapshot()
    change(small, without_vc("a"))[0].switch(small.service, None)
    assert small.snapshot() != before
    back = Change(without_vc("a"), configuration(), None, 2)
    outcome = back.outcome(*back.catch_up_with(small.service))
    assert verdicts(outcome) == {"ns/p": "restored"}
    back.switch(small.service, {})
    assert small.snapshot() == before


@pytest.mark.parametrize("agreed", [{}, {"ns/p": "unaccounted"}])
def test_anything_else_than_what_was_agreed_to_changes_nothing(agreed: dict[str, str]) -> None:
    """Rule 33.2."""
    small = SmallCluster()
    small.place("p", spec_text("a"))
    before, memory = small.snapshot(), small.state.cells.memory.tobytes()
    one, _ = change(small, without_vc("a"))
    with pytest.raises(Disagreement, match=r"ns/p would be lazilyPreempted now, and (un)?a"):
        one.switch(small.service, agreed)
    assert small.snapshot() == before
    assert small.state.cells.memory.tobytes() == memory


def test_what_changes_while_the_state_is_built_is_in_it() -> None:
    small = SmallCluster()
    ending, _ = small.place("ending", spec_text("a"))
    one, outcome = change(small, configuration(CONFIG + "# other\n"))
    small.delete(ending)
    small.place("late", spec_text("b"))
    bound = small.create("binding", spec_text("a"))
    small.filter(bound)
    one.switch(small.service, verdicts(outcome))
    assert sorted(small.state.groups) == ["ns/binding", "ns/late"]
    assert small.filter(bound)["NodeNames"]


def test_a_group_that_ended_meanwhile_need_not_be_agreed_to() -> None:
    small = SmallCluster()
    pod, _ = small.place("p", spec_text("a"))
    one, outcome = change(small, without_vc("a"))
    small.delete(pod)
    one.switch(small.service, verdicts(outcome))
    assert small.state.groups == {}


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("is_without_node", [False, True])
def test_nothing_is_said_of_a_group_that_has_gone_and_come_again_since_the_state_was_looked_at(
    gpus: int, is_without_node: bool
) -> None:
    small = SmallCluster()
    pod, node = small.place("p", spec_text("a", 2))
    new = without_node(node) if is_without_node else without_vc("a")
    one = Change(configuration(), new, None, 1)
    seen = one.catch_up_with(small.service)
    small.delete(pod)
    _, again = small.place("p", spec_text("a", gpus), uid="another")
    assert verdicts(one.outcome(*seen)) == {}
    verdict = "lazilyPreempted" if not is_without_node else "unaccounted"
    later = one.outcome(*one.catch_up_with(small.service))
    assert verdicts(later) == ({"ns/p": verdict} if again == node or not is_without_node else {})


def test_a_reservation_is_taken_over() -> None:
    small = SmallCluster(preemption=BY_SERVICE)
    victim, _ = small.place("victim", spec_text("b", priority=0))
    preemptor = small.create("preemptor", spec_text("b", priority=5))
    small.service.preempt_victims(preempt_args(preemptor))
    held = small.state.groups["ns/preemptor"].physical.tolist()
    one, outcome = change(small, configuration(CONFIG + "# other\n"))
    assert verdicts(outcome) == {}
    one.switch(small.service, {})
    group = small.state.groups["ns/preemptor"]
    assert (group.state, group.physical.tolist()) == (GroupState.PREEMPTING, held)
    small.delete(victim)
    assert small.filter(preemptor)["NodeNames"]


def test_a_reservation_whose_cells_go_is_cancelled_and_its_pod_asks_again() -> None:
    small = SmallCluster(preemption=BY_SERVICE)
    victim, node = small.place("victim", spec_text("b", priority=0))
    preemptor = small.create("preemptor", spec_text("b", priority=5))
    small.service.preempt_victims(preempt_args(preemptor))
    one, outcome = change(small, without_node(node))
    assert verdicts(outcome) == {"ns/preemptor": "preemptionCancelled", "ns/victim": "unaccounted"}
    assert "a leaf cell of it is not configured any more" in outcome.affected[0].reason
    one.switch(small.service, verdicts(outcome))
    assert "ns/preemptor" not in small.state.groups
    assert small.filter(preemptor)["NodeNames"] != [node]
    assert victim["metadata"]["name"] in small.kube.pods


def test_jobs_that_wait_are_told_apart() -> None:
    small = SmallCluster()
    small.place("p", spec_text("b"))
    small.filter(small.create("room", spec_text("b")))
    small.filter(small.create("large", spec_text("a", leaf_cells=4, group="large", pods=3)))
    more = CONFIG.replace("b:\n    virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]",
                          "b:\n    virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]")  # fmt: skip
    _, outcome = change(small, configuration(more))
    assert {one.name: one.verdict for one in outcome.waiting} == {
        "ns:large": "neverStarts",
        "ns/room": "couldStart",
    }
    assert "insufficient capacity" in next(one.reason for one in outcome.waiting if one.name == "ns:large")


def test_a_job_is_told_that_its_namespace_may_not_use_its_virtual_cluster_any_more() -> None:
    small = SmallCluster()
    small.place("p", spec_text("b"))
    small.filter(small.create("q", spec_text("b", priority=7)))
    restricted = f"access: namespaces\n{CONFIG}".replace("  b:\n", "  b:\n    namespaces: [other]\n")
    _, outcome = change(small, configuration(restricted))
    (entry,) = outcome.waiting
    assert (entry.name, entry.verdict, entry.priority) == ("ns/q", "neverStarts", 7)
    assert entry.reason.startswith("namespace ns may not use virtual cluster b")


def test_a_gang_of_two_namespaces_starts_only_if_both_may_use_its_virtual_cluster() -> None:
    spec = PodSpec("b", 0, 1, GroupSpec("g", (MemberSpec(2, 1),)))
    job = Waiting("g", "b", ("one/p", "two/q"), (Asking(Asked(PodRequest("g", "g", "one", spec))),))
    listed = VirtualClusterAccess((NamespaceEntry("one"),))
    (refused,) = refused_by(AccessRules(Access.NAMESPACES, {"b": listed}), [job])
    assert refused.is_refused
    assert refused.why.startswith("namespace two may not use virtual cluster b")


def test_others_are_served_while_the_jobs_that_wait_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster()
    pods = {name: small.create(name, spec_text("a")) for name in ("one", "two", "three")}
    monkeypatch.setattr(changes, "LOOKED_AT_ONCE", 1)
    leaving = iter(("two", "one"))

    def let_others_go_on(_: float) -> None:
        name = next(leaving, "")
        if name:
            small.delete(pods[name])

    monkeypatch.setattr(changes.time, "sleep", let_others_go_on)
    assert [job.name for job in waiting_jobs(small.service)] == ["ns/one", "ns/three"]


def test_masks_of_other_nodes_are_forgotten() -> None:
    small = SmallCluster()
    one, _ = change(small, without_node("n0"))
    one.switch(small.service, {})
    assert "other" in small.state.topology.node_names
    pod = small.create("p", spec_text("a", ignoreK8sSuggestedNodes=False))
    assert small.filter(pod, ["n3"])["NodeNames"] == ["n3"]


def test_a_replica_that_does_not_lead_has_no_state_to_change() -> None:
    small = SmallCluster(is_leading=False)
    with pytest.raises(UserError, match="not ready"):
        change(small, configuration())
    assert configure(small.service, without_vc("a"), "text")
    small.lead()
    assert small.state.spec == without_vc("a").cluster


def test_who_adds_a_vc_is_told_that_kube_scheduler_needs_a_profile_for_it() -> None:
    more = configuration(CONFIG + "  new: {virtualCells: []}\n")
    small = SmallCluster()
    one = Change(configuration(), more, None, 1, has_profiles=True)
    (warning,) = one.outcome(*one.catch_up_with(small.service)).warnings
    assert "a profile for each new scheduler name (hived-new, hivedscheduler-ds-new)" in warning


def test_owners_are_told_what_has_become_of_their_running_pods() -> None:
    small = SmallCluster()
    small.place("p", spec_text("a"))
    _, node = small.place("q", spec_text("b"))
    text = CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]").replace(
        f"cellAddress: {node}", "cellAddress: x"
    )
    one, outcome = change(small, configuration(text))
    one.switch(small.service, verdicts(outcome))
    tell_affected(small.service, outcome.affected)
    small.by_hand.settle()
    assert {("p", "LazyPreempted"), ("q", "Unaccounted")} <= set(small.kube.events)
    assert any(
        "this job has lost its place in the virtual cluster to a new config" in said for said in small.kube.messages
    )
    back = Change(configuration(text), configuration(), None, 2)
    outcome = back.outcome(*back.catch_up_with(small.service))
    back.switch(small.service, verdicts(outcome))
    tell_affected(small.service, outcome.affected)
    small.by_hand.settle()
    assert ("p", "Restored") in small.kube.events
