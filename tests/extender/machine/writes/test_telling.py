"""Events and conditions against an API server, one call each; and what is found out when there is none."""

import itertools
import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.effects import Announce
from hived_extender.machine.notices import CONDITION_TYPE, Announced, Condition, Notice, Reason
from hived_extender.machine.pods import PodName
from hived_extender.machine.writes.writer import Teller
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.cluster import kubeconfig_text
from tests.lab.embedded.helpers import Http, api_server, pod

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
NO_ROOM = Condition(False, "Waiting", "no room")
BAD_NODE = Condition(False, "Waiting", "a bad node")
HAS_CELLS = Condition(True, "Allocated", "node n1, leaf cells 0")
THEN = "2024-01-01T00:00:00Z"
_numbers = itertools.count()


class Tapped(KubeClient):
    """A client that notes its calls."""

    calls: list[tuple[str, str]]

    def _request(self, method: str, path: str, *arguments: Any, **options: Any) -> bytes:
        self.calls.append((method, path))
        return super()._request(method, path, *arguments, **options)


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
def teller(kube: Tapped, metrics: Metrics) -> Teller:
    return Teller(kube, metrics)


@pytest.fixture
def name(http: Http) -> PodName:
    """A pod that only this test uses."""
    return create(http, f"train-{next(_numbers)}")


def create(http: Http, name: str) -> PodName:
    return PodName(http.ok("POST", PODS, pod(name))["metadata"]["uid"], "default", name)


def waits(name: PodName, text: str = "no room", times: int = 1, since_s: float = 0.0) -> Announce:
    return announce(name, notices=[Notice(Reason.WAITING, text, times, since_s or time.time())])


def announce(
    name: PodName,
    condition: Condition | None = None,
    stored: Condition | None = None,
    *,
    notices: Sequence[Notice] = (),
    is_known: bool = True,
) -> Announce:
    return Announce(name, "Pod", tuple(notices), condition, stored, is_known)


def events(http: Http, name: PodName) -> dict[tuple[str, str], int]:
    """Counts by reason and message."""
    found = stored_events(http, name)
    by_text = {(event["reason"], event["message"]): event["count"] for event in found}
    assert len(by_text) == len(found), "two events say the same"
    return by_text


def stored_events(http: Http, name: PodName) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.ok("GET", EVENTS, fieldSelector=f"involvedObject.uid={name.uid}")["items"]
    return found


def conditions(http: Http, name: PodName) -> dict[str, dict[str, Any]]:
    status = http.ok("GET", f"{PODS}/{name.name}")["status"]
    return {condition["type"]: condition for condition in status.get("conditions", [])}


def ours(http: Http, name: PodName) -> tuple[str, str, str] | None:
    one = conditions(http, name).get(CONDITION_TYPE)
    return one and (one["status"], one["reason"], one["message"])


