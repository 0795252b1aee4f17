"""The scheduler loop over real HTTP on both sides: an API server with nodes, and an extender of the test's own."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import READY, RUN_SECONDS, STOP_SECONDS, Machine, Nodes, Timing
from hived_lab.embedded.scheduler import Pace, Scheduler, SeenNode
from tests.expecting import PATIENCE_S, expect_soon
from tests.lab.embedded.helpers import Http, api_server, binding, pod
from tests.stub_server import Request, StubServer

pytestmark = pytest.mark.sample(19)

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
NODES = "/api/v1/nodes"
CAPACITY = {"cpu": "8", "pods": "110", "nvidia.com/gpu": "4"}
QUICK = Pace(backoff_initial_s=0.05, backoff_longest_s=0.2, flush_s=30, settle_s=0.01)

Answer = tuple[int, Any]
Verb = Callable[[dict[str, Any]], Answer]


class Extender(StubServer):
    """An extender whose verbs can be exchanged; by default every pod may run anywhere, and nobody is preempted."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._answer, port)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.filter: Verb = lambda call: (200, {"NodeNames": call["NodeNames"], "Error": ""})
        self.preempt: Verb = lambda call: (200, {"NodeNameToMetaVictims": {}})
        self.bind: Verb = self._bind
        self.http = Http(0)
        self.scheduler: Scheduler

    def _answer(self, request: Request) -> Answer:
        verb, call = request.target.removeprefix("/v1/extender/"), json.loads(request.body)
        self.calls.append((verb, call))
        return getattr(self, verb)(call)

    def _bind(self, call: dict[str, Any]) -> Answer:
        body = binding(call["PodName"], call["Node"], uid=call["PodUID"], annotations={"bound-by": "extender"})
        status, answer = self.http.call("POST", f"{PODS}/{call['PodName']}/binding", body)
        return 200, {"Error": "" if status == 201 else answer["message"]}

    def calls_of(self, verb: str, name: str) -> list[dict[str, Any]]:
        """Return the calls of a verb for the pod `name`."""
        return [call for called, call in self.calls if called == verb and _name(call) == name]

    def hears(self) -> None:
        """Wait until the scheduler knows the nodes as they are: it may hear of a later pod first."""
        known = self.scheduler._cluster.nodes
        expect_soon(lambda: known == {node["metadata"]["name"]: SeenNode.read(node) for node in _nodes(self.http)})


def _nodes(http: Http) -> list[dict[str, Any]]:
    return list(http.ok("GET", NODES)["items"])


def _name(call: dict[str, Any]) -> str:
    return str(call["PodName"] if "PodName" in call else call["Pod"]["metadata"]["name"])


def refuse(reason: str) -> Verb:
    """Return a filter verb that finds no node, as the scheduler service says so."""
    return lambda call: (200, {"NodeNames": None, "FailedNodes": {"hivedscheduler": reason}, "Error": ""})


@pytest.fixture
def http() -> Iterator[Http]:
    """A client of a cluster with the nodes n1, n2, n3; its scheduler starts with the fixture `extender`."""
    with api_server() as server:
        made = Nodes(server.registry, Timing(orphan_s=0.1))
        server.call(lambda: made.register([Machine(name, CAPACITY) for name in ("n1", "n2", "n3")]))
        server.spawn(made.run)
        yield Http(server.port)


@pytest.fixture
def extender(http: Http) -> Iterator[Extender]:
    """An extender that the scheduler of the cluster of `http` calls."""
    with Extender() as made, closing(KubeClient.connect(f"http://127.0.0.1:{http.port}")) as kube:
        made.http = http
        made.scheduler = Scheduler(kube, made.url, QUICK, extender_timeout_s=PATIENCE_S)
        made.scheduler.start()
        yield made
        made.scheduler.stop()


def create(http: Http, name: str, **fields: Any) -> dict[str, Any]:
    """Create a pod that the extender decides about."""
    return dict(http.ok("POST", PODS, pod(name, limits={ENABLE_LIMIT: "1"}, **fields)))


