"""Jobs that have ended are known: how, where, what they used, and when they were preempted (rules 35)."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.api.waiting import NOT_AGAIN, Ended, EndState, Job
from hived_extender.insight import ended as ledger
from hived_extender.insight.answering import Answering
from hived_extender.insight.ended import DAY_S, KEPT_S, NEWS_S, EndedJobs, Eviction
from hived_extender.insight.snapshot import take
from hived_extender.insight.store import Store
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.outcomes import EvictionName
from hived_extender.jobs.progress import read_time, write_time
from hived_extender.machine.counts import PodEnd
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.insight.situations import AT
from tests.extender.machine.small_cluster import SmallCluster, node, pod_json, spec_text, to_pod, wait_until

Json = dict[str, Any]
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


class Watched:
    """A small cluster and its ledger, at whose end a pod is as its kubelet says."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.cluster = SmallCluster(preemption=PreemptionPolicy(by_service=True), **options)
        self.cluster.pass_time(DAY_S)
        self.known = EndedJobs(store)
        self.answers = Answering(self.cluster.service, ended=self.known, fresh_s=0.0)

    @property
    def now_s(self) -> float:
        return self.cluster.service.runner.wall_s

    def look(self) -> None:
        self.known.look(take(self.cluster.service))

    def start(self, name: str, *, ago_s: float = 3600.0, **spec: Any) -> Json:
        """A pod that has run for so long."""
        pod, _ = self.cluster.place(name, spec_text(**spec))
        self.tell(pod, phase="Running", startTime=write_time(self.now_s - ago_s))
        return pod

    def tell(self, pod: Json, *, is_deleted: bool = False, **status: Any) -> None:
        """The pod has this status now."""
        there = self.cluster.kube.pods[pod["metadata"]["name"]]
        there["status"] |= status
        if is_deleted:
            there["metadata"]["deletionTimestamp"] = write_time(self.now_s)
        self.cluster.kube.touch(there)
        self.cluster.see(there)

    def end(self, pod: Json, exit_code: int = 0, reason: str = "", **status: Any) -> None:
        """The containers of a pod have ended."""
        ended = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed")}
        phase = "Failed" if exit_code else "Succeeded"
        self.tell(pod, phase=phase, containerStatuses=[{"state": {"terminated": ended}}], **status)

    def found(self, name: str) -> tuple[Job, Ended]:
        """The latest job that ended of this name."""
        self.look()
        job = self.known.find(name, self.now_s)
        assert job is not None
        assert job.ended is not None
        return job, job.ended


@pytest.fixture
def watched() -> Watched:
    return Watched()


# States


def test_a_pod_that_ends_well_is_completed_with_what_it_used(watched: Watched) -> None:
    pod = watched.start("p", leaf_cells=4, ago_s=7200.0)
    watched.end(pod)
    job, ended = watched.found("ns/p")
    assert (job.state, job.vc, job.priority, job.asks, job.sentence) == ("Completed", "a", 0, "1 node of 4 GPUs", "")
    assert (ended.exit_code, ended.reason, ended.gpus, round(ended.gpu_hours, 1)) == (0, "", 4, 8.0)
    assert round(ended.ran_s) == 7200
    assert job.nodes == [pod_node(watched, pod)]


def pod_node(watched: Watched, pod: Json) -> str:
    return str(watched.cluster.kube.pods[pod["metadata"]["name"]]["spec"]["nodeName"])


@pytest.mark.parametrize(
    ("code", "reason", "expected", "sentence"),
    [
        (3, "", "", "exit code 3 of pod ns/p on node {}"),
        (137, "OOMKilled", "OOMKilled", "exit code 137 (OOMKilled) of pod ns/p on node {}"),
    ],
)
def test_a_pod_that_fails_says_its_exit_code_and_reason(
    watched: Watched, code: int, reason: str, expected: str, sentence: str
) -> None:
    pod = watched.start("p")
    where = pod_node(watched, pod)
    watched.end(pod, code, reason)
    job, ended = watched.found("ns/p")
    assert (job.state, ended.exit_code, ended.reason, ended.node) == ("Failed", code, expected, where)
    assert job.sentence == sentence.format(where)


