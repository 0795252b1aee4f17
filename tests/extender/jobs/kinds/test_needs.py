"""The needs of jobs: cells of the gang, amounts, limits, and jobs that are not ours (rules 24.5, 24.7, 24.8, 24.13)."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived.values.specs import MemberSpec
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.loader import load_text
from hived_config.rules import PodRules
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds import marks, table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.table import KEYS
from hived_extender.jobs.misspelt import odd_words
from hived_extender.jobs.needs import Need, is_ours, need_of, other_pods
from tests.extender.jobs.kinds.documents import (
    ALL,
    BATCH,
    JOB_SET,
    PYTORCH,
    TRAIN,
    UID,
    VOLCANO,
    job_object,
    job_spec,
    owner,
    template,
)

PREFIX = "hivedscheduler.microsoft.com/"
CLUSTER = load_text(
    """\
physicalCluster:
  skuTypes:
    V100: {gpu: 1, cpu: 4, memory: 16Gi}
    A100: {gpu: 1, cpu: 4, memory: 16Gi}
  cellTypes:
    V100-NODE: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: V100-NODE, childCellNumber: 4}
    A100-NODE: {childCellType: A100, childCellNumber: 8, isNodeLevel: true}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: v0}, {cellAddress: v1}, {cellAddress: v2}, {cellAddress: v3}]}
  - {cellType: A100-NODE, cellAddress: a0}
virtualClusters:
  research: {virtualCells: [{cellType: RACK.V100-NODE, cellNumber: 3}]}
  default: {virtualCells: [{cellType: RACK.V100-NODE, cellNumber: 1}]}
  other: {virtualCells: [{cellType: A100-NODE, cellNumber: 1}]}
