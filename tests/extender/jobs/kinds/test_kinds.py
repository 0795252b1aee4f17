"""All kinds of job objects are suspended and resumed alike (rules 24.2, 24.10), and read any JSON."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import marks, table
from hived_extender.jobs.kinds.kind import Verb, path_of
from tests.extender.jobs.kinds.api import Json, patched, written
from tests.extender.jobs.kinds.documents import ALL, BATCH, CREATED_S, SUSPENDED, UID, job_object, with_suspend

KEPT = {"example.com/kept": "yes"}


def path_to(job: Job) -> str:
    """The path of a job object."""
    kind = table.find_kind(job.ref.api_version, job.ref.kind)
    assert kind is not None
    return path_of(job.ref.api_version, kind.plural, job.ref.namespace, job.ref.name)


def after(document: Json, *changes: str) -> Json:
    """The object after `suspend` and `resume` in turn."""
    for change in changes:
        job = table.read(document)
        writes = getattr(table, change)(job.ref, KEPT)
        document = written(document, writes, path_to(job))
    return document


@pytest.mark.parametrize("name", ALL)
def test_every_kind_says_which_object_it_is(name: str) -> None:
    version, kind, spec = ALL[name]
    job = table.read(job_object(version, kind, spec, labels={"a": "b"}, annotations={"c": "d"}))
    assert job.ref == JobRef(version, kind, "team", "train", UID)
    assert (job.version, job.created_s, job.labels, job.annotations) == ("42", CREATED_S, {"a": "b"}, {"c": "d"})
    assert job.state is JobState.RESUMED


@pytest.mark.parametrize("name", ALL)
def test_a_job_that_is_held_twice_is_held_once(name: str) -> None:
    document = job_object(*ALL[name])
    assert after(document, "suspend", "suspend") == after(document, "suspend")
    assert after(document, "resume", "resume") == after(document, "resume")


@pytest.mark.parametrize("name", ALL)
def test_a_held_job_is_let_go_as_it_was(name: str) -> None:
    document = job_object(*(with_suspend(name, value=False) if name in SUSPENDED else ALL[name]))
    again = after(document, "suspend", "resume")
    assert again["spec"] == document["spec"]
    assert again["metadata"]["annotations"] == KEPT


@pytest.mark.parametrize("name", ALL)
def test_the_state_says_so_once_a_job_is_held(name: str) -> None:
    held = after(job_object(*ALL[name]), "suspend")
    assert table.read(held).state is JobState.HELD
    assert table.read(after(held, "resume")).state is JobState.RESUMED


@pytest.mark.parametrize("name", ALL)
def test_a_job_is_born_held_by_the_patch_and_a_second_review_changes_nothing(name: str) -> None:
    document = job_object(*ALL[name])
    held = patched(document, table.hold_at_creation(document))
    assert table.read(held).state is JobState.HELD
    assert table.hold_at_creation(held) == []


@pytest.mark.parametrize("name", ALL)
def test_a_job_that_was_born_held_has_no_mark_left_once_it_is_let_go(name: str) -> None:
    document = job_object(*ALL[name], annotations={marks.SUSPEND: "true"})
    job = after(patched(document, table.hold_at_creation(document)), "resume")
    assert job["metadata"]["annotations"] == KEPT
    assert table.read(job).state is JobState.RESUMED


@pytest.mark.parametrize("name", SUSPENDED)
def test_a_suspended_job_of_its_author_is_held_as_it_comes(name: str) -> None:
    document = job_object(*with_suspend(name))
    assert table.read(document).state is JobState.HELD
    assert table.hold_at_creation(document) == []


@pytest.mark.parametrize("name", ALL)
def test_calls_name_the_uid_so_that_a_later_job_of_the_same_name_is_left_alone(name: str) -> None:
    job = table.read(job_object(*ALL[name]))
    for write in table.suspend(job.ref, KEPT) + table.resume(job.ref, KEPT):
        if write.path == path_to(job):
            assert write.uid == write.body["metadata"]["uid"] == UID


def test_a_call_with_a_version_is_refused_once_the_job_has_changed() -> None:
    (write,) = table.suspend(table.read(job_object(*BATCH)).ref, KEPT, "42")
    assert write.body["metadata"] == {"uid": UID, "resourceVersion": "42", "annotations": KEPT}


def test_the_state_that_is_kept_is_written_in_the_call_that_lets_a_job_go() -> None:
    (write,) = table.resume(table.read(job_object(*BATCH)).ref, KEPT)
    assert write.verb is Verb.PATCH
    assert write.body["spec"] == {"suspend": False}
    assert write.body["metadata"]["annotations"]["example.com/kept"] == "yes"


def test_the_outermost_job_has_the_turn() -> None:
    inner, middle, outer = (JobName("g", kind, "team", "a") for kind in ("Job", "JobSet", "TrainJob"))
    assert table.unit_of(inner, {inner: middle, middle: outer}) == outer
    assert table.unit_of(outer, {inner: middle, middle: outer}) == outer


def test_jobs_that_manage_each_other_in_a_circle_have_some_turn() -> None:
    one, other = JobName("g", "Job", "team", "a"), JobName("g", "Job", "team", "b")
    assert table.unit_of(one, {one: other, other: one}) in (one, other)


def test_a_kind_that_is_not_in_the_table_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"found 'CronJob' of 'batch/v1', expected one of: Job \(batch/v1\), JobSet"):
        table.read({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}})
    with pytest.raises(UserError, match="cannot hold back"):
        table.suspend(JobRef("batch/v1", "CronJob", "team", "nightly", UID))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([], "Job team/train: spec is a list: expected an object"),
        ({"parallelism": "4"}, "Job team/train: spec.parallelism is '4': expected a whole number from 0 to"),
        ({"parallelism": -1}, "Job team/train: spec.parallelism is -1: expected a whole number from 0 to"),
        ({"suspend": "yes"}, "Job team/train: spec.suspend is 'yes': expected true or false"),
        ({"template": 5}, "Job team/train: spec.template is 5: expected an object"),
        ({"template": {"spec": {"containers": [None]}}}, r"spec.template.spec.containers\[0\] is absent"),
    ],
)
def test_a_mistake_is_told_with_place_finding_and_expectation(spec: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        table.read(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "team"}, "spec": spec}
        )


WORDS = """\
spec status metadata template replicas parallelism completions tasks name namespace labels annotations runPolicy suspend
conditions type state phase replicatedJobs replicatedJobsStatus headGroupSpec workerGroupSpecs kind uid ownerReferences
containers replicaStatuses mpiReplicaSpecs schedulingGates apiVersion controller
"""
KEYS = st.sampled_from(WORDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=16,
)


def read_or_refused(read: Callable[[Json], Any], document: Json) -> Any:
    """The result for an object, or its refusal."""
    try:
        return read(document)
    except UserError as refusal:
        return refusal


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ALL)), JSON, JSON, JSON)
def test_whatever_json_an_object_has_it_is_read_or_refused(name: str, metadata: Any, spec: Any, status: Any) -> None:
    version, kind, good = ALL[name]
    for document in (
        {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status},
        {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": good, "status": status},
    ):
        for read, result in ((table.read, Job), (table.hold_at_creation, list)):
            assert isinstance(read_or_refused(read, document), result | UserError)
