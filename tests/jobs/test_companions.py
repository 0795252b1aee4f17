"""Objects that stand beside jobs in a file."""

import re

import pytest

from hived.errors import UserError
from hived_jobs.creation import collection_of
from hived_jobs.kinds import KINDS, as_stored, has_all, plan_jobs
from tests.places import ROOT


@pytest.mark.parametrize(("kind", "version"), [(kind, version) for version, kinds in KINDS.items() for kind in kinds])
def test_each_kind_is_kept_as_it_is_and_has_a_place_in_its_namespace(kind, version, write, submission):
    [job], _ = plan_jobs(write(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: '010'}}\n"), submission)
    [manifest] = job.objects
    assert (job.pods, manifest["metadata"]) == ((), {"name": "010", "namespace": "default"})
    assert "/namespaces/default/" in collection_of("", manifest)


def test_a_priority_class_is_in_no_namespace() -> None:
    manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    assert collection_of("lab", manifest) == "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_a_namespace_that_is_written_stays(write, submission):
    [job], _ = plan_jobs(write("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: lab}}"), submission)
    assert job.objects[0]["metadata"]["namespace"] == "lab"


@pytest.mark.parametrize("kind", ["apps/v1 StatefulSet", "apps/v1 DaemonSet", "batch/v1 CronJob", "v1 Namespace"])
def test_kinds_that_make_pods_or_have_no_namespace_are_refused(kind, write, submission):
    version, name = kind.split()
    with pytest.raises(
        UserError, match=rf"found {name} \({version}\), expected one of: .*; create others with kubectl"
    ):
        plan_jobs(write(f"{{apiVersion: {version}, kind: {name}, metadata: {{name: x}}}}"), submission)


def test_what_scales_a_deployment_is_warned_of(write, submission):
    text = "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: x}, spec: {maxReplicas: 9}}"
    _, [warning] = plan_jobs(write(text), submission)
    assert warning.endswith("spec: changes nothing: the pods of a job have no controller that it could scale")


@pytest.mark.parametrize("kind", sorted({kind for kinds in KINDS.values() for kind in kinds}))
def test_each_kind_is_documented(kind):
    section = (ROOT / "docs/jobs.md").read_text().partition("## Other objects in a job file")[2].partition("\n## ")[0]
    assert re.search(rf"\b{kind}\b", section)


@pytest.mark.parametrize(
    ("stored", "wanted", "is_so"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}, "b": None}, True),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"a": {"x": 1}}, False),
        ({"a": {}}, {"a": []}, False),
    ],
)
def test_a_stored_object_may_have_more_but_not_less_or_another(stored, wanted, is_so):
    assert has_all(stored, wanted) is is_so


def test_a_secret_is_compared_as_it_is_stored():
    secret = {"kind": "Secret", "stringData": {"user": "me"}, "data": {"key": "eA=="}}
    assert as_stored(secret) == {"kind": "Secret", "data": {"key": "eA==", "user": "bWU="}}
