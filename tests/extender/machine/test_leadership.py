"""Two replicas over one real (embedded) API server: who answers, and what the next leader knows."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube.client import NODES, PODS, KubeClient, KubeError, pod_path
from hived_extender.kube.lease import LeaseName
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.machine import leadership
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.kube.lease_clock import LeaseClock
from tests.extender.machine.small_cluster import (
    CONFIG,
    cluster_spec,
    filter_body,
    pod_json,
    preempt_body,
    spec_text,
    wait_until,
)

pytestmark = pytest.mark.sample(7)

DURATION_S = 1
DEADLINE_S = 60.0
CUT = KubeError(0, "NoAnswer", "connection refused")


class Line(KubeClient):
    """A client on whose requests `trouble` can wait or raise; it is given the method and the path."""

    trouble: Callable[[str, str], object] = staticmethod(lambda method, path: None)
    origin: "Line | None" = None

    def with_timeout(self, request_timeout_s: float) -> KubeClient:
        """Another one with the same troubles."""
        other = Line(self._endpoint.configuration, request_timeout_s=request_timeout_s)
        other.origin = self
        return other

    def _request(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        (self.origin or self).trouble(method, path)
        return super()._request(method, path, *arguments, **options)

    def _open(self, method: str, path: str, *arguments: Any, **options: Any) -> Any:
        """Of watches."""
        (self.origin or self).trouble(method, path)
        return super()._open(method, path, *arguments, **options)


class Replicas:
    """Extenders that stand for one election; `lines` are their ways to the API server.

    The Lease runs out in `run_out` only.
    """

    def __init__(self, config: Path, cluster: EmbeddedCluster, stack: ExitStack, clock: LeaseClock) -> None:
        self.clock = clock
        self.config = config
        self.cluster = cluster
        self.extenders: list[Extender] = []
        self.lines: list[Line] = []
        self.stops: list[Callable[[], object]] = []
        self._stack = stack
        self.kube = KubeClient.connect(cluster.api_url)
        self.kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        stack.callback(self.kube.close)

    def start(self) -> Extender:
        """One more; the first leads when this returns."""
        line = Line.connect(kubeconfig=str(self.cluster.hived_kubeconfig))
        lease = LeaseName("default", "hived", f"r{len(self.lines)}", DURATION_S)
        stack = self._stack.enter_context(ExitStack())
        running = start_extender(self.config, line, listen="127.0.0.1:0", lease=lease)
        extender = stack.enter_context(running)
        self.extenders.append(extender)
        self.lines.append(line)
        self.stops.append(stack.close)
        assert self.extenders[0].wait_ready(DEADLINE_S)
        return extender

    def create(self, name: str, spec: str | None = None) -> Any:
        """Create a pod and wait until every replica has been told of it."""
        body = pod_json(name, spec or spec_text())
        body["metadata"] |= {"annotations": {SCHEDULING_SPEC: spec or spec_text()}}
        body["metadata"].pop("uid")
        body["spec"]["containers"] = [{"name": "main", "image": "none", **body["spec"]["containers"][0]}]
        body["spec"].pop("nodeName")
        body["spec"]["containers"][0]["resources"]["requests"] = body["spec"]["containers"][0]["resources"]["limits"]
        pod = self.kube.create("/api/v1/namespaces/ns/pods", {"apiVersion": "v1", "kind": "Pod", **body})
        for extender in self.extenders:
            wait_until(lambda extender=extender: extender.service.machine.cache.pods.get(pod["metadata"]["uid"]))
        return pod

    def run_out(self, is_so: Callable[[], object]) -> None:
        """Let the Lease of a leader that cannot renew it run out until it is so."""
        self.clock.run_out(DURATION_S, is_so)

    def node_of(self, name: str) -> str:
        """Where a pod is bound, "" if it is not."""
        return str(self.kube.get(pod_path("ns", name))["spec"].get("nodeName", ""))


@pytest.fixture
def replicas(tmp_path: Path, clock: LeaseClock) -> Iterator[Replicas]:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    with EmbeddedCluster(cluster_spec()) as cluster, ExitStack() as stack:
        yield Replicas(config, cluster, stack, clock)


def post(extender: Extender, verb: str, body: bytes) -> Any:
    with urlopen(Request(f"{extender.url}/v1/extender/{verb}", body, method="POST")) as response:
        return json.load(response)


def bind(extender: Extender, pod: Any, node: str) -> Any:
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    return post(extender, "bind", json.dumps(body).encode())


def decide(extender: Extender, pod: Any) -> str:
    """The node that filter answers."""
    (node,) = post(extender, "filter", filter_body(pod))["NodeNames"]
    return str(node)


def place(extender: Extender, pod: Any) -> str:
    node = decide(extender, pod)
    assert bind(extender, pod, node) == {"Error": ""}
    return node


def refusal(extender: Extender, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """The status and the JSON of an answer that is an error."""
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(f"{extender.url}{path}", body))
    return caught.value.code, json.load(caught.value)


@contextmanager
def rebuilt(replicas: Replicas) -> Iterator[Service]:
    """A service that has just read everything from the API server."""
    service = Service(cluster_spec(), replicas.kube, preemption=PreemptionPolicy())
    service.sync_nodes(replicas.kube.list_objects(NODES, Node).items)
    service.sync_pods(replicas.kube.list_objects(PODS, Pod).items)
    service.lead(lambda: True)
    yield service
    service.close()


def test_one_of_two_is_ready(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    wait_until(lambda: "leads" in second.service.standing)
    assert (first.service.is_ready, second.service.is_ready) == (True, False)


def test_the_verbs_of_a_follower_say_who_leads(replicas: Replicas) -> None:
    replicas.start()
    second = replicas.start()
    pod = replicas.create("p")
    wait_until(lambda: second.service.standing == "r0 leads")
    assert post(second, "filter", filter_body(pod))["Error"] == "not ready: r0 leads"
    assert bind(second, pod, "n0") == {"Error": "not ready: r0 leads"}
    assert refusal(second, "/v1/extender/preempt", preempt_body(pod)) == (503, "not ready: r0 leads")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "path",
    [
        "affinitygroups/", "clusterstatus", "clusterstatus/physicalcluster", "clusterstatus/virtualclusters/",
        "clusterstatus/virtualclusters/a",
    ],
)  # fmt: skip
def test_a_follower_can_be_looked_at_no_more_than_it_knows(replicas: Replicas, path: str) -> None:
    replicas.start()
    second = replicas.start()
    wait_until(lambda: second.service.standing == "r0 leads")
    assert refusal(second, f"/v1/inspect/{path}") == (503, "not ready: r0 leads")


def test_a_polite_stop_hands_over_what_is_bound_and_nothing_else(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    bound, decided = replicas.create("bound", spec_text(leaf_cells=2)), replicas.create("decided")
    place(first, bound)
    decide(first, decided)
    assert first.service.metrics.registry.get_sample_value("hived_groups", {"state": "Allocated"}) == 2
    threading.Thread(target=replicas.stops[0]).start()
    wait_until(lambda: second.service.is_ready)  # although the Lease never runs out
    assert [group["metadata"]["name"] for group in second.service.reader.affinity_groups()] == ["ns/bound"]


def test_the_state_after_a_take_over_is_that_of_a_rebuild(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    for name, spec in (
        ("gang-0", spec_text(leaf_cells=2, group="g", pods=2)),
        ("gang-1", spec_text(leaf_cells=2, group="g", pods=2)),
        ("spare", spec_text(vc="b", leaf_cells=1, priority=-1)),
        ("other", spec_text(vc="b", leaf_cells=4)),
        ("lazy", spec_text(leaf_cells=4, lazyPreemptionEnable=True)),
    ):
        place(first, replicas.create(name, spec))
    replicas.lines[0].trouble = cut
    replicas.run_out(lambda: second.service.is_ready)
    with rebuilt(replicas) as service:
        assert second.service.reader.snapshot() == service.reader.snapshot()
    assert len(list(second.service.reader.affinity_groups())) == 4


def cut(method: str, path: str) -> None:
    raise CUT


def test_a_leader_that_comes_back_has_forgotten_its_decisions(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    pod = replicas.create("p")
    decide(first, pod)
    replicas.lines[0].trouble = cut
    replicas.run_out(lambda: second.service.is_ready and not first.service.is_ready)
    place(second, pod)
    replicas.lines[0].trouble = lambda method, path: None
    replicas.stops[1]()
    replicas.run_out(lambda: first.service.is_ready)  # who was cut off does not know that release, and waits it out
    with rebuilt(replicas) as service:
        assert first.service.reader.snapshot() == service.reader.snapshot()
    assert first.service.metrics.registry.get_sample_value("hived_pods", {"state": "Bound"}) == 1


def test_taking_over_waits_for_an_api_server_that_refuses_to_touch_pods(replicas: Replicas) -> None:
    replicas.start()
    second = replicas.start()
    replicas.create("p")
    refused = []

    def refuse(method: str, path: str) -> None:
        if method == "PATCH" and "/pods/" in path and len(refused) < 5:
            refused.append((path, second.service.is_ready))
            raise KubeError(503, "ServiceUnavailable", "try again")

    replicas.lines[1].trouble = refuse
    replicas.stops[0]()
    wait_until(lambda: second.service.is_ready)
    assert refused == [("/api/v1/namespaces/ns/pods/p", False)] * 5


def test_until_the_lease_has_been_read_a_replica_waits_to_be_elected(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.start()
    monkeypatch.setattr("hived_extender.kube.lease.Elector._stand", lambda elector: None)
    second = replicas.start()
    wait_until(lambda: second.service.standing == "waiting to be elected")
    assert not second.service.is_ready


def test_a_take_over_is_given_up_when_the_lease_is_lost_on_the_way(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    replicas.create("p")
    held = threading.Event()

    def hold(method: str, path: str) -> None:
        if method == "PATCH" and "/pods/" in path:
            held.wait(DEADLINE_S)

    replicas.lines[1].trouble = hold
    replicas.lines[0].trouble = cut
    replicas.run_out(lambda: second.service.standing == "bound pods are still being replayed")
    replicas.lines[0].trouble = lambda method, path: None
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/hived"
    replicas.kube.patch(lease, {"spec": {"holderIdentity": "r0"}})
    replicas.run_out(lambda: first.service.is_ready)  # which has not written that itself
    held.set()
    wait_until(lambda: second.service.standing == "r0 leads")
    taking_over = second._leadership._take_over_thread
    assert taking_over is not None
    taking_over.join(DEADLINE_S)
    assert (first.service.is_ready, second.service.is_ready) == (True, False)


def test_a_binding_held_up_until_another_leads_fails_and_its_gpus_can_be_given_away(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    late, other = replicas.create("late"), replicas.create("other")
    on_its_way, released = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> None:
        if path.endswith("/binding"):
            on_its_way.set()
            assert released.wait(DEADLINE_S)
        else:
            raise CUT

    node = decide(first, late)
    replicas.lines[0].trouble = hold
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(bind(first, late, node)))
    thread.start()
    assert on_its_way.wait(DEADLINE_S)
    replicas.run_out(lambda: second.service.is_ready)
    assert place(second, other) == node
    replicas.lines[0].trouble = lambda method, path: None
    released.set()
    thread.join(DEADLINE_S)
    assert "does not lead any more" in answers[0]["Error"] or "modified" in answers[0]["Error"]
    assert (replicas.node_of("late"), replicas.node_of("other")) == ("", node)


def test_a_pod_that_was_refused_by_whoever_was_asked_is_woken_by_the_next_leader(replicas: Replicas) -> None:
    first, second = replicas.start(), replicas.start()
    blocker, waiting = replicas.create("blocker", spec_text(vc="b")), replicas.create("waiting", spec_text(vc="b"))
    decide(first, blocker)
    assert "FailedNodes" in post(first, "filter", filter_body(waiting))
    touches: list[bool] = []

    def note(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("/pods/waiting"):
            touches.append(second.service.is_ready)

    replicas.lines[1].trouble = note
    replicas.stops[0]()
    wait_until(lambda: True in touches)
    assert touches[0] is False


def test_stopping_in_the_middle_of_a_take_over_is_no_failure(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    replicas.start()
    second = replicas.start()
    replicas.create("p")

    def refuse(method: str, path: str) -> None:
        if method == "PATCH" and "/pods/" in path:
            raise KubeError(503, "ServiceUnavailable", "try again")

    replicas.lines[1].trouble = refuse
    replicas.stops[0]()
    wait_until(lambda: "waiting pods cannot be fenced yet" in caplog.messages)
    replicas.stops[1]()
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert not second._has_failed


def test_a_list_is_there_at_once_although_the_watch_is_silent(replicas: Replicas) -> None:
    lists: list[list[Pod]] = []
    resource = Resource(PODS, Pod, lists.append, lambda pod: None, lambda pod: None)
    reflector = Reflector(replicas.kube, resource, Metrics())
    reflector.start()
    wait_until(lambda: lists and reflector._watch is not None)
    for _ in range(3):
        wait_until(lambda: reflector._watch is not None)
        assert reflector.relist().wait(DEADLINE_S)
    reflector.stop()
    replicas.kube.close()
    reflector.join(DEADLINE_S)
    assert len(lists) == 4


def take_over_with(replicas: Replicas, trouble: Callable[[str, str], object]) -> list[str]:
    """The follower takes over from a polite leader; what it asks of the API server meanwhile, until it is ready."""
    replicas.start()
    second = replicas.start()
    replicas.create("p")
    wait_until(lambda: all(reflector.is_following for reflector in second._leadership._reflectors))
    asked: list[str] = []

    def note(method: str, path: str) -> None:
        asked.append(f"{method} {path}")
        trouble(method, path)

    replicas.lines[1].trouble = note
    replicas.stops[0]()
    assert second.wait_ready(DEADLINE_S)
    return asked


def test_a_follower_whose_watches_are_open_lists_nothing_to_take_over(replicas: Replicas) -> None:
    asked = take_over_with(replicas, lambda method, path: None)
    assert f"PATCH {pod_path('ns', 'p')}" in asked
    assert f"GET {PODS}" not in asked
    assert f"GET {NODES}" not in asked


def test_a_follower_that_may_change_nothing_lists_everything_to_take_over(replicas: Replicas) -> None:
    def refuse(method: str, path: str) -> None:
        if method == "PATCH":
            raise KubeError(403, "Forbidden", "a policy forbids to change this pod")

    asked = take_over_with(replicas, refuse)
    assert f"GET {PODS}" in asked
    assert f"GET {NODES}" in asked


def test_a_follower_whose_watch_has_fallen_silent_lists_everything_to_take_over(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "PING_S", 0.2)
    monkeypatch.setattr(Reflector, "has_reached", lambda *_: False)
    asked = take_over_with(replicas, lambda method, path: None)
    assert f"GET {PODS}" in asked
