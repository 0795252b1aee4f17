"""Kueue with its own controllers and webhooks: jobs get quota from it, and cells from us."""

import json
import random
from collections.abc import Iterator

import pytest

from hived_extender.jobs.kinds.kueue import HOST, REQUIRED, SLICE_REQUIRED
from hived_extender.queues.kueue.controller import AT_WORK
from tests.e2e.controllers.kueue_racks import (
    ALL_NODES,
    CHECK,
    Json,
    KueueRacks,
    cluster_queue,
    deployment,
    of_kueue,
    queued_job,
    queued_pod,
    running_kueue,
)
from tests.e2e.controllers.racks import RACK, VC, pod
from tests.e2e.plane import ControlPlane

SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"


@pytest.fixture(scope="module")
def shared(plane: ControlPlane, podgroup_kinds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueRacks]:
    with running_kueue(plane, tmp_path_factory.mktemp("racks")) as running:
        yield running


@pytest.fixture
def kueue(shared: KueueRacks) -> Iterator[KueueRacks]:
    yield shared
    shared.clean()


def test_a_job_runs_on_the_cells_that_were_held_for_it(kueue: KueueRacks) -> None:
    kueue.set_up()
    kueue.racks.create(queued_job("train", 2))
    kueue.until_check("train", "Ready", "cells are held: 2 pods x 4")
    kueue.racks.await_whole("train", 2)
    kueue.until_settled()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "pod", "group"])
def test_plain_pods_take_the_cells_that_were_held_for_them(kueue: KueueRacks, kind: str) -> None:
    kueue.set_up()
    if kind == "pod":
        kueue.racks.create(*(queued_pod(f"serve-{number}") for number in range(3)))
    elif kind == "group":
        kueue.racks.create(*(queued_pod(f"serve-{number}", group="serve", count=3) for number in range(3)))
    else:
        kueue.racks.create(deployment("serve", 3, kind=kind))
    kueue.racks.until(lambda: len(kueue.racks.bound("serve")) == 3, "3 bound pods")
    kueue.until_settled()
    assert sorted(one.node for one in kueue.racks.bound("serve")) == kueue.held_nodes()


def test_a_cohort_that_may_lend_is_warned_of(kueue: KueueRacks) -> None:
    kueue.set_up(queue=cluster_queue(VC, cohortName="all"))
    kueue.racks.until(lambda: "may borrow quota" in kueue.says_active(), "a warning")
    assert VC in kueue.says_active()
    kueue.plane.kubectl("replace", "-f", "-", stdin=json.dumps(cluster_queue(VC, limit=0, cohortName="all")))
    kueue.racks.until(lambda: kueue.says_active() == AT_WORK, "no warning any more")


def choose_nodes(kueue: KueueRacks) -> None:
    """Kueue chooses nodes itself, in racks."""
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    flavor = of_kueue("ResourceFlavor", "near", {"nodeLabels": ALL_NODES, "topologyName": "racks"})
    kueue.set_up(of_kueue("Topology", "racks", {"levels": levels}), flavor, queue=cluster_queue(VC, flavor="near"))


def test_jobs_run_on_the_nodes_that_kueue_has_chosen(kueue: KueueRacks) -> None:
    choose_nodes(kueue)
    kueue.racks.create(queued_job("near", 2, annotations={REQUIRED: RACK}), queued_job("any", 2))
    for name in ("near", "any"):
        kueue.until_check(name, "Ready", "cells are held: 2 pods x 4")
        kueue.racks.await_whole(name, 2)
    assert len(kueue.racks.racks_of("near")) == 1
    kueue.until_settled()


def test_slices_run_where_kueue_has_chosen_nodes_for_them(kueue: KueueRacks) -> None:
    choose_nodes(kueue)
    kueue.racks.create(queued_job("sliced", 4, annotations={SLICE_REQUIRED: RACK, SLICE_SIZE: "2"}))
    kueue.until_check("sliced", "Ready", "cells are held: 4 pods x 4")
    kueue.racks.await_whole("sliced", 4)
    assert len(kueue.racks.racks_of("sliced")) == 2
    kueue.until_settled()


