"""Gangs of plain pods: one job from pods that were created with our gate."""

from typing import Any

import msgspec
import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds import gangs, gates, marks
from hived_extender.jobs.kinds.description import Description, GangKey
from hived_extender.jobs.kinds.kind import Verb
from hived_extender.jobs.wire import Pod
from tests.extender.jobs.kinds.documents import CREATED, UID, job_object, template

KOORDINATOR = "gang.scheduling.koordinator.sh/"
RING = JobName("", gangs.KIND, "team", "ring")
GROUPS = {f"{KOORDINATOR}name": "ring", f"{KOORDINATOR}min-available": "2"}
MAKER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "ring", "uid": "s", "controller": True}


def pod(name: str, phase: str = "Pending", created: str = CREATED, is_gated: bool = True, **metadata: Any) -> Any:
    """A plain pod of the gang."""
    made = job_object("v1", "Pod", dict(template()["spec"]), {"phase": phase}, name=name, uid=name, **metadata)
    made["metadata"]["creationTimestamp"] = created
    if is_gated:
        made["spec"]["schedulingGates"] = [{"name": gates.GATE}]
    return made


def seen(**changes: Any) -> Pod:
    """The same as the watch has it."""
    return msgspec.convert(pod("a", **changes), Pod)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"annotations": GROUPS}, "ring"),
        ({"annotations": GROUPS, "is_gated": False}, None),
        ({"annotations": {marks.GANG: "ring/u"}, "is_gated": False}, "ring"),
        ({"annotations": GROUPS | {marks.QUEUE: "off"}}, None),
        ({"annotations": GROUPS, "labels": {marks.KUEUE_QUEUE: "team"}}, None),
        ({"annotations": GROUPS, "ownerReferences": [MAKER]}, "ring"),
        ({"annotations": GROUPS, "ownerReferences": [{**MAKER, "apiVersion": "batch/v1", "kind": "Job"}]}, None),
        ({"annotations": {f"{KOORDINATOR}name": "ring"}}, "a"),
        ({"annotations": {}}, "a"),
        ({"annotations": GROUPS | {f"{KOORDINATOR}groups": '["team/ring", "team/axle"]'}}, "axle"),
    ],
)
def test_a_pod_with_our_gate_is_of_the_gang_that_it_names(changes: Any, name: str | None) -> None:
    found = gangs.gang_of(seen(**changes))
    assert (found and found.name) == name


def test_a_pod_in_our_own_words_is_of_its_affinity_group() -> None:
    group = {
        "name": "team/ring",
        "members": [{"podNumber": 2, "leafCellNumber": 4}, {"podNumber": 1, "leafCellNumber": 1}],
    }
    spec = {"virtualCluster": "a", "leafCellNumber": 4, "affinityGroup": group}
    one = seen(annotations={SCHEDULING_SPEC: msgspec.json.encode(spec).decode()})
    found = gangs.gang_of(one)
    assert found is not None
    assert found.name == gangs.plain("team/ring") != "team/ring"
    assert gangs.members_of(one, None) == (None, 3)


def test_names_that_differ_in_other_letters_stay_apart() -> None:
    assert gangs.plain("ring-1.a") == "ring-1.a"
    assert len({gangs.plain(name) for name in ("Ring", "ring", "rinG", "ring/", "ring_", "/")}) == 6


def test_a_gang_is_a_job_of_its_oldest_pod_where_nobody_makes_its_pods() -> None:
    job = gangs.read(RING, [pod("b", labels={"a": "b"}), pod("c"), pod("a", created="2026-11-23T15:04:04Z")])
    assert (job.ref.kind, job.ref.name, job.ref.uid) == (gangs.KIND, "ring", "a")
    assert [(role.name, role.count) for role in job.roles] == [("a", 1), ("b", 1), ("c", 1)]
    assert job.roles[1].template["metadata"]["labels"] == {"a": "b"}
    assert job.owner is not None
    assert (job.owner.kind, job.owner.uid, job.comes_back) == ("Pod", "a", False)


def test_a_gang_that_was_let_go_stays_the_same_without_its_oldest_pod() -> None:
    left = [pod(name, is_gated=False, annotations={marks.GANG: "ring/a"}) for name in ("b", "c")]
    assert gangs.read(RING, left).ref.uid == "a"


