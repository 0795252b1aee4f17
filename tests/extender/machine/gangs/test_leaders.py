"""Gangs of JobSets with exclusive placement, whose followers come after their leaders have nodes (rule 26.9)."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_config.access import AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import load_text
from hived_config.rules import PodRules
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.kinds import coscheduling as labels_of_gangs
from hived_extender.jobs.kinds.description import JobPart
from hived_extender.jobs.kinds.jobset import (
    BY_NODE_SELECTOR,
    COMPLETION_INDEX,
    JOB_INDEX,
    REPLICAS,
    REPLICATED_JOB,
    TOPOLOGY,
)
from tests.extender.jobs.kinds.descriptions import describe
from tests.extender.machine.small_cluster import Json, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

RACK = "example.com/rack"
CONFIG = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK, cellNumber: 2}]}
"""
RACK_OF = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1"}


class SmallJobSetCluster(SmallGangCluster):
    """Pods of 4 GPUs, which fill a node: two Jobs of two pods each fill both racks."""

    def __init__(self) -> None:
        super().__init__(spec=load_text(CONFIG, "racks.yaml", environ={}).cluster)
        access = AccessRules(virtual_clusters={"a": VirtualClusterAccess((NamespaceEntry("ns"),))})
        rules = PodRules(access=access, topology_levels={RACK: "RACK"})
        self.service.machine.interpreter.configure(self.service.machine.terms._spec, rules)

    def job_pod(self, job: int, index: int, gpus: int = 4, minimum: int = 4, jobs: int = 2, **spec: Any) -> Json:
        """A pod as the Job controller and JobSet's webhook make it."""
        written = {
            TOPOLOGY: RACK,
            COMPLETION_INDEX: str(index),
            REPLICATED_JOB: "workers",
            REPLICAS: str(jobs),
            JOB_INDEX: str(job),
        }
        if index:
            leader = self.placed()[f"job-{job}-0"]  # or the webhook refuses it
            spec["nodeSelector"] = {RACK: RACK_OF[leader]}
        written |= koordinator("set", minimum) | spec.pop("more", {})
        return self.pod(f"job-{job}-{index}", gpus, written, **spec)

    def nodes_for(self, pod: Json) -> list[str]:
        """The nodes that kube-scheduler offers by the pod's nodeSelector."""
        rack = pod["spec"].get("nodeSelector", {}).get(RACK)
        return [node for node, its in RACK_OF.items() if rack in (None, its)]

    def filter(self, pod: Json, nodes: Any = None) -> Any:
        """With the nodes that kube-scheduler would offer."""
        return super().filter(pod, nodes or self.nodes_for(pod))


def test_leaders_start_when_all_are_there_and_the_whole_gang_has_room() -> None:
    small = SmallJobSetCluster()
    small.job_pod(0, 0)
    assert "1 of 4 pods created" in small.ask("job-0-0")
    small.job_pod(1, 0)
    placed = small.settle()
    assert {RACK_OF[node] for node in placed.values()} == {"r0", "r1"}
    assert set(small.groups()) == {"ns/job-0-0", "ns/job-1-0"}


def test_followers_start_together_beside_their_leaders() -> None:
    small = SmallJobSetCluster()
    for job in (0, 1):
        small.job_pod(job, 0)
    small.settle()
    small.job_pod(0, 1)
    assert "3 of 4 pods created" in small.ask("job-0-1")
    small.job_pod(1, 1)
    placed = small.settle()
    for job in (0, 1):
        assert RACK_OF[placed[f"job-{job}-1"]] == RACK_OF[placed[f"job-{job}-0"]]


def test_without_room_for_followers_no_leader_starts() -> None:
    small = SmallJobSetCluster()
    small.pod("other", 4)
    assert sorted(small.settle()) == ["other"]
    for job in (0, 1):
        small.job_pod(job, 0)
    assert sorted(small.settle()) == ["other"]
    assert set(small.groups()) == {"ns/other"}
    small.drop("other")
    assert sorted(small.settle()) == ["job-0-0", "job-1-0"]


