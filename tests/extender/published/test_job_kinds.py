"""What is read and written of job objects against the definitions of their projects.

A document with every field that is published is read, and what is read of it noted: a field that nobody publishes is
noted too. Some documents have several forms, as a job that has ended is not asked how many pods it has.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds import (
    batch,
    coscheduling,
    gates,
    jobset,
    kubeflow,
    marks,
    native,
    ray,
    table,
    trainer,
    volcano,
)
from hived_extender.jobs.kinds import kind as kind_module
from hived_extender.jobs.kinds.kind import Kind, Verb
from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from tests.e2e.tools.sources import KUBERNETES
from tests.extender.jobs.kinds.api import patched
from tests.extender.published import go_types, test_podgroups
from tests.extender.published.reading import Read, differences, keys_in, reads_of
from tests.extender.published.schemas import Json, definition, filled, module, validate

JOBSET = "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
KUBEFLOW = "manifests/base/crds/kubeflow.org_{}.yaml"
RAY = "config/crd/bases/ray.io_{}.yaml"

DEFINITIONS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): ("controllers", "sigs.k8s.io/jobset", JOBSET),
    ("ray.io/v1", "RayCluster"): (
        "controllers", "github.com/ray-project/kuberay/ray-operator", RAY.format("rayclusters"),
    ),
    ("ray.io/v1", "RayJob"): ("controllers", "github.com/ray-project/kuberay/ray-operator", RAY.format("rayjobs")),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): (
        "controllers", "github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
    ),
    **{
        ("kubeflow.org/v1", each): (
            "controllers", "github.com/kubeflow/training-operator", KUBEFLOW.format(each.lower() + "s"),
        )
        for each in REPLICA_SPECS
    },
    ("kubeflow.org/v2beta1", "MPIJob"): (
        "mpi-operator", "github.com/kubeflow/mpi-operator", "deploy/v2beta1/mpi-operator.yaml",
    ),
}  # fmt: skip
"""Files with CustomResourceDefinitions: the folder with the pin, the module, the path in it."""

TYPES = {
    ("batch/v1", "Job"): "k8s.io/api/batch/v1",
    ("apps/v1", "Deployment"): "k8s.io/api/apps/v1",
    ("batch.volcano.sh/v1alpha1", "Job"): "volcano.sh/apis/pkg/apis/batch/v1alpha1",
}
"""Packages with Go types."""

ELSEWHERE = {("elastic.iml.github.io/v1alpha1", "ElasticJob")}
"""Kinds whose module cannot be had; the README says which files were read instead."""

LATER = {("trainer.kubeflow.org/v1alpha1", "TrainJob"): ["spec.activeDeadlineSeconds"]}
"""Fields of later releases than those that are compared: Kubeflow Trainer has this one from 2.2 on."""

NAMED = {"metadata.name": "train", "metadata.namespace": "team"}
OWNED = {"ownerReferences[].apiVersion": "ray.io/v1", "ownerReferences[].kind": "RayJob"}
FORMS: dict[str, list[Json]] = {
    "": [{}, {"suspend": False, "metadata.name": ""}, {"conditions[].type": "Suspended"}, OWNED],
    "Job": [{}, {"status.state.phase": "Aborting"}],
    "RayJob": [
        {"suspend": False, "spec.clusterSelector": None},
        {"jobDeploymentStatus": "Complete"},
        {"spec.submissionMode": "K8sJobMode"},
    ],
    "RayCluster": [{"conditions[].type": "RayClusterSuspended"}],
    "Deployment": [{"metadata.annotations": {marks.HELD: "true"}}],
}
"""By kind, besides those of all kinds."""


def cases() -> list[Any]:
    """(folder with the pin, kind, apiVersion) of all that can be had."""
    found = []
    for kind in table.KINDS:
        for version in kind.api_versions:
            where = (version, kind.kind)
            if where in DEFINITIONS:
                found.append(pytest.param(DEFINITIONS[where][0], kind, version, id=f"{version} {kind.kind}"))
            elif where in TYPES:
                folders = KUBERNETES if kind.group in ("batch", "apps") else ("published",)
                found += [pytest.param(each, kind, version, id=f"{version} {kind.kind} {each}") for each in folders]
    return found


def schema_of(folder: str, kind: Kind, version: str) -> Json:
    where = (version, kind.kind)
    metadata = go_types.schema("v1.36", "k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta")
    if where in TYPES:
        read = go_types.schema(folder, TYPES[where], kind.kind)
    else:
        _, path, file = DEFINITIONS[where]
        read = definition(module(folder, path) / file, kind.kind, version.rpartition("/")[2])
    return {**read, "properties": {**read["properties"], "metadata": metadata}}


def documents(schema: Json, kind: Kind, version: str) -> Iterator[Json]:
    for form in (*FORMS[""], *FORMS.get(kind.kind, ())):
        document = filled(schema, {**NAMED, **form})
        yield {**document, "apiVersion": version, "kind": kind.kind}


def reads(schema: Json, kind: Kind, version: str) -> set[Read]:
    """All that is read of documents of a kind."""

    def read(document: Json) -> None:
        job = table.read(document)
        table.managed_by(document)
        table.hold_at_creation(document)
        if kind is batch.JOB:
            jobset.child_of(document, job)

    return set[Read]().union(
        *(reads_of(lambda document=document: read(document)) for document in documents(schema, kind, version))
    )


def test_every_kind_is_compared_or_was_read_by_eye() -> None:
    found = {(version, kind.kind) for kind in table.KINDS for version in kind.api_versions}
    known = DEFINITIONS.keys() | TYPES.keys() | ELSEWHERE
    assert found - known == set(), "name it in DEFINITIONS or TYPES, or in ELSEWHERE and in the README"
    assert known - found == set(), "no such kind is in the table"


@pytest.mark.parametrize(("folder", "kind", "version"), cases())
def test_every_field_that_is_read_is_published(folder: str, kind: Kind, version: str) -> None:
    schema = schema_of(folder, kind, version)
    assert differences(schema, reads(schema, kind, version)) == LATER.get((version, kind.kind), [])


def test_no_field_that_the_code_names_is_left_out() -> None:
    noted = {path.rpartition(".")[2] for folder, kind, version in (each.values for each in cases())
             for path, _ in reads(schema_of(folder, kind, version), kind, version)}  # fmt: skip
    noted |= {path.rpartition(".")[2] for one in test_podgroups.CASES for path, _ in test_podgroups.reads(*one)}
    read_in = (batch, coscheduling, gates, jobset, kind_module, table, kubeflow, native, ray, trainer, volcano)
    named = {each for each in set[str]().union(*map(keys_in, read_in)) if "/" not in each and "." not in each}
    assert named - noted == set()


WRITTEN = {"key": "value", "gone": None}


@pytest.mark.parametrize(("folder", "kind", "version"), cases())
def test_all_that_is_written_is_published(folder: str, kind: Kind, version: str) -> None:
    schema = schema_of(folder, kind, version)
    job = JobRef(version, kind.kind, "team", "train", "uid")
    for write in (*kind.suspend(job, WRITTEN, "42"), *kind.resume(job, WRITTEN, "42")):
        if write.verb is Verb.CREATE:
            command = go_types.schema(folder, "volcano.sh/apis/pkg/apis/bus/v1alpha1", "Command")
            validate(write.body, command)
        elif write.path.endswith(f"/{kind.plural}/train"):
            annotations = {key: text for key, text in write.body["metadata"]["annotations"].items() if text is not None}
            metadata = {**write.body["metadata"], "annotations": annotations}
            validate({**write.body, "metadata": metadata}, schema, is_whole=False)
        else:
            assert write.body.keys() == {"metadata"}


@pytest.mark.parametrize(("folder", "kind", "version"), cases())
def test_a_job_that_is_born_held_is_as_published(folder: str, kind: Kind, version: str) -> None:
    schema = schema_of(folder, kind, version)
    document = {**filled(schema, {**NAMED, "suspend": False}), "apiVersion": version, "kind": kind.kind}
    document["spec"].pop("clusterSelector", None)  # a RayJob with one has no pods of its own
    held = patched(document, table.hold_at_creation(document))
    assert held != document
    validate(held, schema, is_whole=False)
