"""The record of a run, replayed, makes the same decisions and ends in the same state."""

import json
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hived.cells.state import State
from hived.life.status import snapshot
from hived.scheduler import handle
from hived.values.decisions import Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import Event, GroupSplit, NodeHealthChanged, Phase, PodAllocated, ScheduleRequested
from hived.values.specs import PodRequest
from hived_config.loader import load_cluster
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC, pod_request
from hived_extender.machine.core import Core
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail, decision_result
from tests.extender.machine.small_cluster import (
    CONFIG,
    NODES,
    SmallCluster,
    node,
    pod_json,
    preempt_args,
    spec_text,
    to_pod,
)


def start_recorder(folder: Path, **options: Any) -> Recorder:
    config = folder / "cluster.yaml"
    config.write_text(CONFIG)
    return Recorder(folder / "records", config.read_text(), run="run", **options)


def parts_of(folder: Path) -> list[Path]:
    return sorted((folder / "records").glob("*.jsonl"))


def replay(folder: Path) -> tuple[list[Any], Any]:
    """The results of all schedule operations, and the state at the end."""
    scenario = folder / "joined.jsonl"
    scenario.write_bytes(b"".join(part.read_bytes() for part in parts_of(folder)))
    schedulers: list[CoreScheduler] = []

    def start(spec: Any) -> CoreScheduler:
        schedulers.append(CoreScheduler(spec))
        return schedulers[-1]

    run = Replay(start, lambda name: load_cluster(folder / "records" / name), StateDetail.NONE, check=True)
    records = list(run.run(read_scenario(scenario)))
    return [record["result"] for record in records if record["op"] == "schedule"], schedulers[-1].snapshot()


class Driver:
    """Does random things to a small cluster."""

    def __init__(self, cluster: SmallCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.pods: list[Any] = []
        self.count = 0

    def step(self) -> None:
        self.random.choices([self.create, self.ask, self.delete, self.turn_node], [4, 6, 2, 1])[0]()

    def create(self) -> None:
        self.count += 1
        group = self.random.choice(["", "g", "h", "i"])
        priority = self.random.choice([-1, 0, 5])
        pods, leaf_cells = self.random.choice([(1, 4), (2, 2), (2, 4)]) if group else (1, self.random.choice([1, 2, 4]))
        spec = spec_text(
            self.random.choice("ab"),
            leaf_cells,
            priority,
            f"{group}{priority}{pods}{leaf_cells}" if group else "",
            pods,
            lazyPreemptionEnable=self.random.random() < 0.5,
            ignoreK8sSuggestedNodes=self.random.random() < 0.5,
        )
        self.pods.append(self.cluster.create(f"p{self.count}", spec))

    def ask(self) -> None:
        waiting = [pod for pod in self.pods if not pod["spec"]["nodeName"]]
        if not waiting:
            return
        pod = self.random.choice(waiting)
        nodes = self.random.choice([list(NODES), self.random.sample(NODES, 3), self.random.sample(NODES, 1)])
        with suppress(UserError):
            if self.random.random() < 0.3:
                self.cluster.service.preempt_victims(preempt_args(pod, nodes))
            elif "NodeNames" in (result := self.cluster.filter(pod, nodes)):
                self.cluster.bind(pod, result["NodeNames"][0])
                self.cluster.see(pod)

    def delete(self) -> None:
        if self.pods:
            self.cluster.delete(self.pods.pop(self.random.randrange(len(self.pods))))

    def turn_node(self) -> None:
        self.cluster.service.node_seen(node(self.random.choice(NODES), is_ready=self.random.random() < 0.7))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[tuple[State, Any]]:
    """The decisions from now on, as a trace shows it, with the core that did; messages name pods differently there.

    Services of earlier tests may still try their waiting pods.
    """
    results: list[tuple[State, Any]] = []

    def listen(state: State, event: Event) -> Decision:
        try:
            decision = handle(state, event)
        except UserError:
            results.append((state, "error"))
            raise
        if isinstance(event, ScheduleRequested):
            results.append((state, decision_result(decision)))
        return decision

    monkeypatch.setattr("hived_extender.machine.core.handle", listen)
    return results


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_replay_makes_the_decisions_of_the_run(tmp_path: Path, decided: list[tuple[State, Any]], seed: int) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path, part_size=10_000))
    driver = Driver(cluster, seed)
    for _ in range(150):
        driver.step()
    cluster.service.close()
    results, state = replay(tmp_path)
    own = [result for core, result in decided if core is cluster.state]
    assert {result["kind"] for result in results} >= {"bind", "wait", "preempt"}
    assert ["error" if result["kind"] == "error" else result for result in results] == own
    assert state == cluster.snapshot()
    assert len(parts_of(tmp_path)) > 1