def get(http: Http, name: str) -> dict[str, Any]:
    status, found = http.call("GET", f"{PODS}/{name}")
    return dict(found) if status == 200 else {}


def node_of(http: Http, name: str) -> str:
    return str(get(http, name).get("spec", {}).get("nodeName", ""))


def condition(http: Http, name: str) -> dict[str, str]:
    conditions = get(http, name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def events(http: Http, name: str, reason: str) -> list[dict[str, Any]]:
    selector = f"involvedObject.name={name},reason={reason}"
    return list(http.ok("GET", EVENTS, fieldSelector=selector)["items"])


def priority_class(http: Http, value: int) -> str:
    name = f"priority-{value}"
    http.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    return name


def run_on(http: Http, name: str, node: str, priority: int = 0, **fields: Any) -> str:
    """Create a pod that runs on a node already and return its uid."""
    created = create(http, name, nodeName=node, priorityClassName=priority_class(http, priority), **fields)
    expect_soon(lambda: get(http, name)["status"]["phase"] == "Running")
    return str(created["metadata"]["uid"])


def test_a_pod_is_filtered_bound_by_the_extender_and_runs(http: Http, extender: Extender) -> None:
    create(http, "one", annotations={"a": "b"}, schedulerName="whoever")
    expect_soon(lambda: get(http, "one")["status"]["phase"] == "Running")
    (call,) = extender.calls_of("filter", "one")
    assert call["NodeNames"] == ["n1", "n2", "n3"]
    assert call["Nodes"] is None
    assert call["Pod"]["metadata"]["annotations"] == {"a": "b"}
    (bound,) = extender.calls_of("bind", "one")
    assert bound == {
        "PodName": "one",
        "PodNamespace": "default",
        "PodUID": call["Pod"]["metadata"]["uid"],
        "Node": "n1",
    }
    assert get(http, "one")["metadata"]["annotations"]["bound-by"] == "extender"
    (event,) = expect_soon(lambda: events(http, "one", "Scheduled"))
    assert event["message"] == "Successfully assigned default/one to n1"


def test_only_feasible_nodes_are_offered(http: Http, extender: Extender) -> None:
    http.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})
    http.patch(f"{NODES}/n2", {"metadata": {"annotations": {READY: "false"}}})
    expect_soon(lambda: http.ok("GET", f"{NODES}/n2")["status"]["conditions"][-1]["status"] == "False")
    extender.hears()
    create(http, "one")
    expect_soon(lambda: node_of(http, "one") == "n3")
    assert extender.calls_of("filter", "one")[-1]["NodeNames"] == ["n3"]


def test_without_feasible_nodes_the_extender_is_not_asked(http: Http, extender: Extender) -> None:
    create(http, "one", nodeSelector={"disk": "fast"})
    expect_soon(lambda: condition(http, "one").get("reason") == "Unschedulable")
    assert "3 node(s) didn't match Pod's node affinity/selector" in condition(http, "one")["message"]
    assert extender.calls == []
    http.patch(f"{NODES}/n2", {"metadata": {"labels": {"disk": "fast"}}})
    expect_soon(lambda: node_of(http, "one") == "n2")


def test_a_pod_that_fits_nowhere_says_why(http: Http, extender: Extender) -> None:
    extender.filter = refuse("insufficient capacity in VC x")
    create(http, "one")
    expect_soon(lambda: condition(http, "one"))
    seen = condition(http, "one")
    assert (seen["status"], seen["reason"]) == ("False", "Unschedulable")
    assert seen["message"] == "0/3 nodes are available: insufficient capacity in VC x."
    (event,) = events(http, "one", "FailedScheduling")
    assert (event["type"], event["message"]) == ("Warning", seen["message"])


