"""Writing the status of PodGroups: by the leader, when something changed, whatever the API server answers."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.pods.dialects import podgroup, volcano
from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.service.gangs.states import GangState
from hived_extender.service.writes.status_writer import FORGET_FROM, StatusWriter
from hived_lab.start import start_embedded
from tests.extender.service.gang_world import GangWorld
from tests.extender.service.world import CONFIG, wait_until

KEY = GangKey("team", "train")
PATHS = {
    podgroup.KIND.name: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    volcano.KIND.name: "/apis/scheduling.volcano.sh/v1beta1/podgroups",
}
OBJECT = "/namespaces/team/podgroups/train".join(("/apis/scheduling.x-k8s.io/v1alpha1", ""))


class Api:
    """One object of each kind, and the API server that has them. `refusals` are raised by the next calls, one each."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {
            kind: {"metadata": {"namespace": "team", "name": "train", "resourceVersion": "7"}, "spec": {"minMember": 2}}
            for kind in PATHS
        }
        self.refusals: list[KubeError] = []
        self.calls: list[str] = []
        self.has_subresource = True
        self.documents: dict[str, Any] = {}  # what else the API server has, by path

    def get(self, kind: str, _namespace: str = "", _name: str = "", /) -> Any:
        return self.documents[kind] if kind.startswith("/apis/") else self.found.get(kind)

    def collection(self, kind: str) -> str:
        return PATHS[kind]

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        self.calls.append(path)
        if self.refusals:
            raise self.refusals.pop(0)
        if path.endswith("/status") and not self.has_subresource:
            raise KubeError(404, "NotFound", "no such thing")
        (kind,) = [kind for kind, collection in PATHS.items() if path.startswith(collection.rpartition("/")[0])]
        assert body["metadata"] == {"resourceVersion": self.found[kind]["metadata"]["resourceVersion"]}
        self.found[kind]["status"] = {**self.found[kind].get("status", {}), **body["status"]}


class Writing:
    """A writer at work. `state` is that of the one gang there is."""

    def __init__(self) -> None:
        self.api = Api()
        self.state: GangState | None = GangState(ObjectRef(podgroup.KIND.name, "team", "train"), pod_count=2)
        self.is_leading = True
        self.writer = StatusWriter(self.api, self.api, interval_s=0.01, retry_s=0.02)
        self.writer.start(lambda key: self.state if key == KEY else None, "hived".__eq__, lambda: self.is_leading)

    def phase(self, kind: str = podgroup.KIND.name) -> str:
        """What the object says."""
        return str(self.api.found[kind].get("status", {}).get("phase", ""))

    def change(self, **counts: int) -> None:
        """The gang has come so far."""
        source = self.state.source if self.state is not None else None
        self.state = GangState(source, **({"pod_count": 2} | counts))
        self.writer.changed(KEY)


@pytest.fixture
def writing() -> Iterator[Writing]:
    writing = Writing()
    yield writing
    writing.writer.close()


def test_what_changes_is_written_and_what_does_not_is_not(writing: Writing) -> None:
    writing.change()
    wait_until(lambda: writing.phase() == "Scheduling")
    for _ in range(5):
        writing.change()
        time.sleep(0.02)
    assert writing.api.calls == [f"{OBJECT}/status"]
    writing.change(scheduled=2, running=2)
    wait_until(lambda: writing.phase() == "Running")


def test_many_changes_at_once_are_written_once(writing: Writing) -> None:
    writing.is_leading = False
    for running in range(3):
        writing.change(scheduled=2, running=running)
    time.sleep(0.05)
    assert writing.api.calls == []
    writing.is_leading = True
    wait_until(lambda: writing.phase() == "Running")
    assert len(writing.api.calls) == 1


def test_a_follower_does_not_remember_every_gang_there_ever_was(writing: Writing) -> None:
    writing.is_leading = False
    writing.change()
    for number in range(FORGET_FROM):
        writing.writer.changed(GangKey("team", f"gone-{number}"))
    wait_until(lambda: writing.writer.pending == (KEY,))
    writing.is_leading = True
    wait_until(lambda: writing.phase() == "Scheduling")
    assert writing.api.calls == [f"{OBJECT}/status"]


def test_a_gang_whose_pods_are_gone_is_said_to_have_none(writing: Writing) -> None:
    writing.change(scheduled=2, running=2)
    wait_until(lambda: writing.phase() == "Running")
    writing.state = None
    writing.writer.changed(KEY)
    wait_until(lambda: writing.phase() == "Pending")
    assert writing.api.found[podgroup.KIND.name]["status"]["running"] == 0


def test_a_pod_group_without_pods_is_let_in_if_these_will_be_ours(writing: Writing) -> None:
    base = "/apis/batch.volcano.sh/v1alpha1"
    writing.api.documents[base] = {"resources": [{"kind": "Job", "name": "jobs"}]}
    writing.api.documents[f"{base}/namespaces/team/jobs/train"] = {"spec": {"schedulerName": "hived"}}
    metadata = writing.api.found[volcano.KIND.name]["metadata"]
    metadata["ownerReferences"] = [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}]
    writing.state = None
    writing.writer.changed(KEY)
    wait_until(lambda: writing.phase(volcano.KIND.name) == "Inqueue")


