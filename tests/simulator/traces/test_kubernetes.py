"""Pods and events as kubectl prints them, answers of Prometheus, and pods that are put together to jobs."""

import json
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_simulator.traces.draft import Options
from hived_simulator.traces.fields import Unusable, from_text, to_text
from hived_simulator.traces.jobs import Pods, Trace
from hived_simulator.traces.kubernetes import SeenPod, jobs_of
from hived_simulator.traces.reading import read_trace
from tests.simulator.traces.test_reading import SAMPLES

DAY = "2026-03-01T"


def pod(name: str, start: str, end: str = "", *, gpus: int = 1, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": name + start, "creationTimestamp": DAY + start} | metadata
    status: dict[str, Any] = {
        "phase": "Succeeded" if end else "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": DAY + start}],
    }
    if end:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": DAY + end}}}]
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n", "containers": [container]}, "status": status}


def read(path: Path, *documents: Any, **options: Any) -> Trace:
    path.write_text("\n".join(json.dumps(each) for each in documents))
    return read_trace(path, "", Options(**options))


def test_lines_of_a_watch_tell_one_pod_in_the_end(tmp_path: Path) -> None:
    first, last = pod("a", "08:00:00Z"), pod("a", "08:00:00Z", "09:00:00Z")
    lines = [{"type": "ADDED", "object": first}, {"type": "MODIFIED", "object": last}]
    (job,) = read(tmp_path / "a", *lines).jobs
    assert (job.name, job.duration_s, job.status) == ("ns/a", 3600.0, "Succeeded")


def test_a_pod_that_is_deleted_while_it_runs_ends_then(tmp_path: Path) -> None:
    gone = pod("a", "08:00:00Z", deletionTimestamp=DAY + "08:30:00Z")
    later = pod("b", "09:00:00Z", "09:30:00Z")
    trace = read(tmp_path / "a", {"type": "DELETED", "object": gone}, {"type": "ADDED", "object": later})
    assert trace.jobs[0].duration_s == 1800.0


def test_events_and_pods_in_one_file_complete_each_other(tmp_path: Path) -> None:
    running = pod("a", "08:00:00Z")
    about = {"kind": "Pod", "namespace": "ns", "name": "a", "uid": running["metadata"]["uid"]}
    killed = {"kind": "Event", "reason": "Killing", "regarding": about, "eventTime": DAY + "08:10:00.5Z"}
    (job,) = read(tmp_path / "a", {"kind": "List", "items": [killed, running, {"kind": "Node"}]}).jobs
    assert job.duration_s == 600.5


def test_controllers_whose_pods_work_alone_make_no_gang(tmp_path: Path) -> None:
    def owned(kind: str) -> Trace:
        owner = [{"kind": kind, "name": "o", "uid": "o", "controller": True}]
        pods = [pod(name, "08:00:00Z", "09:00:00Z", gpus=2, ownerReferences=owner) for name in ("a", "b")]
        return read(tmp_path / "a", {"kind": "PodList", "items": pods})

    assert [job.pods for job in owned("PyTorchJob").jobs] == [(Pods(2, 2),)]
    assert [job.pods for job in owned("Job").jobs] == [(Pods(1, 2),)] * 2


def test_other_devices_and_tenants_can_be_named(tmp_path: Path) -> None:
    other = pod("a", "08:00:00Z", "09:00:00Z")
    other["spec"]["containers"][0]["resources"] = {"limits": {"example.com/npu": "4"}}
    with pytest.raises(UserError, match="no row can be used; of 1: asks for no GPU"):
        read(tmp_path / "a", other)
    (job,) = read(tmp_path / "a", other, devices=("example.com/npu",)).jobs
    assert job.leaf_count == 4
    by_namespace = read_trace(SAMPLES / "pods.json", "", Options(tenant_column="namespace"))
    assert by_namespace.jobs[0].tenant == "team-a"


def test_a_gang_that_hived_has_split_is_one_job(tmp_path: Path) -> None:
    spec = {"virtualCluster": "research", "priority": 1, "leafCellNumber": 8}
    annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": json.dumps(spec)}
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    pods = [pod(name, "08:00:00Z", "09:00:00Z", annotations=annotations, labels=labels) for name in ("a", "b")]
    (job,) = read(tmp_path / "a", {"kind": "List", "items": pods}).jobs
    assert (job.name, job.tenant, job.pods) == ("ns/g", "research", (Pods(2, 8),))