def test_a_pod_past_its_deadline_has_failed_for_that(watched: Watched) -> None:
    pod = watched.start("p")
    watched.tell(pod, phase="Failed", reason="DeadlineExceeded")
    job, ended = watched.found("ns/p")
    assert (job.state, ended.exit_code, ended.reason) == ("Failed", None, "DeadlineExceeded")


def test_a_job_that_is_deleted_while_it_waits_never_ran(watched: Watched) -> None:
    for name in ("p0", "p1"):
        watched.start(name)
    waiting = watched.cluster.create("w", spec_text("a", 4))
    watched.look()
    watched.cluster.delete(waiting)
    job, ended = watched.found("ns/w")
    assert (job.state, ended.started, ended.gpu_hours, job.sentence) == ("Deleted", "", 0.0, "it never ran")
    assert (job.vc, job.asks) == ("a", "1 node of 4 GPUs")


def test_a_pod_that_is_deleted_while_it_runs_is_deleted_whatever_its_exit_code(watched: Watched) -> None:
    pod = watched.start("p")
    watched.tell(pod, is_deleted=True)
    watched.end(pod, 143)
    assert watched.found("ns/p")[0].state == "Deleted"


@pytest.mark.parametrize(
    ("status", "why", "words"),
    [
        ({"conditions": [DISRUPTED | {"reason": "EvictionByEvictionAPI"}]}, "drained", "its node was drained"),
        ({"conditions": [DISRUPTED | {"reason": "DeletionByPodGC"}]}, "node-lost", "its node was lost"),
        ({"conditions": [DISRUPTED | {"reason": "DeletionByTaintManager"}]}, "tainted", "its node has a taint"),
        ({"reason": "Evicted", "phase": "Failed"}, "kubelet", "its kubelet evicted it"),
    ],
)
def test_a_pod_that_others_end_is_evicted_and_says_why(watched: Watched, status: Json, why: str, words: str) -> None:
    pod = watched.start("p")
    watched.tell(pod, is_deleted=True, **status)
    if watched.cluster.service.machine.cache.pods.get("uid-p") is not None:
        watched.cluster.delete(pod)
    job, ended = watched.found("ns/p")
    assert (job.state, [one.why for one in ended.evictions]) == ("Evicted", [why])
    assert job.sentence.startswith("evicted at ")
    assert job.sentence.endswith(f"{words}; {NOT_AGAIN}")


def test_a_job_that_runs_again_says_that_its_node_was_drained(watched: Watched) -> None:
    pod = watched.start("p")
    watched.tell(pod, is_deleted=True, conditions=[DISRUPTED | {"reason": "EvictionByEvictionAPI"}])
    watched.cluster.delete(pod)
    watched.look()
    watched.cluster.place("p", spec_text(), uid="uid-again")
    found = watched.answers.why("ns/p").job
    assert found.preempted is not None
    assert (found.ended, found.preempted.because) == (None, "its node was drained")
    assert watched.known.news(watched.now_s + NEWS_S + 1) == {}


def test_a_taint_of_a_node_that_is_not_ready_is_its_loss(watched: Watched) -> None:
    pod = watched.start("p")
    watched.cluster.service.node_seen(node(pod_node(watched, pod), is_ready=False))
    watched.tell(pod, is_deleted=True, conditions=[DISRUPTED | {"reason": "DeletionByTaintManager"}])
    watched.cluster.delete(pod)
    assert [one.why for one in watched.found("ns/p")[1].evictions] == ["node-lost"]


def test_a_node_that_was_lost_and_is_back_when_its_pods_are_gone_counts_as_lost(watched: Watched) -> None:
    pod = watched.start("p")
    watched.cluster.service.node_seen(node(pod_node(watched, pod), is_ready=False))
    watched.tell(pod, is_deleted=True, conditions=[DISRUPTED | {"reason": "DeletionByTaintManager"}])
    watched.cluster.service.node_seen(node(pod_node(watched, pod)))
    watched.cluster.delete(pod)
    assert [one.why for one in watched.found("ns/p")[1].evictions] == ["node-lost"]