def test_a_restarted_service_records_the_bound_pods_it_found(tmp_path: Path) -> None:
    before = SmallCluster()
    for name in ("p", "q"):
        before.place(name, spec_text(leaf_cells=2))
    cluster = SmallCluster(is_leading=False, recorder=start_recorder(tmp_path))
    cluster.service.sync_pods([to_pod(pod) for pod in before.kube.pods.values()])
    cluster.lead()
    cluster.filter(cluster.create("r", spec_text(leaf_cells=2)))
    cluster.service.close()
    results, state = replay(tmp_path)
    assert [result["kind"] for result in results] == ["bind"]
    assert state == cluster.snapshot()


def test_offered_nodes_are_written_as_the_shorter_list(tmp_path: Path) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path))
    pod = cluster.create("p", spec_text(vc="empty"))
    for nodes in (NODES, NODES[:3], NODES[:1]):
        cluster.filter(pod, nodes)
    lines = [json.loads(line) for line in parts_of(tmp_path)[0].read_bytes().splitlines()]
    rows = [line["offer"]["rows"] for line in lines if line["op"] == "schedule"]
    assert [row["nodes"] for (row,) in rows] == ["all", {"except": ["n3"]}, ["n0"]]


def test_a_line_is_written_before_the_next_event(tmp_path: Path) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path))
    cluster.filter(cluster.create("p"))
    last = json.loads(parts_of(tmp_path)[0].read_bytes().splitlines()[-1])
    assert (last["op"], last["pod"], last["commit"]) == ("schedule", "uid-p", True)


def test_the_event_that_broke_the_core_is_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path))
    pod = cluster.create("p")

    def explode(*_: object) -> None:
        raise IndexError("boom")

    monkeypatch.setattr("hived_extender.machine.core.handle", explode)
    with pytest.raises(Exception, match="boom"):
        cluster.filter(pod)
    last = json.loads(parts_of(tmp_path)[0].read_bytes().splitlines()[-1])
    assert (last["op"], last["pod"], last["commit"]) == ("schedule", "uid-p", False)


def test_a_record_that_cannot_be_written_does_not_stop_scheduling(tmp_path: Path) -> None:
    failures: list[int] = []
    recorder = start_recorder(tmp_path, part_size=1, on_failure=lambda: failures.append(1))
    cluster = SmallCluster()
    for part in range(2, 40):
        (tmp_path / "records" / f"run-{part:04d}.jsonl").touch()
    cluster = SmallCluster(recorder=recorder)
    assert failures == [1]
    assert cluster.filter(cluster.create("p")) == {"NodeNames": ["n0"]}
    assert failures == [1]


def test_a_pod_bound_by_an_unreadable_annotation_is_not_in_the_record(tmp_path: Path) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path))
    cluster.service.pod_seen(to_pod(pod_json("p", spec_text(), node="n0")))
    assert b"addBound" not in parts_of(tmp_path)[0].read_bytes()


def test_devices_that_only_the_isolation_annotation_names_are_in_the_record(tmp_path: Path) -> None:
    cluster = SmallCluster(recorder=start_recorder(tmp_path))
    placement = {"physicalNode": "n0", "physicalLeafCellIndices": [0, 1], "preassignedCellTypes": ["NODE", "NODE"]}
    info = {"node": "n0", "cellChain": "RACK", "affinityGroupBindInfo": [{"podPlacements": [placement]}]}
    notes = {BIND_INFO: json.dumps(info), LEAF_CELL_ISOLATION: "0,1"}
    cluster.create("p", spec_text(leaf_cells=2), node="n0", annotations=notes)
    cluster.service.close()
    assert cluster.groups()["ns/p"]["allocatedPods"] == ["uid-p"]
    assert replay(tmp_path)[1] == cluster.snapshot()


def test_a_split_is_repeated_by_a_replay(tmp_path: Path) -> None:
    recorder = start_recorder(tmp_path)
    core = CoreScheduler(load_cluster(tmp_path / "cluster.yaml"))
    recorder.began()
    for name in core.node_names:
        core.handle(NodeHealthChanged(name, True))
        recorder.told(NodeHealthChanged(name, True))
    group = {"name": "gang", "members": [{"podNumber": 2, "leafCellNumber": 1}]}
    spec = {"virtualCluster": "a", "leafCellNumber": 1}
    whole = pod_request("whole", "whole", "ns", {SCHEDULING_SPEC: json.dumps(spec | {"affinityGroup": group})})
    decision = core.handle(ScheduleRequested(whole))
    assert isinstance(decision, Bind)
    core.handle(PodAllocated(whole, decision.bind_info))
    recorder.asked(ScheduleRequested(whole), core.node_names, commit=True)
    parts = tuple(pod_request(uid, uid, "ns", {SCHEDULING_SPEC: json.dumps(spec)}) for uid in ("p", "q"))
    core.handle(GroupSplit("gang", parts))
    recorder.told(GroupSplit("gang", parts))
    recorder.close()
    _, state = replay(tmp_path)
    assert sorted(state[2]) == ["ns/p", "ns/q"]
    assert state == snapshot(core.state)


