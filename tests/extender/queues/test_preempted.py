"""Work of no queue takes the cells of jobs that queues run (rule 32.14)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hived_extender.machine.preemptions import WITH_ITS_JOB_S
from hived_extender.queues.queued_jobs import Life
from tests.extender.machine.small_jobs import job
from tests.extender.queues.by_hand import QueuesByHand
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, PODS, Jobs, jobs_on, template
from tests.extender.queues.test_gangs import member, phase, pods

pytestmark = pytest.mark.sample(10)

STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with jobs_on(tmp_path, CONFIG) as found:
        yield found


def take_back(jobs: Jobs, kind: str, priority: str = "10", vc: str = "b", *, gpus: int = 8, **more: str) -> None:
    """A pod of no queue comes for cells of a virtual cluster."""
    pod = template(vc, gpus, priority, "100000")
    pod["spec"] |= more
    pod["metadata"]["labels"] = {"app": "owner"}
    if kind == "Pod":
        pod["metadata"]["name"] = "owner-0"
        jobs.kube.create(PODS, pod)
        return
    del pod["spec"]["restartPolicy"]
    spec = {"replicas": 1, "serviceName": "owner", "selector": {"matchLabels": {"app": "owner"}}, "template": pod}
    jobs.kube.create(STATEFUL_SETS, {"metadata": {"name": "owner"}, "spec": spec})


def reclaims(jobs: Jobs, queue: str) -> float | None:
    """How many jobs of a queue gave borrowed cells back."""
    registry = jobs.running.extender.service.metrics.registry
    return registry.get_sample_value("hived_queue_reclaimed_total", {"queue": queue})


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet"])
def test_a_borrower_is_suspended_and_requeued_for_an_owner_in_no_queue(jobs: Jobs, kind: str) -> None:
    jobs.create("own")
    jobs.expect(lambda: jobs.runs("own"))
    jobs.create("ahead", backoff_limit=0)
    jobs.expect(lambda: jobs.runs("ahead"))
    jobs.create("later")
    take_back(jobs, kind)
    jobs.expect(lambda: jobs.nodes("owner") != [], lambda: jobs.waits("ahead"))
    jobs.expect(lambda: jobs.queued("a") == ["ahead", "later"], lambda: jobs.state("ahead") == "Waiting")
    assert reclaims(jobs, "a") == 1
    assert not jobs.kube.get(f"{JOBS}/ahead").get("status", {}).get("failed")
    found = jobs.inspector.queued_job("ahead")
    assert found is not None
    assert found.preempted is not None
    assert found.preempted.by == f"{kind}/default/owner" + ("-0" if kind == "Pod" else "")

    def told() -> tuple[int | None, str, str]:
        why = jobs.inspector.why("Job/default/ahead")
        assert why is not None
        assert why.job.preempted is not None
        return why.job.preempted.priority, why.job.preempted.why, why.job.preempted.by.removeprefix("Pod/")

    by = found.preempted.by.removeprefix("Pod/")
    jobs.expect(lambda: told() == (10, "reclaim", by))  # as among jobs that have ended, once the view is new


def test_a_job_with_pods_on_two_nodes_is_suspended_whole_when_an_owner_takes_one(jobs: Jobs) -> None:
    jobs.create("wide", pods=2)
    jobs.expect(lambda: len(jobs.nodes("wide")) == 2)
    take_back(jobs, "Pod")
    jobs.expect(lambda: jobs.nodes("owner") != [], lambda: jobs.waits("wide"))
    jobs.expect(lambda: jobs.state("wide") == "Waiting")
    jobs.kube.delete(f"{PODS}/owner-0")
    jobs.expect(lambda: len(jobs.nodes("wide")) == 2)


def test_a_job_on_its_own_cells_is_requeued_for_pods_of_higher_priority(jobs: Jobs) -> None:
    jobs.create("own", "b")
    jobs.expect(lambda: jobs.runs("own"))
    take_back(jobs, "Pod", "100")
    jobs.expect(lambda: jobs.nodes("owner") != [], lambda: jobs.waits("own"))
    jobs.expect(lambda: jobs.state("own") == "Waiting", lambda: jobs.queued("b") == ["own"])
    assert not reclaims(jobs, "b")  # nobody was entitled to its cells
    jobs.kube.delete(f"{PODS}/owner-0")
    jobs.expect(lambda: jobs.runs("own"))


def test_a_borrower_is_requeued_where_kube_scheduler_evicts(tmp_path: Path) -> None:
    with jobs_on(tmp_path, f"preemptionBy: kube-scheduler\n{CONFIG}") as jobs:
        jobs.create("own")
        jobs.expect(lambda: jobs.runs("own"))
        jobs.create("ahead")
        jobs.expect(lambda: jobs.runs("ahead"))
        jobs.kube.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        take_back(jobs, "Pod", priorityClassName="high")
        jobs.expect(lambda: jobs.nodes("owner") != [], lambda: jobs.waits("ahead"))
        jobs.expect(lambda: jobs.state("ahead") == "Waiting")


def start_gang(jobs: Jobs, gang: str, *, is_made: bool = False) -> None:
    """Four pods that could go on with two of them start together."""
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    for number in range(4):
        member(jobs, gang, number, gpus=2, is_made=is_made)
    jobs.expect(lambda: phase(jobs, gang) == "Enqueued", jobs.rest)
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes(gang)) == 4)


def test_of_a_gang_that_nobody_makes_anew_one_pod_leaves_and_the_others_run_on(jobs: Jobs) -> None:
    start_gang(jobs, "ring")
    take_back(jobs, "Pod", "100", gpus=2)
    jobs.expect(lambda: jobs.nodes("owner") != [], lambda: len(pods(jobs, "ring")) == 3, jobs.rest)
    assert (jobs.state("ring"), phase(jobs, "ring")) == ("Running", "Running")
    assert len(jobs.nodes("ring")) == 3
    jobs.create("next", "b", gpus=2)
    jobs.expect(lambda: jobs.queued("b") == ["next"])


def test_a_gang_that_is_made_anew_leaves_whole_and_is_requeued(jobs: Jobs) -> None:
    start_gang(jobs, "set", is_made=True)
    take_back(jobs, "Pod", "100", gpus=2)
    jobs.expect(lambda: jobs.nodes("owner") != [], lambda: not pods(jobs, "set"))
    for number in range(4):
        member(jobs, "set", number, gpus=2, is_made=True)
    jobs.expect(lambda: jobs.queued("b") == ["set-gang-qu"])


def life(hand: QueuesByHand, name: str = "train") -> Life:
    """Of a job."""
    return hand.turns.queues.entries[job(name).key].life


@pytest.mark.parametrize("is_extra", [True, False])
def test_a_job_runs_on_while_a_pod_beyond_its_size_leaves(is_extra: bool) -> None:
    hand = QueuesByHand()
    if is_extra:  # the first node is free again when that pod comes, and victims are taken from there
        hand.cluster.pod("first")
        hand.cluster.ask("first")
    hand.run("train")
    if is_extra:
        hand.cluster.drop("first")
    hand.cluster.come("train-1", "train")
    hand.cluster.ask("train-1")
    hand.look()
    (told,) = hand.cluster.filter(hand.cluster.pod("owner", priorityClassName="high"))["FailedNodes"].values()
    assert f"ns/train-{int(is_extra)};" in told
    hand.look()
    assert life(hand) is (Life.RUNNING if is_extra else Life.LEAVING)
    hand.cluster.pass_time(WITH_ITS_JOB_S + 1)
    assert hand.cluster.kube.leaving == ([("evicted", "train-1")] if is_extra else [])


def test_a_job_runs_on_if_its_preemptor_is_gone_before_the_queue_looks() -> None:
    hand = QueuesByHand()
    hand.run("train", "fills")
    assert "ns/train-0;" in str(hand.cluster.filter(hand.cluster.pod("owner", priorityClassName="high")))
    hand.cluster.drop("owner")
    hand.look()
    assert (life(hand), life(hand, "fills")) == (Life.RUNNING, Life.RUNNING)
    hand.cluster.pass_time(WITH_ITS_JOB_S + 1)
    assert hand.cluster.kube.leaving == []


@pytest.mark.parametrize("leaves", [False, True])
def test_a_victim_that_waits_for_its_job_is_asked_to_leave_once_at_most(leaves: bool) -> None:
    hand = QueuesByHand()
    hand.run("train")
    hand.cluster.come("train-1", "train")
    hand.cluster.ask("train-1")
    hand.cluster.filter(hand.cluster.pod("owner", priorityClassName="high"))
    victim = hand.cluster.kube.pods["train-0"]
    if leaves:
        victim["metadata"] |= {"deletionTimestamp": "2026-01-01T00:20:00Z", "deletionGracePeriodSeconds": 30}
        hand.cluster.kube.touch(victim)
        hand.cluster.see(victim)
    else:
        hand.cluster.evict("ns/train-0")
    hand.cluster.pass_time(WITH_ITS_JOB_S + 1)
    assert hand.cluster.kube.leaving == ([] if leaves else [("evicted", "train-0")])


@pytest.mark.parametrize("is_extra", [True, False])
def test_of_pods_that_kube_scheduler_has_evicted_those_count_that_a_job_lacks(is_extra: bool) -> None:
    hand = QueuesByHand()
    hand.run("train")
    if is_extra:
        hand.cluster.come("train-1", "train")
        hand.cluster.ask("train-1")
        hand.pods["train"].append("train-1")
    hand.cluster.pod("owner", priorityClassName="high")
    machine = hand.cluster.service.machine
    owner, victim = machine.cache.pods.get("uid-owner"), f"train-{int(is_extra)}"
    assert owner is not None
    machine.preemptions.left_to_scheduler(owner, [f"uid-{victim}"])
    hand.end_pod(victim)
    hand.look()
    assert life(hand) is (Life.RUNNING if is_extra else Life.LEAVING)