@pytest.mark.parametrize(
    "notes", [{SLICE_REQUIRED: RACK, SLICE_SIZE: "1"}, {REQUIRED: RACK}], ids=["slices", "required"]
)
def test_a_topology_that_a_flavor_does_not_have_is_refused_by_kueue_with_a_word(
    kueue: KueueRacks, notes: dict[str, str]
) -> None:
    kueue.set_up()
    kueue.racks.create(queued_job("near", 2, annotations=notes))
    kueue.racks.until(lambda: "TopologyAwareScheduling" in kueue.told(), "Kueue to say what is amiss")
    assert kueue.racks.pods("near") == []
    kueue.until_settled()


def test_a_job_runs_elsewhere_where_kueue_has_chosen_another_virtual_clusters_rack(kueue: KueueRacks) -> None:
    """It chooses the rack with the least that is free. This is the other virtual cluster's now."""
    choose_nodes(kueue)
    other = {"hivedscheduler.microsoft.com/virtual-cluster": "other"}
    kueue.racks.create(pod("other", 1, spec={"nodeSelector": {RACK: "a"}}, annotations=other))
    kueue.racks.until(lambda: kueue.racks.bound("other"), "the pod of the other virtual cluster to be bound")
    kueue.racks.create(queued_job("near", 2, 2, annotations={REQUIRED: RACK}))
    kueue.until_check("near", "Ready", "on other nodes than Kueue has chosen")
    kueue.racks.until(lambda: len(kueue.racks.bound("near")) == 2, "2 bound pods")
    assert kueue.racks.racks_of("near") < {"b", "c"}
    kueue.racks.until(lambda: not kueue.held(), "no cells to be held for nobody")
    assert kueue.racks.observer.violations == []


CLASS = "kueue.x-k8s.io/priority-class"
OPPORTUNISTIC = "hivedscheduler.microsoft.com/priority"


def priority_classes() -> list[Json]:
    """Kueue's own, `low` and `high`."""
    return [of_kueue("WorkloadPriorityClass", name, value=value) for name, value in (("low", 1), ("high", 9))]


def test_jobs_of_higher_priority_preempt_and_the_others_come_back(kueue: KueueRacks) -> None:
    kueue.set_up(*priority_classes())
    kueue.racks.create(*(queued_job(f"low-{number}", 2, labels={CLASS: "low"}) for number in range(2)))
    kueue.racks.until(lambda: len(kueue.racks.bound("low-")) == 4, "4 bound pods")
    kueue.racks.create(queued_job("high", 4, labels={CLASS: "high"}, seconds=3))
    kueue.racks.until(lambda: len(kueue.racks.bound("high")) == 4, "4 bound pods")
    kueue.racks.until(lambda: len(kueue.racks.bound("low-")) == 4, "the others to be back")
    kueue.until_settled()
    assert all(kueue.evictions(f"low-{number}") for number in range(2))
    assert kueue.evictions("high") == []


def test_a_job_that_is_deactivated_or_deleted_gives_its_cells_back(kueue: KueueRacks) -> None:
    kueue.set_up()
    kueue.racks.create(queued_job("stops", 2))
    kueue.racks.await_whole("stops", 2)
    kueue.activate("stops", False)
    kueue.racks.until(lambda: not kueue.racks.groups(), "no cells to be held")
    kueue.activate("stops", True)
    kueue.racks.await_whole("stops", 2)
    kueue.racks.delete("job", "stops")
    kueue.racks.until(lambda: not kueue.racks.groups(), "no cells to be held")
    assert kueue.racks.faults() == []


def test_a_job_that_is_deleted_while_it_waits_for_cells_leaves_its_place_to_the_next(kueue: KueueRacks) -> None:
    kueue.set_up()
    kueue.racks.block("one", "two", "three", "four")
    kueue.racks.create(queued_job("large", 2))
    kueue.until_check("large", "Pending", "waits for cells")
    kueue.racks.create(queued_job("small", 1))
    kueue.until_check("small", "Pending", "2 of 2 that Kueue has given quota")
    kueue.racks.delete("job", "large")
    kueue.racks.unblock("four")
    (small,) = kueue.racks.await_whole("small", 1)
    assert kueue.held_nodes().count(small.node) == 1
    kueue.until_settled()


