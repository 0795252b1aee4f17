"""Starts and preemptions by virtual cluster: each once, whoever makes the victims leave."""

import pytest

from hived_extender.jobs.progress import read_time
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import Json, SmallCluster, preempt_args, spec_text

CREATED = "2026-11-23T10:00:00Z"
CREATED_S = read_time(CREATED)
HOUR_S = 3600.0


def value(cluster: SmallCluster, name: str, vc: str) -> float | None:
    return cluster.service.metrics.registry.get_sample_value(name, {"vc": vc})


def small(*, by_service: bool = True) -> SmallCluster:
    cluster = SmallCluster(preemption=PreemptionPolicy(by_service))
    cluster.by_hand.at = CREATED_S
    return cluster


def create(cluster: SmallCluster, name: str, spec: str) -> Json:
    """A pod that was created at CREATED."""
    pod = cluster.create(name, spec)
    pod["metadata"]["creationTimestamp"] = CREATED
    cluster.see(pod)
    return pod


def start(cluster: SmallCluster, name: str, spec: str) -> Json:
    """The same, which starts now."""
    pod = create(cluster, name, spec)
    cluster.bind(pod, cluster.filter(pod)["NodeNames"][0])
    cluster.see(pod)
    return pod


def run(cluster: SmallCluster, pod: Json, since: str) -> None:
    pod["status"] |= {"phase": "Running", "startTime": since}
    cluster.see(pod)


def fill(cluster: SmallCluster) -> list[Json]:
    """Opportunistic pods of b on all nodes, running for an hour."""
    pods = [start(cluster, f"v{number}", spec_text("b", priority=-1)) for number in range(4)]
    for pod in pods:
        run(cluster, pod, CREATED)
    cluster.by_hand.at = CREATED_S + HOUR_S
    return pods


def test_the_delay_of_a_start_is_counted_once_for_its_virtual_cluster() -> None:
    cluster = small()
    pod = create(cluster, "p", spec_text("a"))
    cluster.by_hand.at = CREATED_S + 90
    node = cluster.filter(pod)["NodeNames"][0]
    cluster.bind(pod, node)
    for _ in range(3):
        cluster.see(pod)
    assert value(cluster, "hived_start_delay_seconds_count", "a") == 1
    assert value(cluster, "hived_start_delay_seconds_sum", "a") == pytest.approx(90, abs=0.01)
    assert cluster.service.metrics.tallies["a"].started_pods == 1


def test_a_clock_that_is_behind_makes_no_negative_delay() -> None:
    cluster = small()
    cluster.by_hand.at = CREATED_S - 500
    start(cluster, "p", spec_text("a"))
    assert value(cluster, "hived_start_delay_seconds_sum", "a") == 0


def test_pods_that_an_earlier_leader_bound_have_not_started_again() -> None:
    cluster = small()
    pod = start(cluster, "p", spec_text("a"))
    cluster.service.close()
    again = SmallCluster(is_leading=False)
    again.kube.pods = cluster.kube.pods
    again.see(pod)
    again.lead()
    assert value(again, "hived_start_delay_seconds_count", "a") is None


@pytest.mark.parametrize("by_service", [True, False])
def test_a_victim_that_leaves_is_counted_with_the_work_it_loses(by_service: bool) -> None:
    cluster = small(by_service=by_service)
    fill(cluster)
    waiting = create(cluster, "p", spec_text("a"))
    cluster.filter(waiting)
    if not by_service:
        cluster.service.preempt_victims(preempt_args(waiting))
    cluster.pass_time(1)
    (victim,) = [pod for pod in cluster.kube.pods.values() if is_victim(cluster, pod)]
    assert value(cluster, "hived_preempted_pods_total", "b") is None
    cluster.delete(victim)
    assert value(cluster, "hived_preempted_pods_total", "b") == 1
    assert value(cluster, "hived_preempted_gpu_hours_total", "b") == pytest.approx(4, abs=0.01)
    (one,) = cluster.service.machine.tallies.lost
    assert (one.pod, one.by) == (f"ns/{victim['metadata']['name']}", "ns/p" if by_service else "")


def test_a_victim_that_ends_before_it_is_deleted_is_counted_once() -> None:
    cluster = small()
    fill(cluster)
    cluster.filter(create(cluster, "p", spec_text("a")))
    cluster.pass_time(1)
    (victim,) = [pod for pod in cluster.kube.pods.values() if is_victim(cluster, pod)]
    victim["status"]["phase"] = "Failed"
    cluster.see(victim)
    cluster.delete(victim)
    assert value(cluster, "hived_preempted_pods_total", "b") == 1


def test_a_pod_that_ends_by_itself_is_not_preempted() -> None:
    cluster = small()
    pods = fill(cluster)
    cluster.delete(pods[0])
    assert value(cluster, "hived_preempted_pods_total", "b") is None


def test_an_end_names_the_job_its_cells_and_its_start() -> None:
    cluster = small()
    cluster.delete(fill(cluster)[0])
    tallies = cluster.service.machine.tallies
    (one,) = tallies.ends
    assert (one.job, one.vc, one.leaves, one.started_s, one.by) == ("ns/v0", "b", 4, CREATED_S, "")
    assert tallies.lost == ()


def test_a_pod_that_nobody_saw_run_has_run_since_its_kubelet_says() -> None:
    cluster = small()
    pod = start(cluster, "p", spec_text("a"))
    cluster.by_hand.at = CREATED_S + 5
    pod["status"] |= {"phase": "Succeeded", "startTime": CREATED}
    cluster.see(pod)
    (one,) = cluster.service.machine.tallies.ends
    assert (one.started_s, one.is_preempted) == (CREATED_S, False)
    assert one.ended_s == pytest.approx(CREATED_S + 5, abs=0.01)


def is_victim(cluster: SmallCluster, pod: Json) -> bool:
    core, record = cluster.service.machine.cache.core, cluster.service.machine.cache.pods.get(pod["metadata"]["uid"])
    return record is not None and record.request is not None and core is not None and core.is_victim(record.request)