def test_pods_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    bad_spec = {"hivedscheduler.microsoft.com/pod-scheduling-spec": "{"}
    pods = [
        pod("good", "08:00:00Z", "09:00:00Z"),
        pod("a", "08:00:00Z", "09:00:00Z", annotations=bad_spec),
        pod("b", "soon", "09:00:00Z"),
        pod("c", "08:00:00Z", "09:00:00Z", gpus=[]),
        {"kind": "Pod", "metadata": 7},
        [],
    ]
    trace = read(tmp_path / "a", {"kind": "List", "items": pods})
    assert len(trace.jobs) == 1
    assert sum(int(note.split(": ")[1].split(" ")[0]) for note in trace.notes if note.startswith("left out")) == 5


def series(node: str, start: int, count: int, step: int = 30, **labels: str) -> dict[str, Any]:
    metric = {"__name__": "kube_pod_container_resource_requests", "resource": "nvidia_com_gpu", "namespace": "ns",
              "pod": "a", "node": node, **labels}  # fmt: skip
    return {"metric": metric, "values": [[start + step * number, "2"] for number in range(count)]}


def answer(*found: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}


def test_samples_without_a_node_are_waiting(tmp_path: Path) -> None:
    trace = read(tmp_path / "a", answer(series("", 1772352000, 3), series("n", 1772352090, 5)))
    (job,) = trace.jobs
    assert (job.started_s, job.duration_s, job.pods) == (90.0, 150.0, (Pods(1, 2),))
    assert any("30 s apart" in note for note in trace.notes)


def test_queries_that_failed_or_are_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Prometheus answered 'too many samples'"):
        read(tmp_path / "a", {"status": "error", "errorType": "execution", "error": "too many samples"})
    with pytest.raises(UserError, match="has no series of kube_pod_container_resource_requests"):
        read(tmp_path / "a", answer(series("n", 1772352000, 3, resource="cpu")))


def test_a_list_of_openpai_without_a_total_and_with_users_as_tenants(tmp_path: Path) -> None:
    entries = json.loads((SAMPLES / "openpai.json").read_text())["data"]
    trace = read(tmp_path / "a", entries, tenant_column="username")
    assert [job.tenant for job in trace.jobs] == ["ada", "bob"]


def test_a_gang_has_as_many_pods_as_ran_at_once() -> None:
    pods = [
        SeenPod("g-0", "t", 8, 0.0, 10.0, 100.0, gang="g"),
        SeenPod("g-1", "t", 8, 1.0, 12.0, 50.0, gang="g"),
        SeenPod("g-1", "t", 8, 50.0, 50.0, 110.0, gang="g"),
        SeenPod("g-boss", "t", 1, 1.0, 11.0, 110.0, gang="g"),
        SeenPod("alone", "t", 2, 5.0, 6.0, 7.0),
    ]
    gang, alone = jobs_of(pods)
    assert (gang.name, gang.submitted_s, gang.started_s, gang.duration_s) == ("g", 0.0, 10.0, 100.0)
    assert gang.pods == (Pods(1, 1), Pods(2, 8))
    assert (alone.name, alone.pods, alone.duration_s) == ("alone", (Pods(1, 2),), 1.0)


def test_a_shape_that_a_pod_tells_counts() -> None:
    (job,) = jobs_of([SeenPod("g-0", "t", 8, 0.0, 10.0, 100.0, gang="g", shape=(Pods(4, 8),))])
    assert job.pods == (Pods(4, 8),)


@pytest.mark.parametrize("text", ["1", "2x8", "3x1+2", "4+2x8"])
def test_a_shape_is_read_as_it_is_written(text: str) -> None:
    assert to_text(from_text(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0x8", "2x", "x8", "-1", "1.5", "9999999x9999999", "2x8,4"])
def test_what_is_no_shape_is_unusable(text: str) -> None:
    with pytest.raises(Unusable):
        from_text(text)