def test_a_pod_that_is_gone_has_no_event_and_no_warning(
    http: Http, extender: Extender, caplog: pytest.LogCaptureFixture
) -> None:
    def bind(call: dict[str, Any]) -> Answer:
        http.call("DELETE", f"{PODS}/{call['PodName']}")
        return 200, {"Error": "default/one cannot be read"}

    caplog.set_level(logging.INFO)
    extender.bind = bind
    create(http, "one")
    expect_soon(lambda: "scheduling default/one failed" in caplog.text)
    assert events(http, "one", "FailedScheduling") == []
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_the_same_failure_counts_up_one_event(http: Http, extender: Extender) -> None:
    extender.filter = refuse("no room")
    create(http, "one")
    for number in range(3):
        expect_soon(lambda number=number: len(extender.calls_of("filter", "one")) > number)
        http.patch(f"{PODS}/one", {"metadata": {"annotations": {"attempt": str(number)}}})
    expect_soon(lambda: events(http, "one", "FailedScheduling")[0]["count"] >= 3)
    assert len(events(http, "one", "FailedScheduling")) == 1


@pytest.mark.parametrize("event", ["annotation", "pod deleted", "pod finished", "node added", "node uncordoned"])
def test_a_waiting_pod_is_tried_again_after_an_event(http: Http, extender: Extender, event: str) -> None:
    http.patch(f"{NODES}/n3", {"spec": {"unschedulable": True}})
    annotations = {RUN_SECONDS: "1000"}
    create(http, "other", annotations=annotations)
    expect_soon(lambda: get(http, "other")["status"]["phase"] == "Running")
    extender.filter = refuse("no room")
    create(http, "one")
    expect_soon(lambda: condition(http, "one"))
    attempts = len(extender.calls_of("filter", "one"))
    extender.filter = lambda call: (200, {"NodeNames": call["NodeNames"][:1], "Error": ""})
    match event:
        case "annotation":
            http.patch(f"{PODS}/one", {"metadata": {"annotations": {"try": "again"}}})
        case "pod deleted":
            http.ok("DELETE", f"{PODS}/other")
        case "pod finished":
            http.patch(f"{PODS}/other", {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        case "node added":
            http.ok("POST", NODES, {"metadata": {"name": "n4"}})
        case "node uncordoned":
            http.patch(f"{NODES}/n3", {"spec": {"unschedulable": None}})
    expect_soon(lambda: node_of(http, "one"))
    assert len(extender.calls_of("filter", "one")) > attempts


def test_its_own_report_is_no_reason_to_try_again(http: Http, extender: Extender) -> None:
    extender.filter = refuse("no room")
    create(http, "one")
    expect_soon(lambda: events(http, "one", "FailedScheduling"))
    http.patch(f"{PODS}/one/status", {"status": {"message": "hello"}})
    create(http, "two")
    expect_soon(lambda: events(http, "two", "FailedScheduling"))
    assert len(extender.calls_of("filter", "one")) == 1


def test_pods_of_higher_priority_go_first(http: Http, extender: Extender) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold(call: dict[str, Any]) -> Answer:
        started.set()
        go_on.wait(PATIENCE_S)
        return 200, {"NodeNames": call["NodeNames"][:1], "Error": ""}

    extender.filter = hold
    create(http, "first")
    assert started.wait(PATIENCE_S)
    for name, priority in (("low", 1), ("high", 9), ("middle", 5), ("high-too", 9)):
        create(http, name, priorityClassName=priority_class(http, priority))
    expect_soon(lambda: len(extender.scheduler._queue) == 5)
    go_on.set()
    expect_soon(lambda: node_of(http, "low"))
    assert [_name(call) for verb, call in extender.calls if verb == "filter"] == [
        "first", "high", "high-too", "middle", "low",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"NodeNames": None, "Error": "boom"}),
        (500, b"boom"),
        (200, b"boom"),
        (200, {"NodeNames": ["elsewhere, boom"], "Error": ""}),
    ],
)
def test_an_extender_that_fails_is_asked_again(http: Http, extender: Extender, answer: Answer) -> None:
    extender.filter = lambda call: answer
    create(http, "one")
    expect_soon(lambda: condition(http, "one").get("reason") == "SchedulerError")
    expect_soon(lambda: len(extender.calls_of("filter", "one")) >= 3)
    assert events(http, "one", "FailedScheduling")
    extender.filter = lambda call: (200, {"NodeNames": ["n2"], "Error": ""})
    expect_soon(lambda: node_of(http, "one") == "n2")


