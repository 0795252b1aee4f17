"""Events and conditions against an API server, folded and limited; and what happens when there is none."""

import contextlib
import io
import itertools
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.events import MESSAGE_LIMIT, NORMAL, EventRecorder
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.wire import Pod, PodCondition
from hived_extender.service.writes.announcer import Announcer
from hived_extender.service.writes.notices import CONDITION_TYPE, Pace
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.cluster import kubeconfig_text
from tests.lab.embedded.helpers import PATIENCE_S, Http, api_server, eventually, pod

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
QUICK = Pace(hold_s=0.0, change_s=0.0, repeat_s=0.1, burst=1000, refill_s=300, reserve=0)
_numbers = itertools.count()


@dataclass(frozen=True)
class Ref:
    uid: str
    namespace: str
    name: str


class Tapped(KubeClient):
    """A client that notes its calls."""

    calls: list[tuple[str, str]]

    def _request(self, method: str, path: str, *arguments: Any, **options: Any) -> bytes:
        self.calls.append((method, path))
        return super()._request(method, path, *arguments, **options)


class Unanswered(KubeClient):
    """A client whose conditions are written long before it hears of that."""

    is_written: threading.Event
    may_answer: threading.Event

    def patch_lists(self, *arguments: Any) -> None:
        super().patch_lists(*arguments)
        self.is_written.set()
        assert self.may_answer.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture
def http(server: ApiServer) -> Http:
    return Http(server.port)


@pytest.fixture
def kube(server: ApiServer) -> Iterator[Tapped]:
    client = Tapped.connect(server.url)
    client.calls = []
    yield client
    client.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def announcer(kube: Tapped, metrics: Metrics) -> Iterator[Announcer]:
    made = Announcer(kube, metrics, pace=QUICK)
    yield made
    made.close()


@pytest.fixture
def ref(http: Http) -> Ref:
    """A pod that only this test uses."""
    return create(http, f"train-{next(_numbers)}")


def create(http: Http, name: str) -> Ref:
    return Ref(http.ok("POST", PODS, pod(name))["metadata"]["uid"], "default", name)


def events(http: Http, ref: Ref) -> dict[tuple[str, str], int]:
    """Counts by reason and message."""
    found = http.ok("GET", EVENTS, fieldSelector=f"involvedObject.uid={ref.uid}")["items"]
    by_text = {(event["reason"], event["message"]): event["count"] for event in found}
    assert len(by_text) == len(found), "two events say the same"
    return by_text


def conditions(http: Http, ref: Ref) -> dict[str, dict[str, Any]]:
    status = http.ok("GET", f"{PODS}/{ref.name}")["status"]
    return {condition["type"]: condition for condition in status.get("conditions", [])}


def ours(http: Http, ref: Ref) -> tuple[str, str, str] | None:
    one = conditions(http, ref).get(CONDITION_TYPE)
    return one and (one["status"], one["reason"], one["message"])


def outcomes(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("hived_events_total", {"outcome": outcome}) or 0.0


def written(metrics: Metrics) -> float:
    return outcomes(metrics, "created") + outcomes(metrics, "counted")


def test_a_wait_that_is_repeated_is_one_event_that_counts(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref))
    for _ in range(999):
        announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref) == {("Waiting", "no room"): 1000})
    announcer.waiting(ref, "a bad node")
    assert eventually(lambda: events(http, ref) == {("Waiting", "no room"): 1000, ("Waiting", "a bad node"): 1})


def test_a_thousand_repeats_are_few_writes(announcer: Announcer, kube: Tapped, http: Http, ref: Ref) -> None:
    for _ in range(1000):
        announcer.waiting(ref, "no room")
        time.sleep(0.0002)
    assert eventually(lambda: sum(events(http, ref).values()) == 1000)
    assert sum(method in ("POST", "PATCH") for method, _ in kube.calls) < 20


def test_an_event_that_has_expired_is_written_anew(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref))
    for event in http.ok("GET", EVENTS, fieldSelector=f"involvedObject.uid={ref.uid}")["items"]:
        http.ok("DELETE", f"{EVENTS}/{event['metadata']['name']}")
    announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref) == {("Waiting", "no room"): 1})


def test_another_process_counts_the_same_event_up(announcer: Announcer, kube: Tapped, http: Http, ref: Ref) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref))
    with contextlib.closing(Announcer(kube, Metrics(), pace=QUICK)) as successor:
        successor.waiting(ref, "no room")
        assert eventually(lambda: events(http, ref) == {("Waiting", "no room"): 2})