def test_a_job_is_not_begun_where_its_rack_has_no_room_for_it() -> None:
    small = SmallJobSetCluster()
    small.pod("other", 4)
    small.settle()
    small.job_pod(0, 0, minimum=2, jobs=1)
    placed = small.settle()
    assert RACK_OF[placed["job-0-0"]] != RACK_OF[placed["other"]]


def test_minimums_of_tasks_count_in_both_steps() -> None:
    small = SmallJobSetCluster()
    tasks = {PREFIX + "task": "worker", PREFIX + "task-minimums": '{"worker": 4}'}
    for job in (0, 1):
        small.job_pod(job, 0, minimum=1, more=tasks)
    assert len(small.settle()) == 2
    small.job_pod(0, 1, minimum=1, more=tasks)
    assert "3 of 4 pods of task worker created" in small.ask("job-0-1")


def test_nobody_can_take_the_name_of_a_pod_to_come() -> None:
    small = SmallJobSetCluster()
    small.place("own", spec_text(group="podgroup/ns/set+0", leaf_cells=1))
    small.job_pod(0, 0, minimum=2, jobs=1)
    assert small.ask("job-0-0").startswith("n")
    assert "ns:podgroup/ns/set+0" in small.groups()


def test_a_restart_amid_leaders_finds_the_same() -> None:
    small = SmallJobSetCluster()
    for job in (0, 1):
        small.job_pod(job, 0)
    small.settle()
    small.job_pod(0, 1)
    again = small.restarted()
    assert "3 of 4 pods created" in again.ask("job-0-1")


def test_a_pod_that_is_replaced_later_starts_alone() -> None:
    small = SmallJobSetCluster()
    for index in (0, 1):
        for job in (0, 1):
            small.job_pod(job, index)
        small.settle()
    assert len(small.placed()) == 4
    for name in ("job-1-1", "job-0-0"):
        job, index = (int(part) for part in name.split("-")[1:])
        small.drop(name)
        small.job_pod(job, index, uid=f"uid-{name}-again")
        assert len(small.settle()) == 4


def test_missing_pods_of_a_job_that_has_no_leader_yet_hold_up_the_others() -> None:
    small = SmallJobSetCluster()
    for job in (0, 1):
        small.job_pod(job, 0, gpus=2, minimum=6, jobs=3)
    assert "2 of 6 pods created" in small.ask("job-0-0")
    small.job_pod(2, 0, gpus=2, minimum=6, jobs=3)
    assert len(small.settle()) == 3


def test_more_pods_than_any_cluster_has_nodes_are_not_thought_of() -> None:
    small = SmallJobSetCluster()
    small.job_pod(0, 0, minimum=2**17, jobs=1)
    assert "lacks 131071 pods that are created after their leaders, at most 16384" in small.ask("job-0-0")
    small.drop("job-0-0")
    small.job_pod(0, 0, minimum=2**14, jobs=1, uid="uid-again")
    never = "needs 16,384 nodes of 4 GPUs each at once in one RACK; it can never run: a has 4 in all"
    assert never in small.ask("job-0-0")


GANG = {labels_of_gangs.GROUP_NAME: "set", labels_of_gangs.MIN_AVAILABLE: "4"}
OF_JOB = {TOPOLOGY: RACK, COMPLETION_INDEX: "1", REPLICATED_JOB: "workers", REPLICAS: "2", JOB_INDEX: "0"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (OF_JOB, JobPart(RACK, "workers", "0", 2, is_leader=False)),
        (OF_JOB | {COMPLETION_INDEX: "0"}, JobPart(RACK, "workers", "0", 2, is_leader=True)),
        (OF_JOB | {BY_NODE_SELECTOR: "true"}, None),
        ({key: value for key, value in OF_JOB.items() if key != TOPOLOGY}, None),
        ({TOPOLOGY: RACK}, None),
    ],
)
def test_annotations_of_a_jobset_say(annotations: dict[str, str], expected: JobPart | None) -> None:
    said = describe(GANG, annotations)
    assert said is not None
    assert said.job_part == expected


def test_a_number_of_jobs_that_is_none_is_told() -> None:
    with pytest.raises(UserError, match="expected a whole number"):
        describe(GANG, OF_JOB | {REPLICAS: "many"})


def test_a_jobset_without_a_gang_is_not_looked_at() -> None:
    assert describe({}, OF_JOB) is None
