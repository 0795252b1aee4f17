"""A job object and all of its pods are one job in lists and answers, whichever way its pods come."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_extender.api.names import matching
from hived_extender.api.waiting import Job, PodCounts, Unblock, When
from hived_extender.insight.answering import Answering
from hived_extender.insight.ended import EndedJobs
from hived_extender.insight.listing import members_of, node_views, without_pods
from hived_extender.insight.snapshot import take
from hived_extender.insight.trials import Trials
from hived_extender.jobs.job import Document, JobName
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.marks import SUBMITTED, SUBMITTED_KIND
from hived_extender.jobs.needs import QueuedRun
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import JobsMade
from hived_extender.queues.watched import WatchedJobs
from tests.extender.http.test_masking import mask
from tests.extender.insight.test_unblocks import TWO_TYPES
from tests.extender.machine.small_cluster import filter_args, node
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

BATCH, APPS, KUBEFLOW, VOLCANO = "batch/v1", "apps/v1", "kubeflow.org/v1", "batch.volcano.sh/v1alpha1"
SET = "leaderworkerset.sigs.k8s.io/name"
HASH = {"pod-template-hash": "5d4f"}


class Cluster(SmallGangCluster):
    """Eight GPUs, on which pods of job objects ask for some; the objects are watched as well."""

    def __init__(self, **options: Any) -> None:
        super().__init__(preemption=PreemptionPolicy(by_service=True), **options)
        self.watched = WatchedJobs(lambda job: None, lambda name: None, lambda *made: None)
        self.seconds = 0.0
        for name in ("n0", "n1"):
            self.service.node_seen(node(name))
        self.answers = Answering(self.service, clock=lambda: self.seconds, objects=self)

    def runs(self, names: object) -> dict[str, QueuedRun]:
        return {}

    def object_of(self, name: JobName) -> Any:
        return self.watched.find(name)

    def called(self, name: str) -> Sequence[Any]:
        return self.watched.called(name)

    def outside(self) -> Sequence[Any]:
        return self.watched.ours()

    def make(
        self,
        version: str,
        kind: str,
        maker: str,
        *names: str,
        gpus: int = 4,
        labels: Mapping[str, str] = {},
        annotations: Mapping[str, str] | None = None,
        namespace: str = "ns",
    ) -> None:
        """Pods that the controller of an object has made."""
        for name in names:
            pod = self.pod(name, gpus, annotations, labels, namespace=namespace)
            owner = {"apiVersion": version, "kind": kind, "name": maker, "uid": f"uid-{maker}", "controller": True}
            pod["metadata"]["ownerReferences"] = [owner]
            self.kube.touch(pod)
            self.see(pod)

    def watch(self, document: Document) -> None:
        kind = table.kind_of(document)
        self.watched.seen(kind, document)

    def rows(self) -> dict[str, Job]:
        self.seconds += 60.0
        return {one.name: one.job for one in self.answers.view().jobs}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def batch(name: str = "train", wanted: int = 5, **status: int) -> Document:
    template = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
    spec = {"parallelism": wanted, "completions": wanted, "template": template}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"apiVersion": BATCH, "kind": "Job", "metadata": metadata, "spec": spec, "status": dict(status)}


def test_pods_of_a_job_that_start_one_by_one_are_one_row(cluster: Cluster) -> None:
    cluster.watch(batch(wanted=5, succeeded=1, failed=2))
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", "train-c")
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.state, row.asks, row.is_elastic) == ("Job/ns/train", "Waiting", "1 node of 4 GPUs", True)
    assert row.counts == PodCounts(wanted=5, running=2, waiting=1, done=1, failed=2)
    assert (sorted(row.pods), row.api_version) == (["ns/train-a", "ns/train-b", "ns/train-c"], BATCH)
    assert len(row.nodes) == 2
    assert row.sentence.endswith("in use; 2 of its own pods run")
    assert [name for one in cluster.answers.nodes()[1] for name in one.groups] == ["Job/ns/train"] * 2


def test_pods_that_have_their_cells_ask_for_no_start_at_once(cluster: Cluster) -> None:
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", gpus=2)
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.state, row.asks, row.counts.wanted) == ("Starting", "2 pods of 2 GPUs each", 2)


def test_a_job_that_runs_in_part_asks_for_all_of_its_pods(cluster: Cluster) -> None:
    cluster.watch(batch(wanted=5))
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", gpus=2)
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.asks, row.counts.words) == ("5 pods of 2 GPUs each", "2 of 5 run, 3 to come")


RAY = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "ray", "namespace": "ns", "uid": "uid-ray"},
    "spec": {
        "rayClusterSpec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "head"}]}}},
            "workerGroupSpecs": [
                {"groupName": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "worker"}]}}}
            ],
        }
    },
}


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize(
    ("version", "kind", "document"),
    [("ray.io/v1", "RayJob", RAY), ("ray.io/v1", "RayCluster", None), (APPS, "StatefulSet", None)],
)
def test_the_size_of_a_job_counts_the_pods_that_ask_for_cells_and_not_its_head(
    cluster: Cluster, version: str, kind: str, document: Document | None, has_head: bool
) -> None:
    if document is not None:
        cluster.watched = WatchedJobs(
            lambda job: None, lambda name: None, lambda *made: None, others=lambda job: job.roles[0].count
        )
        cluster.watch(document)
    if has_head:
        cluster.make(version, kind, "ray", "ray-head", gpus=0)
    cluster.make(version, kind, "ray", "ray-a", "ray-b", gpus=2)
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.asks) == (f"{kind}/ns/ray", "2 pods of 2 GPUs each")
    assert row.counts.wanted == 2 + (has_head or document is not None)


@pytest.mark.parametrize(
    ("maker", "labels", "expected"),
    [
        ((BATCH, "Job", "train"), {}, "Job/ns/train"),
        ((APPS, "ReplicaSet", "web-5d4f"), HASH, "Deployment/ns/web"),
        ((APPS, "ReplicaSet", "web"), {}, "ReplicaSet/ns/web"),
        ((APPS, "StatefulSet", "db"), {}, "StatefulSet/ns/db"),
        ((KUBEFLOW, "PyTorchJob", "torch"), {}, "PyTorchJob/ns/torch"),
        ((BATCH, "Job", "set-w-0"), {"jobset.sigs.k8s.io/jobset-name": "set"}, "JobSet/ns/set"),
        (("ray.io/v1", "RayCluster", "ray"), {}, "RayCluster/ns/ray"),
        (("example.org/v1", "Sweep", "sweep"), {}, "Sweep/ns/sweep"),
        ((APPS, "StatefulSet", "serve"), {SET: "serve"}, "LeaderWorkerSet/ns/serve"),
        ((APPS, "StatefulSet", "serve-0"), {SET: "serve"}, "LeaderWorkerSet/ns/serve"),
        ((APPS, "StatefulSet", "server"), {SET: "serve"}, "StatefulSet/ns/server"),
        (("v1", "Pod", "fit-driver"), {"sparkoperator.k8s.io/app-name": "fit"}, "SparkApplication/ns/fit"),
        (("v1", "ConfigMap", "hived-job-train"), {SUBMITTED: "train", SUBMITTED_KIND: "MPIJob"}, "MPIJob/ns/train"),
    ],
)
def test_pods_are_of_the_outermost_object_that_made_them(
    cluster: Cluster, maker: tuple[str, str, str], labels: Mapping[str, str], expected: str
) -> None:
    """Rules 24.4 and 24.14."""
    cluster.make(*maker, "one", "two", labels=labels)
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.counts.running) == (expected, 2)
    for name in ("ns/one", "ns/two", expected, expected.partition("/")[2]):
        assert cluster.answers.why(name).job.name == expected


def test_a_spark_driver_and_its_executors_are_one_job_without_the_operator(cluster: Cluster) -> None:
    labels = {"spark-app-selector": "spark-3f0d", "spark-role": "driver"}
    cluster.pod("pi-driver", 1, labels=labels)
    executors = {**labels, "spark-role": "executor"}
    cluster.make("v1", "Pod", "pi-driver", "pi-exec-1", "pi-exec-2", gpus=2, labels=executors)
    cluster.make("v1", "Pod", "other", "other-exec-1", gpus=2, labels={**executors, "spark-app-selector": "spark-4a1e"})
    assert sorted(cluster.rows()) == ["Spark/ns/spark-3f0d", "Spark/ns/spark-4a1e"]
    row = cluster.rows()["Spark/ns/spark-3f0d"]
    assert sorted(row.pods) == ["ns/pi-driver", "ns/pi-exec-1", "ns/pi-exec-2"]
    assert cluster.answers.why("ns/pi-driver").job.name == "Spark/ns/spark-3f0d"


@pytest.mark.parametrize("kind", ["Node", "Pod"])
def test_pods_of_what_is_no_job_are_jobs_of_one(cluster: Cluster, kind: str) -> None:
    """Rule 24.14."""
    cluster.make("v1", kind, "maker", "one", "two")
    cluster.pod("bare")
    assert sorted(cluster.rows()) == ["ns/bare", "ns/one", "ns/two"]
    assert all(row.counts == PodCounts(wanted=1, waiting=1) for row in cluster.rows().values())


def test_a_gang_of_plain_pods_has_its_own_name_and_counts_the_pods_that_are_yet_to_come(cluster: Cluster) -> None:
    cluster.make(APPS, "StatefulSet", "db", "g-0", "g-1", annotations=koordinator("g", 3))
    (row,) = cluster.rows().values()
    assert (row.name, row.aliases, row.is_elastic) == ("podgroup/ns/g", ["StatefulSet/ns/db"], False)
    assert row.counts == PodCounts(wanted=3, waiting=2)
    assert cluster.answers.why("ns/db").job.name == "podgroup/ns/g"


def test_several_gangs_of_an_object_that_is_not_followed_are_one_job(cluster: Cluster) -> None:
    """Rule 24.14."""
    for number in (0, 1):
        gang, labels = koordinator(f"serve-{number}", 2), {SET: "serve"}
        cluster.make(APPS, "StatefulSet", "serve", f"serve-{number}", labels=labels, annotations=gang)
        cluster.make(APPS, "StatefulSet", f"serve-{number}", f"serve-{number}-1", labels=labels, annotations=gang)
    (row,) = cluster.rows().values()
    assert (row.name, row.aliases) == ("LeaderWorkerSet/ns/serve", ["podgroup/ns/serve-0", "podgroup/ns/serve-1"])
    assert row.counts == PodCounts(wanted=4, waiting=4)


def test_a_job_on_gpus_of_several_types_says_what_it_asked_for() -> None:
    mixed = Cluster(spec=load_text(TWO_TYPES.replace("OLD-NODE, cellNumber: 2", "OLD-NODE, cellNumber: 1"), "").cluster)
    mixed.watch(batch(wanted=2))
    mixed.make(BATCH, "Job", "train", "train-a", "train-b")
    mixed.settle()
    (row,) = mixed.rows().values()
    assert (len(row.nodes), row.asks) == (2, "2 nodes of 4 GPUs each")


def test_a_gang_of_a_job_object_is_that_job_and_is_found_by_its_own_name_too(cluster: Cluster) -> None:
    cluster.make(KUBEFLOW, "PyTorchJob", "torch", "g-0", "g-1", annotations=koordinator("ring", 2))
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.aliases, row.is_elastic) == ("PyTorchJob/ns/torch", ["podgroup/ns/ring"], False)
    assert row.asks == "2 nodes of 4 GPUs each at once"
    assert cluster.answers.why("podgroup/ns/ring").job.name == "PyTorchJob/ns/torch"


def test_who_waits_is_told_of_the_job_and_not_of_its_gang_where_the_gang_has_a_name_of_its_own(
    cluster: Cluster,
) -> None:
    gang = "train-be5d49c9-7a3f-4a0e-8a2b-6d8f3c1e9b70"  # as Volcano's controller names it
    cluster.make(VOLCANO, "Job", "train", "g-0", "g-1", annotations=koordinator(gang, 2))
    cluster.settle()
    waiting = cluster.pod("late", 4)
    cluster.settle()
    refused = cluster.service.filter_nodes(filter_args(waiting)).failed_nodes
    assert refused
    assert all("in use by train (" in each for each in refused.values())
    why = cluster.answers.why("ns/late")
    assert why.certificate is not None
    assert "in use by train (" in why.certificate.sentence
    assert [one.group for one in why.certificate.holders] == ["Job/ns/train"]
    ends = next(one for one in why.certificate.unblock if one.change.startswith("ends="))
    assert (ends.change, ends.text) == ("ends=Job/ns/train", "once train has ended")
    for change in (ends.change, "ends=train", f"ends=podgroup/ns/{gang}"):
        assert cluster.answers.try_changes("ns/late", [change]).starts, change
    assert gang not in str(why)


def test_two_gangs_of_one_object_are_one_job(cluster: Cluster) -> None:
    for gang in ("left", "right"):
        names = (f"{gang}-0", f"{gang}-1")
        cluster.make(KUBEFLOW, "PyTorchJob", "torch", *names, gpus=3, annotations=koordinator(gang, 2))
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.state, row.counts) == (
        "PyTorchJob/ns/torch",
        "Waiting",
        PodCounts(wanted=4, running=2, waiting=2),
    )
    assert cluster.answers.why("ns/left-0").certificate is None
    assert cluster.answers.why("ns/right-0").certificate is not None


def test_a_gang_that_several_objects_share_is_a_job_by_itself(cluster: Cluster) -> None:
    cluster.make(BATCH, "Job", "head", "g-0", annotations=koordinator("g", 2))
    cluster.make(BATCH, "Job", "tail", "g-1", annotations=koordinator("g", 2))
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.aliases) == ("podgroup/ns/g", ["Job/ns/head", "Job/ns/tail"])
    assert cluster.answers.why("Job/ns/tail").job.name == "podgroup/ns/g"


def test_pods_without_cells_count_with_their_job(cluster: Cluster) -> None:
    cluster.make(KUBEFLOW, "MPIJob", "mpi", "worker-0", "worker-1", annotations=koordinator("mpi", 3))
    cluster.make(KUBEFLOW, "MPIJob", "mpi", "launcher", gpus=0, annotations=koordinator("mpi", 3))
    cluster.settle()
    (row,) = cluster.rows().values()
    assert (row.name, row.counts.wanted, row.counts.running + row.counts.waiting) == ("MPIJob/ns/mpi", 3, 3)
    cluster.become("launcher", "Running")
    assert cluster.rows()["MPIJob/ns/mpi"].counts == PodCounts(wanted=3, running=3)


def test_each_pod_of_a_job_has_its_own_cause(cluster: Cluster) -> None:
    cluster.make("ray.io/v1", "RayCluster", "ray", "head", "worker")
    cluster.settle()
    cluster.make("ray.io/v1", "RayCluster", "ray", "other", gpus=3)
    cluster.make("ray.io/v1", "RayCluster", "ray", "huge", gpus=64)
    cluster.settle()
    huge, other = (cluster.answers.why(f"ns/{name}").certificate for name in ("huge", "other"))
    assert huge is not None
    assert other is not None
    assert (huge.never, other.never) == (True, False)
    assert cluster.answers.why("RayCluster/ns/ray").certificate is not None


def test_an_object_whose_maker_is_seen_later_is_the_makers(cluster: Cluster) -> None:
    cluster.make(BATCH, "Job", "set-w-0", "one")
    assert list(cluster.rows()) == ["Job/ns/set-w-0"]
    child, job_set = JobName("batch", "Job", "ns", "set-w-0"), JobName("jobset.x-k8s.io", "JobSet", "ns", "set")
    cluster.service.tell(JobsMade({child: job_set}))
    assert list(cluster.rows()) == ["JobSet/ns/set"]


def test_all_parts_of_a_job_may_end_in_a_trial(cluster: Cluster) -> None:
    cluster.make(BATCH, "Job", "train", "train-a", "train-b")
    cluster.settle()
    cluster.make(BATCH, "Job", "big", "big-0", "big-1", annotations=koordinator("big", 2))
    assert not cluster.answers.try_changes("Job/ns/big", ["ends=train-a"]).starts
    for change in ("ends=train", "ends=ns/train", "ends=Job/ns/train"):
        assert cluster.answers.try_changes("Job/ns/big", [change]).starts


def test_a_part_of_a_job_that_would_help_by_ending_is_told_with_its_job(cluster: Cluster) -> None:
    for name in ("lws-0", "lws-1"):
        cluster.make(APPS, "StatefulSet", "lws", name, labels={SET: "lws"})
    cluster.settle()
    cluster.make(BATCH, "Job", "late", "late-a")
    cluster.settle()
    certificate = cluster.answers.why("Job/ns/late").certificate
    assert certificate is not None
    helps = {one.change: one.text for one in certificate.unblock}
    assert helps["ends=ns/lws-0"] == "once lws-0 of LeaderWorkerSet lws has ended"


def test_a_job_whose_parts_would_leave_is_named_once(cluster: Cluster) -> None:
    for name in ("lws-0", "lws-1"):
        cluster.make(APPS, "StatefulSet", "lws", name, labels={SET: "lws"})
    cluster.settle()
    cluster.make(BATCH, "Job", "late", "late-a")
    cluster.settle()
    view, listed = cluster.answers.find("Job/ns/late")
    trials = Trials(view.snapshot, listed.waiting[0])
    assert trials.told(["ns/lws-0"]) == ("lws-0 of LeaderWorkerSet lws", 1)
    assert trials.told(["ns/lws-0", "ns/lws-1"]) == ("lws", 1)
    assert trials.told(["ns/other", "ns/lws-1"]) == ("ns/other and lws-1 of LeaderWorkerSet lws", 2)
    snapshot, as_queued = view.snapshot, "LeaderWorkerSet/ns/lws"
    (group,) = snapshot.jobs["ns/lws-1"]
    running = {**snapshot.running, group: replace(snapshot.running[group], job=as_queued)}
    trials = Trials(replace(snapshot, running=running, jobs={**snapshot.jobs, as_queued: [group]}), listed.waiting[0])
    assert trials.told([as_queued]) == ("lws", 1)


@pytest.mark.parametrize("allowed", [("ns",), ("ns", "nlp")])
def test_a_hidden_job_is_named_neither_by_its_parts_nor_by_its_object(
    cluster: Cluster, allowed: tuple[str, ...]
) -> None:
    for name in ("secret-0", "secret-1"):
        in_a = {"hivedscheduler.microsoft.com/virtual-cluster": "a"}
        cluster.make(APPS, "StatefulSet", "secret", name, labels={SET: "secret"}, annotations=in_a, namespace="nlp")
    cluster.settle()
    cluster.make(BATCH, "Job", "late", "late-a", gpus=2)
    cluster.settle()
    view, listed = cluster.answers.find("Job/ns/late")
    trials, parts = Trials(view.snapshot, listed.waiting[0]), ["nlp/secret-0", "nlp/secret-1"]
    part, whole = trials.told(parts[:1])[0], trials.told(parts)[0]
    assert (part, whole) == ("nlp/secret-0 of LeaderWorkerSet nlp/secret", "nlp/secret")
    certificate = cluster.answers.why("Job/ns/late").certificate
    assert certificate is not None
    ends = Unblock(change=f"ends={','.join(parts)}", text=f"once {whole} has ended", victims=parts)
    assert f"once {part} has ended" in [one.text for one in certificate.unblock]
    certificate = replace(certificate, unblock=[*certificate.unblock, ends])
    shown = mask(*allowed).certificate(certificate, 0.0, "ns", view.namespaces)
    assert ("secret" in str(shown.unblock)) == ("nlp" in allowed)
    assert ("once (another tenant's) has ended" in [one.text for one in shown.unblock]) == ("nlp" not in allowed)


def test_pods_that_were_preempted_are_told_of_their_job(cluster: Cluster) -> None:
    cluster.make(
        BATCH, "Job", "train", "train-a", "train-b", annotations={"hivedscheduler.microsoft.com/priority": "1"}
    )
    cluster.settle()
    cluster.pod("high", priorityClassName="high")
    cluster.ask("high")
    cluster.until(lambda: bool(cluster.kube.leaving))
    ((_, victim),) = cluster.kube.leaving
    cluster.delete(cluster.kube.pods[victim])
    row = cluster.rows()["Job/ns/train"]
    assert row.preempted is not None
    assert (row.preempted.by, row.counts.running) == ("ns/high", 1)
    assert not any(name.startswith("ns/train") for name in cluster.rows())


def test_a_job_that_needs_no_cells_is_no_row_and_says_so_when_it_is_asked_for(cluster: Cluster) -> None:
    cluster.watch(batch("cpu"))
    assert cluster.rows() == {}
    for name in ("Job/ns/cpu", "ns/cpu"):
        found = cluster.answers.why(name)
        assert (found.job.name, found.job.asks, found.certificate) == ("Job/ns/cpu", "no cells", None)
        assert found.job.sentence == "its pods are of scheduler default-scheduler, and hived does not place them"


def test_a_job_that_its_owner_suspends_and_that_no_queue_has_says_so(cluster: Cluster) -> None:
    cluster.watched = WatchedJobs(lambda job: None, lambda name: None, lambda *made: None, lambda job: True)
    document = batch("asleep")
    document["spec"]["suspend"] = True
    cluster.watch(document)
    row = cluster.rows()["Job/ns/asleep"]
    assert (row.state, row.cause, row.counts) == ("Held", "held", PodCounts(wanted=5))
    found = cluster.answers.why("ns/asleep")
    assert found.certificate is not None
    assert found.certificate.sentence == row.sentence
    assert found.when == row.when == When(kind="unknown", because="it is suspended")
    assert row.sentence.startswith("it is suspended, and in no queue")


def test_a_job_is_listed_once_when_its_first_pod_is_there(cluster: Cluster) -> None:
    cluster.watched = WatchedJobs(lambda job: None, lambda name: None, lambda *made: None, lambda job: True)
    document = batch("asleep")
    document["spec"]["suspend"] = True
    cluster.watch(document)
    cluster.make(BATCH, "Job", "asleep", "asleep-0")
    assert list(cluster.rows()) == ["Job/ns/asleep"]
    assert replace(cluster.rows()["Job/ns/asleep"].counts, wanted=0) == PodCounts(waiting=1)


def test_the_pods_of_a_job_are_told_one_by_one_with_their_nodes(cluster: Cluster) -> None:
    cluster.make(KUBEFLOW, "MPIJob", "mpi", "launcher", gpus=0, annotations=koordinator("mpi", 2))
    cluster.make(KUBEFLOW, "MPIJob", "mpi", "worker", annotations=koordinator("mpi", 2))
    cluster.settle()
    cluster.become("worker", "Running")
    cluster.make(KUBEFLOW, "MPIJob", "mpi", "more", gpus=64, annotations=koordinator("mpi", 2))
    view = cluster.answers.view()
    (job,) = view.jobs
    found = {one.name: (one.state, bool(one.node)) for one in members_of(view.snapshot, job)}
    assert found == {
        "ns/launcher": ("Starting", "launcher" in cluster.placed()),
        "ns/worker": ("Running", True),
        "ns/more": ("Waiting", False),
    }
    assert list(found) == job.job.pods


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (PodCounts(), ""),
        (PodCounts(wanted=1, waiting=1), ""),
        (PodCounts(wanted=1, running=1, failed=2), "2 failed"),
        (PodCounts(wanted=50, done=40, running=6, waiting=4), "40 of 50 done, 6 run, 4 wait"),
        (
            PodCounts(wanted=50, done=1, running=1, waiting=1, failed=1),
            "1 of 50 done, 1 runs, 1 waits, 47 to come, 1 failed",
        ),
        (PodCounts(wanted=50, running=6), "6 of 50 run, 44 to come"),
        (PodCounts(wanted=3), "3 to come"),
        (PodCounts(wanted=2, running=3), "3 of 3 run"),
    ],
)
def test_counts_are_told_in_words(counts: PodCounts, expected: str) -> None:
    assert counts.words == expected


def plain(cluster: Cluster, name: str, scheduler: str = "hived", **status: Any) -> None:
    """A pod that asks for nothing but a CPU."""
    pod = cluster.pod(name, 0)
    pod["spec"]["schedulerName"] = scheduler
    pod["spec"]["nodeName"] = status.pop("node", "")
    pod["status"] |= status
    cluster.kube.touch(pod)
    cluster.see(pod)


def test_pods_without_devices_that_name_our_scheduler_are_jobs_with_kube_schedulers_reason(cluster: Cluster) -> None:
    plain(cluster, "there", "default-scheduler")
    plain(cluster, "runs", node="n0", phase="Running")
    refusal = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}
    plain(cluster, "waits", conditions=[refusal])
    plain(cluster, "new")
    rows = cluster.rows()
    assert {name: (row.state, row.asks, row.nodes) for name, row in rows.items()} == {
        "ns/new": ("Waiting", "no cells", []),
        "ns/runs": ("Running", "no cells", ["n0"]),
        "ns/waits": ("Waiting", "no cells", []),
    }
    assert rows["ns/waits"].sentence == f"kube-scheduler has no node for it: {refusal['message']}"
    found = cluster.answers.why("ns/waits")
    assert found.when == found.job.when == When(kind="unknown", because="kube-scheduler places it, without hived")
    cluster.become("runs", "Succeeded")
    cluster.drop("new")
    assert list(cluster.rows()) == ["ns/waits"]


def test_a_job_object_whose_pods_need_no_cells_is_one_row_with_its_pods(cluster: Cluster) -> None:
    cluster.watched = WatchedJobs(
        lambda job: None, lambda name: None, lambda *made: None, serves=lambda name: name == "default-scheduler"
    )
    cluster.watch(batch("cpu", wanted=3, succeeded=1))
    row = cluster.rows()["Job/ns/cpu"]
    assert (row.state, row.asks, row.cause) == ("Waiting", "no cells", "incomplete")
    cluster.make(BATCH, "Job", "cpu", "cpu-a", gpus=0)
    assert cluster.rows()["Job/ns/cpu"].counts == PodCounts(wanted=3, waiting=1, done=1)


def test_a_job_waits_since_the_first_of_its_pods_did_while_they_come_and_go(cluster: Cluster) -> None:
    cluster.watch(batch(wanted=9))
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", "train-c")
    cluster.settle()
    before = cluster.rows()["Job/ns/train"]
    cluster.make(BATCH, "Job", "train", "train-d")
    cluster.drop("train-a")
    cluster.settle()
    after = cluster.rows()["Job/ns/train"]
    assert (before.state, after.state) == ("Waiting", "Waiting")
    assert "train-c" in cluster.placed()
    assert after.since == before.since == "2026-01-01T00:00:03Z"
    cluster.drop("train-b")
    cluster.settle()
    assert cluster.rows()["Job/ns/train"].state != "Waiting"
    cluster.make(BATCH, "Job", "train", "train-e")
    assert cluster.rows()["Job/ns/train"].since == "2026-01-01T00:00:05Z"


def test_a_job_has_the_labels_of_its_object_and_of_its_pods_before_and_after_these_come(cluster: Cluster) -> None:
    document = batch(wanted=2)
    document["metadata"]["labels"] = {"team": "nlp", "tier": "a"}
    document["spec"]["template"]["metadata"] = {"labels": {"app": "web", "tier": "b", "odd": 1}}
    cluster.watch(document)
    (seen,) = cluster.watched.called("Job/ns/train")
    expected = {"team": "nlp", "tier": "a", "app": "web"}
    assert without_pods(seen).labels == expected
    cluster.make(BATCH, "Job", "train", "train-a", labels={"index": "0"})
    (listed,) = cluster.answers.view().jobs
    assert listed.labels == {**expected, "index": "0"}


def test_a_job_of_one_pod_is_not_elastic(cluster: Cluster) -> None:
    cluster.watch(batch(wanted=1))
    cluster.make(BATCH, "Job", "train", "train-a")
    assert [row.is_elastic for row in cluster.rows().values()] == [False]


def test_a_run_of_a_cron_job_names_it_and_is_found_by_its_name(cluster: Cluster) -> None:
    document = batch("nightly-1")
    owner = {"apiVersion": BATCH, "kind": "CronJob", "name": "nightly", "uid": "u", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    cluster.watch(document)
    cluster.make(BATCH, "Job", "nightly-1", "nightly-1-a")
    (row,) = cluster.rows().values()
    assert (row.name, row.made_by, row.aliases) == ("Job/ns/nightly-1", "CronJob/ns/nightly", ["CronJob/ns/nightly"])
    assert row.is_elastic
    assert cluster.answers.why("ns/nightly").job.name == "Job/ns/nightly-1"
    for name in ("nightly", "cronjob/nightly", "ns/nightly"):
        assert matching([row], name) == [row]


def test_a_job_of_openpai_without_a_gang_is_one_row_of_its_user(cluster: Cluster) -> None:
    labels = {"userName": "dan", "jobName": "crowd", "taskRole": "worker"}
    for name in ("crowd-0", "crowd-1"):
        cluster.pod(name, 1, labels=labels)
    (row,) = cluster.rows().values()
    assert (row.name, row.user, row.counts.words) == ("OpenPAI/ns/dan~crowd", "dan", "2 of 2 wait")
    for name in ("crowd", "dan~crowd", "ns/dan~crowd"):
        assert matching([row], name) == [row]


def waiting_job(cluster: Cluster, count: int, name: str = "big") -> str:
    """Pods of a Job that start one by one, while pods of others have both nodes."""
    cluster.pod("one")
    cluster.pod("two")
    cluster.settle()
    cluster.make(BATCH, "Job", name, *(f"{name}-{number}" for number in range(count)))
    cluster.settle()
    return f"Job/ns/{name}"


@pytest.mark.parametrize(
    ("changes", "pods"),
    [
        (["ends=one"], 1),
        (["ends=one,two"], 2),
        (["opportunistic", "heal=n2,n3"], 2),
        (["opportunistic", "heal=n2,n3", "ends=one"], 3),
    ],
)
def test_a_trial_asks_for_all_waiting_pods_of_a_job_that_start_one_by_one(
    cluster: Cluster, changes: Sequence[str], pods: int
) -> None:
    """Rule 20.10."""
    found = cluster.answers.try_changes(waiting_job(cluster, 4), changes)
    assert (found.starts, found.pods, found.asked, found.waiting) == (True, pods, 4, 4)
    assert len(found.nodes) == pods
    assert found.counted == f"{pods} of the 4 waiting pods"


def test_a_trial_by_the_name_of_a_pod_asks_for_that_pod_alone(cluster: Cluster) -> None:
    waiting_job(cluster, 4)
    found = cluster.answers.try_changes("ns/big-2", ["ends=one,two"])
    assert (found.starts, found.counted, len(found.nodes)) == (True, "", 1)


def test_a_trial_in_which_all_pods_of_a_job_start_says_all(cluster: Cluster) -> None:
    name = waiting_job(cluster, 2)
    assert cluster.answers.try_changes(name, ["ends=one,two"]).counted == "all 2 waiting pods"


def test_a_trial_asks_for_a_bounded_number_of_pods(cluster: Cluster) -> None:
    name = waiting_job(cluster, 70)
    found = cluster.answers.try_changes(name, ["ends=one"])
    assert found.counted == "1 of the first 64 of 70 waiting pods"


def test_other_pods_in_a_trial_are_all_of_a_job(cluster: Cluster) -> None:
    name = waiting_job(cluster, 4)
    found = cluster.answers.try_changes(name, ["pods=4x1", "ends=one"])
    assert (found.starts, found.counted) == (True, "")


def test_a_job_whose_first_pod_fits_nowhere_has_its_other_pods_tried(cluster: Cluster) -> None:
    cluster.pod("one")
    cluster.pod("two")
    cluster.settle()
    cluster.make("ray.io/v1", "RayCluster", "ray", "head", gpus=64)
    cluster.make("ray.io/v1", "RayCluster", "ray", "worker", gpus=2)
    found = cluster.answers.try_changes("RayCluster/ns/ray", ["ends=one"])
    assert (found.starts, found.counted) == (True, "1 of the 2 waiting pods")


def test_help_says_how_many_pods_of_a_job_would_start(cluster: Cluster) -> None:
    """Rule 20.10."""
    found = cluster.answers.why(waiting_job(cluster, 4)).certificate
    assert found is not None
    texts = {one.change: one.text for one in found.unblock}
    assert texts["ends=ns/one"] == "once one has ended: 1 of the 4 waiting pods would start"


def test_help_and_a_trial_of_the_same_change_say_the_same(cluster: Cluster) -> None:
    """Rule 20.10."""
    name = waiting_job(cluster, 4)
    found = cluster.answers.why(name).certificate
    assert found is not None
    assert {one.change.partition("=")[0] for one in found.unblock} >= {"priority", "ends"}
    for one in found.unblock:
        tried = cluster.answers.try_changes(name, [one.change])
        assert (tried.starts, tried.victims) == (True, one.victims)
        assert tried.counted in one.text


def part_running(cluster: Cluster) -> str:
    """Two pods of a Job have all cells, and three more wait."""
    cluster.make(BATCH, "Job", "arr", *(f"arr-{number}" for number in range(5)))
    cluster.settle()
    return "Job/ns/arr"


def test_the_own_pods_of_a_job_are_not_in_its_way(cluster: Cluster) -> None:
    """Rule 20.5."""
    found = cluster.answers.why(part_running(cluster)).certificate
    assert found is not None
    assert found.sentence == "needs 1 node of 4 GPUs; a has 2 of 2 in use; 2 of its own pods run"
    assert (found.holders, found.more_holders, found.own_pods) == ([], 0, 2)


def test_the_own_pods_of_a_job_do_not_help_by_ending_or_by_being_preempted(cluster: Cluster) -> None:
    """Rule 20.10."""
    found = cluster.answers.why(part_running(cluster)).certificate
    assert found is not None
    assert not [one for one in found.unblock if "arr" in one.change + one.text + "".join(one.victims)]
    assert not [one for one in found.unblock if one.change.startswith(("priority", "ends", "move"))]


@pytest.mark.parametrize("change", ["ends=arr", "ends=Job/ns/arr", "ends=ns/arr-0", "move=arr", "ends=arr-1"])
def test_a_job_cannot_be_tried_with_its_own_end(cluster: Cluster, change: str) -> None:
    name = part_running(cluster)
    with pytest.raises(UserError, match="names the job itself, whose own pods are not in its way"):
        cluster.answers.try_changes(name, [change])


def test_pods_of_others_are_in_the_way_beside_the_own_pods(cluster: Cluster) -> None:
    cluster.pod("one")
    cluster.settle()
    cluster.make(BATCH, "Job", "arr", "arr-0", "arr-1", "arr-2")
    cluster.settle()
    found = cluster.answers.why("Job/ns/arr").certificate
    assert found is not None
    assert found.sentence.startswith("needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 0")
    assert found.sentence.endswith("; 1 of its own pods runs")
    assert [one.group for one in found.holders] == ["ns/one"]


def preempted_by_a_job(cluster: Cluster) -> None:
    """A pod of Job train leaves for the pod of Job boss, of bob."""
    priority, user = "hivedscheduler.microsoft.com/priority", "hivedscheduler.microsoft.com/user"
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", annotations={priority: "1"})
    cluster.settle()
    cluster.make(BATCH, "Job", "boss", "boss-a", annotations={priority: "7", user: "bob"})
    cluster.ask("boss-a")
    cluster.until(lambda: bool(cluster.kube.leaving))


def test_a_preemption_names_the_job_that_wins_and_its_priority(cluster: Cluster) -> None:
    preempted_by_a_job(cluster)
    ((_, victim),) = cluster.kube.leaving
    cluster.delete(cluster.kube.pods[victim])
    found = cluster.rows()["Job/ns/train"].preempted
    assert found is not None
    assert (found.by, found.namespace, found.priority) == ("Job/ns/boss", "ns", 7)


def test_the_event_of_a_preemption_names_the_job_that_wins_with_user_and_priority(cluster: Cluster) -> None:
    preempted_by_a_job(cluster)
    expected = "its cells are needed by Job/ns/boss of bob (priority 7, this job has 1)"
    cluster.until(lambda: expected in cluster.kube.messages)


def test_the_event_of_a_preemption_by_a_job_of_another_namespace_tells_its_virtual_cluster_and_no_name(
    cluster: Cluster,
) -> None:
    priority = "hivedscheduler.microsoft.com/priority"
    cluster.make(BATCH, "Job", "train", "train-a", "train-b", annotations={priority: "1"})
    cluster.settle()
    said = {priority: "7", "hivedscheduler.microsoft.com/virtual-cluster": "a"}
    cluster.pod("boss-a", 4, said, namespace="far")
    cluster.ask("boss-a")
    expected = "its cells are needed by a job of virtual cluster a (priority 7, this job has 1; pod uid uid-boss-a)"
    cluster.until(lambda: expected in cluster.kube.messages)


def test_an_object_that_a_job_without_pods_has_made_is_known_as_that_job(cluster: Cluster) -> None:
    head = {"template": {"spec": {"schedulerName": "hived", "containers": [{"name": "h", "image": "x"}]}}}
    ray = {"suspend": True, "headGroupSpec": head}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "tune", "uid": "u", "controller": True}
    job = {"suspend": True, "shutdownAfterJobFinishes": True, "rayClusterSpec": ray}
    for kind, metadata, spec in (
        ("RayJob", {"name": "tune", "uid": "u"}, job),
        ("RayCluster", {"name": "tune-x7", "uid": "v", "ownerReferences": [owner]}, ray),
    ):
        own = {"namespace": "ns", "resourceVersion": "1", **metadata}
        cluster.watch({"apiVersion": "ray.io/v1", "kind": kind, "metadata": own, "spec": spec})
    for name in ("RayJob/ns/tune", "RayCluster/ns/tune-x7", "ns/tune-x7"):
        assert cluster.answers.why(name).job.name == "RayJob/ns/tune"


class Objects:
    """The job objects that are watched, none of which is in a queue."""

    are_listed = True

    def __init__(self, cluster: Cluster) -> None:
        self.object_of = cluster.watched.find

    def ends(self) -> list[Any]:
        return []

    losses = ends

    def queue_of(self, job: object) -> str:
        return ""


def test_a_deleted_array_has_its_whole_size_and_not_what_was_left(cluster: Cluster) -> None:
    cluster.watch(batch("arr", wanted=50))
    ended = EndedJobs()
    ended.objects = Objects(cluster)
    cluster.answers = Answering(cluster.service, ended=ended, clock=lambda: cluster.seconds, objects=cluster)
    names = [f"arr-{number}" for number in range(12)]
    cluster.make(BATCH, "Job", "arr", *names, gpus=1)
    cluster.settle()
    cluster.rows()
    for name in names[:5]:
        cluster.delete(cluster.kube.pods[name])
        cluster.rows()
    cluster.watched.forget(JobName("batch", "Job", "ns", "arr"))
    for name in names[5:]:
        cluster.delete(cluster.kube.pods[name])
    cluster.rows()
    found = cluster.answers.ended_job("Job/ns/arr")
    assert found is not None
    assert (found.state, found.asks) == ("Deleted", "50 pods of 1 GPU")


def test_a_pod_is_not_told_that_others_of_its_job_have_the_cells(cluster: Cluster) -> None:
    """Rule 20.5."""
    part_running(cluster)
    said = [cluster.ask(f"arr-{number}") for number in (2, 3, 4)]
    assert any(text.endswith("a has 2 of 2 in use") for text in said)
    assert not any("by arr" in text or "Job/ns/arr" in text for text in said)


def test_a_node_says_its_pods_and_the_gpu_hours_that_a_drain_would_lose(cluster: Cluster) -> None:
    cluster.make(KUBEFLOW, "PyTorchJob", "torch", "g-0", "g-1", annotations=koordinator("ring", 2))
    cluster.settle()
    for pod in cluster.kube.pods.values():
        started = pod["metadata"]["creationTimestamp"] = "1970-01-01T00:00:10Z"
        pod["status"] = {"phase": "Running", "startTime": started}
        cluster.kube.touch(pod)
        cluster.see(pod)
    snapshot = take(cluster.service)
    found = {one.node: one for one in node_views(snapshot)}
    used = [one for one in found.values() if one.groups]
    assert [(one.groups, one.pods) for one in used] == [(["PyTorchJob/ns/torch"], 1)] * 2
    assert [one.gpu_hours for one in used] == [pytest.approx(4 * (snapshot.at - 10) / 3600, rel=1e-3)] * 2
    assert [(one.pods, one.gpu_hours) for one in found.values() if not one.groups] == [(0, 0.0)] * 2
