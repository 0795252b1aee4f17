"""Queues that go: the jobs that wait in them are named beforehand, and their objects are deleted."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.inspection import ConfigClient
from hived_extender.jobs.quotas.tree import read_tree
from hived_extender.kube.client import KubeError
from hived_extender.machine.effects import CallJob
from hived_extender.machine.stimuli import JobMoved
from hived_extender.machine.writes.writer import Writer
from hived_extender.queues.publishing import QUEUES as ALL_QUEUES
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.removal import without_quotas
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import CONFIG, GPU, JOBS, PREFIX, QUEUES, TREES, UNITS, Jobs, jobs_on

pytestmark = pytest.mark.sample(4)

OFF = CONFIG.replace("enabled: true", "enabled: false")
OURS = {"app.kubernetes.io/managed-by": "hived"}


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with jobs_on(tmp_path) as found:
        yield found


def tree(*names: str) -> dict[str, Any]:
    """A leaf for each name, of the namespace `default` for the first."""
    leaves = [
        {"name": name, "namespaces": ["default"] if name == names[0] else [], "min": {GPU: 4}, "max": {GPU: 8}}
        for name in names
    ]
    root = {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": leaves}
    return {"metadata": {"name": "fleet", "namespace": "kube-system"}, "spec": {"root": root}}


def paths(jobs: Jobs) -> list[str]:
    """The queues that have objects."""
    return sorted(one["metadata"]["annotations"][f"{PREFIX}quota"] for one in jobs.kube.get(QUEUES)["items"])


def units(jobs: Jobs) -> list[str]:
    return sorted(one["metadata"]["name"] for one in jobs.kube.get(UNITS)["items"])


def object_of(jobs: Jobs, path: str) -> str:
    """The path of a Queue object."""
    (name,) = [
        one["metadata"]["name"]
        for one in jobs.kube.get(QUEUES)["items"]
        if one["metadata"]["annotations"][f"{PREFIX}quota"] == path
    ]
    return f"{QUEUES}/{name}"


def warnings(jobs: Jobs, config: str) -> list[str]:
    """Of a plan."""
    return ConfigClient(jobs.inspector).plan(config, "cluster.yaml").warnings


def fill(jobs: Jobs) -> None:
    """One job runs, one waits that its author suspended, and one that was called back."""
    jobs.create("runs", "b")
    jobs.expect(lambda: jobs.runs("runs"))
    jobs.create("called", "b", suspend=False)
    jobs.create("born", "b")
    jobs.expect(lambda: sorted(jobs.queued("b")) == ["born", "called"], lambda: jobs.waits("called"))


def test_jobs_of_which_calls_are_under_way_are_resumed_where_queues_are_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out, is_off = Writer._call_job, threading.Event()

    def slowly(writer: Writer, effect: CallJob, may_write: Callable[[], bool]) -> None:
        carry_out(writer, effect, may_write)
        is_off.wait(30.0)

    held = {f"{PREFIX}queue-held": "true"}
    with jobs_on(tmp_path) as jobs, monkeypatch.context() as patch:
        jobs.create("runs", "b")
        jobs.expect(lambda: jobs.runs("runs"))
        jobs.create("waits", "b", annotations=held)
        queues = jobs.running.extender.queues
        jobs.expect(lambda: queues.turns is not None and len(queues.turns.queues.order("b")) == 1)
        assert queues.turns is not None
        (key,) = queues.turns.queues.order("b")
        patch.setattr(Writer, "_call_job", slowly)
        queues.change(JobMoved(key, "back"))
        jobs.expect(lambda: jobs.kube.get(f"{JOBS}/waits")["metadata"]["annotations"] != held)
        jobs.push(OFF)
        jobs.expect(lambda: queues.turns is None and not queues._left)
        is_off.set()
        jobs.expect(lambda: jobs.is_resumed("waits"))


def test_a_plan_names_jobs_that_wait_where_queues_are_switched_off(jobs: Jobs) -> None:
    fill(jobs)
    freed, stays = warnings(jobs, OFF)
    assert freed.endswith("are resumed at once, whether or not there are cells (1): Job/default/called")
    assert "stay suspended" in stays
    assert stays.endswith("(1): Job/default/born")
    jobs.push(OFF)
    jobs.expect(lambda: jobs.is_resumed("called"))
    assert not jobs.is_resumed("born")


def test_a_plan_names_jobs_that_wait_in_a_virtual_cluster_that_goes(jobs: Jobs) -> None:
    fill(jobs)
    queues, told = sorted(warnings(jobs, CONFIG.partition("  b:")[0]))
    assert queues.startswith("queues are on: they may suspend borrowers, and jobs that lose their guarantee, at once")
    assert told.startswith("virtual clusters go")
    assert told.endswith("(2): Job/default/born, Job/default/called")


def test_a_tree_names_jobs_that_wait_in_a_quota_that_goes(jobs: Jobs) -> None:
    jobs.kube.create(TREES, tree("b", "a"))
    jobs.expect(lambda: paths(jobs) == ["root", "root/a", "root/b"])
    for name in ("first", "second"):
        jobs.create(name, "b")
    jobs.expect(lambda: jobs.queued("root/b") == ["second"])
    queues = jobs.running.extender.queues
    assert without_quotas(queues, read_tree(tree("b"))) == []
    (told,) = without_quotas(queues, read_tree(tree("a")))
    assert told.endswith("(1): Job/default/second")


def test_objects_of_quotas_that_are_no_more_go_unless_a_user_has_changed_them(jobs: Jobs) -> None:
    made = jobs.kube.create(TREES, tree("a", "b", "c"))
    jobs.expect(lambda: paths(jobs) == ["root", "root/a", "root/b", "root/c"])
    jobs.kube.patch(object_of(jobs, "root/c"), {"spec": {"queuePolicy": "Block"}})
    jobs.expect(lambda: any(item.spec for item in jobs.running.extender.queues.publisher.queue_items()))
    jobs.kube.patch(f"{TREES}/{made['metadata']['name']}", {"spec": tree("a")["spec"]})
    jobs.expect(lambda: paths(jobs) == ["root", "root/a", "root/c"])


def test_objects_go_where_queues_are_switched_off(jobs: Jobs) -> None:
    fill(jobs)
    jobs.expect(lambda: units(jobs) == ["born", "called", "runs"])
    jobs.kube.patch(f"{UNITS}/born", {"spec": {"active": False}})
    jobs.expect(lambda: jobs.state("born") == "Held")
    jobs.push(OFF)
    jobs.expect(lambda: paths(jobs) == [], lambda: units(jobs) == ["born"])


def test_objects_of_an_earlier_hived_go_once_they_are_listed_and_no_others(tmp_path: Path) -> None:
    with jobs_on(tmp_path, OFF) as jobs:
        made = [make(jobs, name, labels) for name, labels in (("mine", {}), ("left", OURS))]
        started = Publisher(jobs.kube, time.monotonic)
        started.sweep("its term", lambda: None)
        started.listed(ALL_QUEUES, made)
        started.sweep("its term", lambda: None)
        due = started.take_due(10)
        started.carry_out(due, lambda: True)
        assert [one.key[1][1] for one in due] == ["left"]
        assert paths(jobs) == ["mine"]


def make(jobs: Jobs, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Create a Queue as soon as the API server has the kind. The service deletes one of ours where queues are off."""
    item = {"metadata": {"name": name, "labels": labels, "annotations": {f"{PREFIX}quota": name}}, "spec": {}}

    def made() -> dict[str, Any]:
        with suppress(KubeError):
            return jobs.kube.create(QUEUES, item)
        return {}

    return expect_soon(made)


