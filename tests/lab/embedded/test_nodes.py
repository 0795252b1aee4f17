"""From a configuration to nodes that become Ready, run pods, fail and go, watched by plain HTTP."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, SkuTypeSpec
from hived_config.rules import PodRules
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.nodes import EXIT_CODE, READY, RUN_SECONDS, STOP_SECONDS, Machine, Nodes, Timing, machines_of
from tests.expecting import expect_soon
from tests.lab.embedded.helpers import Http, api_server, pod

TYPES = {
    "BOX": CellTypeSpec("BOX", "GPU", 4, True),
    "RACK": CellTypeSpec("RACK", "BOX", 2),
    "SERVER": CellTypeSpec("SERVER", "CPU", 2, True),
}
CELLS = (
    PhysicalCellSpec("RACK", "r", children=(PhysicalCellSpec(address="b"), PhysicalCellSpec(address="a"))),
    PhysicalCellSpec("SERVER", "c"),
)


def test_every_configured_node_is_a_machine() -> None:
    machines = machines_of(ClusterSpec(TYPES, CELLS, {}))
    assert [machine.name for machine in machines] == ["a", "b", "c"]
    assert all(machine.capacity["pods"] == "110" for machine in machines)


def test_a_placeholder_is_no_machine() -> None:
    boxes = PhysicalCellSpec(address="a"), PhysicalCellSpec(address="placeholder-r-1")
    rack = PhysicalCellSpec("RACK", "r", children=boxes)
    assert [machine.name for machine in machines_of(ClusterSpec(TYPES, (rack,), {}))] == ["a"]


def test_a_machine_offers_the_skus_of_its_leaf_cells() -> None:
    skus = {"GPU": SkuTypeSpec(gpu=1, cpu=6.5, memory_mib=1024), "CPU": SkuTypeSpec(cpu=2, memory_mib=512)}
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}, skus))
    assert dict(box.capacity) == {
        "cpu": "26000m",
        "memory": "4096Mi",
        "pods": "110",
        "nvidia.com/gpu": "4",
        ENABLE_LIMIT: "1000000",
    }
    assert (server.capacity["cpu"], "nvidia.com/gpu" in server.capacity) == ("4000m", False)


def test_without_skus_a_leaf_cell_is_a_gpu() -> None:
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}))
    assert (box.capacity["nvidia.com/gpu"], server.capacity["nvidia.com/gpu"]) == ("4", "2")


def test_a_machine_has_the_devices_and_the_labels_that_pods_choose_it_by() -> None:
    labels = {"GPU": {"amd.com/gpu.product-name": "MI300X"}}
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}), PodRules({"GPU": "amd.com/gpu"}, node_labels=labels))
    assert (box.capacity["amd.com/gpu"], "nvidia.com/gpu" in box.capacity) == ("4", False)
    assert (box.labels, server.labels) == (labels["GPU"], {})


def test_a_node_with_cells_of_two_chains_offers_both() -> None:
    slots = (PhysicalCellSpec(address="8"), PhysicalCellSpec(address="9"))
    cells = (PhysicalCellSpec("BOX", "both"), PhysicalCellSpec("SERVER", "both", children=slots))
    (machine,) = machines_of(ClusterSpec(TYPES, cells, {}))
    assert machine.capacity["nvidia.com/gpu"] == "6"


PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ORPHAN_S = 40.0


class Cluster(Http):
    """A client of an API server whose nodes can be made to believe that time has passed."""

    def __init__(self, server: ApiServer, nodes: Nodes) -> None:
        super().__init__(server.port)
        self._server = server
        self._nodes = nodes

    def pass_time(self, seconds: float) -> None:
        """Put the clock forward, and have everything done that is due by then."""

        def turn() -> None:
            loop = asyncio.get_running_loop()
            time = loop.time
            loop.time = lambda: time() + seconds
            for key in list(self._nodes._clocks):
                self._nodes._pod_seen(key)

        self._server.call(turn)


@pytest.fixture(scope="module", params=[2_000, 2], ids=["usual history", "hardly any history"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A client of a cluster with the nodes n1 and n2; it must not matter whether the nodes miss changes."""
    with api_server(history_limit=request.param) as server:
        made = Nodes(server.registry, Timing(heartbeat_s=0.05, orphan_s=ORPHAN_S))
        server.call(lambda: made.register([Machine("n1", {"cpu": "8", "nvidia.com/gpu": "4"}), Machine("n2", {})]))
        server.spawn(made.run)
        yield Cluster(server, made)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A pod's name that no other test uses."""
    return str(abs(hash(request.node.nodeid)))


