"""The asks of pods: virtual cluster, priority, leaf cells (rules 21)."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hived.values.errors import UserError
from hived.values.specs import SkuTypeSpec
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import load_text
from hived_config.rules import PodRules
from hived_config.selectors import Requirement
from hived_extender.jobs.amounts import Request, requested, skus_needed
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.asks import Ask, Resolver, vc_options
from hived_extender.jobs.kinds.description import Description, Within
from hived_extender.jobs.wire import Pod

CLUSTER = load_text(
    """\
physicalCluster:
  skuTypes:
    V100: {gpu: 1, cpu: 4, memory: 16Gi}
    A100: {gpu: 1, cpu: 8, memory: 64Gi}
    XEON: {cpu: 4, memory: 8Gi}
  cellTypes:
    V100-NODE: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}
    V100-RACK: {childCellType: V100-NODE, childCellNumber: 2}
    A100-NODE: {childCellType: A100, childCellNumber: 4, isNodeLevel: true}
    MI300-NODE: {childCellType: MI300, childCellNumber: 4, isNodeLevel: true}
    XEON-NODE: {childCellType: XEON, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: V100-RACK, cellChildren: [{cellAddress: v0}, {cellAddress: v1}]}
  - {cellType: A100-NODE, cellAddress: a0}
  - {cellType: A100-NODE, cellAddress: a1, pinnedCellId: mine}
  - {cellType: MI300-NODE, cellAddress: m0}
  - {cellType: XEON-NODE, cellAddress: x0}
virtualClusters:
  default: {virtualCells: [{cellType: V100-RACK.V100-NODE, cellNumber: 1}]}
  research:
    virtualCells: [{cellType: V100-RACK.V100-NODE, cellNumber: 1}, {cellType: A100-NODE, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: mine}]
  mixed: {virtualCells: [{cellType: MI300-NODE, cellNumber: 1}, {cellType: XEON-NODE, cellNumber: 1}]}
