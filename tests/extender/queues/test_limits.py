"""Limits and shares as owners of jobs see them on an embedded cluster (rules 29.6, 31.2, 31.3)."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_extender.api.queues import QueueArgs
from hived_extender.queues.answering import QueueAnswers
from tests.extender.queues.embedded_jobs import GPU, PREFIX, TREES, Jobs, jobs_on

pytestmark = pytest.mark.sample(4)

ALIBABA, KOORDINATOR = "quota.scheduling.alibabacloud.com/", "quota.scheduling.koordinator.sh/"


def config(nodes: int, queues: str = "", /, **virtual_clusters: tuple[int, str]) -> str:
    """Nodes of eight GPUs; of each virtual cluster the nodes and the key `queue`."""
    cells = "".join(f"  - {{cellType: NODE, cellAddress: n{number}}}\n" for number in range(1, nodes + 1))
    parts = "".join(
        f"  {name}:\n    virtualCells: [{{cellType: NODE, cellNumber: {count}}}]\n    queue: {{{rules}}}\n"
        for name, (count, rules) in virtual_clusters.items()
    )
    return f"""
rules: 2
queues: {{enabled: true{queues}}}
physicalCluster:
  cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}}}
  physicalCells:
{cells}virtualClusters:
{parts}"""


def of(user: str) -> dict[str, Any]:
    """The annotation of a job with an owner."""
    return {"annotations": {f"{PREFIX}user": user}}


def reason(jobs: Jobs, name: str) -> str:
    """Why a job waits, in the words that its owner reads."""
    found = QueueAnswers(jobs.running.extender.queues).job(name)
    return "" if found is None else found.reason


def is_enqueued(jobs: Jobs, name: str) -> bool:
    """Does a job wait in a queue?"""
    return jobs.phase(name) == "Enqueued"


def quota(name: str, least: int, most: int) -> dict[str, Any]:
    """A leaf that virtual cluster b backs."""
    attributes = {f"{PREFIX}virtual-cluster": "b"}
    return {"name": name, "min": {GPU: least}, "max": {GPU: most}, "attributes": attributes}


def apply(jobs: Jobs, total: int, *children: dict[str, Any], **attributes: str) -> None:
    """A tree of these leaves is in force."""
    root = {
        "name": "root",
        "min": {GPU: total},
        "max": {GPU: total},
        "children": list(children),
        "attributes": attributes,
    }
    jobs.kube.create(TREES, {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}})
    jobs.expect(lambda: jobs.running.extender.queues.quotas.tree is not None)


def labels(quota_name: str, *, prefix: str = ALIBABA) -> dict[str, Any]:
    """The label of a job that names its quota."""
    return {"labels": {f"{prefix}name": quota_name}}


# Limits per user


def test_a_user_runs_no_more_jobs_than_the_queue_allows(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(3, b=(3, "maxRunningPerUser: 1"))) as jobs:
        jobs.create("one", "b", **of("ann"))
        jobs.expect(lambda: jobs.runs("one"))
        jobs.create("two", "b", **of("ann"))
        jobs.create("other", "b", **of("bob"))
        jobs.expect(lambda: jobs.runs("other"), lambda: jobs.phase("two") == "Enqueued", jobs.rest)
        assert jobs.waits("two")
        assert reason(jobs, "two") == "user ann runs 1 job, as many as the queue allows"
        jobs.delete("one")
        jobs.expect(lambda: jobs.runs("two"))


def test_a_user_has_no_more_jobs_in_line_than_the_queue_looks_at(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(1, b=(1, "maxWaitingPerUser: 1"))) as jobs:
        jobs.create("runs", "b", **of("ann"))
        jobs.expect(lambda: jobs.runs("runs"))
        for name, user in (("first", "ann"), ("second", "ann"), ("third", "bob")):
            jobs.create(name, "b", **of(user))
            jobs.expect(partial(is_enqueued, jobs, name), jobs.rest)
        assert reason(jobs, "second") == "user ann has 1 job that waits before it, as many as the queue looks at"
        jobs.delete("runs")
        jobs.expect(lambda: jobs.runs("first"))
        jobs.delete("first")
        jobs.expect(lambda: jobs.runs("second") or jobs.runs("third"))


# Shares of what is borrowed


def borrowed(jobs: Jobs, prefix: str) -> int:
    """How many jobs of a name run."""
    return sum(jobs.runs(f"{prefix}{number}") for number in range(5))


def test_idle_cells_are_lent_by_weight(tmp_path: Path) -> None:
    text = config(6, a=(1, "borrow: true, weight: 3"), c=(1, "borrow: true, weight: 1"), idle=(4, "borrow: false"))
    with jobs_on(tmp_path, text) as jobs:
        for number in range(5):
            jobs.create(f"c{number}", "c")
            jobs.create(f"a{number}", "a")
        jobs.expect(lambda: (borrowed(jobs, "a"), borrowed(jobs, "c")) == (4, 2))


def after_borrowing(jobs: Jobs) -> None:
    """Virtual cluster a has borrowed the idle node; then a and c have a job each that waits for it, a's came first."""
    for name in ("a", "c"):
        jobs.create(f"{name}-own", name)
    jobs.expect(lambda: jobs.runs("a-own", "c-own"))
    jobs.create("a-past", "a")
    jobs.expect(lambda: jobs.runs("a-past"))
    for name in ("a", "c"):
        jobs.create(f"{name}-next", name)
        jobs.expect(partial(is_enqueued, jobs, f"{name}-next"))
    jobs.delete("a-past")
    jobs.expect(lambda: jobs.runs("a-next") or jobs.runs("c-next"))


