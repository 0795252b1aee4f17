"""Gangs in the words of other schedulers, while another configuration comes into force."""

import pytest

from hived.values.errors import UserError
from hived_config.loader import Configuration, load_text
from hived_extender.api.configuration import by_job
from hived_extender.insight.answering import Answering
from hived_extender.reconfiguration.change import Change, configure
from tests.extender.machine.small_cluster import CONFIG, node, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

MAPPED = CONFIG.replace("  a:\n", "  a:\n    namespaces: [ns]\n").replace("  b:\n", "  b:\n    namespaces: [other]\n")


def load(text: str) -> Configuration:
    return load_text(text, "file")


def switch(small: SmallGangCluster, text: str) -> None:
    change = Change(load(MAPPED), load(text), None, 1)
    outcome = change.outcome(*change.catch_up_with(small.service))
    change.switch(small.service, {one.name: one.verdict.value for one in outcome.affected})


def list_anew(small: SmallGangCluster) -> None:
    small.service.sync_pods([to_pod(pod) for pod in small.kube.pods.values()])


def test_waiting_pods_are_read_by_the_new_rules() -> None:
    small = SmallGangCluster()
    configure(small.service, load(MAPPED), MAPPED)
    pod = small.pod("p")
    switch(small, MAPPED.replace("[ns]", "[x]").replace("[other]", "[ns]"))
    list_anew(small)
    assert small.filter(pod)["NodeNames"]
    assert small.groups()["ns/p"]["vc"] == "b"


def test_a_gang_that_forms_goes_on_to_form() -> None:
    small = SmallGangCluster()
    first = small.pod("w-0", annotations=koordinator("g", 2))
    assert "NodeNames" not in small.filter(first)
    switch(small, MAPPED + "# other\n")
    second = small.pod("w-1", annotations=koordinator("g", 2))
    small.filter(first)
    assert small.filter(second)["NodeNames"]
    assert small.filter(first)["NodeNames"]


