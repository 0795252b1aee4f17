"""A recorded run is repeated under another configuration, which is followed where it decides otherwise."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hived.values.specs import ClusterSpec, VirtualCellSpec
from hived_config.loader import load_cluster
from hived_extender.api.past import DecisionCount, MovedStart, RecordedPast
from hived_extender.machine.recording import operations as ops
from hived_extender.machine.recording.operations import ScenarioError, decode_operation, read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.reconfiguration.past import Past
from tests.extender.machine.recording.test_record import Driver
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, preempt_args, spec_text

WAITED = "insufficient capacity when scheduling in VC b"
Other = Callable[[ClusterSpec], ClusterSpec]


def recorded(folder: Path, **options: int) -> SmallCluster:
    return SmallCluster(recorder=Recorder(folder, CONFIG, run="run", **options))


def nodes_for(a: int, b: int) -> Other:
    """The cluster with so many nodes for VC a and VC b: other decisions, as other rules have them."""

    def other(spec: ClusterSpec) -> ClusterSpec:
        counts = {"a": a, "b": b, "empty": 0}
        cells = {name: (VirtualCellSpec("RACK.NODE", count),) for name, count in counts.items()}
        vcs = {name: replace(vc, virtual_cells=cells[name]) for name, vc in spec.virtual_clusters.items()}
        return replace(spec, virtual_clusters=vcs)

    return other


def starts(moved: list[MovedStart]) -> list[tuple[str, str, str, str]]:
    return [(each.group, each.vc, each.old_place, each.new_place) for each in moved]


def same(spec: ClusterSpec) -> ClusterSpec:
    return spec


def compared(folder: Path, small: SmallCluster, other: Other) -> RecordedPast:
    return followed(folder, small, other)[1]


def followed(folder: Path, small: SmallCluster, other: Other) -> tuple[Past, RecordedPast]:
    """The comparison; places are the numbers of questions, with "+" for facts after one. Every invariant holds."""
    small.service.close()
    past = Past("run", lambda name: load_cluster(folder / name), other)
    lines = [operation for part in sorted(folder.glob("*.jsonl")) for _, operation in read_scenario(part)]
    places = []
    count = 0
    for operation in lines:
        is_question = isinstance(operation, ops.Schedule)
        count += is_question
        places.append(f"{count}{'' if is_question else '+'}")
    found = past.compare(zip(places, lines, strict=True))
    assert past.other.scheduler is not None
    past.other.scheduler.check()
    return past, found


def test_a_pod_that_waited_starts_where_it_was_first_asked_about(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    first, _ = small.place("one", spec_text("b"))
    second = small.create("two", spec_text("b"))
    small.filter(second)
    small.filter(second)
    small.delete(first)
    small.filter(second)
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert found.decisions == [DecisionCount("wait", "bind", 1)]
    (decision,) = found.first
    assert (decision.place, decision.pod, decision.group, decision.vc) == ("2", "uid-two", "ns/two", "b")
    assert (decision.old_detail, decision.new_detail) == (WAITED, "n3[0,1,2,3]")
    assert starts(found.earlier) == [("ns/two", "b", "4", "2")]
    assert (found.later, found.evicted, found.spared, found.questions) == ([], [], [], 2)


def test_pods_of_a_job_are_told_by_its_name(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, CONFIG, run="run")
    small = SmallCluster(recorder=recorder)
    recorder.job_of = lambda uid: "Job/ns/j"
    first, _ = small.place("one", spec_text("b"))
    second = small.create("two", spec_text("b"))
    small.filter(second)
    small.delete(first)
    small.filter(second)
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert [one.group for one in found.first] == ["Job/ns/j"]


def test_decisions_that_only_choose_another_place_are_named_last(tmp_path: Path) -> None:
    def other(spec: ClusterSpec) -> ClusterSpec:
        (rack,) = spec.physical_cells
        return replace(nodes_for(2, 2)(spec), physical_cells=(replace(rack, children=rack.children[::-1]),))

    small = recorded(tmp_path)
    small.place("one", spec_text("b"))
    small.filter(small.create("two", spec_text("b")))
    found = compared(tmp_path, small, other)
    assert found.decisions == [DecisionCount("bind", "bind elsewhere", 1), DecisionCount("wait", "bind", 1)]
    assert [each.pod for each in found.first] == ["uid-two", "uid-one"]


def test_a_pod_that_cannot_start_here_is_tried_again_when_room_comes(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    first, _ = small.place("one", spec_text("a"))
    small.place("two", spec_text("a"))
    small.delete(first)
    found = compared(tmp_path, small, nodes_for(1, 1))
    assert found.decisions == [DecisionCount("bind", "wait", 1)]
    assert starts(found.later) == [("ns/two", "a", "2", "2+")]
    assert starts(found.earlier) == []


def test_decisions_and_starts_have_the_times_of_the_record(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    first, _ = small.place("one", spec_text("b"))
    small.pass_time(60)
    second = small.create("two", spec_text("b"))
    small.filter(second)
    small.pass_time(40)
    small.delete(first)
    small.filter(second)
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert [each.when for each in found.first] == ["1970-01-01T00:17:40Z"]
    ((old, new),) = [(each.old_when, each.new_when) for each in found.earlier]
    assert (old, new) == ("1970-01-01T00:18:20Z", "1970-01-01T00:17:40Z")


def test_a_pod_that_ends_before_it_can_start_never_starts(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("one", spec_text("a"))
    second, _ = small.place("two", spec_text("a"))
    small.delete(second)
    assert starts(compared(tmp_path, small, nodes_for(1, 1)).later) == [("ns/two", "a", "2", "")]


def preempting(small: SmallCluster, name: str, vc: str) -> None:
    """A pod of priority 5 asks, has others leave, and starts when they have left."""
    pod = small.create(name, spec_text(vc, priority=5))
    small.filter(pod)
    answer = small.service.preempt_victims(preempt_args(pod))
    for victims in answer.node_name_to_meta_victims.values():
        for victim in victims.pods:
            small.delete(small.kube.pods[victim.uid.removeprefix("uid-")])
    small.filter(pod)


def test_a_group_that_need_not_leave_is_spared_and_ends_where_the_record_has_it(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("low", spec_text("b", priority=0))
    preempting(small, "high", "b")
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert (found.spared, found.evicted) == (["ns/low"], [])
    assert found.decisions == [DecisionCount("preempt", "bind", 1)]
    assert starts(found.earlier) == [("ns/high", "b", "4", "2")]


def test_victims_that_the_record_does_not_have_leave_at_once(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    for i in range(2):
        small.place(f"a{i}", spec_text("a", priority=0))
    small.place("b0", spec_text("b"))
    small.place("lent", spec_text("a", priority=-1))
    small.filter(small.create("b1", spec_text("b")))
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert found.decisions == [DecisionCount("wait", "preempt", 1)]
    assert (found.evicted, starts(found.earlier)) == (["ns/lent"], [("ns/b1", "b", "", "5")])


def test_a_preemption_that_both_make_waits_for_the_recorded_end(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("low", spec_text("b", priority=0))
    preempting(small, "high", "b")
    found = compared(tmp_path, small, nodes_for(1, 1))
    assert found.is_equal


def test_pods_are_where_this_world_has_them_when_a_term_begins_anew(tmp_path: Path) -> None:
    small = recorded(tmp_path)
    small.place("one", spec_text("b"))
    second = small.create("two", spec_text("b"))
    small.filter(second)
    small.service.follow("another leads")
    small.lead()
    small.filter(second)
    small.place("three", spec_text("a"))
    found = compared(tmp_path, small, nodes_for(2, 2))
    assert found.decisions == [DecisionCount("bind", "bind elsewhere", 1), DecisionCount("wait", "bind", 1)]
    assert starts(found.earlier) == [("ns/two", "b", "", "2")]
    assert found.unfollowed == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_pod_that_starts_at_another_time_has_worked_since_then(tmp_path: Path, is_restarted: bool) -> None:
    small = recorded(tmp_path)
    first, _ = small.place("one", spec_text("b"))
    running, _ = small.place("other", spec_text("a"))
    small.pass_time(20)
    second = small.create("two", spec_text("b"))
    small.filter(second)
    small.pass_time(60)
    small.delete(first)
    (node,) = small.filter(second)["NodeNames"]
    small.bind(second, node)
    for pod in (running, second):
        pod["status"] |= {"phase": "Running", "startTime": "1970-01-01T00:18:05Z"}
        small.see(pod)
    if is_restarted:
        small.service.follow("another leads")
        small.lead()
    small.filter(small.create("three", spec_text("a")))
    for other, expected in ((nodes_for(2, 2), 1020), (same, 1085)):
        past, _ = followed(tmp_path, small, other)
        assert past.other.scheduler is not None
        started = past.other.scheduler.state.groups["ns/two"].times["uid-two"].started_s
        assert started is not None
        assert int(started) == expected


def drive(folder: Path, seed: int) -> SmallCluster:
    small = recorded(folder, part_size=20_000)
    driver = Driver(small, seed)
    for step in range(1, 241):
        driver.step()
        if step % 80 == 0:
            small.service.follow("another leads")
            small.lead()
    return small


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_the_same_rules_decide_the_same(tmp_path: Path, seed: int) -> None:
    found = compared(tmp_path, drive(tmp_path, seed), same)
    assert found.is_equal
    assert found.questions > 50


@pytest.mark.parametrize("seed", [2, 3])
def test_the_same_rules_have_the_same_pods_leave_after_gangs_were_split(tmp_path: Path, seed: int) -> None:
    small = recorded(tmp_path)
    driver, pauses = Driver(small, seed), random.Random(seed)
    for _ in range(180):
        small.pass_time(pauses.expovariate(1 / 30))
        driver.step()
    assert compared(tmp_path, small, same).is_equal
    assert b'"op":"split"' in (tmp_path / "run-0001.jsonl").read_bytes()


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("other", [nodes_for(1, 2), nodes_for(2, 2), nodes_for(0, 1)])
def test_any_other_world_can_be_followed_to_the_end(tmp_path: Path, seed: int, other: Other) -> None:
    small = drive(tmp_path, seed)
    found = compared(tmp_path, small, other)
    assert found.decisions
    assert found.unfollowed == 0
    assert found == compared(tmp_path, small, other)
    assert not set(found.evicted) & set(found.spared)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"op": "restart", "config": "run.yaml", "order": "nodesFirst", "badNodes": [], "pods": []}', "no line of"),
        (b'{"op": "schedule", "pod": "p", "spec": {}, "phase": "Filtering", "suggested": "all"}', "before any"),
    ],
)
def test_a_line_that_no_service_records_is_an_error(tmp_path: Path, line: bytes, message: str) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG)
    past = Past("run", lambda name: load_cluster(tmp_path / name), same)
    with pytest.raises(ScenarioError, match=message):
        past.compare([("1", decode_operation(line))])  # type: ignore[list-item]  # as a reader may meet it