def test_a_binding_that_fails_is_repeated(http: Http, extender: Extender) -> None:
    works = extender.bind
    failures = [(200, {"Error": "not now"}), (200, {"Error": "not now"})]
    extender.bind = lambda call: failures.pop() if failures else works(call)
    create(http, "one")
    expect_soon(lambda: node_of(http, "one") == "n1")
    assert len(extender.calls_of("bind", "one")) == 3


def test_a_pod_that_somebody_else_binds_leaves_the_queue(http: Http, extender: Extender) -> None:
    extender.filter = refuse("no room")
    create(http, "one")
    expect_soon(lambda: condition(http, "one"))
    http.ok("POST", f"{PODS}/one/binding", binding("one", "n3"))
    expect_soon(lambda: get(http, "one")["status"]["phase"] == "Running")
    attempts = len(extender.calls_of("filter", "one"))
    http.ok("POST", NODES, {"metadata": {"name": "n4"}})
    create(http, "two")
    expect_soon(lambda: events(http, "two", "FailedScheduling"))
    assert len(extender.calls_of("filter", "one")) == attempts


def test_a_gated_pod_waits_for_its_gates(http: Http, extender: Extender) -> None:
    create(http, "one", schedulingGates=[{"name": "test/wait"}])
    create(http, "two")
    expect_soon(lambda: node_of(http, "two"))
    assert not extender.calls_of("filter", "one")
    http.patch(f"{PODS}/one", {"spec": {"schedulingGates": None}})
    expect_soon(lambda: node_of(http, "one"))