@pytest.mark.parametrize("status", [409, 403, 500, 0])
def test_what_is_refused_is_tried_again(writing: Writing, status: int) -> None:
    writing.api.refusals = [KubeError(status, "Reason", "message")] * 3
    writing.change()
    wait_until(lambda: writing.phase() == "Scheduling")
    assert len(writing.api.calls) == 4


def test_a_gang_whose_object_is_refused_does_not_hold_up_others() -> None:
    api = Api()
    states = {
        GangKey("team", "refused"): GangState(ObjectRef(podgroup.KIND.name, "team", "refused"), pod_count=2),
        KEY: GangState(ObjectRef(podgroup.KIND.name, "team", "train"), pod_count=2),
    }
    api.refusals = [KubeError(403, "Forbidden", "message")]
    writer = StatusWriter(api, api, interval_s=0.01, retry_s=3600)
    writer.start(states.get, "hived".__eq__, lambda: True)
    refused = GangKey("team", "refused")
    writer.changed(refused)
    wait_until(lambda: not api.refusals)
    for key in (refused, KEY):
        writer.changed(key)
    wait_until(lambda: api.found[podgroup.KIND.name].get("status", {}).get("phase") == "Scheduling")
    assert writer.pending == (refused,)
    assert [path.split("/")[-2] for path in api.calls] == ["refused", "train"]
    writer.close()


def test_an_object_that_is_gone_is_not_tried_again(writing: Writing) -> None:
    writing.api.refusals = [KubeError(404, "NotFound", "message")] * 2
    writing.change()
    time.sleep(0.1)
    assert writing.api.calls == [f"{OBJECT}/status", OBJECT]
    writing.change(scheduled=1)
    wait_until(lambda: writing.phase() == "Scheduling")
    assert writing.api.calls[2:] == [f"{OBJECT}/status"]


def test_without_a_status_of_its_own_the_object_is_written(writing: Writing) -> None:
    writing.api.has_subresource = False
    writing.state = GangState(ObjectRef(volcano.KIND.name, "team", "train"), pod_count=2)
    writing.writer.changed(KEY)
    wait_until(lambda: writing.phase(volcano.KIND.name) == "Inqueue")
    writing.change(scheduled=2)
    wait_until(lambda: writing.phase(volcano.KIND.name) == "Running")
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/train"
    assert writing.api.calls == [f"{path}/status", path, path]


def test_a_gang_that_no_object_describes_is_not_written_anywhere(writing: Writing) -> None:
    writing.state = GangState(None, pod_count=2)
    writing.writer.changed(KEY)
    writing.writer.changed(GangKey("team", "unknown"))
    time.sleep(0.05)
    assert writing.api.calls == []


def test_it_ends_while_the_api_server_refuses_everything(writing: Writing) -> None:
    writing.api.refusals = [KubeError(500, "Reason", "message")] * 10_000
    writing.change()
    wait_until(lambda: len(writing.api.calls) > 1)
    began = time.monotonic()
    writing.writer.close()
    assert time.monotonic() - began < 30


def test_the_service_tells_of_each_change_of_a_gang_and_how_far_it_has_come() -> None:
    told: list[GangKey] = []
    world = GangWorld(on_gang_change=told.append)
    key = GangKey("ns", "g")
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2",
    }  # fmt: skip

    def state() -> tuple[int, ...]:
        assert told
        told.clear()
        found = world.service.gang_state(key)
        assert found is not None
        return found.pod_count, found.scheduled, found.running, found.succeeded, found.failed

    world.pod("a", labels=labels)
    forming = world.service.gang_state(key)
    assert forming is not None
    assert "1 of 2 pods created" in forming.obstacle
    assert state() == (1, 0, 0, 0, 0)
    world.pod("b", labels=labels)
    assert state() == (2, 0, 0, 0, 0)
    world.settle()
    assert state() == (2, 2, 0, 0, 0)
    world.become("a", "Running")
    assert state() == (2, 2, 1, 0, 0)
    world.become("a", "Succeeded")
    world.become("b", "Failed")
    assert state() == (2, 0, 0, 1, 1)
    world.delete(world.kube.pods["a"])
    world.delete(world.kube.pods["b"])
    assert told
    assert world.service.gang_state(key) is None


def test_on_an_embedded_cluster_a_pod_group_runs_when_its_pods_do(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG.replace("virtualClusters:\n  a:", "virtualClusters:\n  a:\n    namespaces: [default]"))
    with start_embedded(config) as running:
        kube = KubeClient.connect(running.cluster.api_url)
        base = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"

        def status() -> dict[str, Any]:
            found: dict[str, Any] = kube.get(f"{base}/train").get("status") or {}
            return found

        kube.create(base, {"metadata": {"name": "train"}, "spec": {"minMember": 2}})
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        for name in ("a", "b"):
            metadata = {"name": name, "labels": {"scheduling.x-k8s.io/pod-group": "train"}}
            spec = {"schedulerName": "hived", "containers": [container]}
            kube.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})
            if name == "a":
                wait_until(lambda: status().get("phase") == "Pending")
        wait_until(lambda: status().get("phase") == "Running")
        assert status()["running"] == 2
        assert status()["scheduleStartTime"]
        kube.close()