def test_what_happens_to_a_pod_is_told(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.preempting(ref, "victims on n1 (2)")
    assert eventually(lambda: ours(http, ref) == ("False", "Preempting", "victims on n1 (2)"))
    announcer.blocked(ref, "disruption budget default/quorum")
    announcer.scheduled(ref, "n1", (0, 1), vc="research", group="default/train")
    text = "node n1, leaf cells 0,1, virtual cluster research, affinity group default/train"
    assert eventually(lambda: ours(http, ref) == ("True", "Allocated", text))
    announcer.lazily_preempted(ref, "default/train", "default/urgent")
    assert eventually(lambda: (ours(http, ref) or ("",) * 3)[1] == "LazyPreempted")
    announcer.evicting(ref, Ref("u-1", "elsewhere", "urgent"))
    assert eventually(lambda: ("Preempted", "its cells are needed by pod u-1") in events(http, ref))
    assert {("Preempting", "victims on n1 (2)"), ("Scheduled", text)} <= events(http, ref).keys()
    assert len(events(http, ref)) in (4, 5)  # the blocked eviction is not worth telling of a pod that is scheduled


def test_an_invalid_annotation_is_a_warning(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.refused(ref, "leafCellNumber is missing")
    assert eventually(lambda: ours(http, ref) == ("False", "InvalidSpec", "leafCellNumber is missing"))
    (event,) = http.ok("GET", EVENTS, fieldSelector=f"involvedObject.uid={ref.uid}")["items"]
    assert (event["type"], event["reason"]) == ("Warning", "InvalidSpec")
    assert event["source"]["component"] == event["reportingComponent"] == "hived"


def test_a_pod_that_is_scheduled_at_once_costs_one_write(
    announcer: Announcer, kube: Tapped, http: Http, ref: Ref
) -> None:
    announcer.scheduled(ref, "n1", (0,))
    assert eventually(lambda: events(http, ref) == {("Scheduled", "node n1, leaf cells 0"): 1})
    announcer.close()
    assert [method for method, _ in kube.calls] == ["POST"]
    assert ours(http, ref) is None


def test_conditions_of_others_stay(announcer: Announcer, http: Http, ref: Ref) -> None:
    theirs = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    http.patch(f"{PODS}/{ref.name}/status", {"status": {"conditions": [theirs]}}, "strategic-merge-patch")
    announcer.waiting(ref, "no room")
    assert eventually(lambda: ours(http, ref))
    assert conditions(http, ref)["PodScheduled"].items() >= theirs.items()


def test_the_time_of_a_condition_moves_with_its_status_alone(announcer: Announcer, http: Http, ref: Ref) -> None:
    old = {"type": CONDITION_TYPE, "status": "False", "reason": "Waiting", "message": "no room"}
    then = "2024-01-01T00:00:00Z"
    body = {"status": {"conditions": [{**old, "lastTransitionTime": then}]}}
    http.patch(f"{PODS}/{ref.name}/status", body, "strategic-merge-patch")
    announcer.observe(ref, PodCondition(CONDITION_TYPE, "False", "Waiting", "no room"))
    announcer.waiting(ref, "a bad node")
    assert eventually(lambda: ours(http, ref) == ("False", "Waiting", "a bad node"))
    assert conditions(http, ref)[CONDITION_TYPE]["lastTransitionTime"] == then
    announcer.scheduled(ref, "n1", (0,))
    assert eventually(lambda: (ours(http, ref) or ("",))[0] == "True")
    assert conditions(http, ref)[CONDITION_TYPE]["lastTransitionTime"] > then


def test_a_scheduler_that_retries_on_every_change_of_a_pod_finds_an_end(
    announcer: Announcer, kube: Tapped, server: ApiServer, ref: Ref
) -> None:
    """As kube-scheduler with queueing hints: any change of the pod, its status included, is another attempt."""
    attempts = []
    watcher = KubeClient.connect(server.url)
    version = watcher.list_objects(PODS, Pod).resource_version

    def retry() -> None:
        with contextlib.suppress(KubeError):  # closing ends the watch
            for event in watcher.watch(PODS, Pod, version, timeout_s=20):
                if event.object is not None and event.object.metadata.uid == ref.uid:
                    attempts.append(event.type)
                    announcer.waiting(ref, "no room")

    thread = threading.Thread(target=retry)
    thread.start()
    announcer.waiting(ref, "no room")
    assert eventually(lambda: attempts)
    time.sleep(5 * QUICK.repeat_s)
    watcher.close()
    thread.join()
    assert attempts == ["MODIFIED"]
    assert [path for _, path in kube.calls if path.endswith("/status")] == [f"{PODS}/{ref.name}/status"]


def test_a_condition_that_another_process_wrote_is_not_written_again(
    announcer: Announcer, kube: Tapped, http: Http, ref: Ref
) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: ours(http, ref))
    successor = Announcer(kube, Metrics(), pace=QUICK)
    successor.observe(ref, PodCondition(CONDITION_TYPE, "False", "Waiting", "no room"))
    successor.waiting(ref, "no room")
    successor.close()
    assert eventually(lambda: sum(events(http, ref).values()) == 2)
    assert [path for _, path in kube.calls if path.endswith("/status")] == [f"{PODS}/{ref.name}/status"]


def test_a_wait_that_another_process_wrote_is_taken_back(
    announcer: Announcer, kube: Tapped, http: Http, ref: Ref
) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: ours(http, ref))
    with contextlib.closing(Announcer(kube, Metrics(), pace=QUICK)) as successor:
        successor.observe(ref, PodCondition(CONDITION_TYPE, "False", "Waiting", "no room"))
        successor.scheduled(ref, "n1", (0,))
        assert eventually(lambda: (ours(http, ref) or ("",))[0] == "True")