def test_a_job_ends_with_its_last_pod(watched: Watched) -> None:
    pods = [watched.start(name, leaf_cells=2, group="g", pods=2) for name in ("g0", "g1")]
    watched.end(pods[0], 2)
    watched.cluster.pass_time(300.0)
    watched.end(pods[1])
    (job,) = watched_jobs(watched)
    assert (job.state, job.since) == ("Failed", write_time(watched.now_s))


def test_the_first_pod_of_a_gang_that_fails_decides(watched: Watched) -> None:
    pods = [watched.start(name, leaf_cells=2, group="g", pods=3) for name in ("g0", "g1", "g2")]
    watched.end(pods[1], 2)
    watched.tell(pods[0], is_deleted=True)
    watched.end(pods[0], 143)
    watched.end(pods[2], 1)
    (job,) = [job for job in watched_jobs(watched) if "ns/g1" in job.pods]
    assert job.ended is not None
    assert (job.state, job.ended.exit_code, job.ended.pod) == ("Failed", 2, "ns/g1")
    assert (job.ended.gpus, len(job.pods)) == (6, 3)


def watched_jobs(watched: Watched) -> list[Job]:
    watched.look()
    return watched.known.jobs(watched.now_s)


def test_a_job_goes_on_while_some_of_its_pods_do(watched: Watched) -> None:
    pods = [watched.start(name, leaf_cells=2, group="g", pods=2) for name in ("g0", "g1")]
    watched.end(pods[0])
    assert watched_jobs(watched) == []
    watched.end(pods[1])
    assert [job.state for job in watched_jobs(watched)] == ["Completed"]


def test_a_job_runs_since_its_first_start_while_its_pods_come_and_go(watched: Watched) -> None:
    first, second, third = (
        watched.start(name, ago_s=ago_s, leaf_cells=2, group="g", pods=4)
        for name, ago_s in (("g0", 900.0), ("g1", 800.0), ("g2", 100.0))
    )

    def since() -> float:
        return watched.now_s - read_time(watched.answers.why("ns/g2").job.since)

    began_s = watched.now_s - since()
    assert round(since()) == 900
    for pod in (first, second):
        watched.cluster.pass_time(60.0)
        watched.end(pod)
        assert watched.now_s - since() == began_s
    watched.end(third)
    assert [job.state for job in watched_jobs(watched)] == ["Completed"]


@pytest.mark.parametrize("looks", [1, 2])
def test_a_pod_made_anew_between_two_looks_runs_since_its_own_start(watched: Watched, looks: int) -> None:
    pod = watched.start("p", ago_s=900.0)
    watched.look()
    watched.cluster.delete(pod)
    pod, _ = watched.cluster.place("p", spec_text(), uid="again")
    watched.tell(pod, phase="Running", startTime=write_time(watched.now_s - 5.0))
    for _ in range(looks):
        watched.look()
    assert round(watched.now_s - read_time(watched.answers.why("ns/p").job.since)) == 5


def test_a_job_that_ended_unseen_between_two_looks_is_known(watched: Watched) -> None:
    watched.look()
    watched.end(watched.start("p"))
    assert watched.found("ns/p")[0].state == "Completed"


def test_a_later_job_of_the_same_name_has_a_row_of_its_own(watched: Watched) -> None:
    watched.end(watched.start("p"), 1)
    watched.look()
    watched.cluster.kube.pods.pop("p")
    pod, _ = watched.cluster.place("p", spec_text(), uid="again")
    watched.end(pod)
    assert [job.state for job in watched_jobs(watched)] == ["Completed", "Failed"]


def test_a_job_made_anew_is_told_of_at_once_and_not_the_end_of_the_earlier_one(watched: Watched) -> None:
    answers = Answering(watched.cluster.service, ended=watched.known)
    watched.end(watched.start("p"))
    watched.look()
    with pytest.raises(UserError, match="no job, pod or affinity group ns/p "):
        answers.why("ns/p")
    watched.cluster.filter(watched.cluster.create("p", spec_text("a", 16), uid="again"))
    assert answers.why("ns/p").job.state == "Waiting"