def test_objects_of_all_quotas_go_with_their_tree_and_the_queues_of_units_stay(jobs: Jobs) -> None:
    made = jobs.kube.create(TREES, tree("a", "b"))
    for name in ("first", "second", "third"):
        jobs.create(name, "a")
    jobs.expect(lambda: paths(jobs) == ["root", "root/a", "root/b"], lambda: len(units(jobs)) == 3)
    jobs.kube.delete(f"{TREES}/{made['metadata']['name']}")
    jobs.expect(lambda: paths(jobs) == ["a"])
    (name,) = [one["metadata"]["name"] for one in jobs.kube.get(QUEUES)["items"]]
    jobs.expect(lambda: {one["spec"]["queue"] for one in jobs.kube.get(UNITS)["items"]} == {name})


def test_a_queue_without_a_tree_has_an_object_though_all_its_jobs_run(jobs: Jobs) -> None:
    made = jobs.kube.create(TREES, tree("a", "b"))
    jobs.create("first", "a")
    jobs.expect(lambda: jobs.runs("first"), lambda: paths(jobs) == ["root", "root/a", "root/b"])
    jobs.kube.delete(f"{TREES}/{made['metadata']['name']}")
    jobs.expect(lambda: paths(jobs) == ["a"])


def test_an_object_that_a_late_call_has_made_goes_as_well(tmp_path: Path) -> None:
    with jobs_on(tmp_path, OFF) as jobs:
        publisher = Publisher(jobs.kube, time.monotonic)
        publisher.listed(ALL_QUEUES, [])
        publisher.sweep("its term", lambda: None)
        publisher.seen(ALL_QUEUES, make(jobs, "late", OURS))
        publisher.sweep("its term", lambda: None)
        due = publisher.take_due(10)
        publisher.carry_out(due, lambda: True)
        assert [one.key[1][1] for one in due] == ["late"]
        assert paths(jobs) == []