""",
    "f",
    environ={},
).cluster
RULES = PodRules(priority_classes={"urgent": 900}, topology_levels={"example.com/rack": "RACK"})
INTERPRETER = Interpreter(CLUSTER, RULES, NoObjects())


def need(document: tuple[str, str, Any], interpreter: Interpreter = INTERPRETER, **metadata: Any) -> Need | None:
    """The need of an object."""
    return need_of(table.read(job_object(*document, **metadata)), interpreter)


def needed(document: tuple[str, str, Any], **metadata: Any) -> Need:
    """The same where there is one."""
    found = need(document, **metadata)
    assert found is not None
    return found


def batch(parallelism: int = 4, gpus: int = 1, **pod_metadata: Any) -> tuple[str, str, Any]:
    """A Job whose pods have these labels and annotations."""
    return ("batch/v1", "Job", job_spec(parallelism, template=template(gpus, **pod_metadata)))


def test_the_whole_job_is_one_gang_that_has_the_jobs_key_for_a_name() -> None:
    spec = needed(BATCH).spec
    assert (spec.virtual_cluster, spec.priority, spec.leaf_cell_count) == ("default", 0, 1)
    assert spec.group.name == f"Job/team/train/{UID}"
    assert spec.group.members == (MemberSpec(4, 1),)


def test_roles_of_one_size_are_one_member_and_those_without_devices_none() -> None:
    assert needed(PYTORCH).spec.group.members == (MemberSpec(4, 8),)
    assert needed(JOB_SET).spec.group.members == (MemberSpec(8, 1),)


def test_it_is_known_that_a_job_has_pods_without_devices_too() -> None:
    assert (needed(JOB_SET).has_others, needed(PYTORCH).has_others) == (True, False)


@pytest.mark.parametrize(
    ("name", "count"),
    [("jobset", 1), ("pytorch", 0), ("mpi-v1", 1), ("volcano", 2), ("rayjob", 2), ("raycluster", 1)],
)
def test_pods_without_devices_are_counted_beside_those_that_have_some(name: str, count: int) -> None:
    assert other_pods(table.read(job_object(*ALL[name])), INTERPRETER) == count


def test_members_are_ascending_by_size_and_the_request_is_that_of_the_largest() -> None:
    replicas = {"PS": {"replicas": 2, "template": template(4)}, "Worker": {"replicas": 3, "template": template(2)}}
    spec = needed(("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": replicas})).spec
    assert (spec.leaf_cell_count, spec.group.members) == (4, (MemberSpec(3, 2), MemberSpec(2, 4)))


def test_queue_and_class_of_the_object_count_where_its_pods_say_none() -> None:
    spec = needed(PYTORCH).spec
    assert (spec.virtual_cluster, spec.priority) == ("research", 900)


def test_a_pods_own_words_come_before_those_of_the_object() -> None:
    said = {f"{PREFIX}virtual-cluster": "default", f"{PREFIX}priority": "5"}
    replicas = {"Worker": {"replicas": 2, "template": template(1, annotations=said)}}
    spec = needed(("kubeflow.org/v1", "PyTorchJob", PYTORCH[2] | {"pytorchReplicaSpecs": replicas})).spec
    assert (spec.virtual_cluster, spec.priority) == ("default", 5)


def test_a_job_of_volcano_has_its_scheduler_for_tasks_that_name_none() -> None:
    assert needed(VOLCANO).spec.group.members == (MemberSpec(3, 2),)
    version, kind, spec = VOLCANO
    assert need((version, kind, {**spec, "schedulerName": "volcano"})) is None


def test_the_scheduling_spec_of_a_template_is_read_as_it_is() -> None:
    text = '{"virtualCluster": "other", "priority": 3, "leafCellType": "A100", "leafCellNumber": 2}'
    made = template(0, annotations={f"{PREFIX}pod-scheduling-spec": text})
    made["spec"]["containers"][0]["resources"]["limits"] = {f"{PREFIX}pod-scheduling-enable": 1}
    found = needed(("batch/v1", "Job", job_spec(3, template=made)))
    spec = found.spec
    assert f"{PREFIX}pod-scheduling-enable" not in found.request
    assert (spec.virtual_cluster, spec.priority, spec.leaf_cell_type) == ("other", 3, "A100")
    assert spec.group.members == (MemberSpec(3, 2),)


def test_a_topology_wish_is_one_of_the_whole_gang() -> None:
    spec = needed(batch(annotations={"kueue.x-k8s.io/podset-required-topology": "example.com/rack"})).spec
    assert (spec.within_cell, spec.within_is_required) == ("RACK", True)


def test_amounts_are_those_of_all_pods_also_of_those_without_devices() -> None:
    assert needed(JOB_SET).request == {"cpu": 36.0, "memory": 9 * 16 * 2.0**30, "nvidia.com/gpu": 8.0}


def test_devices_that_the_webhook_took_out_of_pods_count_as_if_they_were_there() -> None:
    taken = {f"{PREFIX}device-requests": '{"resource": "nvidia.com/gpu", "total": 2, "containers": {"main": 2}}'}
    found, plain = needed(batch(gpus=0, annotations=taken)), needed(batch(gpus=2))
    assert (found.spec, found.request) == (plain.spec, plain.request)


def test_the_least_declared_limit_counts() -> None:
    spec = job_spec(2, activeDeadlineSeconds=7200)
    assert needed(("batch/v1", "Job", spec)).limit_s == 7200.0
    assert needed(("batch/v1", "Job", spec), annotations={f"{PREFIX}expected-duration": "1h"}).limit_s == 3600.0
    assert needed(batch(annotations={f"{PREFIX}expected-duration": "30m"})).limit_s == 1800.0
    assert needed(BATCH).limit_s is None


def test_a_limit_that_only_some_roles_declare_is_none() -> None:
    limited = template(1, annotations={f"{PREFIX}expected-duration": "30m"})
    replicas = {"Master": {"template": limited}, "Worker": {"template": template(1)}}
    assert needed(("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})).limit_s is None


@pytest.mark.parametrize(
    ("metadata", "user"),
    [
        ({}, "team"),
        ({"annotations": {marks.USER: "ada"}, "labels": {"userName": "bob"}}, "ada"),
        ({"labels": {marks.USER: "ada"}}, "ada"),
        ({"labels": {"userName": "bob"}}, "bob"),
    ],
)
def test_the_owner_is_who_the_object_says_or_its_namespace(metadata: Any, user: str) -> None:
    assert needed(BATCH, **metadata).user == user


def test_a_job_is_preemptible_unless_its_label_says_no() -> None:
    assert needed(BATCH).is_preemptible
    assert not needed(BATCH, labels={"quota.scheduling.koordinator.sh/preemptible": "false"}).is_preemptible


NOT_OURS: list[tuple[tuple[str, str, Any], dict[str, Any]]] = [
    (batch(gpus=0), {}),
    (("batch/v1", "Job", job_spec(4, template=template(1, "default-scheduler"))), {}),
    (BATCH, {"annotations": {f"{PREFIX}queue": "off"}}),
    (BATCH, {"labels": {"kueue.x-k8s.io/queue-name": "user-queue"}}),
    (BATCH, {"ownerReferences": [owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set")]}),
    (("batch/v1", "Job", job_spec(0)), {}),
]


@pytest.mark.parametrize(("document", "metadata"), NOT_OURS)
def test_a_job_that_is_not_for_us_to_queue_has_no_need(document: Any, metadata: dict[str, Any]) -> None:
    assert need(document, **metadata) is None
    assert not is_ours(table.read(job_object(*document, **metadata)), INTERPRETER)


@pytest.mark.parametrize("name", ALL)
def test_every_kind_with_devices_is_for_us_to_queue(name: str) -> None:
    assert is_ours(table.read(job_object(*ALL[name])), INTERPRETER)


def test_a_train_job_waits_for_its_job_set_and_has_its_needs() -> None:
    document = job_object(*TRAIN)
    with pytest.raises(UserError, match="TrainJob/team/train: its JobSet train, which has its pods, is not there yet"):
        need_of(table.read(document), INTERPRETER)
    found = need_of(table.read(document, job_object(*JOB_SET)), INTERPRETER)
    assert found is not None
    assert found.spec.group.members == (MemberSpec(8, 1),)


def test_roles_that_disagree_are_named() -> None:
    other = template(1, annotations={f"{PREFIX}priority": "7"})
    replicas = {"Master": {"template": template(1)}, "Worker": {"template": other}}
    with pytest.raises(
        UserError, match="PyTorchJob/team/train: the priority of role master is 0, that of role worker 7"
    ):
        need(("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas}))


def test_a_mistake_in_the_only_template_names_the_job() -> None:
    said = {f"{PREFIX}virtual-cluster": "nowhere"}
    with pytest.raises(UserError, match=r"Job/team/train: hived.*virtual-cluster is 'nowhere'"):
        need(batch(annotations=said))


def test_a_namespace_that_may_not_use_the_virtual_cluster_is_refused() -> None:
    access = AccessRules(
        Access.NAMESPACES, virtual_clusters={"research": VirtualClusterAccess((NamespaceEntry("labs"),))}
    )
    rules = PodRules(access=access)
    said = {f"{PREFIX}virtual-cluster": "research"}
    with pytest.raises(UserError, match="Job/team/train: "):
        need(batch(annotations=said), Interpreter(CLUSTER, rules, NoObjects()))


def test_a_template_that_is_none_is_refused() -> None:
    made = template(1)
    made["spec"]["containers"] = [{"name": 5}]
    with pytest.raises(UserError, match="Job/team/train: its template: "):
        need(("batch/v1", "Job", job_spec(1, template=made)))


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def exclusive(jobs: int, topology: str = "example.com/rack", **more: Any) -> tuple[str, str, Any]:
    """A JobSet of so many Jobs of two pods, each with a domain for itself."""
    version, kind, _ = JOB_SET
    own = {"metadata": {"annotations": {EXCLUSIVE: topology} | more}, "spec": job_spec(2)}
    return version, kind, {"replicatedJobs": [{"name": "workers", "replicas": jobs, "template": own}]}


def test_a_single_job_with_a_domain_for_itself_asks_for_one_cell_of_that_level() -> None:
    spec = needed(exclusive(1)).spec
    assert (spec.within_cell, spec.within_is_required) == ("RACK", True)
    plain = exclusive(1, **{"alpha.jobset.sigs.k8s.io/node-selector": "true"})
    assert needed(plain).spec.within_cell == ""


def test_the_annotation_of_the_whole_set_counts_for_all_its_jobs() -> None:
    version, kind, spec = exclusive(1)
    del spec["replicatedJobs"][0]["template"]["metadata"]
    assert needed((version, kind, spec), annotations={EXCLUSIVE: "example.com/rack"}).spec.within_cell == "RACK"


def test_domains_for_several_jobs_cannot_be_held() -> None:
    with pytest.raises(UserError, match=r"its 2 Jobs ask for a domain by example\.com/rack each.*\"off\""):
        need(exclusive(2))
    version, kind, spec = exclusive(1)
    one = spec["replicatedJobs"][0]
    with pytest.raises(UserError, match="its 2 Jobs"):
        need((version, kind, {"replicatedJobs": [one, {**one, "name": "others"}]}))


def test_a_domain_has_to_be_a_level_of_cells() -> None:
    with pytest.raises(UserError, match=r"by example\.com/block, which is no cell type: name it in topologyLevels"):
        need(exclusive(1, "example.com/block"))


SLICES = {"kueue.x-k8s.io/podset-slice-required-topology": "example.com/rack"}


def test_a_template_that_requires_what_nobody_understands_is_refused_by_its_key() -> None:
    with pytest.raises(UserError, match=r"annotation kueue\.x-k8s\.io/podset-slice-required-topology is "):
        need(batch(annotations=SLICES))


def test_so_is_one_without_devices_beside_roles_that_have_some() -> None:
    replicas = {
        "Master": {"replicas": 1, "template": template(0, annotations=SLICES)},
        "Worker": {"replicas": 3, "template": template(2)},
    }
    with pytest.raises(
        UserError,
        match=r"PyTorchJob/team/train: role master: annotation kueue\.x-k8s\.io/podset-slice-required-topology is ",
    ):
        need(("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas}))


def test_one_that_is_not_for_us_is_nobodys_matter() -> None:
    replicas = {
        "Master": {"replicas": 1, "template": template(0, "default-scheduler", annotations=SLICES)},
        "Worker": {"replicas": 3, "template": template(2)},
    }
    assert need(("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})) is not None


# ---- marks of job objects: which words are taken for misspelt ones


OTHERS = (
    "pod-group.scheduling.sigs.k8s.io", "gang.scheduling.koordinator.sh/network-topology-spec",
    "scheduling.volcano.sh/queue-names", "kueue.x-k8s.io/priority-class", "volcano.sh/job-name",
    "scheduling.koordinator.sh/priority", "koordinator.sh/qosClass", "kai.scheduler/queue-name",
    "yunikorn.apache.org/app-id", "yunikorn.apache.org/queue", "batch.kubernetes.io/job-name",
    "pod-group.scheduling.sigs.k8s.io/annotations", "scheduling.k8s.io/group-names",
)  # fmt: skip
"""Words that other schedulers and controllers write, beside those of dialects."""


@pytest.mark.parametrize("word", [*sorted(KEYS), *OTHERS])
def test_a_word_of_another_scheduler_is_not_taken_for_a_misspelt_one_of_ours(word: str) -> None:
    assert odd_words({word: "1"}, {}, ()) == []
    assert odd_words({}, {word: "1"}, ()) == []


@pytest.mark.parametrize("said", ["no", "0", ""])
def test_a_label_that_is_neither_true_nor_false_is_told(said: str) -> None:
    key = "quota.scheduling.koordinator.sh/preemptible"
    assert odd_words({key: said}, {}, ()) == [f'{key} is {said!r}, and counts as "true": expected "true" or "false"']
    assert odd_words({key: "False"}, {}, ()) == odd_words({key: "true"}, {}, ()) == []


def test_a_prefix_that_is_nearly_ours_still_is_a_mistake() -> None:
    (said,) = odd_words({"quota.scheduling.koordinators.sh/name": "a"}, {}, ())
    assert said.endswith("did you mean quota.scheduling.koordinator.sh/name?")