def attempt(watched: Watched, record: str, code: int, *, is_seen: bool) -> None:
    """A pod that `hived submit` has made from a record runs, ends, and is deleted; `is_seen`: with looks meanwhile."""
    cluster = watched.cluster
    pod = pod_json("train-0", spec_text(), uid=f"{record}-{watched.now_s:g}")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "hived-job-train", "uid": record}
    pod["metadata"] |= {
        "labels": {marks.SUBMITTED: "train", marks.SUBMITTED_KIND: "Job"},
        "ownerReferences": [owner],
        "creationTimestamp": write_time(watched.now_s),
    }
    cluster.kube.add(pod)
    cluster.service.pod_seen(to_pod(pod))
    cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
    watched.tell(pod, phase="Running", startTime=write_time(watched.now_s))
    for after_s, end in ((60.0, lambda: watched.end(pod, code)), (0.2, lambda: cluster.delete(pod))):
        if is_seen:
            watched.look()
        cluster.pass_time(after_s)
        end()
    cluster.pass_time(0.2)  # the next one is created in the same second


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_job_that_its_record_starts_again_after_failures_is_one_row_with_its_attempts(
    watched: Watched, is_seen: bool
) -> None:
    for code in (1, 2, 0):
        attempt(watched, "first", code, is_seen=is_seen)
    watched.look()
    attempt(watched, "second", 3, is_seen=is_seen)
    latest, before = watched_jobs(watched)
    assert (latest.name, before.name) == ("Job/ns/train", "Job/ns/train")
    assert latest.ended is not None
    assert before.ended is not None
    assert (latest.state, latest.ended.exit_code, latest.ended.attempts) == ("Failed", 3, 0)
    assert (before.state, before.ended.exit_code, before.ended.attempts) == ("Completed", 0, 3)
    assert before.sentence == "attempt 3, as it failed before"
    assert (round(before.ended.ran_s), round(before.ended.gpu_hours, 2)) == (181, 0.2)


# Preemption


def preempt(watched: Watched, priority: int = 0) -> Json:
    """A pod of b is preempted by ns/by of a; returns the victim."""
    pods = {name: watched.start(name, vc="b", priority=-1) for name in ("v0", "v1", "v2", "v3")}
    by = watched.cluster.create("by", spec_text("a", priority=priority))
    watched.cluster.filter(by)
    watched.cluster.until(lambda: bool(watched.cluster.kube.leaving))
    ((_, victim),) = watched.cluster.kube.leaving
    watched.cluster.delete(watched.cluster.kube.pods[victim])
    return pods[victim]


def test_a_preempted_job_says_for_whom_and_why(watched: Watched) -> None:
    name = f"ns/{preempt(watched, 7)['metadata']['name']}"
    found = watched.answers.why(name).job
    assert found.state == "Preempted"
    assert found.ended is not None
    assert found.preempted is not None
    assert (found.preempted.by, found.preempted.priority, found.preempted.why) == ("ns/by", 7, "reclaim")
    assert [one.by for one in found.ended.evictions] == ["ns/by"]
    assert found.sentence.startswith("preempted at ")
    assert found.sentence.endswith(f" for by (priority 7): lent cells were reclaimed; {NOT_AGAIN}")


def test_one_that_comes_back_waits_with_the_news_and_sums_its_runs(watched: Watched) -> None:
    victim = preempt(watched)
    name = victim["metadata"]["name"]
    watched.look()
    pod = watched.cluster.create(name, spec_text("b", priority=-1), uid="again")
    watched.cluster.filter(pod)
    wait_until(lambda: watched.answers.why(f"ns/{name}").job.state == "Waiting")
    assert watched.answers.why(f"ns/{name}").job.preempted is not None
    for other in ("v0", "v1", "v2", "v3"):
        if other != name:
            watched.end(watched.cluster.kube.pods[other])
    by = watched.cluster.kube.pods["by"]
    watched.cluster.bind(by, watched.cluster.filter(by)["NodeNames"][0])
    watched.cluster.see(by)
    watched.cluster.bind(pod, watched.cluster.filter(pod)["NodeNames"][0])
    watched.cluster.see(pod)
    watched.tell(pod, phase="Running", startTime=write_time(watched.now_s - 1800.0))
    watched.end(pod)
    job, ended = watched.found(f"ns/{name}")
    assert (job.state, ended.eviction_count) == ("Completed", 1)
    assert round(ended.gpu_hours, 1) == 6.0
    assert len([one for one in watched.known.jobs(watched.now_s) if one.name == job.name]) == 1