def outcomes(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("hived_events_total", {"outcome": outcome}) or 0.0


def test_the_same_words_are_one_event_that_counts(teller: Teller, http: Http, name: PodName) -> None:
    teller.tell(waits(name))
    teller.tell(waits(name, times=999))
    assert events(http, name) == {("Waiting", "no room"): 1000}


def test_other_words_are_another_event(teller: Teller, http: Http, name: PodName) -> None:
    teller.tell(waits(name))
    teller.tell(waits(name, "a bad node"))
    assert events(http, name) == {("Waiting", "no room"): 1, ("Waiting", "a bad node"): 1}


def test_an_event_that_has_expired_is_written_anew(teller: Teller, http: Http, name: PodName) -> None:
    teller.tell(waits(name))
    for event in stored_events(http, name):
        http.ok("DELETE", f"{EVENTS}/{event['metadata']['name']}")
    teller.tell(waits(name))
    assert events(http, name) == {("Waiting", "no room"): 1}


def test_another_process_counts_the_same_event_up(teller: Teller, kube: Tapped, http: Http, name: PodName) -> None:
    teller.tell(waits(name))
    Teller(kube, Metrics()).tell(waits(name))
    assert events(http, name) == {("Waiting", "no room"): 2}


def test_who_leads_again_counts_on_from_what_others_counted(
    teller: Teller, kube: Tapped, http: Http, name: PodName
) -> None:
    other = Teller(kube, Metrics())
    for leader in (teller, other, teller):
        leader.tell(waits(name))
        leader.forget_counts()
    assert events(http, name) == {("Waiting", "no room"): 3}


def test_an_invalid_annotation_is_a_warning_of_hived(teller: Teller, http: Http, name: PodName) -> None:
    teller.tell(announce(name, notices=[Notice(Reason.INVALID_SPEC, "leafCellNumber is missing", 1, 0.0)]))
    (event,) = stored_events(http, name)
    assert (event["type"], event["reason"]) == ("Warning", "InvalidSpec")
    assert event["source"]["component"] == event["reportingComponent"] == "hived"


def test_a_condition_is_written_beside_those_of_others(teller: Teller, http: Http, name: PodName) -> None:
    theirs = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    http.patch(f"{PODS}/{name.name}/status", {"status": {"conditions": [theirs]}}, "strategic-merge-patch")
    assert teller.tell(announce(name, NO_ROOM)) == Announced(0, has_looked=True, stored=NO_ROOM)
    assert ours(http, name) == ("False", "Waiting", "no room")
    assert conditions(http, name)["PodScheduled"].items() >= theirs.items()


@pytest.mark.parametrize(("wanted", "is_moved"), [(BAD_NODE, False), (HAS_CELLS, True)])
def test_the_time_of_a_condition_moves_with_its_status_alone(
    teller: Teller, http: Http, name: PodName, wanted: Condition, is_moved: bool
) -> None:
    old = {"type": CONDITION_TYPE, "status": "False", "reason": "Waiting", "message": "no room"}
    body = {"status": {"conditions": [{**old, "lastTransitionTime": THEN}]}}
    http.patch(f"{PODS}/{name.name}/status", body, "strategic-merge-patch")
    teller.tell(announce(name, wanted, NO_ROOM))
    assert (conditions(http, name)[CONDITION_TYPE]["lastTransitionTime"] != THEN) is is_moved


@pytest.mark.parametrize("has_it", [False, True])
def test_a_condition_that_may_be_there_already_is_read_before(
    teller: Teller, kube: Tapped, http: Http, name: PodName, has_it: bool
) -> None:
    if has_it:
        teller.tell(announce(name, NO_ROOM))
    kube.calls.clear()
    found = teller.tell(announce(name, NO_ROOM, is_known=False))
    assert found == Announced(0, has_looked=True, stored=NO_ROOM)
    assert [method for method, _ in kube.calls] == (["GET"] if has_it else ["GET", "PATCH"])


@pytest.mark.parametrize("is_known", [False, True])
def test_a_later_pod_of_the_same_name_is_left_alone(teller: Teller, http: Http, name: PodName, is_known: bool) -> None:
    http.ok("DELETE", f"{PODS}/{name.name}", gracePeriodSeconds=0)
    later = create(http, name.name)
    teller.tell(announce(name, NO_ROOM, notices=[Notice(Reason.WAITING, "no room", 1, 0.0)], is_known=is_known))
    assert ours(http, later) is None
    assert events(http, later) == {}


def test_an_event_about_a_pod_that_is_gone_is_written(teller: Teller, http: Http, name: PodName) -> None:
    http.ok("DELETE", f"{PODS}/{name.name}", gracePeriodSeconds=0)
    teller.tell(announce(name, notices=[Notice(Reason.PREEMPTED, "its cells are needed", 1, 0.0)]))
    assert events(http, name) == {("Preempted", "its cells are needed"): 1}


def test_the_condition_of_a_pod_that_is_gone_is_not_tried_again(teller: Teller, http: Http, name: PodName) -> None:
    http.ok("DELETE", f"{PODS}/{name.name}", gracePeriodSeconds=0)
    assert teller.tell(announce(name, NO_ROOM)).is_gone


def test_a_namespace_that_is_gone_ends_the_attempts(teller: Teller, metrics: Metrics) -> None:
    lost = PodName("u-2", "nowhere", "lost")
    found = teller.tell(announce(lost, NO_ROOM, notices=[Notice(Reason.WAITING, "no room", 1, 0.0)]))
    assert found == Announced(1, is_gone=True)
    assert outcomes(metrics, "failed") == 1


def test_an_api_server_that_is_away_is_asked_once(metrics: Metrics) -> None:
    kube = away()
    found = Teller(kube, metrics).tell(announce(NAME, NO_ROOM, notices=[Notice(Reason.WAITING, "no", 1, 0.0)] * 3))
    assert found == Announced(0, is_away=True)
    assert (len(kube.calls), outcomes(metrics, "failed")) == (1, 1)


def test_nobody_knows_of_a_condition_whose_write_had_no_answer(metrics: Metrics) -> None:
    found = Teller(away(), metrics).tell(announce(NAME, NO_ROOM))
    assert found == Announced(0, has_looked=True, is_stored_known=False, is_away=True)


def test_a_condition_that_is_refused_is_not_tried_again(
    teller: Teller, kube: Tapped, name: PodName, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise KubeError(403, "Forbidden", "a policy forbids to change this pod")

    monkeypatch.setattr(kube, "patch_lists", refuse)
    assert teller.tell(announce(name, NO_ROOM)) == Announced(0, has_looked=True, stored=NO_ROOM)


def test_the_log_says_once_in_a_while_that_nothing_is_written(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    teller = Teller(away(), metrics)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            teller.tell(waits(NAME))
    assert [message for message in caplog.messages if "ns/away" in message] == [
        "the event Waiting about ns/away is not written"
    ]


NAME = PodName("u", "ns", "away")


def away() -> Tapped:
    """A client of an API server that does not run."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = Tapped.connect(f"http://127.0.0.1:{port}")
    client.calls = []
    return client


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_shows_folded_events_and_the_condition(
    teller: Teller, server: ApiServer, name: PodName, tmp_path: Path
) -> None:
    text = "no room in VC research"
    for _ in range(2):
        notice = Notice(Reason.WAITING, text, 1, time.time() - 60)
        teller.tell(announce(name, Condition(False, "Waiting", text), notices=[notice]))
    config = tmp_path / "config"
    config.write_text(kubeconfig_text(server.url))
    described = subprocess.run(
        ["kubectl", "describe", "pod", name.name],
        env={**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert f"{CONDITION_TYPE}   False" in described
    (line,) = [line for line in described.splitlines() if text in line]
    assert line.split()[:2] == ["Normal", "Waiting"]
    assert "(x2 over" in line
    assert " hived " in line
