"""Gangs of plain pods wait as jobs on an embedded cluster; the test is the controller where they have one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.insight.listing import parts_in
from hived_extender.insight.snapshot import take
from hived_extender.jobs.kinds import gates, marks
from tests.extender.queues.embedded_jobs import CONFIG, FOR_EVER, GPU, PODS, UNITS, Jobs, jobs_on, template

pytestmark = pytest.mark.sample(6)

KOORDINATOR = "gang.scheduling.koordinator.sh/"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
IN_WORDS: dict[str, dict[str, dict[str, str]]] = {
    "of Koordinator": {"annotations": {f"{KOORDINATOR}name": "ring", f"{KOORDINATOR}min-available": "2"}},
    "of PodGroups": {"labels": {"scheduling.x-k8s.io/pod-group": "ring"}},
}
MAKER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "uid": "11111111", "controller": True}

Json = dict[str, Any]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with jobs_on(tmp_path) as found:
        yield found


@pytest.fixture
def admitted(tmp_path: Path) -> Iterator[Jobs]:
    """A cluster whose webhook takes devices out of pods."""
    with jobs_on(tmp_path, has_webhook=True) as found:
        yield found


def member(
    jobs: Jobs, gang: str, number: int, vc: str = "b", *, gpus: int = 4, minimum: int = 2, seconds: str = FOR_EVER,
    is_made: bool = False,
) -> None:  # fmt: skip
    """A pod with the gate."""
    made = template(vc, gpus, "10", seconds)
    said = {f"{KOORDINATOR}name": gang, f"{KOORDINATOR}min-available": str(minimum)}
    metadata: Json = {"name": f"{gang}-{number}", "annotations": made["metadata"]["annotations"] | said}
    if is_made:
        metadata["ownerReferences"] = [MAKER]
    if not gpus:
        del made["spec"]["containers"][0]["resources"]
    jobs.kube.create(PODS, {"metadata": metadata, "spec": made["spec"] | {"schedulingGates": [{"name": gates.GATE}]}})


def pods(jobs: Jobs, gang: str) -> list[Json]:
    """Its pods."""
    return [one for one in jobs.kube.get(PODS)["items"] if one["metadata"]["name"].startswith(f"{gang}-")]


def is_gated(jobs: Jobs, gang: str, count: int) -> bool:
    """Has it so many pods, all with the gate?"""
    found = pods(jobs, gang)
    return len(found) == count and all(one["spec"].get("schedulingGates") for one in found)


def phase(jobs: Jobs, gang: str) -> str:
    """Of its unit."""
    return jobs.phase(f"{gang}-gang-qu")


def told(jobs: Jobs) -> set[tuple[str, str, str]]:
    """What the events of a queue say, but of Jobs: kind and name of the object, and the message."""
    events = jobs.kube.get(PODS.replace("pods", "events"))["items"]
    found = [(one["involvedObject"], one["message"]) for one in events if one["reason"] == "Enqueued"]
    return {(about["kind"], about["name"], text) for about, text in found if about["kind"] != "Job"}


def test_a_gang_waits_for_its_pods_and_all_gates_are_lifted_then(jobs: Jobs) -> None:
    member(jobs, "ring", 0)
    jobs.create("single", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("single"))
    assert is_gated(jobs, "ring", 1)
    jobs.delete("single")
    member(jobs, "ring", 1)
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2, lambda: phase(jobs, "ring") == "Running")
    (mark,) = {one["metadata"]["annotations"][marks.GANG] for one in pods(jobs, "ring")}
    assert mark.startswith("ring/")


def test_a_gang_goes_on_in_another_term(jobs: Jobs) -> None:
    for number in range(2):
        member(jobs, "ring", number)
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2, lambda: phase(jobs, "ring") == "Running")
    before = jobs.running.extender.queues.turns
    jobs.running.extender.queues._begun_for = None
    jobs.expect(lambda: jobs.running.extender.queues.turns is not before)
    jobs.create("next", "b")
    jobs.expect(lambda: jobs.queued("b") == ["next"], lambda: phase(jobs, "ring") == "Running")
    assert len(jobs.nodes("ring")) == 2


def test_a_gang_waits_in_the_queue_until_there_are_cells_for_all_of_it(jobs: Jobs) -> None:
    jobs.create("first", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("first"))
    for number in range(2):
        member(jobs, "ring", number)
    jobs.expect(lambda: phase(jobs, "ring") == "Enqueued", lambda: jobs.queued("b") == ["ring-gang-qu"])
    assert is_gated(jobs, "ring", 2)
    jobs.expect(lambda: told(jobs) == {("Pod", "ring-0", "waits in queue b"), ("Pod", "ring-1", "waits in queue b")})
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2)


def test_a_gang_has_one_row_among_all_jobs_whether_it_waits_or_runs(jobs: Jobs) -> None:
    def listed() -> list[str]:
        return [f"{one.name} {one.state}" for one in jobs.inspector.jobs({"queued": ("10",)})]

    member(jobs, "ring", 0)
    jobs.expect(lambda: listed() == ["Gang/default/ring Waiting"])
    member(jobs, "ring", 1)
    jobs.expect(lambda: listed() == ["Gang/default/ring Running"])
    assert (found := jobs.inspector.why("podgroup/default/ring")) is not None
    assert (found.job.name, found.job.pods) == ("Gang/default/ring", ["default/ring-0", "default/ring-1"])


def test_a_gang_of_which_a_pod_waits_while_others_run_is_one_job(jobs: Jobs) -> None:
    """The ledger of ended jobs would have a row for each name."""
    for number in range(2):
        member(jobs, "ring", number)
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2)
    member(jobs, "ring", 2)

    def named() -> dict[str, list[str]]:
        found = parts_in(take(jobs.running.extender.service))
        return {job.name: [pod for entry in job.waiting for pod in entry.pods] for job in found}

    jobs.expect(lambda: any(named().values()))
    assert named() == {"Gang/default/ring": ["default/ring-2"]}


def test_a_gang_whose_pods_have_succeeded_is_over(jobs: Jobs) -> None:
    for number in range(2):
        member(jobs, "ring", number, seconds="0.1")
    jobs.expect(lambda: phase(jobs, "ring") == "Succeed")
    ended = {"ended": ("1h",)}
    told = ["Gang/default/ring Completed"]
    jobs.expect(lambda: [f"{one.name} {one.state}" for one in jobs.inspector.jobs(ended)] == told)
    jobs.create("next", "b")
    jobs.expect(lambda: jobs.runs("next"))


def test_a_gang_that_nobody_makes_anew_never_borrows(jobs: Jobs) -> None:
    jobs.create("own", "a")
    jobs.expect(lambda: jobs.runs("own"))
    for number in range(2):
        member(jobs, "ring", number, "a")
    jobs.expect(lambda: phase(jobs, "ring") == "Enqueued")
    jobs.create("ahead", "a")
    jobs.expect(lambda: jobs.runs("ahead"))
    assert is_gated(jobs, "ring", 2)


def test_a_gang_that_is_made_anew_is_called_back_and_runs_again_at_its_old_place(jobs: Jobs) -> None:
    jobs.create("own", "a")
    jobs.expect(lambda: jobs.runs("own"))
    for number in range(2):
        member(jobs, "set", number, "a", is_made=True)
    jobs.expect(lambda: len(jobs.nodes("set")) == 2)
    jobs.create("later", "a", gpus=8)
    jobs.create("owner", "b")
    jobs.expect(lambda: not pods(jobs, "set"), lambda: jobs.runs("owner"))
    for number in range(2):
        member(jobs, "set", number, "a", is_made=True)
    jobs.expect(lambda: jobs.queued("a") == ["set-gang-qu", "later"])
    assert is_gated(jobs, "set", 2)
    jobs.delete("later")  # it would borrow the cells if they came free between the questions for both
    jobs.delete("owner")
    jobs.expect(lambda: len(jobs.nodes("set")) == 2)


def test_a_pod_of_a_running_gang_that_is_made_anew_gets_cells_again(jobs: Jobs) -> None:
    for number in range(2):
        member(jobs, "set", number, is_made=True)
    jobs.expect(lambda: len(jobs.nodes("set")) == 2, lambda: phase(jobs, "set") == "Running")
    jobs.kube.delete(f"{PODS}/set-1")
    jobs.expect(lambda: len(pods(jobs, "set")) == 1)
    member(jobs, "set", 1, is_made=True)
    jobs.expect(lambda: len(jobs.nodes("set")) == 2)


def test_a_gang_without_devices_is_let_go_when_it_is_whole(jobs: Jobs) -> None:
    member(jobs, "small", 0, gpus=0)
    jobs.create("first", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("first"))
    assert is_gated(jobs, "small", 1)
    member(jobs, "small", 1, gpus=0)
    jobs.expect(lambda: len(jobs.nodes("small")) == 2)


def test_one_plain_pod_with_the_gate_waits_as_a_job_of_its_own(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    made = template("b", 8, "10", FOR_EVER)
    spec = made["spec"] | {"schedulingGates": [{"name": gates.GATE}]}
    jobs.kube.create(PODS, {"metadata": made["metadata"] | {"name": "alone-0"}, "spec": spec})
    jobs.expect(lambda: phase(jobs, "alone-0") == "Enqueued")
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("alone")) == 1)


def test_gangs_are_let_go_where_queues_are_switched_off(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    for number in range(2):
        member(jobs, "ring", number)
    jobs.expect(lambda: phase(jobs, "ring") == "Enqueued")
    jobs.push(CONFIG.replace("enabled: true", "enabled: false"))
    jobs.expect(lambda: not any(one["spec"].get("schedulingGates") for one in pods(jobs, "ring")))
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2)


@pytest.mark.parametrize("words", IN_WORDS)
def test_gangs_from_whose_pods_the_webhook_took_the_devices_wait_for_cells(admitted: Jobs, words: str) -> None:
    jobs = admitted
    jobs.create("first", "b", gpus=4)
    jobs.expect(lambda: jobs.runs("first"))
    if words == "of PodGroups":
        jobs.kube.create(POD_GROUPS, {"metadata": {"name": "ring"}, "spec": {"minMember": 2}})
    for number in range(2):
        made = template("b", 4, "10", FOR_EVER)
        said = {key: made["metadata"].get(key, {}) | each for key, each in IN_WORDS[words].items()}
        metadata = {"name": f"ring-{number}", **made["metadata"], **said}
        jobs.kube.create(PODS, {"metadata": metadata, "spec": made["spec"]})
    jobs.expect(lambda: phase(jobs, "ring") == "Enqueued", lambda: jobs.queued("b") == ["ring-gang-qu"])
    assert is_gated(jobs, "ring", 2)
    (unit,) = (one for one in jobs.kube.get(UNITS)["items"] if one["metadata"]["name"] == "ring-gang-qu")
    assert unit["spec"]["request"][GPU] == "8"
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2)


def test_one_gated_pod_from_which_the_webhook_took_the_devices_waits_for_cells(admitted: Jobs) -> None:
    jobs = admitted
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    made = template("b", 8, "10", FOR_EVER)
    spec = made["spec"] | {"schedulingGates": [{"name": gates.GATE}]}
    jobs.kube.create(PODS, {"metadata": made["metadata"] | {"name": "alone-0"}, "spec": spec})
    jobs.expect(lambda: phase(jobs, "alone-0") == "Enqueued")
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("alone")) == 1)


def test_a_gang_that_waits_is_read_anew_after_a_push(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG + "priorityClasses: {high: 100}\n") as jobs:
        jobs.kube.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
        jobs.create("first", "b")
        jobs.expect(lambda: jobs.runs("first"))
        made = template("b", 8, "", FOR_EVER)
        spec = made["spec"] | {"schedulingGates": [{"name": gates.GATE}], "priorityClassName": "high"}
        jobs.kube.create(PODS, {"metadata": made["metadata"] | {"name": "alone-0"}, "spec": spec})
        jobs.expect(lambda: priority(jobs, "alone-0") == 100)
        jobs.push(CONFIG + "priorityClasses: {high: 200}\n")
        jobs.expect(lambda: priority(jobs, "alone-0") == 200)


def priority(jobs: Jobs, name: str) -> int | None:
    """Its priority in its queue."""
    found = jobs.inspector.queued_job(name)
    return None if found is None else found.priority


def test_a_gang_that_was_let_go_without_cells_uses_nothing_of_its_queue_until_it_has_some(jobs: Jobs) -> None:
    jobs.create("first", "b")
    jobs.expect(lambda: jobs.runs("first"))
    for number in range(2):
        member(jobs, "ring", number)
    jobs.expect(lambda: phase(jobs, "ring") == "Enqueued")
    jobs.push(CONFIG.replace("enabled: true", "enabled: false"))
    jobs.expect(lambda: not any(one["spec"].get("schedulingGates") for one in pods(jobs, "ring")))
    jobs.push(CONFIG)
    jobs.expect(lambda: jobs.running.extender.queues.turns is not None, lambda: jobs.state("first") == "Running")
    assert jobs.state("ring") == ""
    assert {one.name: one.used for one in jobs.inspector.queues()}["b"] == {GPU: 8.0}
    jobs.delete("first")
    jobs.expect(lambda: len(jobs.nodes("ring")) == 2, lambda: jobs.state("ring") == "Running")