def test_pods_that_leave_together_were_preempted_once(watched: Watched) -> None:
    for vc in ("a", "b"):
        watched.start(f"own-{vc}", vc=vc)
    cluster, spec = watched.cluster, spec_text("b", priority=-1, group="g", pods=2)
    pods = [cluster.create(name, spec) for name in ("v0", "v1")]
    for pod in pods:
        cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
        cluster.see(pod)
    watched.look()
    watched.cluster.filter(watched.cluster.create("by", spec_text("a")))
    watched.cluster.until(lambda: len(watched.cluster.kube.leaving) == len(pods))
    for _, victim in list(watched.cluster.kube.leaving):
        watched.cluster.delete(watched.cluster.kube.pods[victim])
    (job,) = watched_jobs(watched)
    assert job.ended is not None
    assert (job.state, job.ended.eviction_count, job.ended.gpus) == ("Preempted", 1, 8)
    assert "anew" not in job.sentence


def by_queue(at_s: float) -> Eviction:
    """The queue of a job suspends it."""
    return Eviction(at_s, "Job/ns/w", "ns", 5, "reclaim", is_whole=True)


def by_pod(at_s: float, by: str = "Job/ns/w") -> Eviction:
    """A pod of it has left."""
    return Eviction(at_s, by, "ns", 5, "reclaim")


@pytest.mark.parametrize("order", [1, -1], ids=["its pods first", "its queue first"])
def test_a_lone_pod_for_which_a_job_left_has_its_priority_whoever_tells_of_it_first(order: int) -> None:
    row = ledger.Row(1, "Job/ns/j", running_s=1.0)
    told = [
        (ledger.Eviction(5.0, "ns/owner", "ns", 10, "reclaim"), 1.0),
        (ledger.Eviction(5.0, "Pod/ns/owner", "ns", None, "reclaim", is_whole=True), None),
    ]
    for found, since_s in told[::order]:
        row.lost(found, since_s)
    assert [one.priority for one in row.evictions] == [10]


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        ([(by_queue(1000.0), None), (by_pod(2800.0), 10.0)], 1),
        ([(by_queue(1000.0), None), (by_pod(1100.0), 10.0), (by_pod(2800.0, ""), 20.0)], 1),
        ([(by_pod(1010.0), 10.0), (by_queue(1000.0), None), (by_pod(2800.0), 20.0)], 1),
        ([(by_queue(1000.0), None), (by_pod(2800.0), 1200.0)], 2),
        ([(by_queue(1000.0), None), (by_queue(2800.0), None)], 2),
        ([(by_queue(1000.0), None), (by_pod(1001.0), 10.0), (by_queue(1100.0), None), (by_pod(1101.0), 1050.0)], 2),
        ([(by_pod(1000.0), 10.0), (by_pod(2800.0), 10.0)], 2),
        ([(by_pod(1000.0), 10.0), (by_pod(1500.0), 10.0)], 1),
    ],
    ids=[
        "30 min of grace",
        "two pods",
        "a pod first",
        "its next run",
        "twice",
        "twice soon",
        "pods apart",
        "pods together",
    ],
)
def test_a_job_that_its_queue_suspends_lost_its_cells_once_however_long_its_pods_take(
    losses: list[tuple[Eviction, float | None]], count: int
) -> None:
    row = ledger.Row(1, "Job/ns/j", running_s=1.0)
    for found, since_s in losses:
        row.lost(replace(found), since_s)
    assert (row.eviction_count, len(row.evictions)) == (count, count)
    is_whole = any(found.is_whole for found, _ in losses)
    assert row.running_s == (None if is_whole else 1.0)  # it runs since its next start