""",
    "f",
    environ={},
).cluster
RULES = PodRules(
    resources={"MI300": "amd.com/gpu"},
    node_labels={"V100": {"gpu-model": "v100"}, "A100": {"gpu-model": "a100"}},
    access=AccessRules(virtual_clusters={"research": VirtualClusterAccess((NamespaceEntry("labs"),))}),
    priority_classes={"urgent": 900, "spare": -1},
    topology_levels={"example.com/rack": "V100-RACK", "volcano-tier-2": "V100-RACK"},
)
ONE_NODE_TEXT = """\
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 1, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: a}]
virtualClusters: {one: {}}
"""
ONE_NODE = load_text(ONE_NODE_TEXT, "f", environ={}).cluster
TWO_VCS = load_text(ONE_NODE_TEXT.replace("one: {}", "one: {}, two: {}"), "f", environ={}).cluster
GPU = {"nvidia.com/gpu": 1}
TAKEN = {"device-requests": '{"resource": "nvidia.com/gpu", "total": 2, "containers": {"main": 2}}'}


def pod(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "team",
    **spec: Any,
) -> Pod:
    """A pod whose containers have these limits; a container with the key `resources` is taken as it is."""
    raw = {
        "metadata": {"namespace": namespace, "annotations": prefixed(annotations), "labels": prefixed(labels)},
        "spec": {"containers": [container(each) for each in containers], "initContainers": init} | spec,
    }
    return msgspec.convert(raw, Pod)


def container(limits: dict[str, Any]) -> dict[str, Any]:
    return limits if "resources" in limits else {"resources": {"limits": limits}}


def prefixed(values: dict[str, str] | None) -> dict[str, str] | None:
    return values and {PREFIX + key: value for key, value in values.items()}


def resolve(one: Pod, description: Description | None = None) -> Ask:
    return Resolver(CLUSTER, RULES).resolve(one, description)


def refusal(one: Pod, description: Description | None = None) -> str:
    with pytest.raises(UserError) as caught:
        resolve(one, description)
    return caught.value.message


def of_gang(**said: Any) -> Description:
    return Description("volcano", **said)


# ---- virtual cluster


@pytest.mark.parametrize(
    ("one", "queue", "expected"),
    [
        (pod(GPU), None, "default"),
        (pod(GPU, namespace="labs"), None, "research"),
        (pod(GPU), "research", "research"),
        (pod(GPU, namespace="labs"), "default", "default"),
        (pod(GPU, namespace="labs"), "unheard-of", "research"),
        (pod(GPU, namespace="labs", annotations={"virtual-cluster": "default"}), None, "default"),
        (pod(GPU, labels={"virtual-cluster": "default"}), "research", "default"),
        (pod(GPU, annotations={"virtual-cluster": "default"}, labels={"virtual-cluster": "default"}), None, "default"),
    ],
    ids=["default", "namespace", "queue", "queue above namespace", "queue of none", "annotation", "label", "agree"],
)
def test_the_nearest_word_about_the_virtual_cluster_counts(one: Pod, queue: str | None, expected: str) -> None:
    assert resolve(one, of_gang(queue=queue)).virtual_cluster == expected


def test_a_virtual_cluster_that_does_not_exist_is_refused() -> None:
    assert refusal(pod(GPU, annotations={"virtual-cluster": "x"})) == (
        "hivedscheduler.microsoft.com/virtual-cluster is 'x'; set it to a virtual cluster: default, mixed, research"
    )


def test_annotation_and_label_have_to_agree() -> None:
    said = refusal(pod(GPU, annotations={"virtual-cluster": "mixed"}, labels={"virtual-cluster": "research"}))
    assert said.endswith("is 'mixed' as an annotation and 'research' as a label; remove one of them")


def test_a_selector_takes_part_in_the_choice_of_the_virtual_cluster() -> None:
    red = NamespaceEntry(requirements=(Requirement("team", "In", ("red",)),))
    rules = PodRules(access=AccessRules(virtual_clusters={"research": VirtualClusterAccess((red,))}))
    labels = {"team": {"team": "red"}, "labs": {"team": "blue"}}
    resolver = Resolver(CLUSTER, rules, labels.__getitem__)
    assert resolver.resolve(pod(GPU), None).virtual_cluster == "research"
    assert resolver.resolve(pod(GPU, namespace="labs"), None).virtual_cluster == "default"


def test_a_namespace_that_may_use_nothing_has_no_virtual_cluster_called_default() -> None:
    rules = PodRules(access=AccessRules(access=Access.NAMESPACES))
    with pytest.raises(UserError) as caught:
        Resolver(CLUSTER, rules).resolve(pod(GPU), of_gang(queue="blue"))
    assert caught.value.message == (
        "its queue 'blue' names no virtual cluster: have the configuration list namespace team under "
        "virtualClusters.NAME.namespaces"
    )


@pytest.mark.parametrize("queue", ["", "blue"])
def test_the_only_virtual_cluster_is_the_default_where_everybody_may_use_it(queue: str) -> None:
    """Rule 21.3."""
    cells = "one: {virtualCells: [{cellType: NODE, cellNumber: 1}]}"
    cluster = load_text(ONE_NODE_TEXT.replace("one: {}", cells), "f", environ={}).cluster
    assert Resolver(cluster, PodRules()).resolve(pod(GPU), of_gang(queue=queue)).virtual_cluster == "one"
    with pytest.raises(UserError, match="it names no virtual cluster"):
        Resolver(ONE_NODE, PodRules(access=AccessRules(access=Access.NAMESPACES))).resolve(pod(GPU), None)


def test_a_pod_of_no_virtual_cluster_is_told_all_ways_to_name_one() -> None:
    with pytest.raises(UserError) as caught:
        Resolver(TWO_VCS, PodRules()).resolve(pod(GPU), of_gang(queue="blue"))
    assert caught.value.message == (
        "its queue 'blue' names no virtual cluster: add --vc one or --vc two to hived submit, or set the "
        "annotation hivedscheduler.microsoft.com/virtual-cluster; else have the configuration list namespace team "
        "under virtualClusters.NAME.namespaces"
    )


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (("research", "product"), "--vc product or --vc research"),
        ("fedcba", "--vc NAME, which is one of a, b, c, d, e, f,"),
        ((), "--vc NAME, which is one of (none is configured),"),
    ],
)
def test_the_option_that_names_a_virtual_cluster_is_spelt_out(known: Sequence[str], told: str) -> None:
    assert vc_options(known) == told


# ---- priority


@pytest.mark.parametrize(
    ("one", "gang_class", "expected"),
    [
        (pod(GPU), None, 0),
        (pod(GPU, priority=0), None, 0),
        (pod(GPU, priority=0, priorityClassName="normal"), None, 0),
        (pod(GPU, priority=-7, priorityClassName="idle"), None, -1),
        (pod(GPU, priority=5000, priorityClassName="urgent"), None, 900),
        (pod(GPU, priority=5000, priorityClassName="spare"), None, -1),
        (pod(GPU, priority=77, priorityClassName="hived-priority-77"), None, 77),
        (pod(GPU, priority=0), "urgent", 900),
        (pod(GPU, priority=1, priorityClassName="spare"), "urgent", -1),
        (pod(GPU, priority=5000, priorityClassName="other", annotations={"priority": "5"}), None, 5),
        (pod(GPU, annotations={"priority": "oppo"}), "urgent", -1),
    ],
    ids=["none", "zero", "class of 0", "negative", "table", "preemptible", "hived's", "gang's", "both", "own", "word"],
)
def test_the_nearest_word_about_the_priority_counts(one: Pod, gang_class: str | None, expected: int) -> None:
    assert resolve(one, of_gang(priority_class=gang_class)).priority == expected


@pytest.mark.parametrize(
    ("one", "gang_class", "expected"),
    [
        (pod(GPU, priority=5000, priorityClassName="other"), None, "PriorityClass 'other' (value 5000) has no HiveD"),
        (pod(GPU, priorityClassName="other"), None, "PriorityClass 'other' has no HiveD priority: add it to priority"),
        (pod(GPU, priority=0), "other", "PriorityClass 'other' has no HiveD priority: add it to priorityClasses"),
        (pod(GPU, annotations={"priority": "1001"}), None, "microsoft.com/priority: priority '1001': expected crit,"),
    ],
)
def test_a_priority_that_means_nothing_is_refused(one: Pod, gang_class: str | None, expected: str) -> None:
    assert expected in refusal(one, of_gang(priority_class=gang_class))


# ---- how many cells


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{"nvidia.com/gpu": "2"}], 2),
        ([GPU, GPU], 2),
        ([{"nvidia.com/gpu": 1, "cpu": "9"}], 3),
        ([{"nvidia.com/gpu": 1, "memory": "33Gi"}], 3),
        ([{"nvidia.com/gpu": 1, "cpu": "4", "memory": "16Gi"}], 1),
        ([{"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "40"}, "requests": {"cpu": "500m"}}}], 1),
        ([{"nvidia.com/gpu": 1, "cpu": "1e999999999"}], 2**29),
        ([{"resources": {"requests": {"cpu": "8"}}}], 0),
        ([{"nvidia.com/gpu": "0"}], 0),
        ([{"resources": None}], 0),
        ([], 0),
    ],
)
def test_cells_cover_devices_cpu_and_memory(containers: list[dict[str, Any]], expected: int) -> None:
    assert resolve(pod(*containers)).leaf_cell_count == expected


def test_cpus_are_divided_as_on_paper() -> None:
    cpus = requested(pod({"cpu": "100m"}, {"cpu": "200m"}), "cpu")
    assert cpus > 0.3
    assert skus_needed(Request(1, cpus, 0), SkuTypeSpec(1, 0.3)) == 1


def test_init_containers_count_as_kubernetes_counts_them() -> None:
    def init(count: int, policy: str | None = None) -> dict[str, Any]:
        return {"restartPolicy": policy} | container({"nvidia.com/gpu": count})

    assert requested(pod(GPU, init=[init(3)]), "nvidia.com/gpu") == 3
    assert requested(pod(GPU, GPU, init=[init(1)]), "nvidia.com/gpu") == 2
    assert requested(pod(GPU, init=[init(2, "Always")]), "nvidia.com/gpu") == 3
    assert requested(pod(GPU, init=[init(2, "Always"), init(3)]), "nvidia.com/gpu") == 5
    assert requested(pod(GPU, init=[init(3), init(2, "Always")]), "nvidia.com/gpu") == 3


@pytest.mark.parametrize(
    ("limits", "spec", "expected"),
    [
        ({"cpu": 2}, {"resources": {"requests": {"cpu": 60}}}, 60),
        ({}, {"resources": {"requests": {"cpu": 60}, "limits": {"cpu": 80}}}, 60),
        ({}, {"resources": {"limits": {"cpu": 60}}}, 60),
        ({"cpu": 2}, {"resources": {"limits": {"cpu": 60}}}, 2),
        ({"memory": "1Gi"}, {"resources": {"limits": {"cpu": 60}}}, 60),
        ({"cpu": 2}, {"overhead": {"cpu": "500m", "memory": "1Gi"}}, 2.5),
        ({"cpu": 2}, {"overhead": {"cpu": 1}, "resources": {"requests": {"cpu": 60}}}, 61),
    ],
)
def test_the_request_of_a_pod_as_a_whole_goes_before_its_containers(
    limits: dict[str, Any], spec: dict[str, Any], expected: float
) -> None:
    assert requested(pod(limits, **spec), "cpu") == expected


def test_a_pod_as_a_whole_asks_for_no_devices() -> None:
    one = pod(GPU, resources={"requests": {"nvidia.com/gpu": 4}, "limits": {"nvidia.com/gpu": 4}})
    assert requested(one, "nvidia.com/gpu") == 1


def test_cpus_of_the_pod_as_a_whole_take_as_many_cells_as_they_fill() -> None:
    assert resolve(pod(GPU, resources={"requests": {"cpu": 60}})).leaf_cell_count == 15


def test_what_the_webhook_took_away_counts_where_it_is_gone() -> None:
    assert resolve(pod({"cpu": 1}, annotations=TAKEN)).leaf_cell_count == 2
    assert resolve(pod(GPU, annotations=TAKEN)).leaf_cell_count == 1
    assert "device-requests is '{': " in refusal(pod({"cpu": 1}, annotations={"device-requests": "{"}))


def test_devices_in_an_annotation_that_is_nested_deeply_are_an_error_of_its_author() -> None:
    text = '{"resource": "nvidia.com/gpu", "total": 1, "other": ' + "[" * 20_000
    message = refusal(pod({"cpu": 1}, annotations={"device-requests": text}))
    assert "device-requests is '{" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(GPU, {"amd.com/gpu": 1}), "asks for amd.com/gpu and nvidia.com/gpu; keep only one: a pod has cells"),
        (
            pod({"example.com/gpu": 1}),
            "asks for example.com/gpu, which no leaf cell type means: set skuTypes.LEAF_CELL",
        ),
        (
            pod({"amd.com/gpu": 1}),
            "asks for amd.com/gpu, of which virtual cluster default has no cells; its leaf cell types are V100: set "
            "hivedscheduler.microsoft.com/virtual-cluster to one that has: mixed",
        ),
    ],
)
def test_devices_that_mean_no_cells_or_several_are_refused(one: Pod, expected: str) -> None:
    assert refusal(one).startswith(expected)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, "asks for nvidia.com/gpu, of which virtual cluster one has no cells"),
        ({"leaf-cell-type": "GPU"}, "is 'GPU'; virtual cluster one has no cells besides pinned ones: remove it"),
        ({"pinned-cell-id": "mine"}, "is 'mine'; virtual cluster one has no pinned cells: remove it"),
    ],
)
def test_a_virtual_cluster_without_cells_is_told_so(said: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        Resolver(ONE_NODE, PodRules()).resolve(pod(GPU, annotations={"virtual-cluster": "one"} | said), None)
    assert caught.value.message.endswith(expected)


def test_few_of_many_devices_are_named() -> None:
    many = pod(*({f"made-up-{number}/gpu": 1} for number in range(4000)))
    began = time.thread_time()
    message = refusal(many)
    assert time.thread_time() - began < 2.0
    assert message.startswith("asks for made-up-0/gpu and made-up-1/gpu and ")
    assert len(message) < 400


# ---- which cells

RESEARCH = {"virtual-cluster": "research"}


@pytest.mark.parametrize(
    ("one", "leaf_type"),
    [
        (pod(GPU), "V100"),
        (pod(GPU, annotations=RESEARCH), ""),
        (pod(GPU, annotations=RESEARCH | {"leaf-cell-type": "A100"}), "A100"),
        (pod(GPU, annotations=RESEARCH, nodeSelector={"gpu-model": "a100"}), "A100"),
        (pod(GPU, annotations=RESEARCH, nodeSelector={"gpu-model": "a100", "zone": "z"}), "A100"),
        (pod(GPU, annotations=RESEARCH, nodeSelector={"zone": "z"}), ""),
        (pod(GPU, annotations=RESEARCH, affinity={"nodeAffinity": {}}), ""),
        (pod(GPU, annotations=RESEARCH | {"leaf-cell-type": "V100"}, affinity={"podAffinity": {}}), "V100"),
        (pod({"amd.com/gpu": 1}, annotations={"virtual-cluster": "mixed"}), "MI300"),
        (pod({"amd.com/gpu": 1}, annotations={"priority": "-1"}), "MI300"),
        (pod(GPU, annotations={"priority": "-1"}), ""),
        (pod(GPU, annotations={"priority": "-1"}, nodeSelector={"gpu-model": "v100"}), "V100"),
        (pod(annotations=RESEARCH | TAKEN), ""),
    ],
)
def test_the_nearest_word_about_the_leaf_cell_type_counts(one: Pod, leaf_type: str) -> None:
    assert resolve(one).leaf_cell_type == leaf_type


def test_any_type_is_counted_by_the_smallest_that_may_come() -> None:
    nine_cpus = {"nvidia.com/gpu": 1, "cpu": "9"}
    assert resolve(pod(nine_cpus, annotations=RESEARCH)).leaf_cell_count == 3
    assert resolve(pod(nine_cpus, annotations=RESEARCH | {"leaf-cell-type": "A100"})).leaf_cell_count == 2


def test_a_pinned_cell_is_asked_for_by_its_id() -> None:
    ask = resolve(pod({"nvidia.com/gpu": 2}, annotations=RESEARCH | {"pinned-cell-id": "mine"}))
    assert (ask.pinned_cell_id, ask.leaf_cell_type, ask.leaf_cell_count) == ("mine", "", 2)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod(GPU, annotations={"leaf-cell-type": "A100"}), "set it to a type that virtual cluster default has: V100"),
        (
            pod(GPU, annotations={"leaf-cell-type": "B", "priority": "-1"}),
            "that the cluster has: A100, MI300, V100, XE",
        ),
        (
            pod(GPU, annotations={"virtual-cluster": "mixed", "leaf-cell-type": "MI300"}),
            "asks for nvidia.com/gpu, but hivedscheduler.microsoft.com/leaf-cell-type means MI300, which is amd",
        ),
        (
            pod({"amd.com/gpu": 1}, annotations=RESEARCH | {"pinned-cell-id": "mine"}),
            "asks for amd.com/gpu, but hivedscheduler.microsoft.com/pinned-cell-id means A100, which is nvidia.com/gpu",
        ),
        (pod(GPU, annotations=RESEARCH | {"pinned-cell-id": "x"}), "set it to one of virtual cluster research: mine"),
        (
            pod(GPU, annotations=RESEARCH | {"pinned-cell-id": "mine", "leaf-cell-type": "A100"}),
            "says which cell to use, so remove hivedscheduler.microsoft.com/leaf-cell-type",
        ),
        (
            pod(GPU, annotations=RESEARCH, nodeSelector={"gpu-model": "h100"}),
            "rules out every leaf cell type of nvidia.com/gpu: V100 has gpu-model=v100; A100 has gpu-model=a100",
        ),
        (
            pod(GPU, nodeSelector={"gpu-model": "a100"}),
            "rules out every leaf cell type of nvidia.com/gpu that virtual cluster default has: V100 has "
            "gpu-model=v100; it chooses A100, of which default has no cells: set "
            "hivedscheduler.microsoft.com/virtual-cluster to one that has: research",
        ),
        (
            pod({"amd.com/gpu": 1}, annotations=RESEARCH),
            "or hivedscheduler.microsoft.com/pinned-cell-id to one of its pinned cells: mine",
        ),
        (
            pod(annotations={"priority": "-1"} | TAKEN),
            "which several leaf cell types are: set the annotation hivedscheduler.microsoft.com/leaf-cell-type to one "
            "of A100, V100, or nodeSelector to labels of one",
        ),
    ],
)
def test_a_leaf_cell_type_that_cannot_be_or_is_not_clear_is_refused(one: Pod, expected: str) -> None:
    assert expected in refusal(one)


# ---- topology


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (None, ("", True)),
        (Within("V100-NODE", is_required=True), ("V100-NODE", True)),
        (Within("example.com/rack", is_required=True), ("V100-RACK", True)),
        (Within("volcano-tier-2", is_required=False), ("V100-RACK", False)),
        (Within("", is_required=False), ("", False)),
    ],
)
def test_a_topology_wish_names_a_cell_type_or_what_the_configuration_calls_it(
    within: Within | None, expected: tuple[str, bool]
) -> None:
    for containers in ([GPU], []):
        ask = resolve(pod(*containers), of_gang(within=within))
        assert (ask.within_cell, ask.within_is_required) == expected


@pytest.mark.parametrize("level", ["kubernetes.io/hostname", "example.com/row", "V100"])
def test_a_topology_wish_that_is_no_level_is_refused(level: str) -> None:
    assert refusal(pod(GPU), of_gang(within=Within(level, is_required=False))) == (
        f"its topology wish names {level!r}, which is no level: add it to topologyLevels in the configuration, as one "
        "of A100-NODE, MI300-NODE, V100-NODE, V100-RACK, XEON-NODE"
    )


def test_a_hosts_name_is_the_node_level_where_there_is_one_type_of_nodes() -> None:
    within = Within("kubernetes.io/hostname", is_required=True)
    assert (
        Resolver(ONE_NODE, PodRules())
        .resolve(pod(annotations={"virtual-cluster": "one"}), of_gang(within=within))
        .within_cell
        == "NODE"
    )
