"""Each road by which pods get cells counts against its leaf of the quota tree: a test for each row of the table."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from hived.values.decisions import Bind, Wait
from hived_extender.jobs.bind_info import PROOF
from hived_extender.jobs.job import WORKLOAD, JobName, JobRef
from hived_extender.jobs.kinds.marks import KUEUE_QUEUE, QUEUE
from hived_extender.jobs.quotas.tree import LABELS, QuotaTree
from hived_extender.machine.stimuli import HoldAsked, JobsBarred, JobsMade, QuotasFollowed, UpgradeAsked
from tests.extender.jobs.quotas.trees import GPU, quota, tree
from tests.extender.machine.small_cluster import Json, spec_text
from tests.extender.machine.small_gangs import koordinator
from tests.extender.machine.small_jobs import SmallJobCluster, hold, job
from tests.places import ROOT

MAX_JOBS = "kube-queue/max-jobs"
ROADS = re.compile(r"^## All that gets cells counts\n.*?\n(\|.*?)\n\n", re.MULTILINE | re.DOTALL)


def leaf(gpus: int = 4, jobs: int | None = None, *namespaces: str, name: str = "t", **more: Any) -> Json:
    """A leaf of namespace `ns` with so many GPUs."""
    most = {GPU: gpus, **({} if jobs is None else {MAX_JOBS: jobs})}
    return quota(name, {}, most, namespaces=list(namespaces or ("ns",)), **more)


def cluster_with(*leaves: Json, total: int = 16) -> SmallJobCluster:
    """The small cluster with a tree of these leaves."""
    cluster = SmallJobCluster()
    follow(cluster, tree(*(leaves or (leaf(),)), total=total))
    return cluster


def follow(cluster: SmallJobCluster, found: QuotaTree | None) -> None:
    """Have another tree count."""
    cluster.tell(QuotasFollowed(found))


def is_refused(cluster: SmallJobCluster, name: str, resource: str = GPU) -> bool:
    """Is a pod told that this resource of its quota is used up?"""
    return f"Insufficient quota({resource}) in quota root/t" in cluster.ask(name)


def has_node(cluster: SmallJobCluster, name: str) -> bool:
    """Does a pod get a node?"""
    return cluster.ask(name) in ("n0", "n1", "n2", "n3")


def owned(cluster: SmallJobCluster, name: str, kind: str, api_version: str, owner: str, **labels: str) -> Json:
    """A pod that names a controller, which nobody has seen."""
    ref = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    pod = cluster.pod(name, 2, labels=labels)
    pod["metadata"]["ownerReferences"] = [ref]
    cluster.see(pod)
    return pod


def two_of_three(cluster: SmallJobCluster, make: Callable[[str], object]) -> None:
    """Of three pods of 2 GPUs each two fit a quota of 4; the third one gets its cells once one of them is gone."""
    for name in ("x", "y", "z"):
        make(name)
    assert has_node(cluster, "x")
    assert has_node(cluster, "y")
    assert is_refused(cluster, "z")
    cluster.delete(cluster.kube.pods["x"])
    assert has_node(cluster, "z")


# Roads of the table


def test_road_plain_pod() -> None:
    cluster = cluster_with()
    two_of_three(cluster, lambda name: cluster.pod(name, 2))


def test_road_opportunistic_pod() -> None:
    cluster = cluster_with()
    notes = {"hivedscheduler.microsoft.com/priority": "-1"}
    two_of_three(cluster, lambda name: cluster.pod(name, 2, notes))


def test_road_pod_with_hived_s_annotation() -> None:
    cluster = cluster_with()  # its containers ask for no GPU
    two_of_three(cluster, lambda name: cluster.create(name, spec_text(leaf_cells=2)))


def test_road_affinity_group() -> None:
    cluster = cluster_with(leaf(4, 1))
    group = spec_text(leaf_cells=2, group="g", pods=2)
    cluster.create("x", group)
    cluster.create("y", group)
    assert has_node(cluster, "x")
    cluster.create("z", spec_text(leaf_cells=1))
    assert is_refused(cluster, "z", MAX_JOBS)
    assert has_node(cluster, "y")
    cluster.create("large", spec_text(leaf_cells=2, group="h", pods=2))
    follow(cluster, tree(leaf(7), total=16))
    assert is_refused(cluster, "large")
    follow(cluster, tree(leaf(8), total=16))
    assert has_node(cluster, "large")


def test_road_gang_without_a_job() -> None:
    cluster = cluster_with(leaf(4, 1))
    for gang in ("g", "h"):
        for number in range(2):
            cluster.pod(f"{gang}-{number}", 2, koordinator(gang, 2))
    assert has_node(cluster, "g-0")
    assert has_node(cluster, "g-1")
    assert is_refused(cluster, "h-1", MAX_JOBS)
    assert cluster.decided().keys() == {"g-0", "g-1"}
    follow(cluster, tree(leaf(7, 2), total=16))
    assert is_refused(cluster, "h-1"), "3 of 4 GPUs are left: none of its pods starts"
    follow(cluster, tree(leaf(8, 2), total=16))
    assert has_node(cluster, "h-0")
    assert has_node(cluster, "h-1")


def test_road_job_that_says_queue_off() -> None:
    cluster = cluster_with(leaf(4, 1))
    two_of_three(cluster, lambda name: cluster.come(name, gpus=2, annotations={QUEUE: "off"}))
    cluster.come("other", "more", gpus=1)
    assert is_refused(cluster, "other", MAX_JOBS)


def test_road_job_with_kueue_s_label_where_there_is_no_kueue() -> None:
    cluster = cluster_with()
    two_of_three(cluster, lambda name: cluster.come(name, "train", 2, None, **{KUEUE_QUEUE: "queue"}))


def test_road_job_of_a_kind_that_no_queue_follows() -> None:
    cluster = cluster_with()
    two_of_three(cluster, lambda name: owned(cluster, name, "Workflow", "example.org/v1", "flow"))


@pytest.mark.parametrize(
    ("kind", "api"), [("ReplicaSet", "apps/v1"), ("RayCluster", "ray.io/v1"), ("RayService", "ray.io/v1")]
)
def test_road_pod_whose_owner_does_not_exist(kind: str, api: str) -> None:
    cluster = cluster_with()
    two_of_three(cluster, lambda name: owned(cluster, name, kind, api, "no-5", **{"pod-template-hash": "5"}))


def test_road_pod_that_names_another_job_than_its_own() -> None:
    cluster = cluster_with(leaf(8))
    cluster.held(hold(pods=1, gpus=4))
    cluster.tell(JobsMade({JobName("batch", "Job", "ns", "inner"): job().job_name}))
    cluster.come("own", gpus=4)
    assert has_node(cluster, "own")
    cluster.come("x", "inner", gpus=4)
    cluster.come("y", "inner", gpus=4)
    assert has_node(cluster, "x"), "8 of 8"
    assert is_refused(cluster, "y")


def test_road_job_whose_template_has_a_jobset_s_label() -> None:
    cluster = cluster_with()
    label = {"jobset.sigs.k8s.io/jobset-name": "train"}
    two_of_three(cluster, lambda name: cluster.come(name, "train-workers", 2, None, **label))


def test_road_pods_beyond_the_size_of_a_queued_job() -> None:
    cluster = cluster_with(leaf(4))
    cluster.held(hold(pods=1, gpus=4))
    cluster.come("own", gpus=4)
    cluster.come("more", gpus=1)
    assert has_node(cluster, "own")
    assert is_refused(cluster, "more")


def test_road_queued_job() -> None:
    cluster = cluster_with(leaf(4, 2))
    cluster.held(hold("train", 1, 2))
    cluster.held(hold("other", 1, 1))
    refused = cluster.hold(hold("third", 1, 1))
    assert isinstance(refused, Wait)
    assert MAX_JOBS in refused.reason
    cluster.pod("plain", 1)
    assert is_refused(cluster, "plain", MAX_JOBS), "held cells count before there are pods"
    cluster.drop_hold("other")
    assert has_node(cluster, "plain")


def test_road_several_namespaces_of_a_leaf() -> None:
    cluster = cluster_with(leaf(4, None, "ns", "other"))
    cluster.pod("x", 2)
    cluster.pod("y", 2, namespace="other")
    cluster.pod("z", 2)
    assert has_node(cluster, "x")
    assert has_node(cluster, "y")
    assert is_refused(cluster, "z")


def test_road_label_of_another_s_leaf() -> None:
    cluster = cluster_with(leaf(), leaf(4, None, "theirs", name="u"))
    for said in ("u", "nobody", ""):
        for name in list(cluster.kube.pods):
            cluster.delete(cluster.kube.pods[name])
        two_of_three(
            cluster, lambda name, said=said: cluster.pod(name, 2, uid=f"{said}-{name}", labels={LABELS[0]: said})
        )


def test_road_job_that_its_owner_has_resumed() -> None:
    cluster = cluster_with()
    cluster.tell(JobsBarred({job().job_name: "root/t"}))
    cluster.come("early", gpus=1)
    assert "waits in queue root/t" in cluster.ask("early")


def test_road_kueue_s_workload() -> None:
    cluster = cluster_with()
    cluster.pod("plain", 2)
    assert has_node(cluster, "plain")
    ref = JobRef("kueue.x-k8s.io/v1beta1", WORKLOAD, "ns", "train", "uid")
    wanted = hold(pods=1, gpus=4)
    wanted = type(wanted)(ref.key, ref, wanted.spec)
    refused = cluster.tell(HoldAsked(wanted))
    assert isinstance(refused, Wait)
    assert "Insufficient quota" in refused.reason
    cluster.delete(cluster.kube.pods["plain"])
    assert isinstance(cluster.tell(HoldAsked(wanted)), Bind)
    cluster.pod("late", 1)
    assert is_refused(cluster, "late")


def test_road_pod_without_cells() -> None:
    cluster = cluster_with(leaf(4, 1))
    cluster.pod("x", 4)
    assert has_node(cluster, "x")
    cluster.pod("y-0", 0, koordinator("g", 1))
    assert "quota" not in cluster.ask("y-0")


def test_road_pod_of_no_leaf() -> None:
    cluster = cluster_with(leaf(1, None, "other"))
    cluster.pod("x", 4)
    assert has_node(cluster, "x")


def test_each_row_of_the_table_has_a_test_and_each_test_a_row() -> None:
    found = ROADS.search((ROOT / "docs" / "quotas.md").read_text())
    assert found is not None
    rows = [line.split("|")[1].strip() for line in found[1].splitlines()[2:]]
    named = {"test_road_" + re.sub(r"[^a-z0-9]+", "_", row.lower()).strip("_") for row in rows}
    assert named == {name for name in globals() if name.startswith("test_road_")}


# Beside the roads


def test_a_restart_keeps_the_count_and_nothing_starts_before_the_queues_have_begun() -> None:
    cluster = cluster_with()
    cluster.pod("x", 2)
    cluster.pod("y", 2)
    cluster.pod("z", 2)
    assert has_node(cluster, "x")
    assert has_node(cluster, "y")
    again = cluster.restarted_jobs()
    again.tell(QuotasFollowed(None, is_known=False))
    assert "quotas are being read" in again.ask("z")
    follow(again, tree(leaf(), total=16))
    assert is_refused(again, "z")


def test_a_replica_that_takes_over_waits_for_its_queues() -> None:
    cluster = cluster_with()
    cluster.pod("z", 2)
    cluster.service.follow("another replica leads")
    cluster.lead()
    assert "quotas are being read" in cluster.ask("z")
    follow(cluster, tree(leaf(), total=16))
    assert has_node(cluster, "z")


def test_a_pod_that_waited_for_a_quota_is_woken_when_the_tree_has_room() -> None:
    cluster = cluster_with(leaf(1))
    cluster.pod("x", 2)
    assert is_refused(cluster, "x")
    follow(cluster, tree(leaf(2), total=16))
    cluster.settle()
    assert cluster.decided().keys() == {"x"}


@pytest.mark.parametrize(("gpus", "count"), [(3, 0), (4, 2), (6, 3), (8, 4)])
def test_as_many_pods_of_a_gang_start_as_the_quota_allows_if_they_are_enough(gpus: int, count: int) -> None:
    cluster = cluster_with(leaf(gpus))
    for number in range(4):
        cluster.pod(f"g-{number}", 2, koordinator("g", 2))
    cluster.settle()
    assert len(cluster.decided()) == count
    follow(cluster, tree(leaf(8), total=16))
    cluster.settle()
    assert len(cluster.decided()) == 4


def test_no_tree_counts_nothing() -> None:
    cluster = SmallJobCluster()
    follow(cluster, None)
    cluster.pod("x", 4)
    assert has_node(cluster, "x")
    assert cluster.service.machine.cache.core is not None
    assert cluster.service.machine.cache.core.touched is None


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_other_resources_than_devices_count_as_well(resource: str) -> None:
    most = {GPU: 16, resource: "4Gi" if resource == "memory" else 4}
    cluster = cluster_with(quota("t", {}, most, namespaces=["ns"]))

    def make(name: str) -> None:
        asked = {"nvidia.com/gpu": 1, resource: "2Gi" if resource == "memory" else 2}
        cluster.pod(name, 1, containers=[{"name": "main", "resources": {"limits": asked}}])

    for name in ("x", "y", "z"):
        make(name)
    assert has_node(cluster, "x")
    assert has_node(cluster, "y")
    assert is_refused(cluster, "z", resource)


def test_a_pod_that_an_empty_quota_does_not_allow_is_told_that_it_can_never_run() -> None:
    cluster = cluster_with(leaf(3))
    cluster.pod("x", 4)
    assert cluster.ask("x").endswith("It can never run: ask for less, or raise the quota")


def running(cluster: SmallJobCluster, name: str = "train", gpus: int = 1) -> None:
    """A job of two pods that was let go, and runs."""
    cluster.held(hold(name, 2, gpus))
    for number in range(2):
        cluster.come(f"{name}-{number}", name, gpus=gpus)
        assert has_node(cluster, f"{name}-{number}")


def grows_only_within(cluster: SmallJobCluster, *larger: Json, total: int = 16) -> None:
    """The job `train` gets cells for two more pods once the tree has these leaves, and not before."""
    refused = cluster.hold(hold(pods=4, gpus=1))
    assert "Insufficient quota" in str(refused)
    cluster.come("late-0", gpus=1)
    cluster.come("late-1", gpus=1)
    assert "Insufficient quota" in cluster.ask("late-0")
    follow(cluster, tree(*larger, total=total))
    cluster.held(hold(pods=4, gpus=1))
    assert has_node(cluster, "late-0")
    assert has_node(cluster, "late-1")


def test_a_running_job_grows_only_within_its_leaf() -> None:
    cluster = cluster_with(leaf(2))
    running(cluster)
    grows_only_within(cluster, leaf(4))


def test_a_running_job_grows_only_within_the_quotas_above_its_leaf() -> None:
    leaves = leaf(4), leaf(4, None, "other", name="u")
    cluster = cluster_with(*leaves, total=4)
    running(cluster)
    for name in ("x", "y"):
        cluster.pod(name, 1, namespace="other")
        assert has_node(cluster, name)
    grows_only_within(cluster, *leaves, total=6)


def test_a_running_job_grows_only_beside_the_other_jobs_of_its_leaf() -> None:
    cluster = cluster_with(leaf(4))
    running(cluster)
    running(cluster, "other")
    grows_only_within(cluster, leaf(6))


def test_a_running_job_grows_only_within_its_leaf_after_a_restart() -> None:
    cluster = cluster_with(leaf(2))
    running(cluster)
    cluster.settle()
    again = cluster.restarted_jobs()
    follow(again, tree(leaf(2), total=16))
    grows_only_within(again, leaf(4))


def test_a_borrowing_job_that_has_grown_is_not_made_guaranteed_beyond_its_quota() -> None:
    cluster = cluster_with(leaf(4))
    cluster.held(hold(pods=2, gpus=2, priority=-1))
    for number in range(2):
        cluster.come(f"train-{number}", gpus=2)
        assert has_node(cluster, f"train-{number}")
    assert not cluster.tell(UpgradeAsked(hold(pods=4, gpus=2, own=tuple(range(8)))))
    cluster.come("late", gpus=2)
    assert is_refused(cluster, "late")


def test_a_running_job_is_held_again_as_it_is_although_its_quota_is_lower_now() -> None:
    cluster = cluster_with(leaf(4))
    running(cluster, gpus=2)
    follow(cluster, tree(leaf(2), total=16))
    assert isinstance(cluster.hold(hold(pods=2, gpus=2)), Bind)
    cluster.settle()
    again = cluster.restarted_jobs()
    follow(again, tree(leaf(2), total=16))
    found = again.hold(hold(pods=2, gpus=2))
    assert "Insufficient quota" not in str(found)


def test_pods_that_run_for_a_job_are_counted_once_if_its_queue_is_another_leaf_than_their_namespace_s() -> None:
    leaves = leaf(4), leaf(4, None, "queue", name="u")
    cluster = cluster_with(*leaves, total=4)
    asked = replace(hold(pods=2, gpus=2), queue="root/u", request={GPU: 4.0})
    assert isinstance(cluster.tell(HoldAsked(asked)), Bind)
    for number in range(2):
        cluster.come(f"train-{number}", gpus=2)
        assert has_node(cluster, f"train-{number}")
    cluster.settle()
    again = cluster.restarted_jobs()
    follow(again, tree(*leaves, total=4))
    assert "Insufficient quota" not in str(again.tell(HoldAsked(asked)))
    again.come("more", "other", gpus=1)
    assert "Insufficient quota" in again.ask("more")


# Labels that change while a pod runs

NAME = LABELS[0]
FREE = quota("t", {}, {GPU: 4}, namespaces=[]), quota("u", {}, {GPU: 4}, namespaces=[])
"""Two leaves that everybody may name."""


def relabel(cluster: SmallJobCluster, pod: Json, **labels: str) -> None:
    """The owner of a pod changes its labels; `leaf=""` takes the one away that names its quota."""
    found: Json = pod["metadata"].setdefault("labels", {})
    found.pop(NAME, None)
    found.update({NAME: value} if (value := labels.pop("leaf", "")) else {})
    cluster.kube.touch(pod)
    cluster.see(pod)


def taken_over(cluster: SmallJobCluster) -> SmallJobCluster:
    """A replica that has seen all pods as they come leads in place of another one."""
    cluster.service.follow("another replica leads")
    cluster.lead()
    return cluster


def anew(cluster: SmallJobCluster) -> SmallJobCluster:
    """A service that has seen nothing before leads."""
    return cluster.restarted_jobs()


@pytest.mark.parametrize("led", [anew, taken_over])
@pytest.mark.parametrize("leaf_now", ["u", "", "nothing"])
def test_a_pod_that_is_labelled_anew_stays_in_its_leaf(
    led: Callable[[SmallJobCluster], SmallJobCluster], leaf_now: str
) -> None:
    cluster = cluster_with(*FREE)
    pod = cluster.pod("x", 4, labels={NAME: "t"})
    assert has_node(cluster, "x")
    cluster.settle()
    relabel(cluster, pod, leaf=leaf_now)
    again = led(cluster)
    follow(again, tree(*FREE, total=16))
    again.pod("y", 4, labels={NAME: "t"})
    assert is_refused(again, "y")
    again.pod("z", 4, labels={NAME: "u"})
    assert has_node(again, "z")


def test_a_pod_without_a_label_stays_in_the_leaf_of_its_namespace() -> None:
    leaves = leaf(4), FREE[1]
    cluster = cluster_with(*leaves)
    pod = cluster.pod("x", 4)
    assert has_node(cluster, "x")
    cluster.settle()
    relabel(cluster, pod, leaf="u")
    again = anew(cluster)
    follow(again, tree(*leaves, total=16))
    again.pod("y", 1)
    assert is_refused(again, "y")


def test_a_group_and_a_gang_stay_in_their_leaf() -> None:
    cluster = cluster_with(*FREE)
    cluster.create("x", spec_text(leaf_cells=1, group="g", pods=2))
    cluster.create("x2", spec_text(leaf_cells=1, group="g", pods=2))
    for name in ("x", "x2"):
        relabel(cluster, cluster.kube.pods[name], leaf="t")
        assert has_node(cluster, name)
    for number in range(2):
        cluster.pod(f"g-{number}", 1, koordinator("gang", 2), {NAME: "t"})
    cluster.settle()
    for name in ("x", "x2", "g-0", "g-1"):
        relabel(cluster, cluster.kube.pods[name], leaf="u")
    again = anew(cluster)
    follow(again, tree(*FREE, total=16))
    again.pod("y", 1, labels={NAME: "t"})
    assert is_refused(again, "y")


def test_another_tree_goes_by_the_labels_that_were_there_when_the_pod_got_its_cells() -> None:
    cluster = cluster_with(*FREE)
    pod = cluster.pod("x", 4, labels={NAME: "t"})
    assert has_node(cluster, "x")
    cluster.settle()
    relabel(cluster, pod, leaf="u")
    again = anew(cluster)
    follow(again, tree(leaf(4), FREE[1], total=16))
    again.pod("y", 4)
    assert is_refused(again, "y"), "the label names a leaf of other namespaces now, so the namespace says it"


def test_a_gang_that_may_not_be_preempted_stays_so() -> None:
    only = quota("t", {GPU: 4}, {GPU: 8}, namespaces=["ns"])
    kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
    cluster = cluster_with(only)
    pod = cluster.pod("g-0", 4, koordinator("g", 1), kept)
    cluster.settle()
    assert cluster.decided().keys() == {"g-0"}
    pod["metadata"]["labels"].clear()
    again = anew(cluster)
    follow(again, tree(only, total=16))
    again.pod("g-1", 4, koordinator("g", 1), kept)
    again.settle()
    assert again.decided().keys() == {"g-0"}, "beyond its min it would be preemptible"


def test_a_pod_that_an_earlier_version_bound_goes_by_its_labels() -> None:
    cluster = cluster_with(*FREE)
    pod = cluster.pod("x", 4, labels={NAME: "t"})
    assert has_node(cluster, "x")
    cluster.settle()
    pod["metadata"]["annotations"][PROOF] = "{}"
    again = anew(cluster)
    follow(again, tree(*FREE, total=16))
    again.pod("y", 4, labels={NAME: "t"})
    assert is_refused(again, "y")