@pytest.mark.parametrize(
    ("group", "state", "expected"),
    [("batch", "Completed", 0), ("batch", "Deleted", None), ("batch.volcano.sh", "Completed", None)],
)
def test_a_job_that_is_complete_by_the_success_of_its_pods_has_exit_code_0_though_none_was_seen_to_end(
    group: str, state: EndState, expected: int | None
) -> None:
    row = ledger.Row(1, "Job/ns/j", owner=JobName(group, "Job", "ns", "j"))
    row.close(state, AT)
    ended = row.job(AT).ended
    assert ended is not None
    assert ended.exit_code == expected


# Restarts and bounds


def test_a_new_process_counts_the_pods_that_ended_meanwhile_and_says_what_is_unknown(tmp_path: Path) -> None:
    """Rule 35.6."""
    store = Store(tmp_path / "history")
    before = Watched(store)
    still, gone, runs = (before.start(name, leaf_cells=1) for name in ("still", "gone", "runs"))
    before.look()
    pods = before.cluster.kube.pods
    before.end(still, 5)
    store.close()

    again = Store(tmp_path / "history")
    after = Watched(again, is_leading=False)
    after.cluster.service.await_ends(after.known.unended())
    after.cluster.kube.pods.update({name: pods[name] for name in ("still", "runs")})
    after.cluster.service.sync_pods([to_pod(pods[name]) for name in ("still", "runs")])
    after.cluster.lead()
    job, ended = after.found("ns/still")
    assert (job.state, ended.exit_code, ended.gpus) == ("Failed", 5, 1)
    job, ended = after.found("ns/gone")
    assert (job.state, job.sentence) == ("Unknown", "it ended while no replica of hived led")
    assert round(ended.gpu_hours, 1) == 1.0
    assert after.known.find("ns/runs", after.now_s) is None
    del gone, runs


def test_rows_are_kept_over_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "history")
    watched = Watched(store)
    watched.end(watched.start("p"), 2)
    kept = watched_jobs(watched)
    store.close()
    assert EndedJobs(Store(tmp_path / "history")).jobs(watched.now_s) == kept


def test_a_replica_that_leads_again_knows_what_ended_while_it_followed(tmp_path: Path) -> None:
    watched = Watched(Store(tmp_path / "history"))
    pod = watched.start("p")
    watched.look()
    watched.cluster.service.follow("another leads")
    watched.known.forget()
    watched.cluster.pass_time(60.0)
    watched.end(pod, 4)
    watched.cluster.lead()
    job, ended = watched.found("ns/p")
    assert (job.state, ended.exit_code) == ("Failed", 4)


def ends(count: int, at_s: float) -> list[PodEnd]:
    """Pods of as many jobs, a second apart."""
    return [
        PodEnd(n, f"ns/job-{n}", f"ns/job-{n}", "ns", "", "a", 0, 2, at_s + n - 60.0, at_s + n, uid=f"uid-{n}")
        for n in range(1, count + 1)
    ]


