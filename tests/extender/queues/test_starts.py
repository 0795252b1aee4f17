"""Jobs whose authors say when they start, with queues and without, and after another service has begun."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import ANY, Mock

import msgspec
import pytest
from msgspec.structs import replace

from hived_config.loader import load
from hived_config.rules import Queueing
from hived_extender.api.waiting import FOR_JOBS
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds.gates import GATE
from hived_extender.jobs.kinds.marks import AFTER, BEGIN, GANG, HELD
from hived_extender.jobs.progress import write_time
from hived_extender.jobs.wire import Pod
from hived_extender.kube.answers import Listing
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.machine.effects import CallJob
from hived_extender.machine.stimuli import JobHeld
from hived_extender.queues import awaited
from hived_extender.queues.table import STATE
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.machine.small_jobs import job
from tests.extender.queues.controller_by_hand import ControllerByHand
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, Jobs
from tests.extender.queues.test_restart import service

FAR = "2100-01-01T00:00:00Z"


def create(kube: KubeClient, name: str, **said: str) -> str:
    """A Job that is held, with words about its start; returns its uid."""
    keys = {"begin": BEGIN, "after": AFTER}
    annotations = {keys[key]: text for key, text in said.items()}
    template = {
        "metadata": {"annotations": {"hivedscheduler.microsoft.com/virtual-cluster": "b"}},
        "spec": {
            "schedulerName": "hived",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {**annotations, HELD: "true"} if said else {}},
        "spec": {"suspend": bool(said), "template": template},
    }
    return str(kube.create(JOBS, job)["metadata"]["uid"])


def is_running(kube: KubeClient, name: str) -> bool:
    return kube.get(f"{JOBS}/{name}").get("status", {}).get("ready") == 1


def told(jobs: Jobs, name: str) -> tuple[str, str, str]:
    """What lists say of a job: its state, the cause and the sentence; empty if it is in none."""
    full = f"Job/default/{name}"
    if (queued := jobs.inspector.queued_job(full)) is not None:
        return queued.state, queued.cause, queued.reason
    found = [(one.state, one.cause, one.sentence) for one in jobs.inspector.jobs() if one.name == full]
    return found[0] if found else ("", "", "")


def sentence(jobs: Jobs, name: str) -> str:
    return told(jobs, name)[2]


def end(kube: KubeClient, name: str, phase: str) -> None:
    """End the pod of a job."""
    pods = kube.list_objects("/api/v1/namespaces/default/pods", dict, label_selector=f"job-name={name}").items
    for pod in pods:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        kube.patch(path, {"status": {"phase": phase}})


@pytest.mark.parametrize("is_enabled", [True, False], ids=["queues", "no queues"])
def test_a_new_service_goes_on_with_jobs_that_wait_for_a_moment_or_for_others(tmp_path: Path, is_enabled: bool) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG if is_enabled else CONFIG.replace("enabled: true", "enabled: false"))
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
    ):
        with service(file, cluster, kube) as jobs:
            uids = {name: create(kube, name) for name in ("prep", "load")}
            jobs.expect(lambda: is_running(kube, "prep") and is_running(kube, "load"))
            after = ",".join(f"afterok:Job.batch/{name}/{uid}" for name, uid in uids.items())
            create(kube, "use", after=after)
            create(kube, "broken", after=after)
            create(kube, "late", begin=FAR)
            jobs.expect(lambda: "waits until Job prep and Job load have succeeded" in sentence(jobs, "use"))
            jobs.expect(lambda: f"begins at {FAR}" in sentence(jobs, "late"))
            end(kube, "prep", "Succeeded")
            left = f"afterok:Job.batch/load/{uids['load']}"
            jobs.expect(lambda: kube.get(f"{JOBS}/use")["metadata"]["annotations"][AFTER] == left)
            kube.delete(f"{JOBS}/prep", with_dependents=True)
            jobs.expect(lambda: not told(jobs, "prep")[0])
        with service(file, cluster, kube) as jobs:
            jobs.expect(lambda: "waits until Job load has succeeded" in sentence(jobs, "use"))
            jobs.expect(lambda: f"begins at {FAR}" in sentence(jobs, "late"))
            end(kube, "load", "Succeeded")
            jobs.expect(lambda: is_running(kube, "use"))
            soon = write_time(time.time() + 1)
            kube.patch(f"{JOBS}/late", {"metadata": {"annotations": {BEGIN: soon}}})
            jobs.expect(lambda: is_running(kube, "late"))


@pytest.mark.parametrize("is_enabled", [True, False], ids=["queues", "no queues"])
def test_a_job_that_never_starts_says_why_and_starts_once_the_word_is_removed(tmp_path: Path, is_enabled: bool) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG if is_enabled else CONFIG.replace("enabled: true", "enabled: false"))
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
        service(file, cluster, kube) as jobs,
    ):
        uid = create(kube, "prep")
        create(kube, "use", after=f"afterok:Job.batch/prep/{uid}")
        jobs.expect(lambda: "waits until Job prep has succeeded" in sentence(jobs, "use"))
        kube.delete(f"{JOBS}/prep", with_dependents=True)
        jobs.expect(lambda: "which was deleted before it was seen to succeed" in sentence(jobs, "use"))
        assert told(jobs, "use")[:2] == ("Refused", "never")
        assert "hived release use -n default --now starts it all the same" in sentence(jobs, "use")
        found = jobs.inspector.why("Job/default/use")
        assert found is not None
        assert found.certificate is not None
        assert (found.certificate.never, found.certificate.untried) == (True, FOR_JOBS)
        assert kube.get(f"{JOBS}/use")["spec"]["suspend"] is True
        kube.patch(f"{JOBS}/use", {"metadata": {"annotations": {AFTER: None}}})
        jobs.expect(lambda: is_running(kube, "use"))


class Objects:
    """The Jobs that the API server has, by name with their uids; `fault` is its answer to all questions instead."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.more: dict[str, Any] = {}  # of their metadata
        self.status: dict[str, Any] = {}
        self.fault: KubeError | None = None
        self.pods: list[Pod] = []
        self.asked = 0

    def get(self, path: str) -> dict[str, Any]:
        """See `KubeClient.get`."""
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        name = path.rpartition("/")[2]
        if path != f"/apis/batch/v1/namespaces/ns/jobs/{name}" or name not in self.uids:
            raise KubeError(404, "NotFound", path)
        return {"metadata": {"name": name, "namespace": "ns", "uid": self.uids[name], **self.more}, **self.status}

    def list_objects(self, path: str, of: type[Pod]) -> Listing[Pod]:
        """See `KubeClient.list_objects`."""
        assert (path, of) == ("/api/v1/namespaces/ns/pods", Pod)
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return Listing(self.pods, "1")


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def hand(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> ControllerByHand:
    found = ControllerByHand(monkeypatch)
    found.kube.get, found.kube.list_objects = objects.get, objects.list_objects
    return found


def create_waiting(hand: ControllerByHand, after: str) -> None:
    """A job `use` that waits for others."""
    hand.create("use")
    hand.say("use", {AFTER: after})


def why(hand: ControllerByHand) -> str:
    """Why the job `use` waits."""
    [seen] = hand.queues.not_yet()
    assert seen.wait is not None
    return seen.wait.sentence


PREP = "afterany:Job.batch/prep/uid-prep"
FAULTS = [KubeError(0, "NoAnswer", "timed out"), KubeError(403, "Forbidden", "no"), KubeError(503, "", "busy")]


@pytest.mark.parametrize("is_enabled", [True, False], ids=["queues", "no queues"])
def test_a_job_waits_for_one_whose_watch_is_behind(is_enabled: bool, objects: Objects, hand: ControllerByHand) -> None:
    hand.configure(Queueing(is_enabled=is_enabled))
    objects.uids["prep"] = "uid-prep"
    create_waiting(hand, PREP)
    hand.run(40)
    assert hand.are(JobState.HELD) == ["use"]
    assert "waits until Job prep, of which hived has not heard yet, has ended" in why(hand)
    hand.create("prep")
    hand.set("prep", replace(hand.jobs["prep"], state=JobState.RESUMED))
    hand.run(40)
    assert why(hand) == "waits until Job prep has ended"
    del objects.uids["prep"]
    hand.delete("prep")
    hand.run(40)
    assert hand.are(JobState.RESUMED) == ["use"]


@pytest.mark.parametrize("is_enabled", [True, False], ids=["queues", "no queues"])
def test_a_job_waits_of_which_a_new_leader_knows_before_it_handles_its_news(
    is_enabled: bool, objects: Objects, hand: ControllerByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.configure(Queueing(is_enabled=is_enabled))
    objects.uids["prep"] = "uid-prep"
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(hand.cluster.service, "tell", lambda told: None)
        create_waiting(hand, PREP)
    hand.lead_again(lambda: None)
    hand.run(40)
    assert hand.are(JobState.HELD) == ["use"]
    assert "waits until Job prep" in why(hand)


def test_a_job_waits_for_the_later_one_of_a_name_while_the_watch_knows_an_earlier_one(
    objects: Objects, hand: ControllerByHand
) -> None:
    hand.create("prep")
    hand.set("prep", replace(hand.jobs["prep"], state=JobState.SUCCEEDED))
    objects.uids["prep"] = "later"
    create_waiting(hand, "afterany:Job.batch/prep/later")
    hand.run(40)
    assert "of which hived has not heard yet" in why(hand)
    objects.uids["prep"] = "still later"
    hand.run(200)
    assert hand.are(JobState.RESUMED) == ["use"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_job_waits_while_nobody_knows_whether_the_other_one_is_there(
    fault: KubeError, objects: Objects, hand: ControllerByHand
) -> None:
    objects.fault = fault
    create_waiting(hand, PREP)
    hand.run(400)
    said = f"of which the API server does not say whether it is there ({fault.reason or fault.status})"
    assert said in why(hand)
    assert 2 <= objects.asked <= 12, "later each time"
    objects.fault = None
    hand.run(400)
    assert hand.are(JobState.RESUMED) == ["use"]


@pytest.mark.parametrize(
    ("more", "status", "condition", "starts"),
    [
        ({}, {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "afterok", True),
        ({}, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "afterok", False),
        ({}, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "afterany", True),
        ({"deletionTimestamp": "2026-11-30T12:00:00Z"}, {}, "afterany", True),
        ({"deletionTimestamp": "2026-11-30T12:00:00Z"}, {}, "afterok", False),
        ({}, {"spec": {"parallelism": "many"}}, "afterany", False),
    ],
    ids=["succeeded", "failed", "ended", "is deleted", "is deleted before", "cannot be read"],
)
def test_a_job_that_no_watch_tells_of_ends_as_its_object_says(
    more: dict[str, Any], status: dict[str, Any], condition: str, starts: bool, objects: Objects, hand: ControllerByHand
) -> None:
    objects.uids["prep"], objects.more, objects.status = "uid-prep", more, status
    create_waiting(hand, PREP.replace("afterany", condition))
    hand.run(60)
    assert hand.are(JobState.RESUMED) == ["use"] * starts


def test_a_job_that_trips_a_bug_keeps_no_other_one_from_being_asked_about(
    objects: Objects, hand: ControllerByHand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(awaited, "_answer", Mock(side_effect=TypeError("a mistake of ours")))
    objects.uids["prep"] = "uid-prep"
    create_waiting(hand, f"{PREP},afterany:Job.batch/gone/uid-gone")
    hand.run(60)
    assert why(hand) == "waits until Job prep, which hived cannot read, has ended", "the other one is gone"
    assert any(record.exc_info is not None for record in caplog.records), "with the place of the bug"
    del objects.uids["prep"]
    hand.run(400)
    assert hand.are(JobState.RESUMED) == ["use"]


def test_a_job_that_is_there_and_cannot_be_read_is_told_so(objects: Objects, hand: ControllerByHand) -> None:
    objects.uids["prep"], objects.status = "uid-prep", {"spec": {"parallelism": "many"}}
    create_waiting(hand, PREP)
    hand.run(40)
    assert why(hand) == "waits until Job prep, which hived cannot read, has ended"


def gang_pod(uid: str, mark: str = "", maker: str = "") -> Pod:
    """A pod of gang x: gated, or with a mark that names a uid; made by an object with this uid."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": maker, "controller": True}
    metadata = {"uid": uid, "name": "x", "namespace": "ns", "annotations": {GANG: f"x/{mark}"} if mark else {}}
    spec = {} if mark else {"schedulingGates": [{"name": GATE}]}
    return msgspec.convert({"metadata": {**metadata, "ownerReferences": [owner] if maker else []}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("pod", "is_there"),
    [
        (gang_pod("wanted"), True),
        (gang_pod("another"), False),
        (gang_pod("another", mark="wanted"), True),
        (gang_pod("another", mark="a later one"), False),
        (gang_pod("another", maker="wanted"), True),
        (gang_pod("another", maker="a later one"), False),
    ],
)
def test_a_gang_of_the_name_is_the_one_that_is_waited_for_by_its_uid(
    pod: Pod, is_there: bool, objects: Objects, hand: ControllerByHand
) -> None:
    objects.pods = [pod]
    create_waiting(hand, "afterany:Gang/x/wanted")
    hand.run(60)
    assert hand.are(JobState.RESUMED) == ([] if is_there else ["use"])


def test_the_pods_of_a_namespace_are_listed_once_for_all_its_gangs(objects: Objects, hand: ControllerByHand) -> None:
    create_waiting(hand, ",".join(f"afterany:Gang/gone{at}/uid{at}" for at in range(awaited.QUESTIONS)))
    hand.run(60)
    assert hand.are(JobState.RESUMED) == ["use"]
    assert objects.asked == 1


def test_many_jobs_are_asked_about_a_few_at_a_time(objects: Objects, hand: ControllerByHand) -> None:
    count = 2 * awaited.QUESTIONS + 1
    create_waiting(hand, ",".join(f"afterany:Job.batch/gone{at}/uid{at}" for at in range(count)))
    hand.run(100)
    assert objects.asked == count
    assert hand.are(JobState.RESUMED) == ["use"]


def hold_use(hand: ControllerByHand) -> None:
    """`use` waits for a moment and for two jobs that run."""
    for name in ("load", "prep"):
        hand.create(name)
        hand.set(name, replace(hand.jobs[name], state=JobState.RESUMED))
    hand.create("use")
    hand.say("use", {AFTER: f"{PREP},afterany:Job.batch/load/uid-load", BEGIN: FAR})
    hand.run(40)


def notes(hand: ControllerByHand) -> list[CallJob]:
    """The calls under way that write words about starts."""
    calls = [effect for effect, _ in hand.cluster.by_hand.jobs if isinstance(effect, CallJob)]
    return [one for one in calls if AFTER in one.calls[0].body["metadata"]["annotations"]]


@pytest.mark.parametrize("is_refused", [False, True], ids=["a note is under way", "and is refused"])
def test_a_job_that_is_released_while_its_words_are_written_starts(
    is_refused: bool, objects: Objects, hand: ControllerByHand
) -> None:
    hold_use(hand)
    hand.set("prep", replace(hand.jobs["prep"], state=JobState.SUCCEEDED))
    while not notes(hand):
        hand.step()
    hand.queues.change(JobHeld(job("use").key, False, True))
    assert len(notes(hand)) == 2
    hand.carry_out(["use"] if is_refused else ())
    hand.run(200)
    assert "use" in hand.are(JobState.RESUMED)
    assert not {AFTER, BEGIN} & hand.jobs["use"].annotations.keys()


def test_a_release_is_not_undone_while_the_watch_is_behind(objects: Objects, hand: ControllerByHand) -> None:
    hold_use(hand)
    hand.is_behind = True
    hand.queues.change(JobHeld(job("use").key, False, True))
    hand.carry_out()
    hand.queues.jobs.keep(job("prep").job_name, replace(hand.jobs["prep"], state=JobState.SUCCEEDED))
    hand.run(200)
    assert not {AFTER, BEGIN} & hand.jobs["use"].annotations.keys()
    hand.is_behind = False
    hand.set("use", hand.jobs["use"])
    hand.run(200)
    assert "use" in hand.are(JobState.RESUMED)


def test_a_release_and_the_words_that_it_removes_are_one_call(hand: ControllerByHand) -> None:
    hand.create("use")
    hand.say("use", {BEGIN: FAR, AFTER: PREP})
    hand.run(40)
    hand.queues.change(JobHeld(job("use").key, False, True))
    [effect] = [effect for effect, _ in hand.cluster.by_hand.jobs if isinstance(effect, CallJob)]
    [call] = effect.calls
    assert call.body["metadata"]["annotations"] == {STATE: ANY, AFTER: None, BEGIN: None}


def test_news_of_before_a_release_hold_a_job_no_more(hand: ControllerByHand) -> None:
    """The answer to the release would else say that it is held."""
    hand.create("use")
    hand.say("use", {BEGIN: FAR})
    hand.run(40)
    hand.queues.change(JobHeld(job("use").key, False, True))
    hand.set("use", hand.jobs["use"])
    for _ in range(20):  # without what follows: the words are not removed yet
        hand.step()
    turns = hand.queues.turns
    assert turns is not None
    assert not turns.queues.entries[job("use").key].may_not_start


def test_a_release_that_is_refused_is_tried_again(hand: ControllerByHand) -> None:
    hand.create("use")
    hand.say("use", {BEGIN: FAR})
    hand.run(40)
    hand.queues.change(JobHeld(job("use").key, False, True))
    hand.carry_out(["use"])
    hand.run(200)
    assert hand.are(JobState.RESUMED) == ["use"]


def test_words_that_come_after_a_release_hold_a_job_again(hand: ControllerByHand) -> None:
    hand.create("use")
    hand.say("use", {BEGIN: FAR})
    hand.run(40)
    hand.create("big", pods=2)
    hand.set("big", replace(hand.jobs["big"], state=JobState.RESUMED))
    hand.queues.change(JobHeld(job("use").key, False, True))
    hand.carry_out()
    assert BEGIN not in hand.jobs["use"].annotations
    hand.say("use", {BEGIN: FAR})
    hand.run(100)
    assert hand.jobs["use"].annotations[BEGIN] == FAR
    assert "use" in hand.are(JobState.HELD)
