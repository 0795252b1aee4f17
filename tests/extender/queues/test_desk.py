"""Jobs wait as jobs on an embedded cluster: held, resumed, suspended, with Kube Queue's objects (rules 32)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.queues import QueueArgs
from hived_extender.api.waiting import When
from hived_extender.jobs.quotas.tree import read_tree
from hived_extender.queues.removal import tree_warnings
from hived_extender.queues.table import STATE
from tests.extender.queues.embedded_jobs import (
    CONFIG,
    FOR_EVER,
    GPU,
    JOBS,
    PODS,
    PREFIX,
    PYTORCH_JOBS,
    QUEUES,
    TREES,
    UNITS,
    Jobs,
    jobs_on,
    template,
)

pytestmark = pytest.mark.sample(10)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with jobs_on(tmp_path) as found:
        yield found


def test_a_job_is_let_go_and_runs_on_its_cells(jobs: Jobs) -> None:
    jobs.create("one", "b")
    jobs.expect(lambda: jobs.runs("one"), lambda: jobs.phase("one") == "Running")
    assert len(jobs.nodes("one")) == 1


def test_a_job_waits_as_a_job_until_another_one_has_ended(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("second", "b")
    jobs.expect(lambda: jobs.phase("second") == "Enqueued", lambda: jobs.queued("b") == ["second"])
    assert jobs.waits("second")
    jobs.delete("first")
    jobs.expect(lambda: jobs.runs("second"), lambda: jobs.queued("b") == [])


def test_no_pod_of_a_gang_starts_before_all_can(jobs: Jobs) -> None:
    jobs.create("half", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("half"))
    jobs.create("gang", "b", gpus=4, pods=2)
    jobs.expect(lambda: jobs.phase("gang") == "Enqueued")
    assert jobs.waits("gang")
    jobs.delete("half")
    jobs.expect(lambda: len(jobs.nodes("gang")) == 2)


def test_a_borrower_is_called_back_for_the_owner_and_runs_again_at_its_old_place(jobs: Jobs) -> None:
    jobs.create("own", "a")
    jobs.expect(lambda: jobs.runs("own"))
    jobs.create("ahead", "a")
    jobs.expect(lambda: jobs.runs("ahead"))
    jobs.create("later", "a")
    jobs.create("owner", "b")
    jobs.expect(lambda: jobs.runs("owner"), lambda: jobs.waits("ahead"))
    assert jobs.nodes("owner") != jobs.nodes("own")
    extender = jobs.running.extender
    assert extender.service.metrics.tallies["a"].preempted_pods == 1
    assert extender.queues.waiting_pods()["a"] == 2, "that of the job behind it too"
    jobs.expect(lambda: jobs.queued("a") == ["ahead", "later"])
    jobs.delete("owner")
    jobs.expect(lambda: jobs.runs("ahead"))
    assert jobs.waits("later")


def test_a_job_of_higher_priority_goes_first(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("second", "b", priority="10")
    jobs.create("third", "b", priority="10")
    jobs.create("higher", "b", priority="20")
    jobs.expect(lambda: jobs.runs("higher"), lambda: jobs.waits("first"))
    jobs.expect(lambda: jobs.queued("b") == ["first", "second", "third"])
    assert jobs.runs("higher")


def test_a_job_that_its_owner_lets_go_by_itself_is_held_back_and_gets_no_cells(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("sly", "b")
    jobs.expect(lambda: jobs.phase("sly") == "Enqueued")
    for _ in range(3):
        jobs.kube.patch(f"{JOBS}/sly", {"spec": {"suspend": False}})
        jobs.expect(lambda: not jobs.is_resumed("sly"))
        assert jobs.nodes("sly") == []


def test_a_job_that_nobody_held_back_is_held_back_then(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("eager", "b", suspend=False)
    jobs.expect(lambda: jobs.waits("eager"), lambda: jobs.phase("eager") == "Enqueued")
    told = "waits in queue b; it was not created held, so it is suspended until its turn"
    jobs.expect(lambda: messages(jobs, "eager") == [told])
    jobs.delete("first")
    jobs.expect(lambda: jobs.runs("eager"))


def test_a_forged_state_lets_no_job_go(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    forged = {STATE: '{"kept": "{\\"is_let_go\\": true, \\"since_s\\": 1.0}"}'}
    jobs.create("forger", "b", suspend=False, annotations=forged)
    jobs.expect(lambda: jobs.waits("forger"))
    assert jobs.nodes("forger") == []


def test_a_job_with_a_mistake_stays_held_and_others_go_past(jobs: Jobs) -> None:
    jobs.create("wrong", "nowhere")
    jobs.create("right", "b")
    jobs.expect(lambda: jobs.runs("right"))
    assert jobs.waits("wrong")


def test_a_job_in_no_queue_runs_under_the_name_of_one_that_waited(jobs: Jobs) -> None:
    jobs.create("first", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("again", "b")
    jobs.expect(lambda: jobs.queued("b") == ["again"])
    jobs.delete("again")
    jobs.expect(lambda: jobs.queued("b") == [])
    jobs.create("again", "b", gpus=4, suspend=False, annotations={f"{PREFIX}queue": "off"})
    jobs.expect(lambda: len(jobs.nodes("again")) == 1)


def test_a_job_that_says_so_is_in_no_queue(jobs: Jobs) -> None:
    jobs.create("off", "b", suspend=False, annotations={f"{PREFIX}queue": "off"})
    jobs.expect(lambda: jobs.nodes("off") == ["n1"] or jobs.nodes("off") == ["n2"])
    assert jobs.phase("off") == ""


def test_jobs_are_told_of_when_they_are_over(jobs: Jobs) -> None:
    jobs.create("short", "b", seconds="0")
    jobs.expect(lambda: jobs.phase("short") == "Succeed", lambda: jobs.queued("b") == [])
    assert jobs.state("short") == ""


# The example of the fleets' document: one job at a time by quota


def fleet_tree(most_jobs: int = 1) -> dict[str, Any]:
    large = {"cpu": 999900, "memory": "999900Gi", GPU: 999900}
    own = {"kube-queue/max-jobs": most_jobs, "cpu": 10000, GPU: 10000}
    attributes = {f"{PREFIX}virtual-cluster": "b"}
    child = {"name": "child-2", "max": own, "min": own, "namespaces": ["default"], "attributes": attributes}
    root = {"name": "root", "max": large, "min": large, "children": [child]}
    return {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}}


def pytorch_job(name: str, vc: str = "b") -> dict[str, Any]:
    role = {"restartPolicy": "Never", "template": template(vc, 1, "10", "100000")}
    roles = {"Master": {"replicas": 1, **role}, "Worker": {"replicas": 2, **role}}
    return {"metadata": {"name": name}, "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}}


def queue_names(jobs: Jobs) -> list[str]:
    """The names of Queue objects, without the digests at their ends."""
    return sorted(one["metadata"]["name"].rsplit("-", 1)[0] for one in jobs.kube.get(QUEUES)["items"])


def test_max_jobs_lets_one_of_two_jobs_wait(jobs: Jobs) -> None:
    jobs.kube.create(TREES, fleet_tree())
    jobs.expect(lambda: queue_names(jobs) == ["root", "root-child-2"])
    jobs.kube.create(PYTORCH_JOBS, pytorch_job("job1"))
    jobs.expect(lambda: len(jobs.nodes("job1")) == 3)
    jobs.kube.create(PYTORCH_JOBS, pytorch_job("job2"))
    jobs.expect(lambda: jobs.phase("job2-py-qu") == "Enqueued", lambda: jobs.queued("root/child-2") == ["job2-py-qu"])
    assert jobs.kube.get(f"{PYTORCH_JOBS}/job2")["spec"]["runPolicy"]["suspend"]
    jobs.kube.delete(f"{PYTORCH_JOBS}/job1")
    jobs.expect(lambda: len(jobs.nodes("job2")) == 3)


def test_a_tree_that_breaks_rules_is_told_of_and_not_used(jobs: Jobs) -> None:
    broken = fleet_tree()
    broken["spec"]["root"]["min"] = {GPU: -1}
    jobs.kube.create(TREES, broken)

    jobs.expect(lambda: bool(told(jobs, "InvalidQuotaTree")))
    assert jobs.running.extender.queues.quotas.tree is None


def test_a_min_that_is_no_sum_of_cells_is_told_at_the_tree(jobs: Jobs) -> None:
    odd = fleet_tree()
    odd["spec"]["root"]["children"][0]["min"] = {GPU: 6}
    jobs.kube.create(TREES, odd)
    jobs.expect(lambda: bool(told(jobs, "QuotaShape")))
    assert told(jobs, "QuotaShape") == [
        "root/child-2: min is 6 nvidia.com/gpu, and virtual cluster b is promised cells of 1 x 8: nearest are 0 and 8"
    ]


def test_a_tree_with_a_word_that_means_nothing_is_used_and_told_of(jobs: Jobs) -> None:
    odd = fleet_tree()
    odd["spec"]["root"]["children"][0]["namespace"] = ["a"]
    jobs.kube.create(TREES, odd)
    jobs.expect(lambda: bool(told(jobs, "MisspeltQuotaTree")))
    assert "did you mean namespaces?" in told(jobs, "MisspeltQuotaTree")[0]
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)  # the event comes first


def test_a_second_tree_is_told_that_it_does_not_count(jobs: Jobs) -> None:
    jobs.kube.create(TREES, fleet_tree())
    quotas = jobs.running.extender.queues.quotas
    jobs.expect(lambda: quotas.tree is not None)
    jobs.kube.create(TREES, {**shared_tree(16), "metadata": {"name": "z"}})
    jobs.expect(lambda: bool(told(jobs, "IgnoredQuotaTree")))
    assert "kube-system/elasticquotatree" in told(jobs, "IgnoredQuotaTree")[0]
    assert quotas.tree is not None
    assert "root/child-2" in quotas.tree.quotas


def test_a_tree_of_a_tenants_namespace_does_not_count(jobs: Jobs) -> None:
    jobs.kube.create(TREES.replace("kube-system", "default"), shared_tree(16))
    desk = jobs.running.extender.queues
    jobs.kube.create(TREES, fleet_tree())
    jobs.expect(lambda: desk.quotas.tree is not None)
    assert desk.quotas.tree is not None
    assert "root/child-2" in desk.quotas.tree.quotas


def told(jobs: Jobs, reason: str) -> list[str]:
    """The messages of events at quota trees."""
    events = jobs.kube.get("/api/v1/namespaces/kube-system/events")["items"]
    return [event["message"] for event in events if event["reason"] == reason]


def shared_tree(most: int, policy: str = "preempt-newest") -> dict[str, Any]:
    """Namespace default has a guarantee of one node of b, and may use more."""
    attributes = {f"{PREFIX}virtual-cluster": "b", f"{PREFIX}over-quota": policy}
    child = {
        "name": "team",
        "min": {GPU: min(8, most)},
        "max": {GPU: most},
        "namespaces": ["default"],
        "attributes": attributes,
    }
    root = {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": [child]}
    return {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}}


def test_a_quota_that_is_lowered_calls_the_newest_borrower_back(jobs: Jobs) -> None:
    jobs.kube.create(TREES, shared_tree(16))
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)
    jobs.create("own", "b")
    jobs.expect(lambda: jobs.runs("own"))
    jobs.create("more", "b")
    jobs.expect(lambda: jobs.runs("more"))
    jobs.kube.patch(f"{TREES}/elasticquotatree", {"spec": shared_tree(8)["spec"]})
    jobs.expect(lambda: jobs.waits("more"))
    assert jobs.runs("own")
    lowered = "its cells go to others, as quota root/team was lowered below its use; it waits again in queue root/team"
    jobs.expect(lambda: lowered in messages(jobs, "more"))


def messages(jobs: Jobs, name: str) -> list[str]:
    """The messages of events at a job."""
    events = jobs.kube.get("/api/v1/namespaces/default/events")["items"]
    return [each["message"] for each in events if each["involvedObject"]["name"] == name]


def two_halves(jobs: Jobs, policy: str) -> None:
    """Two jobs of half a node run on the guaranteed cells of b, whose quota is lowered to half a node then."""
    jobs.kube.create(TREES, shared_tree(16, policy))
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)
    for name in ("older", "newer"):
        jobs.create(name, "b", gpus=4)
        jobs.expect(partial(jobs.runs, name))
    jobs.expect(lambda: [jobs.state(name) for name in ("older", "newer")] == ["Running", "Running"])
    jobs.kube.patch(f"{TREES}/elasticquotatree", {"spec": shared_tree(4, policy)["spec"]})


def test_a_quota_that_is_lowered_calls_a_job_back_from_its_own_cells_until_it_is_raised(jobs: Jobs) -> None:
    two_halves(jobs, "preempt-newest")
    jobs.expect(lambda: jobs.waits("newer"), lambda: jobs.queued("root/team") == ["newer"])
    assert jobs.runs("older")
    jobs.kube.patch(f"{TREES}/elasticquotatree", {"spec": shared_tree(8)["spec"]})
    jobs.expect(lambda: jobs.runs("newer", "older"))


def test_a_quota_that_is_lowered_and_waits_shows_who_is_above_it(jobs: Jobs) -> None:
    two_halves(jobs, "wait")
    jobs.expect(lambda: "above quota root/team, which was lowered" in jobs.reason("newer"))
    assert jobs.runs("older", "newer")
    assert jobs.reason("older") == "runs on cells of its own virtual cluster"


def test_the_author_of_a_lower_quota_is_told_who_would_be_above_it(jobs: Jobs) -> None:
    jobs.kube.create(TREES, shared_tree(16))
    desk = jobs.running.extender.queues
    jobs.expect(lambda: desk.quotas.tree is not None)
    jobs.create("own", "b")
    jobs.expect(lambda: jobs.runs("own"))
    jobs.create("more", "b")
    jobs.expect(lambda: jobs.runs("more"))

    def warned(most: int, policy: str, name: str = "elasticquotatree") -> list[str]:
        given = shared_tree(most, policy)
        return tree_warnings(desk, {"metadata": {"name": name, "namespace": "kube-system"}}, read_tree(given))

    above = "root/team: jobs that run use 8 nvidia.com/gpu more than its max; "
    assert warned(16, "wait") == []
    assert warned(8, "wait") == [f"{above}these run until they end: Job/default/more"]
    called_back = "by policy preempt-newest these are suspended, if they may be: Job/default/more"
    assert warned(8, "preempt-newest") == [above + called_back]
    assert warned(16, "wait", "another") == [
        "only the oldest tree counts, which is kube-system/elasticquotatree: change that one, or delete it"
    ]


# Events


def job_events(jobs: Jobs, name: str) -> list[str]:
    """The reasons of events at a job."""
    events = jobs.kube.get("/api/v1/namespaces/default/events")["items"]
    about = [each for each in events if each["involvedObject"]["kind"] == "Job"]
    return sorted(each["reason"] for each in about if each["involvedObject"]["name"] == name)


def test_a_job_in_no_queue_is_told_why_in_an_event(jobs: Jobs) -> None:
    jobs.create("wrong", "nowhere")
    jobs.expect(lambda: job_events(jobs, "wrong") == ["Refused"])
    assert jobs.reason("wrong").startswith("hivedscheduler.microsoft.com/virtual-cluster is 'nowhere'; ")


def test_a_job_in_no_queue_is_forgotten_once_it_is_deleted(jobs: Jobs) -> None:
    jobs.create("wrong", "nowhere")
    jobs.expect(lambda: jobs.state("wrong") == "Refused")
    jobs.delete("wrong")
    jobs.expect(lambda: jobs.state("wrong") == "")


def test_a_job_that_is_taken_out_of_its_queue_is_listed_no_more(jobs: Jobs) -> None:
    jobs.create("runs", "b")
    jobs.expect(lambda: jobs.runs("runs"))
    jobs.create("waits", "b")
    jobs.expect(lambda: jobs.state("waits") == "Waiting")
    off = {"metadata": {"annotations": {f"{PREFIX}queue": "off"}}}
    for name in ("runs", "waits"):
        jobs.kube.patch(f"{JOBS}/{name}", off)
    jobs.expect(lambda: jobs.is_resumed("waits"), lambda: jobs.inspector.queued_jobs("").items == [])
    assert (jobs.state("runs"), jobs.state("waits")) == ("", "")


def test_a_job_without_pods_waits_in_no_queue_and_has_its_cells_again_with_pods(jobs: Jobs) -> None:
    jobs.create("empty", "b")
    jobs.expect(lambda: jobs.runs("empty"))
    jobs.kube.patch(f"{JOBS}/empty", {"spec": {"parallelism": 0}})
    jobs.expect(lambda: jobs.state("empty") == "")
    jobs.kube.patch(f"{JOBS}/empty", {"spec": {"parallelism": 1}})
    jobs.expect(lambda: jobs.state("empty") == "Running")
    jobs.create("later", "b")
    jobs.expect(lambda: jobs.state("later") == "Waiting")
    assert [job.position for job in jobs.inspector.queued_jobs("b").items] == [1, 0]
    jobs.expect(lambda: job_events(jobs, "empty") == ["Dequeued", "Enqueued"])
    assert jobs.runs("empty")


def test_a_job_that_can_never_run_is_told_so_at_once_wherever_it_stands(jobs: Jobs) -> None:
    for name in ("a-runs", "b-first", "c-second"):
        jobs.create(name, "b")
        jobs.expect(lambda name=name: jobs.state(name) == ("Running" if name == "a-runs" else "Waiting"))
    jobs.create("large", "b", pods=2)
    jobs.expect(lambda: job_events(jobs, "large") == ["Enqueued", "Refused"])
    found, why = jobs.inspector.queued_job("large"), jobs.inspector.why("Job/default/large")
    assert found is not None
    assert (found.position, found.state, found.cause, found.when) == (0, "Refused", "never", When(kind="never"))
    assert "it can never run" in found.reason
    assert why is not None
    assert why.certificate is not None
    assert (why.certificate.never, why.when) == (True, When(kind="never"))


def test_a_job_that_asks_for_more_than_its_quota_ever_has_is_refused_behind_others(jobs: Jobs) -> None:
    leaf = {"name": "a", "namespaces": ["default"], "min": {GPU: 8}, "max": {GPU: 12}}
    root = {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": [leaf]}
    jobs.kube.create(TREES, {"metadata": {"name": "fleet"}, "spec": {"root": root}})
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)
    for name in ("a-runs", "b-first", "c-second"):
        jobs.create(name, "a")
        jobs.expect(lambda name=name: jobs.state(name) == ("Running" if name == "a-runs" else "Waiting"))
    jobs.create("large", "a", pods=2)
    jobs.expect(lambda: job_events(jobs, "large") == ["Enqueued", "Refused"])
    assert jobs.state("large") == "Refused"
    why = jobs.inspector.why("Job/default/large")
    assert why is not None
    assert why.certificate is not None
    assert (why.certificate.cause, why.certificate.never) == ("never", True)


def test_events_at_a_job_tell_its_course(jobs: Jobs) -> None:
    jobs.create("own", "a")
    jobs.expect(lambda: jobs.runs("own"))
    jobs.create("ahead", "a")
    jobs.expect(lambda: jobs.runs("ahead"))
    jobs.create("owner", "b")
    jobs.expect(lambda: jobs.runs("owner"))
    jobs.expect(lambda: job_events(jobs, "ahead") == ["Dequeued", "Enqueued", "Preempted"])
    jobs.expect(lambda: job_events(jobs, "owner") == ["Dequeued", "Enqueued"])
    jobs.expect(lambda: job_events(jobs, "own") == ["Dequeued", "Enqueued"])


def test_the_first_job_of_a_queue_is_told_that_its_quota_is_used_up(jobs: Jobs) -> None:
    jobs.kube.create(TREES, fleet_tree())
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)
    for name in ("one", "two"):
        jobs.create(name, "b", gpus=1)
    jobs.expect(lambda: "InsufficientQuota" in job_events(jobs, "two"))
    assert "InsufficientQuota" not in job_events(jobs, "one")


# Restarts


def test_another_process_goes_on_with_the_same_order_and_starts_nobody_twice(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG) as jobs:
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"))
        for name in ("x", "y", "z"):
            jobs.create(name, "b")
        jobs.expect(lambda: jobs.queued("b") == ["x", "y", "z"])
        uids = [pod["metadata"]["uid"] for pod in jobs.kube.get(PODS)["items"]]
        jobs.begin_queues_anew()
        jobs.expect(lambda: jobs.queued("b") == ["x", "y", "z"])
        assert [pod["metadata"]["uid"] for pod in jobs.kube.get(PODS)["items"]] == uids
        jobs.delete("runs")
        jobs.expect(lambda: jobs.runs("x"))


# Queues that are switched off


def test_jobs_that_hived_holds_are_let_go_where_queues_are_switched_off(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG) as jobs:
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"))
        jobs.create("held-by-hived", "b", suspend=False)
        jobs.create("held-by-author", "b")
        jobs.expect(lambda: jobs.waits("held-by-hived"), lambda: jobs.phase("held-by-author") == "Enqueued")
        jobs.push(CONFIG.replace("enabled: true", "enabled: false"))
        jobs.expect(lambda: jobs.is_resumed("held-by-hived"))
        jobs.delete("runs")
        jobs.expect(lambda: jobs.runs("held-by-hived"))
        assert not jobs.is_resumed("held-by-author")
        jobs.push(CONFIG)
        jobs.expect(lambda: jobs.queued("b") == ["held-by-author"])
        assert jobs.runs("held-by-hived")


def queue_named(jobs: Jobs, path: str) -> str:
    """The path of the object of a queue."""
    found = [
        one["metadata"]["name"]
        for one in jobs.kube.get(QUEUES)["items"]
        if one["metadata"]["annotations"][f"{PREFIX}quota"] == path
    ]
    return f"{QUEUES}/{found[0]}" if found else ""


def policies(jobs: Jobs) -> dict[str, str]:
    """The policies of the queues with jobs."""
    return {one.name: one.policy for one in jobs.inspector.queues()}


def test_a_queue_object_changes_the_policy_of_its_queue(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: bool(queue_named(jobs, "b")))
    jobs.kube.patch(queue_named(jobs, "b"), {"spec": {"queuePolicy": "Block"}})
    jobs.expect(lambda: policies(jobs)["b"] == "Block", lambda: jobs.runs("first"))


def test_a_wrong_policy_of_a_queue_object_gets_an_event_and_changes_nothing(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: bool(queue_named(jobs, "b")))
    jobs.kube.patch(queue_named(jobs, "b"), {"spec": {"queuePolicy": "Blok"}})
    events = "/api/v1/namespaces/kube-queue/events"
    jobs.expect(
        lambda: any(
            one["reason"] == "InvalidQueue" and "'Blok'" in one["message"] for one in jobs.kube.get(events)["items"]
        )
    )
    assert policies(jobs)["b"] == "hived"


def unit_says(jobs: Jobs, unit: str) -> list[str]:
    """Of a unit, and of those of its conditions that have one."""
    status = jobs.kube.get(f"{UNITS}/{unit}")["status"]
    return [status["message"], *(each["message"] for each in status["conditions"] if each["message"])]


def test_a_unit_says_that_its_owner_holds_it(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.phase("first") == "Running", lambda: unit_says(jobs, "first") == [""])
    jobs.create("second", "b")
    jobs.expect(lambda: jobs.phase("second") == "Enqueued")
    jobs.inspector.change_queue(QueueArgs("second", "hold"))
    jobs.expect(lambda: unit_says(jobs, "second") == ["is held: hived release lets it take its turn"] * 3)


def test_an_inactive_unit_waits_until_it_is_active_again(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("second", "b")
    shown = "waits in queue b: hived get queue b shows its place, and what it waits for"
    jobs.expect(lambda: jobs.phase("second") == "Enqueued", lambda: unit_says(jobs, "second") == [shown] * 3)
    jobs.kube.patch(f"{UNITS}/second", {"spec": {"active": False}})
    jobs.expect(lambda: jobs.state("second") == "Held")
    by_unit = "is held, as QueueUnit default/second says active: false; set active: true there"
    assert jobs.reason("second") == f"{by_unit} to let it take its turn"
    jobs.expect(lambda: unit_says(jobs, "second") == [f"{by_unit} to let it take its turn"] * 3)
    jobs.inspector.change_queue(QueueArgs("second", "hold"))
    assert jobs.reason("second") == f"{by_unit}, and then say hived release, to let it take its turn"
    jobs.create("third", "b")
    jobs.delete("first")
    jobs.expect(lambda: jobs.runs("third"))
    assert jobs.waits("second")
    jobs.delete("third")
    jobs.kube.patch(f"{UNITS}/second", {"spec": {"active": True}})
    jobs.expect(lambda: jobs.reason("second") == "is held: hived release lets it take its turn")
    jobs.inspector.change_queue(QueueArgs("second", "release"))
    jobs.expect(lambda: jobs.runs("second"))


# Jobs that change while they run


def test_a_job_whose_gang_becomes_smaller_while_it_runs_is_called_back_and_runs_again(jobs: Jobs) -> None:
    jobs.create("shrinks", "a", gpus=8, pods=2)
    jobs.expect(lambda: len(jobs.nodes("shrinks")) == 2)
    jobs.kube.patch(f"{JOBS}/shrinks", {"spec": {"parallelism": 1}})
    jobs.create("owner", "b")
    jobs.expect(lambda: jobs.runs("owner"), lambda: jobs.runs("shrinks"))
    assert jobs.running.extender.service.fault == ""


def test_a_job_that_grows_while_it_runs_waits_for_its_turn_with_all_of_its_pods(jobs: Jobs) -> None:
    spec = {"suspend": True, "parallelism": 1, "completions": 8, "template": template("b", 1, "10", FOR_EVER)}
    jobs.kube.create(JOBS, {"metadata": {"name": "grows"}, "spec": spec})
    jobs.expect(lambda: jobs.runs("grows"))
    (before,) = [pod["metadata"]["uid"] for pod in jobs.kube.get(PODS)["items"]]
    jobs.kube.patch(f"{JOBS}/grows", {"spec": {"parallelism": 8}})
    jobs.expect(lambda: len(jobs.nodes("grows")) == 8)
    assert before not in [pod["metadata"]["uid"] for pod in jobs.kube.get(PODS)["items"]]
    jobs.expect(lambda: "Preempted" in job_events(jobs, "grows"))


def test_a_job_that_is_being_deleted_has_no_turn_any_more(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("going", "b", finalizers=["example.com/stays"])
    jobs.expect(lambda: jobs.queued("b") == ["going"])
    jobs.delete("going")
    jobs.create("next", "b")
    jobs.delete("first")
    jobs.expect(lambda: jobs.runs("next"))
    assert not jobs.is_resumed("going")


def test_a_job_that_was_not_held_gets_no_more_than_its_turn_gives_it(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("gang", "a", gpus=8, pods=2, suspend=False)
    jobs.expect(lambda: jobs.waits("gang"), lambda: jobs.phase("gang") == "Enqueued")
