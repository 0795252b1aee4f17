"""Replaying a scenario: what each operation does and what its record says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import InvariantError, UserError
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualCellSpec, VirtualClusterSpec
from hived_extender.machine.recording import operations as operation_lines
from hived_extender.machine.recording import replay
from hived_extender.machine.recording.operations import ScenarioError, read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail

Op = dict[str, Any]
Run = Callable[..., list[Op]]


def two_nodes(vc_cells: int = 1) -> ClusterSpec:
    """Nodes n0 and n1 with two GPUs each; VC1 has one of them."""
    return ClusterSpec(
        cell_types={"NODE": CellTypeSpec("NODE", "GPU", 2, is_node_level=True)},
        physical_cells=(PhysicalCellSpec("NODE", "n0"), PhysicalCellSpec("NODE", "n1")),
        virtual_clusters={
            "VC1": VirtualClusterSpec("VC1", (VirtualCellSpec("NODE", vc_cells),)),
            "VC2": VirtualClusterSpec("VC2"),
        },
    )


def load_config(name: str) -> ClusterSpec:
    if name == "wrong":
        raise UserError("this configuration is wrong")
    return two_nodes(2 if name == "grown" else 1)


def run(*ops: Op, detail: StateDetail = StateDetail.NONE) -> list[Op]:
    operations = [(i, operation_lines.decode_operation(json.dumps(op).encode())) for i, op in enumerate(ops, 2)]
    records = Replay(CoreScheduler, load_config, detail, check=True).run(operations)
    return [json.loads(replay.encode_record(record)) for record in records]


def results(*ops: Op) -> list[Op]:
    return [record["result"] for record in run(*ops)]


NEW = {"op": "new", "config": "two"}
NODES = {"op": "addNodes"}


def schedule(pod: str, size: int = 1, **more: Any) -> Op:
    spec = {"virtualCluster": "VC1", "leafCellNumber": size} | more.pop("spec", {})
    return {"op": "schedule", "pod": pod, "spec": spec, "phase": "Filtering", "suggested": "all", "commit": True} | more


def delete(pod: str) -> Op:
    return {"op": "delete", "pod": pod}


def restart(*pods: str, **more: Any) -> Op:
    return {"op": "restart", "config": "two", "order": "nodesFirst", "badNodes": [], "pods": list(pods)} | more


def test_a_committed_pod_keeps_its_cells() -> None:
    first, second = results(NEW, NODES, schedule("a"), schedule("b"))[2:]
    assert first["bind"]["leafCellIsolation"] == [0]
    assert second["bind"]["leafCellIsolation"] == [1]


def test_a_decision_that_is_not_committed_leaves_the_cells_free() -> None:
    first, second = results(NEW, NODES, schedule("a", commit=False), schedule("b"))[2:]
    assert first["bind"] == second["bind"]


def test_a_deleted_pod_frees_its_cells() -> None:
    refused = results(NEW, NODES, schedule("a", 2), schedule("b", 2))[-1]
    assert refused["kind"] == "wait"
    last = results(NEW, NODES, schedule("a", 2), delete("a"), schedule("b", 2))[-1]
    assert last["kind"] == "bind"


def test_a_pod_is_unknown_until_it_was_seen_and_after_it_was_deleted() -> None:
    kinds = [r["kind"] for r in results(NEW, delete("a"), schedule("a"), delete("a"), delete("a"))]
    assert kinds == ["ok", "unknownPod", "wait", "ok", "unknownPod"]


def test_a_pod_whose_spec_was_refused_counts_as_seen() -> None:
    refused, deleted = results(NEW, schedule("a", 0), delete("a"))[1:]
    assert refused["message"].endswith("LeafCellNumber is non-positive")
    assert deleted["kind"] == "ok"


def test_an_annotation_is_taken_verbatim() -> None:
    op = {"op": "schedule", "pod": "a", "annotation": "virtualCluster: VC1\ngpuNumber: 2\n", "phase": "Filtering"}
    assert results(NEW, NODES, op | {"suggested": "all"})[-1]["bind"]["leafCellIsolation"] == [0, 1]


@pytest.mark.parametrize("suggested", [["n1"], {"except": ["n0"]}, ["n1", "unknown"]])
def test_suggested_nodes_are_obeyed(suggested: object) -> None:
    op = schedule("a", suggested=suggested, spec={"ignoreK8sSuggestedNodes": False})
    assert results(NEW, NODES, op)[-1]["bind"]["node"] == "n1"


def test_node_operations_change_health() -> None:
    def nodes_of(*ops: Op) -> dict[str, str]:
        answer = results(NEW, *ops, {"op": "inspect", "what": "physical"})[-1]["json"]
        return {cell["cellAddress"]: cell["cellHealthiness"] for cell in answer}

    assert nodes_of() == {"n0": "Bad", "n1": "Bad"}
    assert nodes_of(NODES) == {"n0": "Healthy", "n1": "Healthy"}
    assert nodes_of({"op": "addNodes", "nodes": ["n1"]}) == {"n0": "Bad", "n1": "Healthy"}
    assert nodes_of({"op": "addNode", "node": "n0", "healthy": True}) == {"n0": "Healthy", "n1": "Bad"}
    assert nodes_of({"op": "updateNode", "node": "n0", "old": False, "new": True}) == {"n0": "Healthy", "n1": "Bad"}
    assert nodes_of({"op": "updateNode", "node": "n0", "old": True, "new": True}) == {"n0": "Bad", "n1": "Bad"}
    assert nodes_of(NODES, {"op": "deleteNode", "node": "n0"}) == {"n0": "Bad", "n1": "Healthy"}


def test_a_restart_keeps_the_listed_pods_where_they_are() -> None:
    before = run(NEW, NODES, schedule("a"), schedule("b"), detail=StateDetail.HASH)[-1]
    after = run(NEW, NODES, schedule("a"), schedule("b"), restart("a", "b"), detail=StateDetail.HASH)[-1]
    assert after["result"] == {"kind": "ok"}
    assert after["state"] == before["state"]


def test_a_pod_that_a_restart_leaves_out_holds_nothing_and_may_be_deleted() -> None:
    *_, bound, deleted = results(NEW, NODES, schedule("a", 2), restart(), schedule("b", 2), delete("a"))
    assert bound["kind"] == "bind"
    assert deleted["kind"] == "ok"


def test_a_restart_lists_the_pods_that_cannot_be_replayed() -> None:
    placements = [
        {"physicalNode": "n0", "physicalLeafCellIndices": indices, "preassignedCellTypes": ["NODE", "NODE"]}
        for indices in ([0, 1], [1, 5])
    ]
    info = {"node": "n0", "leafCellIsolation": [0, 1], "cellChain": "NODE"}
    group = {"affinityGroup": {"name": "g", "members": [{"podNumber": 2, "leafCellNumber": 2}]}}
    first = schedule("a", 2, spec=group)
    bound = {"op": "addBound", "pod": "a", "node": "n0", "spec": first["spec"]} | {
        "bindInfo": json.dumps(info | {"affinityGroupBindInfo": [{"podPlacements": placements}]})
    }
    *_, second, restarted = results(NEW, NODES, bound, schedule("b", 2, spec=group), restart("b", "a"))
    assert second["bind"]["leafCellIsolation"] == [1, 5]
    assert [error["pod"] for error in restarted["errors"]] == ["a"]


def gang(count: int) -> Op:
    return {"affinityGroup": {"name": "g", "members": [{"podNumber": count, "leafCellNumber": 1}]}}


def split(*pods: str) -> Op:
    parts = [{"pod": pod, "spec": {"virtualCluster": "VC1", "leafCellNumber": 1}} for pod in pods]
    return {"op": "split", "group": "g", "pods": parts}


def test_the_parts_of_a_split_group_are_pods_of_their_own() -> None:
    ops = (NEW, NODES, schedule("whole", spec=gang(2)), split("a", "b"))
    *_, gone, deleted, room = results(*ops, delete("whole"), delete("a"), schedule("c"))
    assert (gone["kind"], deleted["kind"]) == ("unknownPod", "ok")
    assert room["bind"]["leafCellIsolation"] == [0]


def test_a_restart_replays_the_parts_of_a_split_group() -> None:
    ops = (NEW, NODES, schedule("whole", spec=gang(2)), split("a", "b"))
    before = run(*ops, detail=StateDetail.HASH)[-1]
    after = run(*ops, restart("whole", "a", "b"), detail=StateDetail.HASH)[-1]
    assert after["state"] == before["state"]


def test_a_restart_replays_groups_that_got_several_slots() -> None:
    rest = {"pod": "whole", "spec": {"virtualCluster": "VC1", "leafCellNumber": 1} | gang(1)}
    shared = split("a") | {"slots": [[1], [0]]}
    shared["pods"].append(rest)
    ops = (NEW, NODES, schedule("whole", spec=gang(2)), shared)
    assert results(*ops)[-1] == {"kind": "ok"}
    before = run(*ops, detail=StateDetail.HASH)[-1]
    after = run(*ops, restart("whole", "a"), detail=StateDetail.HASH)[-1]
    assert after["state"] == before["state"]


def test_own_cells_that_are_no_ids_are_refused() -> None:
    refused = results(NEW, NODES, schedule("a") | {"own": [2**40]})[-1]
    assert "own has a number of 1099511627776" in refused["message"]


def test_a_group_that_is_not_there_is_not_split() -> None:
    refused, bound = results(NEW, NODES, split("a", "b"), schedule("a", 2))[2:]
    assert refused["message"] == "affinity group g cannot be split: it is not allocated"
    assert bound["kind"] == "bind"


def lent(pod: str, size: int = 2) -> Op:
    return schedule(pod, size, spec={"virtualCluster": "VC2", "priority": -1})


def reserve(*pods: str, cell_type: str = "NODE") -> Op:
    """Two GPUs on n0 for the first of a gang of one, for which these pods wait."""
    placement = {"physicalNode": "n0", "physicalLeafCellIndices": [0, 1], "preassignedCellTypes": [cell_type] * 2}
    info = {"node": "n0", "leafCellIsolation": [0, 1], "cellChain": "NODE"}
    group = {"affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 2}]}}
    waiting = [{"pod": pod, "spec": {"virtualCluster": "VC1", "leafCellNumber": 2} | group} for pod in pods]
    return {"op": "reserve", "pods": waiting, "node": "n0"} | {
        "bindInfo": json.dumps(info | {"affinityGroupBindInfo": [{"podPlacements": [placement]}]})
    }


def test_a_reservation_lasts_until_its_victims_and_its_pods_are_gone() -> None:
    again = schedule("a", 2, spec=reserve("a")["pods"][0]["spec"])
    ops = (NEW, NODES, lent("x"), reserve("a"))
    reserved, waits, _, bound = results(*ops, again, delete("x"), again)[3:]
    assert reserved == {"kind": "ok"}
    assert waits["victimsByNode"] == {"n0": ["x"]}
    assert bound["bind"]["node"] == "n0"
    *_, deleted, room = results(*ops, delete("a"), schedule("b", 2))
    assert deleted["kind"] == "ok"
    assert room["bind"]["node"] == "n1"


def test_the_pods_of_a_reservation_that_is_refused_were_seen() -> None:
    refused, deleted = results(NEW, NODES, lent("x"), reserve("a", cell_type="RACK"), delete("a"))[3:]
    assert refused["message"] == (
        "affinity group g cannot have its reservation again: leaf cell n0/0: "
        "its preassigned cell has no type, or one that does not exist any more"
    )
    assert deleted["kind"] == "ok"


def test_a_reservation_needs_a_bind_info_that_can_be_read() -> None:
    assert "Invalid pod bind info" in results(NEW, NODES, reserve("a") | {"bindInfo": "{"})[-1]["message"]
    assert "no pod is named" in results(NEW, NODES, reserve())[-1]["message"]


@pytest.mark.parametrize("first", [NEW | {"config": "wrong"}, restart(config="wrong")])
def test_without_a_usable_configuration_there_is_no_scheduler(first: Op) -> None:
    records = run(first, NODES, delete("a"), NEW, detail=StateDetail.FULL)
    assert [record["result"]["kind"] for record in records] == ["error", "noalgo", "noalgo", "ok"]
    assert [record["state"] is None for record in records] == [True, True, True, False]


def test_state_is_recorded_as_far_as_asked_for() -> None:
    ops = (NEW, NODES, schedule("a"))
    assert "state" not in run(*ops)[-1]
    assert run(*ops, detail=StateDetail.HASH)[-1]["state"].keys() == {"hash"}
    full = run(*ops, detail=StateDetail.FULL)
    assert full[-1]["state"]["diff"]["g"]["ns/a"]["allocated"] == ["a"]
    assert full[1]["state"]["diff"]["p"] == dict.fromkeys(("n0", "n0/0", "n0/1", "n1", "n1/0", "n1/1"))


def test_two_replays_give_equal_bytes() -> None:
    ops = [NEW, NODES, *(schedule(f"p{i}", 1 + i % 2) for i in range(6)), restart("p0", config="grown"), delete("p0")]
    first, second = (b"".join(map(replay.encode_record, run(*ops, detail=StateDetail.FULL))) for _ in range(2))
    assert first == second


class BrokenAfterNodes(CoreScheduler):
    """A scheduler whose invariants fail once a node is healthy."""

    def check(self) -> None:
        if self.snapshot()[0] == {}:
            raise InvariantError("nothing is bad")


def test_a_broken_invariant_names_the_line() -> None:
    operations = [
        (i, operation_lines.decode_operation(json.dumps(op).encode())) for i, op in enumerate([NEW, NODES], 2)
    ]
    with pytest.raises(InvariantError, match=r"^day\.jsonl:3: nothing is bad$"):
        list(Replay(BrokenAfterNodes, load_config, check=True).run(operations, "day.jsonl"))


def test_an_unknown_thing_to_inspect_names_the_line() -> None:
    operations = [(2, operation_lines.New(config="two")), (3, operation_lines.Inspect(what="weather"))]
    with pytest.raises(ScenarioError, match=r"^day\.jsonl:3: .*'weather'"):
        list(Replay(CoreScheduler, load_config).run(operations, "day.jsonl"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"op": "header"}\n{"op": "dance"}', "2: "),
        ('{"op": "header"}\n\n{"op": "new"}', "3: Object missing required field `config`"),
        ('{"op": "new", "config": "a"}\n{"op": "header"}', "2: a header may stand on the first line only"),
        ("{", "1: "),
        ("[" * 100_000, "1: "),
        ("\x00", "1: "),
    ],
)
def test_a_line_that_is_no_operation_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        list(read_scenario(path))
    assert str(caught.value).startswith(f"{path}:{problem}")


def test_a_missing_scenario_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.jsonl: No such file"):
        list(read_scenario(tmp_path / "nowhere.jsonl"))


def test_times_of_pods_are_kept_over_a_restart_and_end_with_the_pod() -> None:
    told = {"op": "progress", "pod": "p", "started": 5.0, "saved": 7.5}
    restart = {"op": "restart", "config": "two", "order": "nodesFirst", "badNodes": [], "pods": ["p"]}
    records = run(NEW, NODES, schedule("p", now=9.0), told, restart, delete("p"), told, detail=StateDetail.FULL)
    assert records[3]["state"]["diff"]["g"]["ns/p"]["times"] == {"p": [5.0, 7.5]}
    assert records[4]["state"]["diff"]["g"]["ns/p"]["times"] == {"p": [5.0, 7.5]}
    assert records[6]["result"] == {"kind": "unknownPod"}