def ready(http: Http, node: str) -> str:
    conditions = http.ok("GET", f"{NODES}/{node}")["status"].get("conditions", [])
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


def create(http: Http, name: str, node: str = "n1", **fields: Any) -> None:
    http.ok("POST", PODS, pod(name, nodeName=node, **fields))


def phase(http: Http, name: str) -> str:
    status, found = http.call("GET", f"{PODS}/{name}")
    return str(found["status"]["phase"]) if status == 200 else "gone"


def annotate(http: Http, path: str, **annotations: str | None) -> None:
    status, answer = http.patch(path, {"metadata": {"annotations": annotations}})
    assert status == 200, answer


def test_nodes_are_ready_from_the_start(nodes: Http) -> None:
    node = nodes.ok("GET", f"{NODES}/n1")
    assert ready(nodes, "n1") == ready(nodes, "n2") == "True"
    assert node["status"]["capacity"] == node["status"]["allocatable"] == {"cpu": "8", "nvidia.com/gpu": "4"}
    assert {address["type"] for address in node["status"]["addresses"]} == {"InternalIP", "Hostname"}


def renewed(http: Http, node: str) -> str:
    return str(http.ok("GET", f"{LEASES}/{node}")["spec"]["renewTime"])


def test_leases_are_renewed(nodes: Http) -> None:
    first = renewed(nodes, "n1")
    expect_soon(lambda: renewed(nodes, "n1") > first)


def test_a_bound_pod_runs_until_it_is_deleted(nodes: Http, name: str) -> None:
    create(nodes, name)
    expect_soon(lambda: phase(nodes, name) == "Running")
    status = nodes.ok("GET", f"{PODS}/{name}")["status"]
    assert status["containerStatuses"][0]["ready"]
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"] == status["startTime"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"
    assert status["podIP"] == status["podIPs"][0]["ip"]
    nodes.ok("DELETE", f"{PODS}/{name}")
    expect_soon(lambda: phase(nodes, name) == "gone")


def test_a_pod_without_a_node_does_not_run(nodes: Http, name: str) -> None:
    nodes.ok("POST", PODS, pod(name))
    create(nodes, f"{name}-later")
    expect_soon(lambda: phase(nodes, f"{name}-later") == "Running")
    assert phase(nodes, name) == "Pending"


@pytest.mark.parametrize(("code", "end", "reason"), [("0", "Succeeded", "Completed"), ("3", "Failed", "Error")])
def test_a_pod_ends_after_its_time_with_its_exit_code(nodes: Http, name: str, code: str, end: str, reason: str) -> None:
    create(nodes, name, annotations={RUN_SECONDS: "0.1", EXIT_CODE: code})
    expect_soon(lambda: phase(nodes, name) == end)
    status = nodes.ok("GET", f"{PODS}/{name}")["status"]
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (int(code), reason)
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "False"