def victims_on(node: str, *uids: str) -> Verb:
    """Return a preempt verb that names these victims."""
    entry = {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
    return lambda call: (200, {"NodeNameToMetaVictims": {node: entry}})


def test_victims_are_deleted_and_the_node_is_nominated(http: Http, extender: Extender) -> None:
    low = run_on(http, "low", "n2", 1, annotations={STOP_SECONDS: "1000"})
    peer = run_on(http, "peer", "n3", 5)
    extender.filter = refuse("victims on n2")
    extender.preempt = victims_on("n2", low)
    create(http, "one", priorityClassName=priority_class(http, 5))
    expect_soon(lambda: get(http, "one")["status"].get("nominatedNodeName") == "n2")
    call = extender.calls_of("preempt", "one")[0]
    assert call["NodeNameToVictims"] is None
    assert call["NodeNameToMetaVictims"] == {"n2": {"Pods": [{"UID": low}], "NumPDBViolations": 0}}
    conditions = {one["type"]: one for one in get(http, "low")["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
    extender.filter = lambda call: (200, {"NodeNames": ["n2"], "Error": ""})
    http.ok("DELETE", f"{PODS}/low", gracePeriodSeconds=0)
    expect_soon(lambda: node_of(http, "one") == "n2")
    assert get(http, "low") == {}
    assert get(http, "peer")["metadata"]["uid"] == peer
    assert events(http, "low", "Preempted")[0]["message"].endswith("on node n2")


@pytest.fixture
def preempting(http: Http, extender: Extender) -> str:
    """A pod that waits for the end of a low one on n2; the uid of that one, which stops for long."""
    low = run_on(http, "low", "n2", 1, annotations={STOP_SECONDS: "1000"})
    extender.filter, extender.preempt = refuse("victims on n2"), victims_on("n2", low)
    create(http, "one", priorityClassName=priority_class(http, 5))
    expect_soon(lambda: get(http, "one")["status"].get("nominatedNodeName") == "n2")
    return low


def test_the_nominated_node_is_tried_alone_first(http: Http, extender: Extender, preempting: str) -> None:
    http.ok("DELETE", f"{PODS}/low", gracePeriodSeconds=0)
    pair = [["n2"], ["n1", "n2", "n3"]]
    expect_soon(lambda: [call["NodeNames"] for call in extender.calls_of("filter", "one")][-2:] == pair)


def test_no_other_pod_is_preempted_while_victims_leave(http: Http, extender: Extender, preempting: str) -> None:
    attempts = len(extender.calls_of("filter", "one"))
    http.patch(f"{PODS}/one", {"metadata": {"annotations": {"try": "again"}}})
    expect_soon(lambda: len(extender.calls_of("filter", "one")) >= attempts + 2)
    assert len(extender.calls_of("preempt", "one")) == 1


def test_without_victims_the_nomination_is_taken_back(http: Http, extender: Extender, preempting: str) -> None:
    run_on(http, "other", "n3", 1)
    extender.preempt = lambda call: (200, {"NodeNameToMetaVictims": None})
    http.ok("DELETE", f"{PODS}/low", gracePeriodSeconds=0)
    http.patch(f"{PODS}/one", {"metadata": {"annotations": {"try": "again"}}})
    expect_soon(lambda: "nominatedNodeName" not in get(http, "one")["status"])
    assert get(http, "other")["status"]["phase"] == "Running"


def test_unresolvable_nodes_are_no_candidates(http: Http, extender: Extender) -> None:
    run_on(http, "low", "n1", 1)
    run_on(http, "low-too", "n2", 1)
    reasons = {"FailedNodes": {"n1": "busy"}, "FailedAndUnresolvableNodes": {"n2": "never"}}
    extender.filter = lambda call: (200, {"NodeNames": [], **reasons, "Error": ""})
    create(http, "one", priorityClassName=priority_class(http, 5))
    (call,) = expect_soon(lambda: extender.calls_of("preempt", "one"))
    assert list(call["NodeNameToMetaVictims"]) == ["n1"]
    expect_soon(lambda: condition(http, "one"))
    assert condition(http, "one")["message"] == "0/3 nodes are available: 1 busy, 1 never."


def test_a_condition_that_somebody_writes_during_an_attempt_stays(http: Http, extender: Extender) -> None:
    def refuse_and_write(call: dict[str, Any]) -> Answer:
        theirs = {"type": "example.com/Seen", "status": "True"}
        http.patch(f"{PODS}/one/status", {"status": {"conditions": [theirs]}}, "strategic-merge-patch")
        return refuse("no room")(call)

    extender.filter = refuse_and_write
    create(http, "one")
    expect_soon(lambda: condition(http, "one"))
    types = {one["type"] for one in get(http, "one")["status"]["conditions"]}
    assert types == {"PodScheduled", "example.com/Seen"}


@pytest.mark.parametrize("victims", [(), ("nobody",)])
def test_an_answer_without_real_victims_harms_nobody(http: Http, extender: Extender, victims: tuple[str, ...]) -> None:
    low = run_on(http, "low", "n2", 1)
    extender.filter = refuse("victims on n2")
    extender.preempt = victims_on("n2", *victims)
    create(http, "one", priorityClassName=priority_class(http, 5))
    expect_soon(lambda: condition(http, "one"))
    assert get(http, "low")["metadata"]["uid"] == low


def test_a_pod_that_never_preempts_does_not(http: Http, extender: Extender) -> None:
    run_on(http, "low", "n2", 1)
    http.ok(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "polite"}, "value": 9, "preemptionPolicy": "Never"},
    )
    extender.filter = refuse("victims on n2")
    create(http, "one", priorityClassName="polite")
    expect_soon(lambda: condition(http, "one"))
    assert not extender.calls_of("preempt", "one")


def test_an_extender_that_does_not_answer_holds_up_no_stop(http: Http) -> None:
    asked, go_on = threading.Event(), threading.Event()
    has_gone_on: list[bool] = []

    def hold(call: dict[str, Any]) -> Answer:
        asked.set()
        has_gone_on.append(go_on.wait(PATIENCE_S))
        return 200, {"NodeNames": [], "Error": ""}

    with Extender() as silent, closing(KubeClient.connect(f"http://127.0.0.1:{http.port}")) as kube:
        silent.filter = hold
        scheduler = Scheduler(kube, silent.url, QUICK)
        scheduler.start()
        create(http, "one")
        assert asked.wait(PATIENCE_S)
        scheduler.stop()
        assert has_gone_on == []
        go_on.set()


def test_a_stop_between_two_pods_is_noticed(http: Http) -> None:
    kube = KubeClient.connect(f"http://127.0.0.1:{http.port}")
    scheduler = Scheduler(kube, "http://127.0.0.1:1", QUICK)
    scheduler.stop()
    looking = threading.Thread(target=scheduler._next_pod, daemon=True)
    looking.start()
    looking.join(PATIENCE_S)
    assert not looking.is_alive()
    kube.close()


def test_an_extender_that_closes_its_connections_is_called_again(http: Http, extender: Extender) -> None:
    extender.protocol = "HTTP/1.0"
    for name in ("one", "two", "three"):
        create(http, name)
    for name in ("one", "two", "three"):
        expect_soon(lambda name=name: node_of(http, name))


def test_an_extender_that_is_not_there_yet_is_waited_for(http: Http) -> None:
    gone = Extender()
    gone.server_close()
    with closing(KubeClient.connect(f"http://127.0.0.1:{http.port}")) as kube:
        scheduler = Scheduler(kube, gone.url, QUICK)
        scheduler.start()
        try:
            create(http, "one")
            expect_soon(lambda: condition(http, "one").get("reason") == "SchedulerError")
            with Extender(gone.server_port) as late:
                late.http = http
                expect_soon(lambda: node_of(http, "one"))
        finally:
            scheduler.stop()


# ---- Kubernetes' own rules


def taint(http: Http, node: str, effect: str) -> None:
    http.patch(f"{NODES}/{node}", {"spec": {"taints": [{"key": "gpu", "value": "maintenance", "effect": effect}]}})


def message(http: Http, name: str) -> str:
    return str(condition(http, name).get("message", ""))


def test_tainted_nodes_are_left_out_until_the_taint_goes(http: Http, extender: Extender) -> None:
    for node in ("n1", "n2", "n3"):
        taint(http, node, "NoSchedule")
    extender.hears()
    create(http, "tolerant", tolerations=[{"key": "gpu", "operator": "Exists"}])
    create(http, "one")
    expected = "0/3 nodes are available: 3 node(s) had untolerated taint {gpu: maintenance}."
    expect_soon(lambda: message(http, "one") == expected)
    assert extender.calls_of("filter", "one") == []
    expect_soon(lambda: node_of(http, "tolerant"))
    http.patch(f"{NODES}/n2", {"spec": {"taints": None}})
    expect_soon(lambda: node_of(http, "one") == "n2")


PORT = [{"name": "main", "image": "busybox", "ports": [{"containerPort": 9000}]}]


def anti_affinity(kind: str, app: str) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"limits": {"nvidia.com/gpu": "3"}}, "3 Insufficient nvidia.com/gpu"),
        (
            {"labels": {"app": "x"}, **anti_affinity("podAntiAffinity", "x")},
            "3 node(s) didn't match pod anti-affinity rules",
        ),
        ({"containers": PORT, "hostNetwork": True}, "3 node(s) didn't have free ports for the requested pod ports"),
    ],
    ids=["devices", "anti-affinity", "host port"],
)
def test_a_node_takes_one_of_the_pods_that_exclude_each_other(
    http: Http, extender: Extender, fields: dict[str, Any], reason: str
) -> None:
    for name in ("a", "b", "c", "d"):
        http.ok("POST", PODS, pod(name, **fields))
    expect_soon(lambda: message(http, "d") == f"0/3 nodes are available: {reason}.")
    expect_soon(lambda: sorted(node_of(http, name) for name in ("a", "b", "c")) == ["n1", "n2", "n3"])
    http.ok("DELETE", f"{PODS}/b")
    expect_soon(lambda: node_of(http, "d"))