def test_a_wait_is_taken_back_of_a_pod_that_a_dead_process_bound(
    announcer: Announcer, kube: Tapped, http: Http, ref: Ref
) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: ours(http, ref))
    written = events(http, ref)
    with contextlib.closing(Announcer(kube, Metrics(), pace=QUICK)) as successor:
        successor.replayed(ref, "n1", (0,))
        successor.observe(ref, PodCondition(CONDITION_TYPE, "False", "Waiting", "no room"))
        assert ours(http, ref) == ("False", "Waiting", "no room")
        successor.replayed(ref, "n1", (0,))
        assert eventually(lambda: ours(http, ref) == ("True", "Allocated", "node n1, leaf cells 0"))
    assert events(http, ref) == written


def test_replaying_a_pod_does_not_hide_that_it_was_preempted_lazily(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.lazily_preempted(ref, "g", "h")
    assert eventually(lambda: ours(http, ref))
    announcer.replayed(ref, "n1", (0,))
    announcer.close()
    assert (ours(http, ref) or ("",) * 3)[1] == "LazyPreempted"


def test_a_later_pod_of_the_same_name_is_left_alone(announcer: Announcer, http: Http, ref: Ref) -> None:
    http.ok("DELETE", f"{PODS}/{ref.name}", gracePeriodSeconds=0)
    later = create(http, ref.name)
    announcer.waiting(ref, "no room")
    assert eventually(lambda: events(http, ref))
    announcer.close()
    assert ours(http, later) is None
    assert events(http, later) == {}


def test_what_befell_a_pod_is_told_after_it_is_gone(announcer: Announcer, http: Http, ref: Ref) -> None:
    http.ok("DELETE", f"{PODS}/{ref.name}", gracePeriodSeconds=0)
    announcer.evicting(ref, Ref("u-1", "default", "urgent"))
    announcer.forget(ref.uid)
    assert eventually(lambda: events(http, ref) == {("Preempted", "its cells are needed by pod u-1"): 1})


def test_a_namespace_that_is_gone_ends_the_attempts(announcer: Announcer, kube: Tapped, metrics: Metrics) -> None:
    announcer.waiting(Ref("u-2", "nowhere", "lost"), "no room")
    announcer.close()
    assert outcomes(metrics, "failed") == 1
    assert len(kube.calls) == 2


@pytest.mark.parametrize("length", [1, 253])
def test_names_and_messages_are_cut_to_what_kubernetes_takes(http: Http, kube: Tapped, length: int) -> None:
    ref = Ref(f"u-{length}", "default", "x" * length)
    EventRecorder(kube, "hived").record(ref, NORMAL, "Waiting", "é" * 2000)
    (event,) = http.ok("GET", EVENTS, fieldSelector=f"involvedObject.uid={ref.uid}")["items"]
    assert len(event["metadata"]["name"]) <= 253
    assert MESSAGE_LIMIT - 2 <= len(event["message"].encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "is silent"])
def test_nobody_waits_for_an_api_server_that(is_silent: bool, metrics: Metrics) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    if not is_silent:
        listener.close()
    announcer = Announcer(KubeClient.connect(f"http://127.0.0.1:{port}"), metrics, board_limit=500)
    refs = [Ref(f"u-{number}", "default", f"p-{number}") for number in range(5000)]
    announcer.waiting(refs[0], "the threads start")
    tracemalloc.start()
    for ref in refs:
        announcer.waiting(ref, f"no room for {ref.name}")
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    seconds = []
    for ref in refs:
        started = time.perf_counter()
        announcer.waiting(ref, "no room")
        seconds.append(time.perf_counter() - started)
    started = time.monotonic()
    announcer.close(0.5)
    assert time.monotonic() - started < PATIENCE_S / 2
    listener.close()
    print(
        f"median {sorted(seconds)[2500] * 1e6:.0f} us, longest {max(seconds) * 1e6:.0f} us, {grown / 500:.0f} B a pod"
    )
    assert sorted(seconds)[2500] < 0.001
    assert grown < 500 * 4000
    assert outcomes(metrics, "dropped") >= 9000