def test_the_time_of_a_running_pod_can_be_changed(nodes: Http, name: str) -> None:
    create(nodes, name, annotations={RUN_SECONDS: "1000"})
    expect_soon(lambda: phase(nodes, name) == "Running")
    annotate(nodes, f"{PODS}/{name}", **{RUN_SECONDS: "0"})
    expect_soon(lambda: phase(nodes, name) == "Succeeded")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RUN_SECONDS, "soon"),
        (RUN_SECONDS, "-1"),
        (RUN_SECONDS, "inf"),
        (EXIT_CODE, "1.5"),
        (EXIT_CODE, "256"),
        (STOP_SECONDS, ""),
    ],
)
def test_a_pod_whose_annotations_cannot_be_read_fails_and_says_why(
    nodes: Http, name: str, key: str, value: str
) -> None:
    create(nodes, name, annotations={key: value})
    expect_soon(lambda: phase(nodes, name) == "Failed")
    status = nodes.ok("GET", f"{PODS}/{name}")["status"]
    assert status["reason"] == "InvalidAnnotation"
    assert key in status["message"]
    assert repr(value) in status["message"]


def test_a_deleted_pod_stops_in_its_own_time(nodes: Cluster, name: str) -> None:
    create(nodes, name, annotations={STOP_SECONDS: "20"})
    expect_soon(lambda: phase(nodes, name) == "Running")
    nodes.ok("DELETE", f"{PODS}/{name}")
    assert "deletionTimestamp" in nodes.ok("GET", f"{PODS}/{name}")["metadata"]
    nodes.pass_time(20)
    expect_soon(lambda: phase(nodes, name) == "gone")


def test_a_grace_period_bounds_the_time_to_stop(nodes: Cluster, name: str) -> None:
    create(nodes, name, annotations={STOP_SECONDS: "1000"})
    nodes.ok("DELETE", f"{PODS}/{name}", gracePeriodSeconds=1)
    expect_soon(lambda: nodes.pass_time(1) or phase(nodes, name) == "gone")


def test_a_deleted_pod_with_unreadable_annotations_goes_at_once(nodes: Http, name: str) -> None:
    create(nodes, name)
    expect_soon(lambda: phase(nodes, name) == "Running")
    nodes.patch(f"{PODS}/{name}", {"metadata": {"annotations": {STOP_SECONDS: "?"}, "finalizers": ["test/hold"]}})
    nodes.ok("DELETE", f"{PODS}/{name}")
    nodes.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
    expect_soon(lambda: phase(nodes, name) == "gone")


def test_a_pod_of_the_same_name_starts_afresh(nodes: Http, name: str) -> None:
    create(nodes, name, annotations={RUN_SECONDS: "0"})
    expect_soon(lambda: phase(nodes, name) == "Succeeded")
    first = nodes.ok("GET", f"{PODS}/{name}")["metadata"]["uid"]
    nodes.ok("DELETE", f"{PODS}/{name}")
    create(nodes, name)
    expect_soon(lambda: phase(nodes, name) == "Running")
    assert nodes.ok("GET", f"{PODS}/{name}")["metadata"]["uid"] != first


def test_a_node_that_is_not_ready_still_runs_and_stops_pods(nodes: Http, name: str) -> None:
    annotate(nodes, f"{NODES}/n2", **{READY: "false"})
    expect_soon(lambda: ready(nodes, "n2") == "False")
    create(nodes, name, "n2")
    expect_soon(lambda: phase(nodes, name) == "Running")
    nodes.ok("DELETE", f"{PODS}/{name}")
    expect_soon(lambda: phase(nodes, name) == "gone")
    annotate(nodes, f"{NODES}/n2", **{READY: None})
    expect_soon(lambda: ready(nodes, "n2") == "True")