def test_a_gang_is_a_job_of_the_object_that_makes_its_pods() -> None:
    pods = [pod(name, ownerReferences=[MAKER]) for name in ("b", "a")]
    job = gangs.read(RING, pods)
    assert job.owner is not None
    assert (job.ref.uid, job.owner.kind, job.comes_back) == ("s", "StatefulSet", True)
    assert not gangs.read(RING, [*pods, pod("c")]).comes_back


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([pod("a"), pod("b")], "HELD"),
        ([pod("a"), pod("b", is_gated=False)], "RESUMED"),
        ([pod("a", "Running", is_gated=False), pod("b", "Succeeded", is_gated=False)], "RESUMED"),
        ([pod("a", "Succeeded", is_gated=False), pod("b", "Succeeded", is_gated=False)], "SUCCEEDED"),
        ([pod("a", "Succeeded", is_gated=False), pod("b", "Failed", is_gated=False)], "FAILED"),
    ],
)
def test_a_gang_is_held_while_all_its_pods_are(pods: Any, state: str) -> None:
    job = gangs.read(RING, pods)
    assert job.state.name == state
    assert marks.is_marked_held(job.annotations) == (state == "HELD")


def test_pods_that_leave_do_not_count_any_more() -> None:
    leaving = pod("a", "Running", is_gated=False, deletionTimestamp=CREATED)
    assert [role.name for role in gangs.read(RING, [leaving, pod("b")]).roles] == ["b"]


def test_a_gang_is_the_same_before_and_after_its_pods_have_nodes() -> None:
    bound = pod("a", "Running", is_gated=False)
    bound["spec"]["nodeName"] = "n1"
    assert gangs.read(RING, [bound]).roles == gangs.read(RING, [pod("a")]).roles


def test_a_gang_waits_for_its_pods_and_for_gangs_that_start_with_it() -> None:
    ring, axle = GangKey("team", "ring"), GangKey("team", "axle")
    ref = gangs.read(RING, [pod("a")]).ref
    of_ring, gated = (ring, 2, False), (ring, 2, True)
    assert "1 of the 2 pods" in gangs.missing(ref, [of_ring], ())
    assert gangs.missing(ref, [of_ring, of_ring], ()) == ""
    assert "team/axle" in gangs.missing(ref, [of_ring, of_ring], (axle, ring))
    assert "1 of the 3 pods" in gangs.missing(ref, [of_ring, of_ring, (axle, 3, False)], (axle, ring))
    told = gangs.missing(ref, [of_ring, gated], ())
    assert told == (
        "1 of the 2 pods of its gang is there, and 1 with a scheduling gate of others: it waits for the others"
    )
    assert gangs.waits_for_pods(told)
    assert "0 of the 2 pods" in gangs.missing(ref, [gated, gated], ())


def test_a_gang_waits_for_the_object_that_counts_its_pods() -> None:
    with pytest.raises(UserError) as raised:
        gangs.members_of(seen(), Description("some", GangKey("team", "ring"), missing=True))
    assert gangs.waits_for_pods(raised.value.message)


def test_pods_that_others_gate_are_none_that_a_gang_asks_cells_for() -> None:
    name = JobName("", gangs.KIND, "team", "ring")
    gated = pod("gated")
    gated["spec"]["schedulingGates"].append({"name": "example.com/never"})
    assert [role.name for role in gangs.read(name, [pod("a"), gated]).roles] == ["a"]
    assert [role.name for role in gangs.read(name, [gated]).roles] == ["gated"]


def test_the_mark_comes_with_the_call_that_lifts_the_gate() -> None:
    gang = gangs.read(RING, [pod("b"), pod("a")]).ref
    write = gangs.remove_gate("team", "a", UID, gang, {"example.com/kept": "yes"})
    assert (write.verb, write.path) == (Verb.PATCH_LISTS, "/api/v1/namespaces/team/pods/a")
    assert write.body["metadata"] == {"uid": UID, "annotations": {"example.com/kept": "yes", marks.GANG: "ring/a"}}
    assert write.body["spec"] == {"schedulingGates": [{"name": gates.GATE, "$patch": "delete"}]}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_state_of_a_gang_is_that_of_its_pods_that_have_not_ended(phase: str) -> None:
    ended = pod("a", phase, "2026-11-23T15:04:04Z", annotations={"state": "old", "other": "kept"})
    job = gangs.read(RING, [ended, pod("b", "Running", annotations={"state": "new"})])
    assert (job.annotations["state"], job.annotations["other"]) == ("new", "kept")