def test_lost_leaf_cells_are_repeated_by_a_replay(tmp_path: Path) -> None:
    """So are the decisions on what is left of the node, and those of the replay before they are there again."""
    recorder = start_recorder(tmp_path)
    room: list[str] = []
    core = Core(load_cluster(tmp_path / "cluster.yaml"), recorder, lambda: room.append(""), lambda _: None)
    for name in core.node_names:
        core.set_node(name, is_healthy=True)
    (leaf_type,) = core.state.topology.leaf_type_chains
    for name in core.node_names:
        core.set_lost(name, leaf_type, 2, known=(3,))
    spec = {"virtualCluster": "a", "priority": -1}
    pods = [
        pod_request(uid, uid, "ns", {SCHEDULING_SPEC: json.dumps(spec | {"leafCellNumber": count})})
        for uid, count in (("p", 4), ("q", 2))
    ]
    answers = [decide(core, pod) for pod in pods]
    assert [isinstance(answer, Bind) for answer in answers] == [False, True]
    told = len(room)
    core.set_lost(core.node_names[0], leaf_type, 0)
    assert len(room) > told
    recorder.close()
    results, state = replay(tmp_path)
    assert results == [decision_result(answer) for answer in answers]
    assert state == snapshot(core.state)


def test_a_reservation_is_repeated_by_a_replay(tmp_path: Path) -> None:
    """Two terms: what the second is told of the first ends in the same state, and so does the record of both."""
    recorder = start_recorder(tmp_path)
    spec = load_cluster(tmp_path / "cluster.yaml")
    gang = {"affinityGroup": {"name": "gang", "members": [{"podNumber": 2, "leafCellNumber": 4}]}}
    weak, urgent = ({"virtualCluster": "a", "leafCellNumber": 4, "priority": p} | gang for p in (0, 5))
    urgent["affinityGroup"] = gang["affinityGroup"] | {"name": "urgent"}
    victims = [pod_request(uid, uid, "ns", {SCHEDULING_SPEC: json.dumps(weak)}) for uid in ("x", "y")]
    waiting = [pod_request(uid, uid, "ns", {SCHEDULING_SPEC: json.dumps(urgent)}) for uid in ("p", "q")]
    first, second = (Core(spec, recorder, lambda: None, lambda _: None) for _ in range(2))
    for name in first.node_names:
        first.set_node(name, is_healthy=True)
    infos = [bind.bind_info for pod in victims if isinstance(bind := decide(first, pod), Bind)]
    assert [isinstance(decide(first, pod), Preempt) for pod in waiting] == [True, True]
    recorder.began()
    for name in second.node_names:
        second.set_node(name, is_healthy=True)
    for pod, info in zip(victims, infos, strict=True):
        second.adopt(pod, info)
    second.reserve(waiting, first.bind_info_of("urgent"))
    with pytest.raises(UserError, match="there is a group of that name already"):
        second.reserve(waiting, first.bind_info_of("urgent"))
    recorder.close()
    assert second.is_waiting_for_victims(waiting[0])
    assert snapshot(second.state) == snapshot(first.state)
    assert replay(tmp_path)[1] == snapshot(second.state)


def decide(core: Core, pod: PodRequest) -> Decision:
    return core.decide(pod, Phase.PREEMPTING, None, commit=True)


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"within_cell": "RACK"},
        {"within_is_required": False},
        {"within_cell": "NODE", "within_is_required": False, "beside": "other"},
        {"elastic": True},
    ],
)
def test_a_record_keeps_what_a_pod_asks_for(tmp_path: Path, wish: dict[str, Any]) -> None:
    recorder = start_recorder(tmp_path)
    core = CoreScheduler(load_cluster(tmp_path / "cluster.yaml"))
    recorder.began()
    for name in core.node_names:
        recorder.told(NodeHealthChanged(name, True))
    asked = pod_request("p", "p", "ns", {SCHEDULING_SPEC: json.dumps({"virtualCluster": "a", "leafCellNumber": 1})})
    asked = replace(asked, spec=replace(asked.spec, **wish))
    recorder.asked(ScheduleRequested(asked), core.node_names, commit=True)
    recorder.close()
    scenario = tmp_path / "joined.jsonl"
    scenario.write_bytes(b"".join(part.read_bytes() for part in parts_of(tmp_path)))
    seen: list[PodRequest] = []

    class Watched(CoreScheduler):
        """Notes what was asked."""

        def handle(self, event: Event) -> Decision:
            if isinstance(event, ScheduleRequested):
                seen.append(event.pod)
            return super().handle(event)

    run = Replay(Watched, lambda name: load_cluster(tmp_path / "records" / name), StateDetail.NONE)
    assert list(run.run(read_scenario(scenario)))[-1]["result"]["kind"] == "bind"
    assert [pod.spec for pod in seen] == [asked.spec]
