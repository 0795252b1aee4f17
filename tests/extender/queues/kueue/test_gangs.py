"""The cells that Workloads need, and the words that their pods have to get."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived.values.specs import MemberSpec
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import load_text
from hived_config.rules import PodRules
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.marks import HOLD
from hived_extender.queues.kueue.gangs import MOST_PODS, Gang, NoCells, gang_of
from hived_extender.queues.kueue.workloads import workload_of
from tests.extender.queues.kueue.workload_objects import assigned_topology, pod_set, template, workload

CLUSTER = load_text(
    """\
physicalCluster:
  skuTypes: {A100: {gpu: 1, cpu: 8, memory: 64Gi}, V100: {gpu: 1, cpu: 4, memory: 16Gi}}
  cellTypes:
    A100-NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}
    A100-RACK: {childCellType: A100-NODE, childCellNumber: 2}
    V100-NODE: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: A100-RACK, cellChildren: [{cellAddress: a0}, {cellAddress: a1}]}
  - {cellType: V100-NODE, cellAddress: v0}
virtualClusters:
  default: {virtualCells: [{cellType: A100-RACK.A100-NODE, cellNumber: 1}, {cellType: V100-NODE, cellNumber: 1}]}
  research: {virtualCells: [{cellType: A100-RACK.A100-NODE, cellNumber: 1}]}