BOTH_BORROW = {"a": (1, "borrow: true"), "c": (1, "borrow: true"), "idle": (1, "borrow: false")}


def test_with_a_half_life_past_use_counts(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(3, ", halfLifeMinutes: 600", **BOTH_BORROW)) as jobs:
        after_borrowing(jobs)
        assert jobs.runs("c-next")


def test_without_a_half_life_only_present_use_counts(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(3, **BOTH_BORROW)) as jobs:
        after_borrowing(jobs)
        assert jobs.runs("a-next")


# Quotas


def test_the_part_of_a_min_that_is_not_lent_is_kept(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(2, b=(2, ""))) as jobs:
        kept = quota("kept", 8, 16)
        kept["attributes"]["alibabacloud.com/lendlimit"] = f'{{"{GPU}": 0}}'
        apply(jobs, 16, kept, quota("team", 8, 16))
        jobs.create("own", "b", **labels("team"))
        jobs.expect(lambda: jobs.runs("own"))
        jobs.create("more", "b", **labels("team"))
        jobs.expect(lambda: jobs.phase("more") == "Enqueued", jobs.rest)
        assert reason(jobs, "more").startswith(f"Insufficient quota({GPU}) in quota root: request 8, max 16, used 16")
        jobs.create("owner", "b", **labels("kept"))
        jobs.expect(lambda: jobs.runs("owner"))
        assert jobs.waits("more")


def test_an_oversell_rate_lets_more_run(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(3, b=(1, ""), idle=(2, ""))) as jobs:
        apply(jobs, 8, quota("team", 8, 8), oversellrate="2")
        for name in ("one", "two"):
            jobs.create(name, "b", **labels("team"))
        jobs.expect(lambda: jobs.runs("one", "two"))
        jobs.create("three", "b", **labels("team"))
        jobs.expect(lambda: jobs.phase("three") == "Enqueued")
        jobs.expect(lambda: "max 8, used 16, oversellreate 2" in reason(jobs, "three"))
        shown = CliRunner().invoke(main, ["get", "queue", "--server", jobs.running.extender.url]).output
        assert "16 gpu   8 gpu x2   8 gpu x2   -" in shown


def test_a_label_names_the_quota_of_a_job_rather_than_its_namespace(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(1, b=(1, ""))) as jobs:
        apply(jobs, 8, {**quota("home", 4, 8), "namespaces": ["default"]}, quota("team", 4, 8))
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"))
        jobs.create("by-namespace", "b")
        jobs.create("by-label", "b", **labels("team"))
        jobs.create("by-other-label", "b", **labels("team", prefix=KOORDINATOR))
        jobs.create("wrong", "b", **labels("teem"))
        jobs.expect(
            lambda: jobs.queued("root/home") == ["by-namespace"],
            lambda: jobs.queued("root/team") == ["by-label", "by-other-label"],
            lambda: "did you mean 'team'?" in reason(jobs, "wrong"),
        )


def test_changes_that_would_give_it_cells_do_not_start_a_job_that_is_held(tmp_path: Path) -> None:
    with jobs_on(tmp_path, config(1, b=(1, ""))) as jobs:
        jobs.create("first", "b")
        jobs.create("second", "b")
        jobs.expect(lambda: jobs.runs("first"), lambda: jobs.phase("second") == "Enqueued")
        jobs.inspector.change_queue(QueueArgs("second", "hold"))
        jobs.delete("first")

        def is_told() -> bool:
            found = jobs.inspector.why_if("second", ["priority=20"])
            assert not found.starts
            sentence = "" if found.certificate is None else found.certificate.sentence
            return "is held" in sentence and "there would be cells for it" in sentence

        jobs.expect(is_told)
        jobs.inspector.change_queue(QueueArgs("second", "release"))
        jobs.expect(lambda: jobs.runs("second"))


def test_a_job_that_is_larger_than_its_guarantee_and_may_borrow_is_not_told_that_it_can_never_run(
    tmp_path: Path,
) -> None:
    with jobs_on(tmp_path, config(3, b=(1, "borrow: true"), c=(2, ""))) as jobs:
        jobs.create("own", "c")
        jobs.expect(lambda: jobs.runs("own"))
        jobs.create("other", "c")
        jobs.expect(lambda: jobs.runs("other"))
        jobs.create("gang", "b", pods=2)
        jobs.expect(lambda: jobs.phase("gang") == "Enqueued")
        found = jobs.inspector.why("gang")
        assert found is not None
        assert not found.certificate.never
