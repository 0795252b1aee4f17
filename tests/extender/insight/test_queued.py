"""Changes that would help a job that waits in a queue, tried on its quota as on cells; on an embedded cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived.errors import UserError
from hived_extender.api.waiting import Why
from tests.extender.queues.embedded_jobs import GPU, TREES, Jobs, jobs_on

MAX_JOBS = "kube-queue/max-jobs"


def tree(most_jobs: int) -> dict[str, Any]:
    """Quotas of both virtual clusters. Jobs of a are in one of the namespace; so many may run."""
    leaves = [
        {"name": "a", "namespaces": ["default"], "min": {GPU: 8}, "max": {GPU: 16, MAX_JOBS: most_jobs}},
        {"name": "b", "min": {GPU: 8}, "max": {GPU: 16}},
    ]
    root = {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": leaves}
    return {"metadata": {"name": "fleet", "namespace": "kube-system"}, "spec": {"root": root}}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """In a quota for 2 jobs one runs on its cells and one on borrowed ones, and a third waits."""
    with jobs_on(tmp_path_factory.mktemp("quota")) as found:
        found.kube.create(TREES, tree(2))
        for name in ("first", "second", "third"):
            found.create(name)
            if name != "third":
                found.expect(lambda name=name: found.runs(name))
        found.expect(lambda: found.reason("third").startswith("Insufficient quota"))
        yield found


def why(jobs: Jobs) -> Why:
    found = jobs.inspector.why("Job/default/third")
    assert found is not None
    return found


def starts(jobs: Jobs, *changes: str) -> bool:
    return jobs.inspector.why_if("third", changes).starts


def test_jobs_whose_end_frees_quota_and_cells_are_named(jobs: Jobs) -> None:
    certificate = why(jobs).certificate
    assert certificate is not None
    assert [one.change for one in certificate.unblock] == ["ends=Job/default/first", "ends=Job/default/second"]
    assert [one.text for one in certificate.unblock] == ["once first has ended", "once second has ended"]


@pytest.mark.parametrize("name", ["first", "second"], ids=["on its own cells", "on borrowed cells"])
def test_a_job_starts_once_one_has_ended_that_uses_its_quota(jobs: Jobs, name: str) -> None:
    assert starts(jobs, f"ends={name}")


def test_cells_alone_do_not_help_while_the_quota_is_used(jobs: Jobs) -> None:
    result = jobs.inspector.why_if("third", ["cells=a:+1xNODE,b:-1xNODE"])
    assert not result.starts
    assert result.certificate is not None
    assert "Insufficient quota" in result.certificate.sentence


def test_another_virtual_cluster_is_none_for_a_quota_of_one(jobs: Jobs) -> None:
    with pytest.raises(UserError, match="its quota root/a is for virtual cluster a alone"):
        starts(jobs, "vc=b")