def test_allocatable_that_grows_lets_a_pod_start(http: Http, extender: Extender) -> None:
    http.ok("POST", PODS, pod("one", limits={"nvidia.com/gpu": "8"}))
    expect_soon(lambda: "3 Insufficient nvidia.com/gpu" in message(http, "one"))
    http.patch(f"{NODES}/n3/status", {"status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    expect_soon(lambda: node_of(http, "one") == "n3")


def test_a_pod_that_wants_to_be_near_another_follows_it(http: Http, extender: Extender) -> None:
    http.ok("POST", PODS, pod("follower", **anti_affinity("podAffinity", "leader")))
    expect_soon(lambda: "3 node(s) didn't match pod affinity rules" in message(http, "follower"))
    http.ok("POST", PODS, pod("leader", labels={"app": "leader"}, nodeName="n3"))
    expect_soon(lambda: node_of(http, "follower") == "n3")


def test_pods_are_spread_over_zones(http: Http, extender: Extender) -> None:
    for node, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        http.patch(f"{NODES}/{node}", {"metadata": {"labels": {"zone": zone}}})
    extender.hears()
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    for name, node in (("a", "n1"), ("b", "n3"), ("c", "n1")):
        http.ok("POST", PODS, pod(name, labels={"app": "x"}, topologySpreadConstraints=[constraint]))
        expect_soon(lambda name=name, node=node: node_of(http, name) == node)
    http.patch(f"{NODES}/n3", {"spec": {"unschedulable": True}})
    extender.hears()
    http.ok("POST", PODS, pod("d", labels={"app": "x"}, topologySpreadConstraints=[constraint]))
    expect_soon(lambda: "2 node(s) didn't match pod topology spread constraints" in message(http, "d"))
    http.ok("DELETE", f"{PODS}/a")
    expect_soon(lambda: node_of(http, "d"))


def test_a_namespace_is_meant_by_its_labels(http: Http, extender: Extender) -> None:
    http.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "lab", "labels": {"kind": "quiet"}}})
    http.ok("POST", "/api/v1/namespaces/lab/pods", pod("leader", labels={"app": "leader"}, nodeName="n2"))
    spec = anti_affinity("podAffinity", "leader")
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchLabels": {"kind": "quiet"}}
    http.ok("POST", PODS, pod("follower", **spec))
    expect_soon(lambda: node_of(http, "follower") == "n2")


