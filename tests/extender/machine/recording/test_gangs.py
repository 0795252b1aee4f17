"""A record of gangs, read as a trace, tells what the API server had: jobs, pods, sizes, starts, ends."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from hived_extender.jobs.kinds import coscheduling, kai, koordinator, kueue, native, own, volcano, yunikorn
from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.jobs.kinds.table import DIALECTS
from hived_extender.machine.recording.record import Recorder, recent_lines, recent_parts
from hived_simulator.certification import ConfigText, Wish, certify, described
from hived_simulator.traces.jobs import Job, Pods, Trace
from hived_simulator.traces.reading import read_trace
from tests.extender.machine.small_cluster import CONFIG, Json, cluster_spec, spec_text
from tests.extender.machine.small_gangs import KOORDINATOR, SmallGangCluster
from tests.extender.machine.small_gangs import koordinator as koordinated
from tests.extender.machine.small_jobs import SmallJobCluster, hold

YEARS_S = 1.8e9

TASKS = json.dumps([{"name": "w", "minMember": 2}])
GANG: dict[str, dict[str, Any]] = {
    coscheduling.LABELLED.name: {"labels": {koordinator.GROUP_NAME: "g", koordinator.MIN_AVAILABLE: "2"}},
    koordinator.KOORDINATOR.name: {"annotations": koordinated("g", 2)},
    coscheduling.POD_GROUP.name: {
        "labels": {coscheduling.LABEL: "g"},
        "object": (coscheduling.PODGROUPS, {"minMember": 2}),
    },
    coscheduling.OLD_POD_GROUP.name: {
        "labels": {koordinator.PODGROUP_LABEL: "g"},
        "object": (coscheduling.OLD_PODGROUPS, {"minMember": 2}),
    },
    volcano.VOLCANO.name: {
        "annotations": {volcano.GROUP_NAMES[0]: "g"},
        "object": (volcano.PODGROUPS, {"minMember": 2}),
    },
    native.POD_GROUP.name: {
        "schedulingGroup": {"podGroupName": "g"},
        "object": (native.PODGROUPS, {"schedulingPolicy": {"gang": {"minCount": 2}}}),
    },
    native.WORKLOAD.name: {
        "workloadRef": {"name": "g", "podGroup": "w"},
        "object": (native.WORKLOADS, {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 2}}}]}),
    },
    yunikorn.YUNIKORN.name: {
        "annotations": {yunikorn.TASK_GROUP: "w", yunikorn.TASK_GROUPS: TASKS},
        "labels": {yunikorn.APPLICATION: "g"},
    },
    kueue.KUEUE.name: {"labels": {kueue.GROUP_NAME: "g"}, "annotations": {kueue.TOTAL: "2"}},
    own.HIVED.name: {"annotations": koordinated("g", 2) | {own.TASK: "w", own.TASK_MINIMUMS: '{"w": 2}'}},
    kai.KAI.name: {"annotations": koordinated("g", 2), "labels": {kai.QUEUE: "a"}},
}
"""Words of a gang `g` of two pods or more in each dialect; one without gangs of its own stands beside another."""


class Recorded(SmallGangCluster):
    """Every pod has been bound and deleted at times that are noted here as the API server would have them."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.found: dict[ObjectRef, Json] = {}
        self.bound: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        objects = Mock(get=lambda kind, namespace, name: self.found.get(ObjectRef(kind, namespace, name)))
        super().__init__(recorder=Recorder(folder, CONFIG, run="run"), objects=objects, **options)
        self.by_hand.at += YEARS_S  # a trace has a date

    def member(self, name: str, gpus: int, words: Mapping[str, Any], **more: Any) -> None:
        """Create a pod with these words."""
        spec = dict(words)
        if "object" in spec:
            kind, text = spec.pop("object")
            self.found[kind.ref("ns", "g")] = {"metadata": {"name": "g", "namespace": "ns"}, "spec": text}
        self.pod(name, gpus, **spec, **more)

    def run(self, seconds: float = 100.0) -> None:
        """Have kube-scheduler ask about every pod, and let time go by."""
        for name in self.settle():
            self.bound.setdefault(name, self.by_hand.at)
        self.by_hand.pass_time(seconds)

    def drop(self, name: str) -> None:
        super().drop(name)
        self.gone[name] = self.by_hand.at

    def trace(self) -> Trace:
        """The record up to now as a trace: the same as of its parts that are read for a certificate."""
        self.place("last", spec_text("b", 1))
        self.service.close()
        recent = self.folder / "recent"
        recent.write_bytes(b"".join(recent_lines(recent_parts(self.folder, 0.0))))
        whole = read_trace(self.folder / "run-0001.jsonl")
        assert read_trace(recent).jobs == whole.jobs
        return whole

    def ran(self, *names: str) -> tuple[float, float]:
        """When the first of these pods was bound, and how long it was until the last one was deleted."""
        start = min(self.bound[name] for name in names)
        return start, max(self.gone[name] for name in names) - start


