"""Jobs are read by the configuration in force, whenever they came: a push may change what they need."""

from pathlib import Path
from typing import Any

import pytest

from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import CONFIG, GPU, JOBS, PODS, PREFIX, Jobs, jobs_on

pytestmark = pytest.mark.sample(2)

LISTED = CONFIG.replace("rules: 2", "rules: 2\naccess: namespaces").replace("  a:", "  a:\n    namespaces: [default]")
WITHOUT_A = LISTED.replace(LISTED[LISTED.index("  a:") : LISTED.index("  b:")], "")


QUEUED = ("Waiting", "Starting", "Running")


def with_top(line: str) -> str:
    """The configuration with one more key."""
    return CONFIG.replace("rules: 2", f"rules: 2\n{line}")


def create(jobs: Jobs, *, vc: str = "a", resource: str = GPU, priority_class: str = "") -> None:
    """A job `one` that runs on one node, as few words of its own as possible."""
    annotations = {f"{PREFIX}virtual-cluster": vc} if vc else {}
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: 8}}}
    spec: dict[str, Any] = {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]}
    if priority_class:
        spec["priorityClassName"] = priority_class
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    jobs.kube.create(JOBS, {"metadata": {"name": "one"}, "spec": {"suspend": True, "template": template}})


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ({"vc": ""}, LISTED.replace("[default]", "[other]"), LISTED),
        ({"vc": "c"}, CONFIG, CONFIG.replace("  b:", "  c:")),
        ({"priority_class": "high"}, CONFIG, with_top("priorityClasses: {high: 100}")),
        (
            {"resource": "amd.com/gpu"},
            CONFIG,
            CONFIG.replace("  cellTypes:", "  skuTypes: {GPU: {gpu: 1, resource: amd.com/gpu}}\n  cellTypes:"),
        ),
    ],
    ids=["namespaces", "virtual cluster", "priority class", "device"],
)
def test_a_job_is_queued_once_a_push_has_what_it_names(
    tmp_path: Path, words: dict[str, str], before: str, after: str
) -> None:
    with jobs_on(tmp_path, before) as jobs:
        create(jobs, **words)
        expect_soon(lambda: jobs.running.extender.queues.jobs.everything() != [])
        assert jobs.state("one") in ("", "Refused")
        jobs.push(after)
        jobs.expect(lambda: jobs.state("one") in QUEUED)


def test_a_job_is_queued_once_its_namespace_has_the_labels_that_a_virtual_cluster_chooses(tmp_path: Path) -> None:
    with jobs_on(tmp_path, LISTED.replace("[default]", "[{matchLabels: {team: vision}}]")) as jobs:
        create(jobs, vc="")
        jobs.expect(lambda: jobs.state("one") == "Refused")
        jobs.kube.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"team": "vision"}}})
        jobs.expect(lambda: jobs.runs("one"))


def test_a_job_runs_on_in_its_queue_when_its_virtual_cluster_is_brought_back(tmp_path: Path) -> None:
    with jobs_on(tmp_path, LISTED) as jobs:
        create(jobs, vc="")
        jobs.expect(lambda: jobs.state("one") == "Running")
        (pod,) = jobs.kube.get(PODS)["items"]
        jobs.create("next", "a", pods=2)
        jobs.expect(lambda: jobs.reason("next") != "")
        jobs.push(WITHOUT_A)
        jobs.kube.patch(f"{JOBS}/one", {"metadata": {"annotations": {"seen": "again"}}})
        jobs.expect(lambda: jobs.reason("one").startswith("its virtual cluster a was removed: bring it back"))
        there = "delete the job, or submit it again with --vc; there are b"
        jobs.expect(lambda: jobs.reason("next") == f"virtual cluster a is not in the configuration: {there}")
        jobs.push(LISTED)
        jobs.expect(lambda: jobs.state("one") == "Running" and "of its own virtual cluster" in jobs.reason("one"))
        (queue,) = [one for one in jobs.inspector.queues() if one.name == "a"]
        assert (queue.running, queue.borrowed) == (1, 0)
        assert [one["metadata"]["uid"] for one in jobs.kube.get(PODS)["items"]] == [pod["metadata"]["uid"]]