def test_what_was_said_while_the_api_server_was_away_is_written_when_it_is_back(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with api_server() as gone:
        port = gone.port
    announcer = Announcer(KubeClient.connect(f"http://127.0.0.1:{port}"), metrics, pace=QUICK)
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            announcer.scheduled(Ref(f"u-{number}", "default", f"away-{number}"), "n1", (number,))
        assert eventually(lambda: outcomes(metrics, "failed") >= 3)
    with api_server(port=port) as back:
        http = Http(back.port)
        assert eventually(lambda: len(http.ok("GET", EVENTS)["items"]) == 20)
        announcer.close()
    assert len([record for record in caplog.records if "default/away-" in record.getMessage()]) == 1


def test_thousands_of_pods_are_told_of(kube: Tapped, http: Http, metrics: Metrics) -> None:
    announcer = Announcer(kube, metrics)
    started = time.monotonic()
    for number in range(2000):
        announcer.scheduled(Ref(f"many-{number}", "default", f"many-{number}"), "n1", (number,))
    said = time.monotonic() - started
    assert eventually(lambda: outcomes(metrics, "created") == 2000)
    print(f"said in {said / 2000 * 1e6:.0f} us each, written at {2000 / (time.monotonic() - started):.0f} /s")
    announcer.close()
    assert len(kube.calls) == 2000


def test_a_leader_that_has_resigned_writes_nothing_of_before(metrics: Metrics) -> None:
    with api_server() as gone:
        port = gone.port
    announcer = Announcer(KubeClient.connect(f"http://127.0.0.1:{port}"), metrics, pace=QUICK)
    announcer.evicting(Ref("u", "default", "before"), Ref("v", "default", "q"))
    assert eventually(lambda: outcomes(metrics, "failed") >= 1)
    announcer.resign()
    with api_server(port=port) as back:
        announcer.evicting(Ref("u", "default", "after"), Ref("v", "default", "q"))
        assert eventually(lambda: outcomes(metrics, "created") >= 1)
        announcer.close()
        (event,) = Http(back.port).ok("GET", EVENTS)["items"]
    assert event["involvedObject"]["name"] == "after"


def test_who_leads_again_knows_which_waits_stand(announcer: Announcer, http: Http, ref: Ref) -> None:
    announcer.waiting(ref, "no room")
    assert eventually(lambda: ours(http, ref))
    announcer.resign()
    announcer.scheduled(ref, "n1", (0,))
    assert eventually(lambda: (ours(http, ref) or ("",))[0] == "True")


def test_who_leads_again_doubts_what_was_being_written(
    server: ApiServer, metrics: Metrics, http: Http, ref: Ref
) -> None:
    client = Unanswered.connect(server.url)
    client.is_written, client.may_answer = threading.Event(), threading.Event()
    announcer = Announcer(client, metrics, pace=QUICK)
    announcer.waiting(ref, "no room")
    assert client.is_written.wait(PATIENCE_S)
    announcer.resign()
    client.may_answer.set()
    announcer.scheduled(ref, "n1", (0,))
    assert eventually(lambda: (ours(http, ref) or ("",))[0] == "True")
    announcer.close()
    client.close()


def test_who_leads_again_counts_on_from_what_others_counted(
    announcer: Announcer, kube: Tapped, metrics: Metrics, http: Http, ref: Ref
) -> None:
    other = Announcer(kube, metrics, pace=QUICK)
    for leader in (announcer, other, announcer):
        before = written(metrics)
        leader.waiting(ref, "no room")
        eventually(lambda before=before: written(metrics) > before)
        leader.resign()
    other.close()
    assert sum(events(http, ref).values()) == 3


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_shows_folded_events_and_the_condition(
    announcer: Announcer, http: Http, server: ApiServer, ref: Ref, tmp_path: Path
) -> None:
    for _ in range(2):
        announcer.waiting(ref, "no room in VC research")
        assert eventually(lambda: events(http, ref))
        time.sleep(1.1)  # ages are shown in seconds
    assert eventually(lambda: sum(events(http, ref).values()) == 2)
    config = tmp_path / "config"
    config.write_text(kubeconfig_text(server.url))
    described = subprocess.run(
        ["kubectl", "describe", "pod", ref.name],
        env={**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    print(described)
    assert f"{CONDITION_TYPE}   False" in described
    (line,) = [line for line in io.StringIO(described) if "no room in VC research" in line]
    assert line.split()[:2] == ["Normal", "Waiting"]
    assert "(x2 over" in line
    assert " hived " in line
