"""Job objects are created held where jobs wait in queues, if they are ours (rule 24.9)."""

import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from hived_config.rules import PodRules, Queueing
from hived_extender.jobs.admission import Admission, Answered, review
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import gates, marks, table
from tests.extender.jobs.kinds.api import Json, patched
from tests.extender.jobs.kinds.documents import ALL, BATCH, RAY_JOB, job_spec, owner, template
from tests.extender.jobs.kinds.test_needs import CLUSTER, RULES

QUEUES = replace(RULES, queueing=Queueing(is_enabled=True))


def new(version: str, kind: str, spec: Any, **metadata: Any) -> Json:
    """An object as its author sends it."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "train"} | metadata, "spec": spec}


def admitted(document: Json, rules: PodRules = QUEUES) -> Answered:
    """The answer of a cluster with queues."""
    return Admission(CLUSTER, rules).admit_job(document, "team")


@pytest.mark.parametrize("name", ALL)
def test_a_job_of_every_kind_is_born_held(name: str) -> None:
    document = new(*ALL[name])
    found = admitted(document)
    assert (found.warnings, found.refusal) == ((), "")
    assert table.read(patched(document, list(found.patch))).state is JobState.HELD


@pytest.mark.parametrize("name", ALL)
def test_without_queues_a_job_stays_as_it_is(name: str) -> None:
    assert admitted(new(*ALL[name]), RULES) == Answered()


@pytest.mark.parametrize(
    "document",
    [
        new("batch/v1", "Job", job_spec(4, gpus=0)),
        new("batch/v1", "Job", job_spec(4, template=template(1, "default-scheduler"))),
        new("batch/v1", "Job", job_spec(4, suspend=True)),
        new(*BATCH, annotations={marks.QUEUE: "off"}),
        new(*BATCH, labels={marks.KUEUE_QUEUE: "theirs"}),
        new(*BATCH, ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set")]),
        new("batch/v1", "CronJob", {"jobTemplate": {"spec": job_spec()}}),
    ],
    ids=["no devices", "another scheduler", "suspended", "off", "of Kueue", "of a JobSet", "another kind"],
)
def test_a_job_that_is_not_ours_to_queue_stays_as_it_is(document: Json) -> None:
    assert admitted(document) == Answered()


def test_a_job_that_could_not_be_suspended_is_refused() -> None:
    version, kind, spec = RAY_JOB
    found = admitted(new(version, kind, spec | {"shutdownAfterJobFinishes": False}))
    assert found.patch == ()
    assert "set spec.shutdownAfterJobFinishes to true" in found.refusal


def test_a_job_that_is_no_unit_is_held_and_its_author_hears_why() -> None:
    said = {"hivedscheduler.microsoft.com/virtual-cluster": "nowhere"}
    found = admitted(new("batch/v1", "Job", job_spec(4, template=template(1, annotations=said))))
    assert found.patch
    assert found.warnings[0].startswith(
        "it waits until this is put right: Job/team/train: hivedscheduler.microsoft.com/virtual-cluster is "
    )


@pytest.mark.parametrize("suspend", [True, False])
def test_annotations_of_pods_on_the_job_object_are_warned_of(suspend: bool) -> None:
    said = {"hivedscheduler.microsoft.com/priority": "100"}
    counts = admitted(new("batch/v1", "Job", job_spec(4, template=template(1, annotations=said)), annotations=said))
    assert counts.warnings == ()
    found = admitted(new("batch/v1", "Job", job_spec(4, suspend=suspend), annotations=said))
    assert bool(found.patch) is not suspend
    assert found.warnings == (
        "it is annotated hivedscheduler.microsoft.com/priority, which counts on its pods alone: move it to their "
        "template",
    )


def test_a_job_whose_virtual_cluster_stands_on_the_object_is_told_where_it_counts() -> None:
    said = {"hivedscheduler.microsoft.com/virtual-cluster": "a"}
    found = admitted(new("batch/v1", "Job", job_spec(4, template=template(1, annotations={})), annotations=said))
    assert "move it to their template" in found.warnings[0]


@pytest.mark.parametrize(
    ("word", "value", "warning"),
    [
        (f"{PREFIX}queu", "off", f"did you mean {PREFIX}queue?"),
        (f"{PREFIX}usr", "me", f"did you mean {PREFIX}user?"),
        (f"{PREFIX}virtual-clustr", "a", f"did you mean {PREFIX}virtual-cluster?"),
        ("hived-scheduler.microsoft.com/queue", "off", f"did you mean {PREFIX}queue?"),
        ("kube-queue/suspend", "true", "did you mean scheduling.x-k8s.io/suspend?"),
        ("quota.scheduling.alibabacloud.com/names", "a", "did you mean quota.scheduling.alibabacloud.com/name?"),
        (f"{PREFIX}queue", "root/a", "the label quota.scheduling.alibabacloud.com/name names a quota"),
    ],
)  # fmt: skip
def test_a_word_of_queues_that_means_nothing_is_told_with_the_nearest_one(word: str, value: str, warning: str) -> None:
    found = admitted(new("batch/v1", "Job", job_spec(4), annotations={word: value}))
    assert found.patch
    assert len(found.warnings) == 1
    assert warning in found.warnings[0]


@pytest.mark.parametrize(
    "word",
    [
        f"{PREFIX}user", f"{PREFIX}queue-state", f"{PREFIX}expected-duration", f"{PREFIX}may-move", "userName",
        "scheduling.x-k8s.io/pod-group",
        "quota.scheduling.koordinator.sh/preemptible", "kueue.x-k8s.io/priority-class", "example.com/queue",
    ],
)  # fmt: skip
def test_words_of_ours_and_of_others_get_no_warning(word: str) -> None:
    assert admitted(new("batch/v1", "Job", job_spec(4), annotations={word: "7"})).warnings == ()


def test_an_object_that_cannot_be_read_passes_with_a_warning() -> None:
    found = admitted(new("batch/v1", "Job", {"parallelism": "four"}))
    assert found.patch == ()
    assert found.warnings == (
        "it waits in no queue: Job team/train: spec.parallelism is 'four': expected a whole number from 0 to "
        "2147483647",
    )


@pytest.mark.parametrize("name", ALL)
def test_a_job_of_every_kind_that_names_no_user_has_the_name_of_its_creator(name: str) -> None:
    """Rule 24.20."""
    document = new(*ALL[name], annotations={"a/b": "c"})
    found = Admission(CLUSTER, QUEUES).admit_job(document, "team", creator="ann")
    after = patched(document, list(found.patch))
    assert table.read(after).state is JobState.HELD
    assert (after["metadata"]["annotations"]["a/b"], after["metadata"]["annotations"][marks.USER]) == ("c", "ann")
    assert Admission(CLUSTER, QUEUES).admit_job(after, "team", creator="eve").patch == ()


@pytest.mark.parametrize(
    ("metadata", "creator"),
    [
        ({"annotations": {marks.USER: "bob"}}, "ann"),
        ({"labels": {"userName": "bob"}}, "ann"),
        ({"ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u"}]}, "ann"),
        ({}, "system:serviceaccount:team:ci"),
        ({}, ""),
    ],
)
def test_a_job_that_names_a_user_or_was_made_by_no_person_keeps_its_words(metadata: Json, creator: str) -> None:
    document = new(*BATCH, **metadata)
    found = Admission(CLUSTER, QUEUES).admit_job(document, "team", creator=creator)
    assert found.patch == admitted(document).patch


def test_another_configuration_counts_from_then_on() -> None:
    admission = Admission(CLUSTER, RULES)
    admission.configure(CLUSTER, QUEUES)
    assert admission.admit_job(new(*BATCH), "team").patch


def reviewed(document: Json, kind: str) -> Json:
    """The response to an AdmissionReview."""
    request = {
        "uid": "u", "operation": "CREATE", "namespace": "team", "object": document,
        "kind": {"group": "batch", "version": "v1", "kind": kind},
    }  # fmt: skip
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = json.loads(review(Admission(CLUSTER, QUEUES), json.dumps(asked).encode()))
    response: Json = answer["response"]
    return response


def test_a_review_of_a_job_is_answered_with_its_patch() -> None:
    response = reviewed(new(*BATCH), "Job")
    assert response["allowed"]
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/suspend", "value": True},
        {"op": "add", "path": "/metadata/annotations", "value": {marks.HELD: "true"}},
    ]


def test_a_review_of_a_pod_is_answered_as_ever() -> None:
    pod = {"metadata": {"name": "p"}, "spec": template(1)["spec"]}
    patch = json.loads(base64.b64decode(reviewed(pod, "Pod")["patch"]))
    assert patch[0]["path"] == "/metadata/annotations"


GANG = {"gang.scheduling.koordinator.sh/name": "ring", "gang.scheduling.koordinator.sh/min-available": "2"}


def gates_of(pod: Json, rules: PodRules = QUEUES) -> list[str]:
    """The gates of a pod as it is stored."""
    found = Admission(CLUSTER, rules).admit(pod, "team")
    return [gate["name"] for gate in found.pod["spec"].get("schedulingGates") or ()]


def plain_pod(gpus: int = 1, **metadata: Any) -> Json:
    """A pod of a gang that nobody has made a job of."""
    metadata = {"name": "ring-0", "annotations": GANG} | metadata
    return {"metadata": metadata, "spec": dict(template(gpus)["spec"])}


@pytest.mark.parametrize("gpus", [1, 0], ids=["with devices", "without"])
def test_a_plain_pod_of_a_gang_is_born_with_our_gate(gpus: int) -> None:
    pod = plain_pod(gpus)
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    assert gates_of(pod) == ["example.com/quota", gates.GATE]


def test_a_review_of_a_plain_pod_of_a_gang_has_the_gate_in_its_patch() -> None:
    patch = json.loads(base64.b64decode(reviewed(plain_pod(), "Pod")["patch"]))
    assert patch[-1] == {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": gates.GATE}]}


@pytest.mark.parametrize(
    "pod",
    [
        plain_pod(annotations={}),
        plain_pod(annotations=GANG | {marks.QUEUE: "off"}),
        plain_pod(labels={marks.KUEUE_QUEUE: "theirs"}),
        plain_pod(labels={"kueue.x-k8s.io/managed": "true"}),
        plain_pod(ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet", "set")]),
        plain_pod() | {"spec": template(1, "default-scheduler")["spec"]},
        plain_pod() | {"spec": {**template(1)["spec"], "nodeName": "n1"}},
        plain_pod() | {"spec": {**template(1)["spec"], "schedulingGates": [{"name": gates.GATE}]}},
    ],
    ids=["no gang", "off", "of Kueue", "managed by Kueue", "of a JobSet", "another scheduler", "bound", "gated"],
)
def test_no_other_pod_gets_the_gate(pod: Json) -> None:
    before = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    assert gates_of(pod) == before


def test_without_queues_no_pod_gets_the_gate() -> None:
    assert gates_of(plain_pod(), RULES) == []


def test_a_refused_job_is_not_stored_and_its_author_hears_why() -> None:
    version, kind, spec = RAY_JOB
    response = reviewed(new(version, kind, spec | {"shutdownAfterJobFinishes": False}), kind)
    assert not response["allowed"]
    assert response["status"]["message"].startswith("hived: RayJob team/train: KubeRay suspends no RayJob")
