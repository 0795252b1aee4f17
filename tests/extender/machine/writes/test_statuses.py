"""Writing the status of PodGroups, whatever the API server answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hived_extender.jobs.kinds import coscheduling, volcano
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.machine.effects import WriteStatuses
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.writes.statuses import StatusWriter
from hived_lab.start import start_embedded
from tests.extender.machine.small_cluster import CONFIG, wait_until

KEY = GangKey("team", "train")
PATHS = {
    coscheduling.PODGROUPS.name: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    volcano.PODGROUPS.name: "/apis/scheduling.volcano.sh/v1beta1/podgroups",
}
SOURCE = ObjectRef(coscheduling.PODGROUPS.name, "team", "train")
FORMS = GangState(SOURCE, pod_count=2)
OBJECT = "/namespaces/team/podgroups/train".join(("/apis/scheduling.x-k8s.io/v1alpha1", ""))


class Api:
    """One object of each kind, and the API server that has them. `refusals` are raised by the next calls, one each."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {
            kind: {"metadata": {"namespace": "team", "name": "train", "resourceVersion": "7"}, "spec": {"minMember": 2}}
            for kind in PATHS
        }
        self.refusals: list[Exception] = []
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


Outcome = tuple[list[GangKey], list[GangKey]]


class Writing:
    """A writer, and what came of its last call."""

    def __init__(self) -> None:
        self.api = Api()
        self.writer = StatusWriter(self.api, self.api, "hived".__eq__)

    def write(
        self, state: GangState | None, source: ObjectRef | None = SOURCE, may_write: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """Write the state of the one gang there is."""
        return self.writer.write(WriteStatuses({KEY: state}, {KEY: source} if source else {}), may_write)

    def phase(self, kind: str = coscheduling.PODGROUPS.name) -> str:
        """The phase in the object's status."""
        return str(self.api.found[kind].get("status", {}).get("phase", ""))


@pytest.fixture
def writing() -> Writing:
    return Writing()


def test_what_the_object_does_not_say_yet_is_written(writing: Writing) -> None:
    assert writing.write(FORMS) == ([], [])
    assert (writing.phase(), writing.api.calls) == ("Scheduling", [f"{OBJECT}/status"])


def test_what_it_says_already_is_not(writing: Writing) -> None:
    writing.write(FORMS)
    writing.write(FORMS)
    assert writing.api.calls == [f"{OBJECT}/status"]


def test_a_gang_whose_pods_are_gone_is_said_to_have_none(writing: Writing) -> None:
    writing.write(GangState(SOURCE, pod_count=2, scheduled=2, running=2))
    assert writing.phase() == "Running"
    writing.write(None)
    assert writing.phase() == "Pending"
    assert writing.api.found[coscheduling.PODGROUPS.name]["status"]["running"] == 0


def test_a_pod_group_without_pods_is_let_in_if_these_will_be_ours(writing: Writing) -> None:
    base = "/apis/batch.volcano.sh/v1alpha1"
    writing.api.documents[base] = {"resources": [{"kind": "Job", "name": "jobs"}]}
    writing.api.documents[f"{base}/namespaces/team/jobs/train"] = {"spec": {"schedulerName": "hived"}}
    metadata = writing.api.found[volcano.PODGROUPS.name]["metadata"]
    metadata["ownerReferences"] = [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}]
    writing.write(None, None)
    assert writing.phase(volcano.PODGROUPS.name) == "Inqueue"


@pytest.mark.parametrize(
    ("status", "outcome"), [(409, ([KEY], [])), (403, ([], [KEY])), (500, ([], [KEY])), (0, ([], [KEY]))]
)
def test_what_is_refused_is_to_be_tried_again(writing: Writing, status: int, outcome: Outcome) -> None:
    writing.api.refusals = [KubeError(status, "Reason", "message")]
    assert writing.write(FORMS) == outcome


def test_an_object_that_is_gone_is_not(writing: Writing) -> None:
    writing.api.refusals = [KubeError(404, "NotFound", "message")] * 2
    assert writing.write(FORMS) == ([], [])
    assert writing.api.calls == [f"{OBJECT}/status", OBJECT]


@pytest.mark.parametrize("error", [KubeError(403, "Forbidden", "message"), ValueError("a mistake of ours")])
def test_a_gang_whose_status_is_not_written_does_not_hold_up_others(
    writing: Writing, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    refused = GangKey("team", "refused")
    source = ObjectRef(coscheduling.PODGROUPS.name, "team", "refused")
    writing.api.refusals = [error]
    effect = WriteStatuses({refused: GangState(source, pod_count=2), KEY: FORMS}, {refused: source, KEY: SOURCE})
    writing.writer.write(effect, lambda: True)
    assert [path.split("/")[-2] for path in writing.api.calls] == ["refused", "train"]
    assert len(caplog.records) == 1


def test_without_a_status_of_its_own_the_object_is_written(writing: Writing) -> None:
    writing.api.has_subresource = False
    source = ObjectRef(volcano.PODGROUPS.name, "team", "train")
    for scheduled, phase in ((0, "Inqueue"), (2, "Running")):
        writing.write(GangState(source, pod_count=2, scheduled=scheduled), source)
        assert writing.phase(volcano.PODGROUPS.name) == phase
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/train"
    assert writing.api.calls == [f"{path}/status", path, path]


def test_a_gang_that_no_object_describes_is_not_written_anywhere(writing: Writing) -> None:
    assert writing.write(GangState(None, pod_count=2), None) == ([], [])
    assert writing.api.calls == []


def test_nothing_is_written_once_another_leads(writing: Writing) -> None:
    assert writing.write(FORMS, may_write=lambda: False) == ([KEY], [])
    assert writing.api.calls == []


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