""",
    "f",
    environ={},
).cluster
LABELS = {"A100": {"gpu.model": "a100"}, "V100": {"gpu.model": "v100"}}
FLAVORS = {"a100": {"gpu.model": "a100"}, "v100": {"gpu.model": "v100"}}
HIVED = ("hived",)


def interpreter(**rules: Any) -> Interpreter:
    found = PodRules(node_labels=LABELS, scheduler_names=HIVED, **rules)
    return Interpreter(CLUSTER, found, NoObjects())


def read(item: dict[str, Any], **rules: Any) -> Gang | NoCells:
    return gang_of(workload_of(item), interpreter(**rules), lambda name: FLAVORS.get(name, {}))


def gang(item: dict[str, Any], **rules: Any) -> Gang:
    found = read(item, **rules)
    assert isinstance(found, Gang)
    return found


def in_queue(item: dict[str, Any], cluster_queue: str, flavor: str = "a100") -> dict[str, Any]:
    item["status"]["admission"]["clusterQueue"] = cluster_queue
    for each in item["status"]["admission"]["podSetAssignments"]:
        each["flavors"] = {"nvidia.com/gpu": flavor}
    return item


def words_of(found: Gang) -> dict[str, str]:
    """The words of ours that the pods of the first pod set get, but for the key of the hold."""
    words = dict(found.updates[0]["annotations"])
    del words[HOLD]
    return words


def test_pod_sets_with_devices_are_one_gang() -> None:
    found = gang(workload("job-train", pod_set("master", 1, template(1)), pod_set("worker", 3, template(4))))
    assert found.spec.group.members == (MemberSpec(1, 1), MemberSpec(3, 4))
    assert found.spec.group.name == "Workload/ns/job-train/uid-job-train"
    assert found.words == "1 pod x 1 A100 and 3 pods x 4 A100 in virtual cluster research at priority 0"


def test_equal_sizes_are_counted_together() -> None:
    found = gang(workload("job-train", pod_set("chief", 1), pod_set("worker", 2)))
    assert found.spec.group.members == (MemberSpec(3, 4),)
    assert len(found.pods) == 3


def test_pods_without_devices_take_no_slot() -> None:
    found = gang(workload("job-train", pod_set("launcher", 1, template(0)), pod_set("worker", 2)))
    assert found.spec.group.members == (MemberSpec(2, 4),)
    assert [each["name"] for each in found.updates] == ["worker"]


@pytest.mark.parametrize(
    "pod_sets",
    [[pod_set(made_of=template(0))], [pod_set(made_of=template(scheduler="default-scheduler"))], [pod_set(count=0)]],
)
def test_nothing_is_held_for_pods_that_are_not_for_hived(pod_sets: list[dict[str, Any]]) -> None:
    assert isinstance(read(workload("job-train", *pod_sets)), NoCells)


def test_the_flavor_chooses_the_leaf_cell_type() -> None:
    found = gang(in_queue(workload(), "default", "v100"))
    assert found.spec.leaf_cell_type == "V100"


def selectors(found: Gang) -> list[dict[str, str]]:
    """The labels of nodes that each pod wants, in slot order."""
    return [dict((pod.spec and pod.spec.node_selector) or {}) for pod in found.pods]


def test_nodes_that_kueue_has_chosen_are_those_of_the_pods() -> None:
    item = workload()
    assigned_topology(item, [("kubernetes.io/hostname", ["a1", "a0"])], [1, 1])
    model = {"gpu.model": "a100"}
    assert selectors(gang(item)) == [model | {"kubernetes.io/hostname": name} for name in ("a1", "a0")]


def test_slices_are_refused_unless_kueue_has_chosen_the_nodes() -> None:
    sliced = template(4)
    sliced["metadata"]["annotations"] |= {
        "kueue.x-k8s.io/podset-slice-required-topology": "rack",
        "kueue.x-k8s.io/podset-slice-size": "1",
    }
    item = workload("job-train", pod_set("worker", 2, sliced))
    with pytest.raises(UserError, match=r"pod set worker: annotation kueue\.x-k8s\.io/podset-slice-required-topology"):
        read(item)
    assigned_topology(item, [("rack", ["r1", "r2"])], [1, 1])
    assert [each["rack"] for each in selectors(gang(item))] == ["r1", "r2"]


def test_slots_have_the_pods_of_their_size() -> None:
    big, small = template(4, node_selector={"is": "big"}), template(1, node_selector={"is": "small"})
    found = gang(workload("job-train", pod_set("worker", 2, big), pod_set("master", 1, small)))
    assert [each["is"] for each in selectors(found)] == ["small", "big", "big"]


def test_a_topology_request_is_a_wish_of_the_gang() -> None:
    made_of = template()
    made_of["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = "rack"
    found = gang(workload("job-train", pod_set(made_of=made_of)), topology_levels={"rack": "A100-RACK"})
    assert (found.spec.within_cell, found.spec.within_is_required) == ("A100-RACK", True)


@pytest.mark.parametrize(
    ("annotations", "cluster_queue", "vc", "words"),
    [
        ({}, "research", "research", {PREFIX + "virtual-cluster": "research"}),
        ({}, "elsewhere", "default", {}),
        ({"virtual_cluster": "default"}, "research", "default", {}),
    ],
)
def test_the_virtual_cluster_is_the_pods_own_then_that_of_the_cluster_queue(
    annotations: dict[str, Any], cluster_queue: str, vc: str, words: dict[str, str]
) -> None:
    found = gang(in_queue(workload("job-train", pod_set(made_of=template(**annotations))), cluster_queue))
    assert (found.spec.virtual_cluster, words_of(found)) == (vc, words)


def test_the_local_queue_may_name_the_virtual_cluster() -> None:
    found = gang(in_queue(workload(queueName="research"), "elsewhere"))
    assert found.spec.virtual_cluster == "research"


@pytest.mark.parametrize(
    ("spec", "annotations", "priority", "words"),
    [
        ({}, {}, 0, {}),
        ({"priority": 5, "priorityClassName": "urgent"}, {}, 900, {PREFIX + "priority": "900"}),
        ({"priority": 5, "priorityClassName": "unknown"}, {}, 0, {}),
        ({"priority": 5, "priorityClassName": "urgent"}, {"priority": "3"}, 3, {}),
    ],
)
def test_a_workload_priority_class_counts_if_the_configuration_has_it(
    spec: dict[str, Any], annotations: dict[str, Any], priority: int, words: dict[str, str]
) -> None:
    made_of = template(virtual_cluster="research", **annotations)
    said = {**spec, "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"} if spec else {}
    found = gang(workload("job-train", pod_set(made_of=made_of), **said), priority_classes={"urgent": 900})
    assert (found.spec.priority, words_of(found)) == (priority, words)


def test_the_pods_get_the_key_of_their_cells() -> None:
    found = gang(workload())
    assert found.updates[0]["annotations"][HOLD] == found.spec.group.name


def test_a_key_that_the_template_has_is_not_written_again() -> None:
    made_of = template()
    made_of["metadata"]["annotations"][HOLD] = "mine"
    assert HOLD not in gang(workload("job-train", pod_set(made_of=made_of))).updates[0]["annotations"]


def test_an_annotation_in_our_own_words_counts() -> None:
    spec = '{"virtualCluster": "research", "priority": 2, "leafCellType": "A100", "leafCellNumber": 4}'
    found = gang(workload("job-train", pod_set(made_of=template(pod_scheduling_spec=spec))))
    assert (found.spec.priority, found.spec.group.members) == (2, (MemberSpec(2, 4),))


def test_pod_sets_that_disagree_are_no_gang() -> None:
    sets = pod_set("a", 1, template(priority="1")), pod_set("b", 1, template(priority="2"))
    with pytest.raises(
        UserError, match="its pod sets disagree: the priority of a is 1, of b 2; cells are held for one"
    ):
        read(workload("job-train", *sets))


def test_a_mistake_names_its_pod_set() -> None:
    with pytest.raises(UserError, match=r"pod set worker: .*virtual-cluster is 'nobody'; set it to a virtual cluster"):
        read(workload("job-train", pod_set("worker", 1, template(virtual_cluster="nobody"))))


def test_a_namespace_needs_access() -> None:
    only = {"research": VirtualClusterAccess((NamespaceEntry("labs"),)), "default": VirtualClusterAccess(())}
    access = AccessRules(Access.NAMESPACES, virtual_clusters=only)
    with pytest.raises(UserError, match="pod set main: "):
        read(workload(), access=access)
    assert isinstance(read(workload(namespace="labs"), access=access), Gang)


def test_a_workload_has_so_many_pods_at_the_most() -> None:
    with pytest.raises(UserError, match=f"more than {MOST_PODS} pods"):
        read(workload("job-train", pod_set(count=MOST_PODS + 1)))