def test_a_gang_that_has_started_keeps_every_place_that_is_not_bound_yet() -> None:
    small = SmallGangCluster()
    pods = [small.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    small.filter(pods[0])
    places = [small.filter(pod)["NodeNames"] for pod in reversed(pods)]
    small.bind(pods[1], places[0][0])
    small.see(pods[1])
    switch(small, MAPPED.replace("cellAddress: n3", "cellAddress: other"))
    assert small.filter(pods[0])["NodeNames"] == places[1]
    small.bind(pods[0], places[1][0])
    assert len(small.state.groups) == 2


def test_a_gang_that_waits_and_whose_vc_goes_is_told_so() -> None:
    small = SmallGangCluster()
    small.place("single")
    pods = [small.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    assert "NodeNames" not in small.filter(pods[0])
    switch(small, MAPPED.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"))
    with pytest.raises(UserError, match="GPU which VC a does not have"):
        small.filter(pods[1])
    assert [group["vc"] for group in small.groups().values()] == ["a"]  # of the single pod alone


def test_a_gang_that_has_its_places_and_whose_vc_goes_runs_opportunistically() -> None:
    small = SmallGangCluster()
    pods = [small.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    small.filter(pods[0])
    places = small.decided()
    switch(small, MAPPED.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"))
    assert small.settle() == places
    assert {group["state"] for group in small.groups().values()} == {"Allocated"}


def test_what_a_round_has_reserved_is_kept() -> None:
    small = SmallGangCluster()
    for number in range(2):
        small.place(f"low-{number}", '{"virtualCluster": "a", "priority": 0, "leafCellNumber": 4}')
    pods = [small.pod(f"w-{number}", annotations=koordinator("g", 2), priorityClassName="high") for number in range(2)]
    for pod in pods:
        small.filter(pod)
    reserved = {name: group.physical.tolist() for name, group in small.state.groups.items() if group.preempting_pods}
    assert reserved
    switch(small, MAPPED + "priorityClasses: {high: 100, low: -1}\n# other\n")
    now = {name: group.physical.tolist() for name, group in small.state.groups.items() if group.preempting_pods}
    assert now == reserved
    for name in ("low-0", "low-1"):
        small.delete(small.kube.pods[name])
    for pod in pods:
        small.filter(pod)
    assert all(small.filter(pod)["NodeNames"] for pod in pods)


WITHOUT_A = MAPPED[: MAPPED.index("  a:\n")] + MAPPED[MAPPED.index("  b:\n") :]
"""`hived-a` is no schedulerName of ours any more."""


def test_who_has_cells_keeps_them_when_the_name_that_they_came_under_is_not_ours_any_more() -> None:
    small = SmallGangCluster()
    configure(small.service, load(MAPPED), MAPPED)
    bound, binding = (small.pod(name, schedulerName="hived-a") for name in ("bound", "binding"))
    small.ask("bound")
    small.filter(binding)
    places = {name: group["physicalPlacement"] for name, group in small.groups().items()}
    switch(small, WITHOUT_A)
    list_anew(small)
    assert {name: group["physicalPlacement"] for name, group in small.groups().items()} == places
    for pod in (bound, binding):
        small.delete(pod)
    assert small.groups() == {}


def test_who_has_cells_keeps_them_through_a_restart_too() -> None:
    small = SmallGangCluster()
    configure(small.service, load(MAPPED), MAPPED)
    small.pod("p", schedulerName="hived-a")
    small.ask("p")
    later = SmallGangCluster(spec=load(WITHOUT_A).cluster)
    later.service.pod_seen(to_pod(small.kube.pods["p"]))
    assert later.groups()["ns/p"]["physicalPlacement"] == small.groups()["ns/p"]["physicalPlacement"]


def test_a_gang_whose_place_is_refused_after_nodes_were_added_looks_for_others() -> None:
    larger = MAPPED.replace("{childCellType: NODE, childCellNumber: 4}", "{childCellType: NODE, childCellNumber: 5}")
    larger = larger.replace("{cellAddress: n3}", "{cellAddress: n3}, {cellAddress: n4}").replace(
        "cellNumber: 2}]", "cellNumber: 3}]"
    )
    small = SmallGangCluster()
    configure(small.service, load(MAPPED), MAPPED)
    pods = [
        small.pod(f"w-{number}", annotations=koordinator("g", 2), tolerations=[{"key": str(number)}])
        for number in range(2)
    ]
    for pod in pods:
        assert small.filter(pod)["NodeNames"]
    switch(small, larger)
    small.service.node_seen(node("n4"))
    assert small.filter(pods[0], ["n2", "n4"])["NodeNames"][0] in ("n2", "n4")
    assert small.service.fault == ""


def test_a_plan_tells_of_jobs_not_of_their_groups() -> None:
    small = SmallGangCluster()
    pods = [small.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    small.filter(pods[0])
    places = [small.filter(pod)["NodeNames"][0] for pod in reversed(pods)]
    for pod, place in zip(reversed(pods), places, strict=True):
        small.filter(pod)
        small.bind(pod, place)
        small.see(pod)
    alone = small.pod("q", namespace="other")
    small.bind(alone, small.filter(alone)["NodeNames"][0])
    small.see(alone)
    change = Change(load(MAPPED), load(MAPPED.replace("cellNumber: 2", "cellNumber: 0")), None, 1)
    outcome = change.outcome(*change.catch_up_with(small.service))
    groups = outcome.report().groups
    assert [(one.name, one.job) for one in groups.affected] == [
        ("ns/w-0", "podgroup/ns/g"),
        ("ns/w-1", "podgroup/ns/g"),
    ]
    assert (groups.unaffected, groups.unaffected_jobs, outcome.locked_out) == (1, 1, ["podgroup/ns/g"])
    (job,) = by_job(groups.affected)
    assert (job.name, job.pods, job.reason) == ("podgroup/ns/g", ["ns/w-0", "ns/w-1"], groups.affected[0].reason)


def test_of_a_job_that_is_hit_in_part_a_plan_and_lists_count_the_pods() -> None:
    small = SmallGangCluster()
    for number in range(2):
        small.pod(f"w-{number}", annotations=koordinator("g", 2))
    small.settle()
    fewer = load(MAPPED.replace("cellNumber: 2", "cellNumber: 1"))
    change = Change(load(MAPPED), fewer, None, 1)
    outcome = change.outcome(*change.catch_up_with(small.service))
    (job,) = by_job(outcome.report().groups.affected)
    assert (job.name, job.pods_told) == ("podgroup/ns/g", "1 of 2 pods")
    change.switch(small.service, {one.name: one.verdict.value for one in outcome.affected})
    (row,) = Answering(small.service).view().jobs
    assert row.job.demoted.startswith("in 1 of 2 pods since ")
    assert row.job.sentence.startswith("opportunistic in 1 of 2 pods since ")