def check(job: Job, trace: Trace, wanted: tuple[float, float], pods: tuple[Pods, ...]) -> None:
    """A job of a trace ran as the API server had it; the calls in between take some microseconds."""
    assert job.pods == pods
    assert trace.start is not None
    assert job.started_s is not None
    assert (trace.start + job.started_s, job.duration_s) == pytest.approx(wanted, abs=0.01)


def test_every_dialect_has_a_gang_here() -> None:
    assert {dialect.name for dialect in DIALECTS if dialect.describe is not None} == set(GANG)


@pytest.mark.parametrize("name", GANG)
def test_a_gang_has_the_pods_that_it_had(tmp_path: Path, name: str) -> None:
    cluster = Recorded(tmp_path)
    cluster.member("p0", 2, GANG[name], uid="3f-0")
    cluster.member("p1", 4, GANG[name], uid="3f-1")
    cluster.run()
    for pod in ("p0", "p1"):
        cluster.drop(pod)
    cluster.run()
    trace = cluster.trace()
    (gang,) = trace.jobs
    check(gang, trace, cluster.ran("p0", "p1"), (Pods(1, 2), Pods(1, 4)))
    assert gang.is_gang


@pytest.mark.parametrize("name", GANG)
def test_the_certificate_of_a_clusters_own_record_is_right(tmp_path: Path, name: str) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.member(f"p{number}", 4, GANG[name], uid=f"3f-{number}")
    cluster.run()
    trace = cluster.trace()
    text = ConfigText(CONFIG, cluster_spec())
    found = certify(text, text, trace, described(trace, "record", days=1.0), Wish())
    assert [(one.vc, one.jobs, one.lost, one.later) for one in found.vcs] == [("a", 1, 0, 0)]


@pytest.mark.parametrize(
    "name",
    [coscheduling.LABELLED.name, koordinator.KOORDINATOR.name, coscheduling.POD_GROUP.name, volcano.VOLCANO.name],
)
def test_pods_above_the_minimum_and_in_place_of_others_are_of_the_gang(tmp_path: Path, name: str) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.member(f"p{number}", 2, GANG[name], uid=f"3f-{number}")
    cluster.run()
    cluster.member("surplus", 2, GANG[name])
    cluster.run()
    cluster.become("p1", "Failed")
    cluster.drop("p1")
    cluster.member("p1-again", 2, GANG[name])
    cluster.run()
    for pod in ("p0", "surplus", "p1-again"):
        cluster.drop(pod)
    trace = cluster.trace()
    (gang,) = trace.jobs
    check(gang, trace, cluster.ran("p0", "surplus", "p1-again"), (Pods(3, 2),))


