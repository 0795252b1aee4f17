"""Starts and checkpoints of pods on their way to the core, live, after a restart and to another configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from hived.life.losses import loss_of
from hived.values.specs import WorkTimes
from hived_config.loader import load_text
from hived_extender.jobs.progress import CHECKPOINTED_AT, MAY_MOVE, read_time
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.reconfiguration.change import Change
from tests.extender.machine.small_cluster import CONFIG, Json, SmallCluster, cluster_spec, spec_text, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

EARLY, LATER = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"
EARLY_S, LATER_S = read_time(EARLY), read_time(LATER)
FUTURE = "2200-01-01T00:00:00Z"


def small(**options: Any) -> SmallCluster:
    """A cluster one minute after `LATER`."""
    cluster = SmallCluster(**options)
    cluster.by_hand.at = LATER_S + 60
    return cluster


def start(cluster: SmallCluster, pod: Json, started: str = EARLY, **notes: str) -> None:
    """The kubelet has started a pod; its owner sets annotations."""
    pod["status"] |= {"phase": "Running", "startTime": started}
    annotate(cluster, pod, **notes)


def annotate(cluster: SmallCluster, pod: Json, checkpointed: str = "", may_move: str = "") -> None:
    notes = {CHECKPOINTED_AT: checkpointed, MAY_MOVE: may_move}
    pod["metadata"]["annotations"].update({key: text for key, text in notes.items() if text})
    cluster.kube.touch(pod)
    cluster.see(pod)


def times(cluster: SmallCluster, name: str) -> dict[str, WorkTimes]:
    return cluster.state.groups[name].times


def gang(cluster: SmallCluster) -> list[Json]:
    return [cluster.place(name, spec_text(group="g", pods=2))[0] for name in ("p", "q")]


def test_the_core_knows_when_a_pod_started_and_saved_its_work() -> None:
    cluster = small()
    pod, _ = cluster.place("p")
    assert times(cluster, "ns/p") == {}
    start(cluster, pod)
    assert times(cluster, "ns/p") == {"uid-p": WorkTimes(EARLY_S)}
    annotate(cluster, pod, checkpointed=LATER)
    assert times(cluster, "ns/p") == {"uid-p": WorkTimes(EARLY_S, LATER_S)}
    assert loss_of(cluster.state.groups["ns/p"], int((LATER_S + 60) * 1000)) == 4 * 60_000


def test_people_see_the_times_of_a_group() -> None:
    cluster = small()
    first, second = gang(cluster)
    assert "work" not in cluster.groups()["ns:g"]
    start(cluster, second, LATER)
    start(cluster, first, EARLY)
    assert cluster.groups()["ns:g"]["work"] == {"startedAt": EARLY, "since": EARLY, "leafCells": 8}
    annotate(cluster, first, checkpointed=LATER)
    work = {"startedAt": EARLY, "since": LATER, "leafCells": 8, "checkpointedAt": LATER}
    assert cluster.groups()["ns:g"]["work"] == work


def test_people_see_the_type_of_the_cells_of_a_group() -> None:
    cluster = small()
    cluster.place("p")
    assert cluster.groups()["ns/p"]["leafCellTypes"] == ["GPU"]


def test_leave_to_move_is_kept_with_the_pod_and_may_be_taken_back() -> None:
    cluster = small()
    pod, _ = cluster.place("p")
    record = cluster.service.machine.cache.pods.get("uid-p")
    assert record is not None
    assert not record.progress.may_move
    annotate(cluster, pod, may_move="true")
    assert record.progress.may_move
    annotate(cluster, pod, may_move="false")
    assert not record.progress.may_move


@pytest.mark.parametrize(
    ("notes", "named"), [({"checkpointed": FUTURE}, "has not come"), ({"may_move": "maybe"}, "true or false")]
)
def test_a_mistake_is_told_once_and_the_pod_runs_on(notes: dict[str, str], named: str) -> None:
    cluster = small()
    pod, _ = cluster.place("p")
    start(cluster, pod, EARLY, **notes)
    annotate(cluster, pod)
    cluster.until(lambda: ("p", "IgnoredAnnotation") in cluster.kube.events)
    cluster.pass_time(60)
    assert cluster.kube.events.count(("p", "IgnoredAnnotation")) == 1
    assert any(named in message for message in cluster.kube.messages)
    assert times(cluster, "ns/p") == {"uid-p": WorkTimes(EARLY_S)}


def test_a_restart_knows_the_same_times() -> None:
    cluster = small()
    first, second = gang(cluster)
    start(cluster, first, EARLY, checkpointed=LATER)
    start(cluster, second, LATER)
    before = cluster.snapshot()
    assert before[2]["ns:g"]["times"] == {"uid-p": [EARLY_S, LATER_S], "uid-q": [LATER_S, None]}
    cluster.service.close()
    again = small(is_leading=False)
    again.kube.pods = cluster.kube.pods
    again.service.sync_pods([to_pod(pod) for pod in again.kube.pods.values()])
    again.lead()
    assert again.snapshot() == before
    assert again.state.groups["ns:g"].since_ms == cluster.state.groups["ns:g"].since_ms


def test_a_checkpoint_from_before_the_pod_had_a_place_counts_as_after_a_restart() -> None:
    cluster = small()
    pod, _ = cluster.place("p", annotations={CHECKPOINTED_AT: LATER})
    assert times(cluster, "ns/p") == {"uid-p": WorkTimes(None, LATER_S)}
    start(cluster, pod, EARLY)
    assert times(cluster, "ns/p") == {"uid-p": WorkTimes(EARLY_S, LATER_S)}


def test_each_pod_of_a_gang_brings_its_checkpoint_to_its_place_also_to_one_that_an_earlier_leader_promised() -> None:
    cluster = SmallGangCluster()
    cluster.by_hand.at = LATER_S + 60
    for name, saved in (("w-0", EARLY), ("w-1", LATER)):
        cluster.pod(name, 2, koordinator("train", 2) | {CHECKPOINTED_AT: saved})
    cluster.start("w-0", "w-1")  # the last is bound, the first has its place by the other's annotations
    told = [times(cluster, name) for name in ("ns/w-0", "ns/w-1")]
    assert told == [{"uid-w-0": WorkTimes(None, EARLY_S)}, {"uid-w-1": WorkTimes(None, LATER_S)}]
    assert list(cluster.placed()) == ["w-1"]
    again = cluster.restarted()
    assert [times(again, name) for name in ("ns/w-0", "ns/w-1")] == told


def test_another_configuration_keeps_the_times_and_those_that_came_meanwhile() -> None:
    cluster = small()
    first, second = gang(cluster)
    start(cluster, first)
    old = load_text(CONFIG, "file")
    change = Change(
        old, load_text(CONFIG.replace("cellNumber: 1", "cellNumber: 2"), "file"), cluster.service.draft(""), 1
    )
    change.outcome(*change.catch_up_with(cluster.service))
    start(cluster, second, LATER, checkpointed=LATER)
    before = times(cluster, "ns:g")
    change.switch(cluster.service, {})
    assert times(cluster, "ns:g") == before == {"uid-p": WorkTimes(EARLY_S), "uid-q": WorkTimes(LATER_S, LATER_S)}


def test_a_record_has_the_times_and_its_replay_ends_in_the_same_state(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, CONFIG, run="run")
    cluster = small(recorder=recorder)
    first, second = gang(cluster)
    start(cluster, first, EARLY, checkpointed=LATER)
    start(cluster, second, LATER)
    cluster.delete(second)
    recorder.close()
    file = tmp_path / "run-0001.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [line for line in lines if line["op"] == "progress"]
    assert told == [
        {"op": "progress", "pod": "uid-p", "started": EARLY_S, "saved": LATER_S},
        {"op": "progress", "pod": "uid-q", "started": LATER_S},
    ]
    assert all("now" in line for line in lines if line["op"] == "schedule")
    replay = Replay(CoreScheduler, lambda name: cluster_spec(), StateDetail.NONE, check=True)
    assert all(record["result"]["kind"] != "error" for record in replay.run(read_scenario(file)))
    assert replay.scheduler is not None
    assert replay.scheduler.snapshot() == cluster.snapshot()
    assert replay.times("uid-p") == WorkTimes(EARLY_S, LATER_S)