def test_on_a_lost_node_nothing_happens_until_it_is_back(nodes: Cluster, name: str) -> None:
    create(nodes, f"{name}-ends", "n2", annotations={RUN_SECONDS: "1000"})
    create(nodes, f"{name}-leaves", "n2")
    for suffix in ("ends", "leaves"):
        expect_soon(lambda suffix=suffix: phase(nodes, f"{name}-{suffix}") == "Running")
    annotate(nodes, f"{NODES}/n2", **{READY: "unknown"})
    expect_soon(lambda: ready(nodes, "n2") == "Unknown")
    lease, others_lease = renewed(nodes, "n2"), renewed(nodes, "n1")
    nodes.ok("DELETE", f"{PODS}/{name}-leaves")
    create(nodes, f"{name}-new", "n2")
    create(nodes, f"{name}-elsewhere", annotations={RUN_SECONDS: "1000"})
    expect_soon(lambda: phase(nodes, f"{name}-elsewhere") == "Running")
    nodes.pass_time(1000)
    expect_soon(lambda: phase(nodes, f"{name}-elsewhere") == "Succeeded")
    expect_soon(lambda: renewed(nodes, "n1") > others_lease)
    assert phase(nodes, f"{name}-ends") == "Running"
    assert phase(nodes, f"{name}-leaves") == "Running"
    assert phase(nodes, f"{name}-new") == "Pending"
    assert renewed(nodes, "n2") == lease
    annotate(nodes, f"{NODES}/n2", **{READY: "true"})
    expect_soon(lambda: phase(nodes, f"{name}-ends") == "Succeeded")
    expect_soon(lambda: phase(nodes, f"{name}-leaves") == "gone")
    expect_soon(lambda: phase(nodes, f"{name}-new") == "Running")


def test_the_moment_of_a_change_is_kept_while_nothing_changes(nodes: Http) -> None:
    def transition() -> str:
        conditions = nodes.ok("GET", f"{NODES}/n1")["status"]["conditions"]
        return str(next(one["lastTransitionTime"] for one in conditions if one["type"] == "Ready"))

    before = transition()
    nodes.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})
    nodes.patch(f"{NODES}/n1", {"spec": {"unschedulable": None}})
    assert transition() == before


def test_a_cordoned_node_has_a_taint_with_the_moment_until_it_is_uncordoned(nodes: Http) -> None:
    def taints() -> list[Any]:
        return list(nodes.ok("GET", f"{NODES}/n2")["spec"].get("taints", []))

    own = {"key": "own", "effect": "PreferNoSchedule"}
    nodes.patch(f"{NODES}/n2", {"spec": {"unschedulable": True, "taints": [own]}})
    cordoned = taints()
    assert [one["key"] for one in cordoned] == ["own", "node.kubernetes.io/unschedulable"]
    assert cordoned[1]["timeAdded"]
    annotate(nodes, f"{NODES}/n2", why="fans")
    assert taints() == cordoned
    nodes.patch(f"{NODES}/n2", {"spec": {"unschedulable": None}})
    assert taints() == [own]


def test_a_new_node_becomes_ready_and_a_deleted_one_takes_its_pods_along(nodes: Cluster, name: str) -> None:
    node = f"node-{name}"
    nodes.ok("POST", NODES, {"metadata": {"name": node}})
    expect_soon(lambda: ready(nodes, node) == "True")
    create(nodes, name, node)
    expect_soon(lambda: phase(nodes, name) == "Running")
    nodes.ok("DELETE", f"{NODES}/{node}")
    assert phase(nodes, name) == "Running"
    expect_soon(lambda: nodes.pass_time(ORPHAN_S) or phase(nodes, name) == "gone")
    assert nodes.refused("GET", f"{LEASES}/{node}")[0] == 404


def test_a_node_that_comes_back_in_time_keeps_its_pods(nodes: Cluster, name: str) -> None:
    node = f"node-{name}"
    nodes.ok("POST", NODES, {"metadata": {"name": node}})
    create(nodes, name, node)
    expect_soon(lambda: phase(nodes, name) == "Running")
    nodes.ok("DELETE", f"{NODES}/{node}")
    nodes.ok("POST", NODES, {"metadata": {"name": node}})
    expect_soon(lambda: ready(nodes, node) == "True")
    nodes.pass_time(2 * ORPHAN_S)
    assert phase(nodes, name) == "Running"