def test_a_job_whose_cells_are_lost_before_it_starts_is_queued_again(kueue: KueueRacks) -> None:
    """Somebody else has to approve of it, too, so cells are held for long."""
    approval = of_kueue("AdmissionCheck", "approval", {"controllerName": "example.com/people"})
    checks = {"admissionChecks": [{"name": CHECK}, {"name": "approval"}]}
    kueue.set_up(approval, queue=cluster_queue(VC, admissionChecksStrategy=checks), approves=("approval",))
    kueue.racks.create(queued_job("train", 2))
    kueue.until_check("train", "Ready", "cells are held: 2 pods x 4")
    lost = kueue.held_nodes()
    kueue.racks.set_ready(lost[0], False)
    kueue.racks.until(lambda: kueue.evictions("train") == ["AdmissionCheck"], "Kueue to queue it again")
    kueue.racks.until(lambda: lost[0] not in kueue.held_nodes() and len(kueue.held_nodes()) == 2, "other cells")
    kueue.approve("train", "approval")
    assert lost[0] not in {one.node for one in kueue.racks.await_whole("train", 2)}
    kueue.racks.set_ready(lost[0], True)
    kueue.until_settled()


@pytest.mark.parametrize("seed", [1])
def test_twenty_jobs_of_all_kinds_end(kueue: KueueRacks, seed: int) -> None:
    """Gangs, single pods, groups and a Deployment, of two priorities, guaranteed and opportunistic.

    Some are deleted while they wait or run, some are deactivated for a while.
    """
    draw = random.Random(seed)
    kueue.set_up(*priority_classes())
    names = [f"job-{number}" for number in range(16)]
    for name in names:
        notes = {OPPORTUNISTIC: "-1"} if draw.random() < 0.2 else {}
        pods, gpus, seconds = draw.randint(1, 4), draw.choice((1, 2, 4)), draw.randint(1, 4)
        labels = {CLASS: draw.choice(("low", "high"))}
        kueue.racks.create(queued_job(name, pods, gpus, seconds=seconds, labels=labels, annotations=notes))
    kueue.racks.create(*(queued_pod(f"alone-{number}", 2, seconds=3) for number in range(2)))
    kueue.racks.create(*(queued_pod(f"group-{number}", group="group", count=2, seconds=3) for number in range(2)))
    kueue.racks.create(deployment("serve", 2, 2))
    deleted = draw.sample(names, 3)
    for name in deleted:
        kueue.racks.delete("job", name)
    stopped = draw.choice([name for name in names if name not in deleted])
    kueue.activate(stopped, False)
    kueue.activate(stopped, True)

    def are_finished() -> bool:
        found = [kueue.workload(name) for name in (*names, "alone-0", "alone-1", "group") if name not in deleted]
        return all(one is not None and kueue.condition(one, "Finished") for one in found)

    kueue.racks.until(are_finished, "all jobs to be finished", within_s=300.0)
    kueue.racks.until(lambda: len(kueue.racks.bound("serve")) == 2, "the Deployment to run")
    kueue.until_settled()


def test_jobs_go_on_when_both_are_killed(kueue: KueueRacks) -> None:
    """The replica that leads, and Kueue; then the next leader, too."""
    kueue.set_up()
    kueue.racks.create(*(queued_job(f"train-{number}", 1 + number % 2, seconds=4) for number in range(6)))
    kueue.racks.until(lambda: kueue.racks.bound("train-"), "a job to run")
    cluster = kueue.racks.cluster
    for _ in cluster.services:
        leader = cluster.leader()
        leader.kill()
        leader.start(ready_s=180)
    kueue.process.kill()
    kueue.process.start(ready_s=180)

    def are_finished() -> bool:
        found = kueue.workloads()
        return len(found) == 6 and all(kueue.condition(one, "Finished") for one in found)

    kueue.racks.until(are_finished, "all jobs to be finished")
    kueue.until_settled()
