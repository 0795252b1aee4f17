"""The record of a run, read as a trace: groups with their times, as a service has written them."""

import json
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.recording.record import Recorder
from hived_simulator.traces.jobs import Pods, Trace
from hived_simulator.traces.reading import read_trace
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, spec_text


def spec(group: str, pods: int = 1, leaf_cells: int = 1) -> dict[str, object]:
    members = [{"podNumber": pods, "leafCellNumber": leaf_cells}]
    return {
        "virtualCluster": "a", "priority": 0, "leafCellNumber": leaf_cells,
        "affinityGroup": {"name": group, "members": members},
    }  # fmt: skip


def asked(
    pod: str, now: float | None, group: str, *, pods: int = 1, leaf_cells: int = 1, commit: bool = True
) -> object:
    line = {"op": "schedule", "pod": pod, "spec": spec(group, pods, leaf_cells), "phase": "Filtering",
            "suggested": "all", "commit": commit}  # fmt: skip
    return line if now is None else line | {"now": now}


def read(path: Path, *lines: object) -> Trace:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in ({"op": "header"}, *lines)))
    return read_trace(path)


def test_a_service_writes_what_is_read(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, CONFIG, run="run")
    cluster = SmallCluster(recorder=recorder)
    pods = [cluster.create(f"p{number}", spec_text("a", 2, 5, "gang", 2)) for number in range(2)]
    for pod in pods:
        cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
        cluster.see(pod)
    for pod in pods:
        cluster.delete(pod)
    other = cluster.create("last", spec_text("b", 1, -1))
    cluster.filter(other)
    cluster.service.close()
    times = [line["now"] for path in tmp_path.glob("*.jsonl") for line in map(json.loads, path.open()) if "now" in line]
    trace = read_trace(tmp_path / "run-0001.jsonl")
    (job,) = (job for job in trace.jobs if job.name == "ns:gang")
    assert (job.tenant, job.priority, job.pods) == ("a", 5, (Pods(2, 2),))
    assert 0 < job.duration_s <= times[-1] - times[0] + 1e-6


def test_a_record_without_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no times"):
        read(tmp_path / "a", asked("p", None, "g"), {"op": "delete", "pod": "p"})


def test_a_deletion_without_a_time_is_at_the_latest_one(tmp_path: Path) -> None:
    lines = [asked("p", 100.0, "g"), asked("q", 160.0, "h", commit=False), {"op": "delete", "pod": "p"}]
    assert [job.duration_s for job in read(tmp_path / "a", *lines).jobs] == [60.0]


def test_a_group_that_comes_again_is_another_job(tmp_path: Path) -> None:
    lines = [
        asked("p", 100.0, "g"), {"op": "delete", "pod": "p", "now": 110.0},
        asked("q", 200.0, "g"), {"op": "delete", "pod": "q", "now": 230.0},
    ]  # fmt: skip
    trace = read(tmp_path / "a", *lines)
    assert [(job.name, job.submitted_s, job.duration_s) for job in trace.jobs] == [("g", 0, 10), ("g#2", 100, 30)]


def test_pods_of_a_gang_that_is_split_belong_to_it(tmp_path: Path) -> None:
    lines = [
        asked("p0", 90.0, "gang", pods=2, leaf_cells=8, commit=False),
        asked("p0", 100.0, "gang", pods=2, leaf_cells=8),
        {"op": "split", "group": "gang", "pods": [{"pod": f"p{n}", "spec": spec(f"ns/p{n}", 1, 8)} for n in range(2)]},
        {"op": "delete", "pod": "p0", "now": 150.0},
        {"op": "delete", "pod": "p1", "now": 170.0},
    ]
    (job,) = read(tmp_path / "a", *lines).jobs
    assert (job.name, job.started_s, job.duration_s, job.pods) == ("gang", 10.0, 70.0, (Pods(2, 8),))


def test_cells_that_are_held_for_a_group_on_the_move_are_no_job(tmp_path: Path) -> None:
    stand_in = {
        "op": "addBound",
        "pod": f"{STAND_IN}1:g:0",
        "spec": spec(f"{STAND_IN}1:g"),
        "node": "n",
        "bindInfo": "",
    }
    lines = [
        asked("p", 100.0, "g"),
        stand_in,
        {"op": "delete", "pod": "p", "now": 150.0},
        {"op": "delete", "pod": f"{STAND_IN}1:g:0", "now": 180.0},
    ]
    assert [job.name for job in read(tmp_path / "a", *lines).jobs] == ["g"]


def test_pods_that_ran_before_count_from_their_start_and_those_that_are_gone_end(tmp_path: Path) -> None:
    bound = {"op": "addBound", "node": "n", "bindInfo": ""}
    lines = [
        {"op": "new", "config": "run.yaml"},
        bound | {"pod": "old", "spec": spec("old")},
        {"op": "progress", "pod": "old", "started": 40.0},
        bound | {"pod": "lost", "spec": spec("lost")},
        asked("p", 100.0, "g"),
        {"op": "new", "config": "run.yaml", "now": 200.0},
        bound | {"pod": "old", "spec": spec("old")},
        bound | {"pod": "p", "spec": spec("g")},
        asked("q", 300.0, "h"),
    ]
    trace = read(tmp_path / "a", *lines, {"op": "inspect", "what": "groups", "now": 310.0})
    assert [(job.name, job.submitted_s, job.duration_s) for job in trace.jobs] == [
        ("old", 0, 270),
        ("g", 60, 210),
        ("lost", 60, 100),
        ("h", 260, 10),
    ]


def test_a_line_that_is_no_operation_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"op":"header"}\n{"op":"sched\n')
    with pytest.raises(UserError, match=r"a:2: is no operation of a record"):
        read_trace(tmp_path / "a")
