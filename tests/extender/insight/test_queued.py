"""Changes that would help a job that waits in a queue, tried on its quota as on cells; on an embedded cluster."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.api.queues import QueueArgs, QueuedJob
from hived_extender.api.waiting import Certificate, When, Why
from hived_extender.insight.judge import HELD
from hived_extender.insight.queued import certificate_of
from hived_extender.queues.answering import Question
from hived_extender.queues.reasons import MakingRoom, NotItsTurn, OverQuota
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import FOR_EVER, GPU, JOBS, PODS, TREES, Jobs, jobs_on, template
from tests.extender.queues.test_limits import config, of
from tests.known import patch_node

pytestmark = pytest.mark.sample(5)

HOUR_S, GRACE_S = 3600, 30
MAX_JOBS = "kube-queue/max-jobs"


def tree(most_jobs: int) -> dict[str, Any]:
    """Quotas of both virtual clusters. Jobs of a are in one of the namespace; so many may run."""
    leaves = [
        {"name": "a", "namespaces": ["default"], "min": {GPU: 8}, "max": {GPU: 16, MAX_JOBS: most_jobs}},
        {"name": "b", "min": {GPU: 8}, "max": {GPU: 16}},
    ]
    root = {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": leaves}
    return {"metadata": {"name": "fleet", "namespace": "kube-system"}, "spec": {"root": root}}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """In a quota for 2 jobs one runs on its cells and one on borrowed ones, and a third waits."""
    with jobs_on(tmp_path_factory.mktemp("quota")) as found:
        found.kube.create(TREES, tree(2))
        for name in ("first", "second", "third"):
            found.create(name, limit_s=HOUR_S if name == "second" else None)
            if name != "third":
                found.expect(lambda name=name: found.runs(name))
        found.expect(lambda: found.reason("third").startswith("Insufficient quota"))
        yield found


def test_cells_are_not_said_to_be_reclaimed_for_a_job_whose_turn_has_not_come() -> None:
    """The core would give it cells that others have borrowed; its own schedule plays jobs that have ended there."""
    job = QueuedJob(
        name="Job/default/x",
        namespace="default",
        queue="a",
        vc="a",
        user="",
        priority=0,
        position=1,
        state="Waiting",
        since=0.0,
        reason="is first",
        gpus=8,
    )
    live = Certificate(sentence="its cells are being reclaimed from y", cause="lent", vc="a", asks="1 node")
    found = certificate_of(Question(job, NotItsTurn(0, played_first="z"), None, None), live)
    assert (found.sentence, found.cause) == ("is first", "order")
    entitled = certificate_of(Question(job, MakingRoom(("y",)), None, None), live)
    assert (entitled.sentence, entitled.cause) == (live.sentence, "lent")


def why(jobs: Jobs) -> Why:
    found = jobs.inspector.why("Job/default/third")
    assert found is not None
    return found


def starts(jobs: Jobs, *changes: str) -> bool:
    return jobs.inspector.why_if("third", changes).starts


def test_jobs_whose_end_frees_quota_and_cells_are_named(jobs: Jobs) -> None:
    certificate = why(jobs).certificate
    assert certificate is not None
    assert [one.change for one in certificate.unblock] == ["ends=Job/default/first", "ends=Job/default/second"]
    assert [one.text for one in certificate.unblock] == ["once first has ended", "once second has ended"]


def test_it_starts_by_the_declared_limit_of_a_job_that_uses_its_quota(jobs: Jobs) -> None:
    started = jobs.kube.get(f"{JOBS}/second")["status"]["startTime"]
    expected = (datetime.fromisoformat(started) + timedelta(seconds=HOUR_S + GRACE_S)).timestamp()
    when = why(jobs).when
    assert when is not None
    assert (when.kind, when.because, when.unless) == ("bounded", "", "other jobs use its quota or its cells first")
    assert abs(datetime.fromisoformat(when.by).timestamp() - expected) < GRACE_S


def test_the_first_of_a_queue_starts_by_the_moment_until_which_the_holder_of_its_cells_may_leave(
    tmp_path: Path,
) -> None:
    with jobs_on(tmp_path) as jobs:
        pods = template("b", 8, "10", FOR_EVER)
        pods["spec"]["terminationGracePeriodSeconds"] = HOUR_S // 2
        spec = {"activeDeadlineSeconds": HOUR_S, "suspend": True, "template": pods}
        jobs.kube.create(JOBS, {"metadata": {"name": "holds"}, "spec": spec})
        jobs.expect(lambda: jobs.runs("holds"))
        jobs.create("third", vc="b")
        expect_soon(lambda: (found := jobs.inspector.why("third")) is not None and found.when is not None)
        found = why(jobs)
        assert found.certificate is not None
        assert found.when is not None
        (holder,) = found.certificate.holders
        by, until = (datetime.fromisoformat(each) for each in (found.when.by, holder.until))
        assert (found.when.kind, abs((by - until).total_seconds()) < HOUR_S / 4) == ("bounded", True)


@pytest.mark.parametrize("name", ["first", "second"], ids=["on its own cells", "on borrowed cells"])
def test_a_job_starts_once_one_has_ended_that_uses_its_quota(jobs: Jobs, name: str) -> None:
    assert starts(jobs, f"ends={name}")


def test_cells_alone_do_not_help_while_the_quota_is_used(jobs: Jobs) -> None:
    result = jobs.inspector.why_if("third", ["cells=a:+1xNODE,b:-1xNODE"])
    assert not result.starts
    assert result.certificate is not None
    assert "Insufficient quota" in result.certificate.sentence


def test_another_virtual_cluster_is_none_for_a_quota_of_one(jobs: Jobs) -> None:
    with pytest.raises(UserError, match="its quota root/a is for virtual cluster a alone"):
        starts(jobs, "vc=b")


def remedies(jobs: Jobs, name: str) -> list[str]:
    """The changes that would help a job; the view of all jobs may be some seconds old."""
    found = jobs.inspector.why(f"Job/default/{name}")
    assert found is not None
    assert found.certificate is not None
    return [one.change for one in found.certificate.unblock]


def tried(jobs: Jobs, name: str, *changes: str) -> str:
    """Why a job would wait after changes, "" if it would start."""
    found = jobs.inspector.why_if(name, changes)
    assert found.starts == (found.certificate is None)
    return "" if found.certificate is None else found.certificate.sentence


def test_a_remedy_by_a_users_limit_is_none_for_jobs_behind_others_of_the_user(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(3, b=(3, "maxRunningPerUser: 2, maxWaitingPerUser: 2"))) as jobs:
        for number in range(1, 6):
            jobs.create(f"c{number}", "b", **of("cy"))
            jobs.expect(lambda number=number: jobs.state(f"c{number}") == ("Running" if number < 3 else "Waiting"))
        jobs.expect(lambda: "wait before it" in jobs.reason("c5"))
        assert remedies(jobs, "c5") == []
        jobs.expect(lambda: remedies(jobs, "c3") == ["ends=Job/default/c1", "ends=Job/default/c2"])
        assert tried(jobs, "c3", "ends=c1") == ""
        assert tried(jobs, "c4", "ends=c1").endswith("with these changes 1 job of its queue would start before it")
        assert tried(jobs, "c4", "ends=c1", "ends=c2") == ""


def test_jobs_before_a_job_have_the_cells_first_that_others_leave(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(1, b=(1, ""))) as jobs:
        jobs.create("c1", "b")
        jobs.expect(lambda: jobs.runs("c1"))
        for name in ("c2", "c3", "c4"):
            jobs.create(name, "b", gpus=4)
            jobs.expect(lambda name=name: jobs.state(name) == "Waiting")
        assert [tried(jobs, name, "ends=c1") for name in ("c2", "c3")] == ["", ""]
        assert "with these changes 2 jobs of its queue would start before it" in tried(jobs, "c4", "ends=c1")
        assert tried(jobs, "c4", "ends=c1", "priority=11") == ""


def test_a_held_job_that_can_run_on_borrowed_cells_alone_is_held_and_not_refused(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.create("c1")
        jobs.expect(lambda: jobs.runs("c1"))
        jobs.create("wide", pods=2)
        jobs.expect(lambda: jobs.state("wide") == "Waiting")
        for action in ("hold", "release"):
            jobs.inspector.change_queue(QueueArgs("wide", action))
            found = jobs.inspector.why("wide")
            assert found is not None
            assert found.certificate is not None
            assert not found.certificate.never
            assert found.when is not None
            assert found.when.kind == "unknown"
            says = found.certificate.sentence == "is held: hived release lets it take its turn"
            assert says == (action == "hold")
        jobs.create("huge", pods=3, gpus=8)
        jobs.expect(lambda: jobs.state("huge") == "Refused")


def test_a_job_of_another_quota_is_named_that_uses_what_their_parent_has(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.kube.create(TREES, tree(2))
        jobs.create("other", "b", labels={"quota.scheduling.alibabacloud.com/name": "b"})
        jobs.create("first")
        jobs.expect(lambda: jobs.runs("other", "first"))
        jobs.create("second")
        jobs.expect(lambda: "in quota root:" in jobs.reason("second"))
        jobs.expect(lambda: remedies(jobs, "second") == ["ends=Job/default/first", "ends=Job/default/other"])


def test_a_job_is_in_every_list_while_it_starts(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(1, b=(1, ""))) as jobs:
        jobs.create("first", "b")
        jobs.expect(lambda: jobs.runs("first"))
        jobs.create("second", "b")
        jobs.expect(lambda: jobs.state("second") == "Waiting")
        jobs.delete("first")
        states = []

        def state() -> str:
            rows = {one.name: one.state for one in jobs.inspector.jobs({"queued": ("50",)})}
            states.append(rows.get("Job/default/second", "none"))
            return states[-1]

        jobs.expect(lambda: state() == "Running" and jobs.runs("second"))
        assert "none" not in states


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Jobs]:
    """A job of virtual cluster b was let go, and no scheduler asks about its pod."""
    with jobs_on(tmp_path) as found:
        found.running.cluster.stop_scheduler()
        found.create("first", "b")
        found.expect(lambda: found.is_resumed("first"), lambda: bool(found.kube.get(PODS)["items"]))
        yield found


def test_a_job_whose_cells_are_held_does_not_wait_for_itself(starting: Jobs) -> None:
    def certificate() -> Certificate | None:
        found = starting.inspector.why("Job/default/first")
        return None if found is None else found.certificate

    expect_soon(certificate)
    found = certificate()
    assert found is not None
    assert (found.sentence, found.holders, found.unblock) == (HELD, [], [])
    assert starting.reason("first") == "its cells are held, and pods of it are yet to take them"
    (listed,) = (one for one in starting.inspector.jobs({}) if one.name == "Job/default/first")
    assert listed.when == When(kind="now")


def test_a_job_whose_cells_are_held_is_named_to_those_that_need_them(starting: Jobs) -> None:
    starting.create("second", "b")
    expect_soon(lambda: starting.state("second") == "Waiting")
    found = starting.inspector.why("Job/default/second")
    assert found is not None
    assert found.certificate is not None
    assert [one.group for one in found.certificate.holders] == ["Job/default/first"]
    assert found.certificate.sentence.endswith("in use by first (priority 10)")
    assert "ends=Job/default/first" in [one.change for one in found.certificate.unblock]


def test_rules_of_kubernetes_that_keep_a_job_of_a_queue_away_are_named(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
        for node in ("n1", "n2"):
            patch_node(jobs.running, jobs.kube, node, {"spec": {"taints": [taint]}})
        jobs.create("kept-away", "b")
        jobs.expect(lambda: "refuses 2 of the VC's 2 nodes" in jobs.reason("kept-away"))
        found = jobs.inspector.why("Job/default/kept-away")
    assert found is not None
    assert found.certificate is not None
    assert found.certificate.sentence.endswith(
        "Kubernetes rules out 1 of 1 node of b: 2 of 2 nodes cannot take it "
        "(node(s) had untolerated taint {team: vision}: n1 and 1 more)"
    )


def test_the_cause_is_the_quota_for_the_first_that_waits_for_it_and_for_those_behind_it(tmp_path: Path) -> None:
    stays = {"quota.scheduling.alibabacloud.com/preemptible": "false"}
    with jobs_on(tmp_path, config(2, b=(2, ""))) as jobs:
        leaf = {"name": "b", "namespaces": ["default"], "min": {GPU: 16}, "max": {GPU: 32}}
        root = {"name": "root", "min": {GPU: 32}, "max": {GPU: 32}, "children": [leaf]}
        jobs.kube.create(TREES, {"metadata": {"name": "fleet"}, "spec": {"root": root}})
        jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)
        jobs.create("c1", "b")
        jobs.expect(lambda: jobs.runs("c1"))
        jobs.create("c2", "b", pods=2)
        jobs.expect(lambda: jobs.reason("c2").startswith("is first, and too little is left of the min of its quota; "))
        jobs.create("c3", "b", labels=stays)
        jobs.expect(
            lambda: jobs.reason("c3").endswith("; no job may start before the first one, which waits for its quota")
        )
        for name in ("c2", "c3"):
            why = jobs.inspector.why(f"Job/default/{name}")
            assert why is not None
            assert why.certificate is not None
            assert (why.certificate.cause, why.certificate.holders) == ("quota", [])
            assert [one.change for one in why.certificate.unblock][:1] == ["ends=Job/default/c1"] * (name == "c2")


def test_the_counts_are_those_of_the_cells_that_the_cause_is_about() -> None:
    job = QueuedJob(
        name="Job/ns/j",
        namespace="ns",
        queue="root/b",
        vc="b",
        user="",
        priority=0,
        position=1,
        state="Waiting",
        since=0.0,
        reason="Insufficient quota",
        gpus=8,
        cause="quota",
    )
    question = Question(job, OverQuota("Insufficient quota"), None, None, may_borrow=True)
    own = Certificate(sentence="", cause="order", vc="b", level="NODE", total=3, free=3)
    lent = Certificate(sentence="", cause="in-use", vc="b", level="NODE", is_opportunistic=True, total=5, in_use=5)
    found = certificate_of(question, own, lent)
    assert (found.cause, found.also, found.is_opportunistic) == ("quota", ["in-use"], False)
    assert (found.total, found.free, found.in_use) == (5, 0, 5)