def test_preemption_leaves_nodes_out_that_would_not_do_when_empty(http: Http, extender: Extender) -> None:
    for name, node in (("a", "n1"), ("b", "n2"), ("c", "n3")):
        run_on(http, name, node, containers=pod("x", limits={"nvidia.com/gpu": "4"})["spec"]["containers"])
    taint(http, "n1", "NoSchedule")
    extender.hears()
    http.ok("POST", PODS, pod("one", limits={"nvidia.com/gpu": "4"}, priorityClassName=priority_class(http, 5)))
    (call, *_) = expect_soon(lambda: extender.calls_of("preempt", "one"))
    assert sorted(call["NodeNameToMetaVictims"]) == ["n2", "n3"]
    assert extender.calls_of("filter", "one") == []


def test_a_taint_that_ends_pods_ends_those_that_do_not_tolerate_it(http: Http, extender: Extender) -> None:
    bearing = {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}
    run_on(http, "for-ever", "n1", tolerations=[bearing])
    run_on(http, "a-while", "n1", tolerations=[{**bearing, "tolerationSeconds": 1}])
    run_on(http, "not-at-all", "n1", annotations={STOP_SECONDS: "1000"})
    taint(http, "n1", "NoExecute")
    expect_soon(lambda: get(http, "not-at-all")["metadata"].get("deletionTimestamp"))
    conditions = get(http, "not-at-all")["status"]["conditions"]
    assert "DeletionByTaintManager" in [one.get("reason") for one in conditions]
    expect_soon(lambda: not get(http, "a-while"))
    assert get(http, "for-ever")["status"]["phase"] == "Running"


def test_a_taint_of_no_known_effect_is_refused(http: Http) -> None:
    status, answer = http.patch(f"{NODES}/n1", {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})
    assert status == 422
    assert "spec.taints[0].effect: Unsupported value: 'Sometimes'" in answer["message"]