def test_so_many_are_kept_and_for_a_week(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST", 20)
    snapshot = take(watched.cluster.service)
    watched.known.look(replace(snapshot, gone=ends(30, AT), at=AT + 30.0))
    names = [job.name for job in watched.known.jobs(AT + 30.0)]
    assert (len(names), names[0], names[-1]) == (20, "ns/job-30", "ns/job-11")
    watched.known.look(replace(snapshot, gone=[], at=AT + KEPT_S + 25.0))
    assert [job.name for job in watched.known.jobs(AT)] == [f"ns/job-{n}" for n in range(30, 24, -1)]


def test_those_of_a_time_are_chosen(watched: Watched) -> None:
    snapshot = take(watched.cluster.service)
    watched.known.look(replace(snapshot, gone=ends(3, AT), at=AT + DAY_S))
    assert [job.name for job in watched.known.jobs(AT, AT + 2.5)] == ["ns/job-3"]


@pytest.mark.parametrize("why", ["move", "priority"])
@pytest.mark.parametrize("is_seen_between", [True, False])
def test_a_moved_job_is_one_row_with_the_hours_of_both_runs_and_who_moved_it(
    why: EvictionName, is_seen_between: bool, watched: Watched
) -> None:
    snapshot = take(watched.cluster.service)
    moved = ends(1, AT)[0]._replace(
        started_s=AT,
        ended_s=AT + 3600.0,
        created_s=AT - 60.0,
        why=why,
        by="ns/big",
        by_namespace="ns",
        by_priority=5,
        is_preempted=True,
        is_deleted=True,
    )
    again = ends(1, AT)[0]._replace(
        number=2, uid="again", created_s=AT + 3700.0, started_s=AT + 3800.0, ended_s=AT + 5600.0
    )
    looks = [[moved], [moved, again]] if is_seen_between else [[moved, again]]
    for gone in looks:
        watched.known.look(replace(snapshot, gone=gone, at=gone[-1].ended_s + 1.0))
    (job,) = watched.known.jobs(AT)
    assert job.ended is not None
    assert (job.state, job.ended.eviction_count) == ("Completed", 1)
    assert [(one.by, one.why) for one in job.ended.evictions] == [("ns/big", why)]
    assert job.ended.gpu_hours == 2 * (3600 + 1800) / 3600


@pytest.mark.parametrize("grace_s", [0.4, 30.4])
@pytest.mark.parametrize("is_new_first", [True, False])
def test_a_job_is_deleted_whose_preempted_pod_was_made_anew_before(
    grace_s: float, is_new_first: bool, watched: Watched
) -> None:
    told_s, owner = AT + 100.0, JobName("apps", "StatefulSet", "ns", "s")
    old = ends(1, AT)[0]._replace(created_s=AT - 60.0, owner=owner, is_deleted=True, ended_s=AT + 300.0, pod="ns/s-0")
    why: EvictionName = "reclaim"
    victim = old._replace(uid="victim", ended_s=told_s + grace_s, told_s=told_s, why=why, pod="ns/s-1")
    new = old._replace(uid="new", created_s=told_s, pod="ns/s-1")
    gone = [victim, new, old] if is_new_first else [victim, old, new]
    gone = [one._replace(number=number) for number, one in enumerate(gone, 1)]
    watched.known.look(replace(take(watched.cluster.service), gone=gone, at=AT + 301.0))
    (job,) = watched.known.jobs(AT)
    assert job.ended is not None
    assert (job.name, job.state, job.ended.eviction_count) == ("StatefulSet/ns/s", "Deleted", 1)


def test_a_pod_is_told_to_leave_before_it_is_gone(watched: Watched) -> None:
    pod = watched.start("p")
    watched.tell(pod, is_deleted=True)
    told_s = watched.now_s
    watched.cluster.pass_time(20.0)
    watched.cluster.delete(pod)
    (end,) = take(watched.cluster.service).gone
    assert (round(end.left_s - told_s), round(end.ended_s - told_s)) == (0, 20)


def test_each_end_is_learned_once(watched: Watched) -> None:
    snapshot = take(watched.cluster.service)
    for _ in range(2):
        watched.known.look(replace(snapshot, gone=ends(1, AT), at=AT + 30.0))
    (job,) = watched.known.jobs(AT)
    assert job.ended is not None
    assert job.ended.gpu_hours == round(120 / 3600.0, 3)


def test_an_older_snapshot_opens_no_job_again(watched: Watched) -> None:
    pod = watched.start("p")
    older = take(watched.cluster.service)
    watched.end(pod)
    watched.look()
    watched.known.look(older)
    assert [job.state for job in watched.known.jobs(watched.now_s)] == ["Completed"]
    watched.look()
    assert len(watched.known.jobs(watched.now_s)) == 1


def test_rows_that_nobody_can_read_are_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "history")
    watched = Watched(store)
    watched.end(watched.start("p"))
    watched.look()
    store.write("INSERT INTO ended_jobs (number, body) VALUES (?, ?)", [(77, b"\xc1")])
    store.close()
    known = EndedJobs(Store(tmp_path / "history"))
    assert [job.name for job in known.jobs(watched.now_s)] == ["ns/p"]


def test_cells_at_once_are_counted_beside_starts_in_whole_seconds(watched: Watched) -> None:
    spans = [(100.0, 102.4, 2), (102.0, 104.4, 2), (104.0, 104.2, 1)]
    assert ledger._most_at_once(spans) == 2