def test_a_gang_of_the_same_name_later_is_another_job(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    for time in ("a", "b"):
        for number in range(2):
            cluster.member(f"{time}{number}", 4, GANG[koordinator.KOORDINATOR.name])
        cluster.run()
        for number in range(2):
            cluster.drop(f"{time}{number}")
        cluster.run()
    trace = cluster.trace()
    assert [job.name for job in trace.jobs] == ["podgroup/ns/g", "podgroup/ns/g#2"]
    for job, time in zip(trace.jobs, ("a", "b"), strict=True):
        check(job, trace, cluster.ran(f"{time}0", f"{time}1"), (Pods(2, 4),))


def test_two_gangs_that_start_together_are_two_jobs(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    groups = '["ns/ps", "ns/worker"]'
    for role in ("ps", "worker"):
        cluster.member(role, 4, {"annotations": koordinated(role, 1, groups=groups)})
    cluster.run()
    for role in ("ps", "worker"):
        cluster.drop(role)
    assert sorted((job.name, job.pods) for job in cluster.trace().jobs) == [
        ("podgroup/ns/ps", (Pods(1, 4),)),
        ("podgroup/ns/worker", (Pods(1, 4),)),
    ]


def test_a_gang_that_lost_its_place_before_it_was_bound_runs_from_its_next_one(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.member(f"p{number}", 4, GANG[koordinator.KOORDINATOR.name])
    cluster.filter(cluster.kube.pods["p0"])
    assert set(cluster.decided()) == {"p0", "p1"}
    cluster.by_hand.until(lambda: not cluster.decided())  # kube-scheduler never asks about the other one
    cluster.run(50.0)
    cluster.run()
    for number in range(2):
        cluster.drop(f"p{number}")
    trace = cluster.trace()
    (gang,) = trace.jobs
    check(gang, trace, cluster.ran("p0", "p1"), (Pods(2, 4),))


def test_a_gang_that_was_never_bound_has_not_run(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.member(f"p{number}", 4, GANG[koordinator.KOORDINATOR.name])
    cluster.place("other", spec_text("b", 1))
    cluster.filter(cluster.kube.pods["p0"])
    cluster.by_hand.until(lambda: not cluster.decided().keys() & {"p0", "p1"})
    for number in range(2):
        cluster.drop(f"p{number}")
    assert [job.name for job in cluster.trace().jobs] == ["ns/other"]


def test_a_gang_that_runs_on_under_another_leader_is_one_job(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.member(f"p{number}", 4, GANG[koordinator.KOORDINATOR.name])
    cluster.run()
    folder = tmp_path / "next"
    after = Recorded(folder, is_leading=False)
    after.by_hand.at = cluster.by_hand.at
    after.kube.pods = cluster.kube.pods
    for number in range(2):
        after.see(cluster.kube.pods[f"p{number}"])
    after.lead()
    after.place("first", spec_text("b", 1))
    after.run()
    found = {job.name: job.pods for job in after.trace().jobs}
    assert found == {"podgroup/ns/g": (Pods(2, 4),), "ns/first": (Pods(1, 1),)}


def test_a_queued_job_has_the_pods_that_took_its_held_cells(tmp_path: Path) -> None:
    cluster = SmallJobCluster(recorder=Recorder(tmp_path, CONFIG, run="run"))
    cluster.held(hold(pods=2))
    for number in range(2):
        cluster.come(f"p{number}")
        cluster.ask(f"p{number}")
        cluster.by_hand.pass_time(50.0)
    assert set(cluster.placed()) == {"p0", "p1"}
    for number in range(2):
        cluster.drop(f"p{number}")
    cluster.service.close()
    (found,) = read_trace(tmp_path / "run-0001.jsonl").jobs
    assert (found.name, found.pods) == ("Job/ns/train", (Pods(2, 4),))
    assert found.duration_s == pytest.approx(100.0, abs=0.01)


def test_a_gang_in_our_own_annotation_is_its_affinity_group(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    for number in range(2):
        cluster.place(f"p{number}", spec_text("a", 4, group="own", pods=2))
    cluster.run()
    (gang,) = cluster.trace().jobs
    assert (gang.name, gang.pods) == ("ns:own", (Pods(2, 4),))


def test_keys_of_gangs_are_no_part_of_a_record_of_pods_alone(tmp_path: Path) -> None:
    cluster = Recorded(tmp_path)
    pod, _ = cluster.place("p", spec_text("a", 4))
    cluster.drop(pod["metadata"]["name"])
    cluster.service.close()
    lines = [json.loads(line) for line in (tmp_path / "run-0001.jsonl").read_text().splitlines()]
    assert not any({"job", "bound"} & line.keys() for line in lines)
    assert KOORDINATOR not in json.dumps(lines)
