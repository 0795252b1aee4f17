"""The core and the oracle, driven by the same operations and compared after each one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hived.cells.state import GroupState, State
from hived.life.groups import bind_info_of_slot
from hived.values.specs import ClusterSpec, PhysicalCellSpec, Rules
from hived_extender.jobs.annotations import BIND_INFO, spec_fields
from hived_extender.jobs.bind_info import bind_annotations
from hived_extender.machine.recording.operations import Operation, decode_operation
from hived_extender.machine.recording.replay import CoreScheduler, Json, Replay, Scheduler, StateDetail
from tests.core.naive import NaiveScheduler
from tests.property.operations import Op

FREE_TEXTS = ("Invalid pod bind info", "cannot have its reservation again")


class Difference(AssertionError):
    """The two disagree, or one broke an invariant, after the last of `operations`."""


class LockStep:
    """Two replays side by side. Each operation must give equal records and equal states, and break no invariant.

    The other one is of the oracle, or of another core, which knows `rules: 2`.
    """

    def __init__(self, configs: Mapping[str, ClusterSpec], other: type = NaiveScheduler) -> None:
        self.configs = configs
        self.operations: list[Op] = []
        self._schedulers: dict[str, Scheduler] = {}
        self._replays = {
            "core": self._replay("core", CoreScheduler),
            "oracle": self._replay("oracle", other),
        }

    def _replay(self, name: str, make: type) -> Replay:
        def new_scheduler(spec: ClusterSpec) -> Scheduler:
            self._schedulers[name] = make(spec)
            return self._schedulers[name]

        return Replay(new_scheduler, self.configs.__getitem__, StateDetail.NONE, check=True)

    def apply(self, op: Op) -> Json:
        """Carry out one operation on both; the result they agree on. Raises Difference."""
        self.operations.append(op)
        operation = decode_operation(json.dumps(op).encode())
        before = self._core_memory()
        results = {name: self._result(name, operation) for name in self._replays}
        core, oracle = (_comparable(results[name]) for name in ("core", "oracle"))
        if core != oracle:
            raise Difference(f"{self._where()}: answers differ (core, oracle): {first_difference(core, oracle)}")
        if changes_nothing(op, results["core"]) and self._core_memory() != before:
            raise Difference(f"{self._where()}: the core changed although nothing was carried out")
        for name, mine, theirs in zip("pvg", *(self._schedulers[n].snapshot() for n in self._replays), strict=True):
            if mine != theirs:
                raise Difference(f"{self._where()}: {name} differs (core, oracle): {first_difference(mine, theirs)}")
        return results["core"]

    @property
    def state(self) -> State:
        """The state of the core."""
        core = self._schedulers["core"]
        assert isinstance(core, CoreScheduler)
        return core.state

    def reservations(self) -> list[Op]:
        """Events that would reserve again the cells that groups reserve now in the core, in their order."""
        core = self._schedulers.get("core")
        return reservations(core.state) if isinstance(core, CoreScheduler) else []

    def _result(self, name: str, operation: Operation) -> Json:
        try:
            return self._replays[name].record(len(self.operations) - 1, operation)["result"]
        except Exception as error:
            raise Difference(f"{self._where()}: {name} fails: {type(error).__name__}: {error}") from error

    def _core_memory(self) -> bytes:
        """Every array of the core but the order of its views, which a search may change."""
        core = self._schedulers.get("core")
        return core.state.cells.memory.tobytes() if isinstance(core, CoreScheduler) else b""

    def _where(self) -> str:
        return f"operation {len(self.operations) - 1} {json.dumps(self.operations[-1])[:300]}"

    def dump(self, folder: Path) -> Path:
        """Write the run as a scenario with its configurations; the scenario's path."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, spec in self.configs.items():
            (folder / name).write_text(yaml.safe_dump(config_document(spec), sort_keys=False))
        scenario = folder / "scenario.jsonl"
        lines = [{"op": "header", "config": next(iter(self.configs))}, *self.operations]
        scenario.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return scenario


def reservations(state: State) -> list[Op]:
    """The operations that reserve again what the preempting groups of a state reserve."""
    found = []
    for group in state.groups.values():
        if group.state is GroupState.PREEMPTING:
            info = bind_info_of_slot(state, group, 0)
            pods = [{"pod": uid, "spec": spec_fields(pod.spec)} for uid, pod in group.preempting_pods.items()]
            text = bind_annotations(info)[BIND_INFO]
            found.append({"op": "reserve", "pods": pods, "node": info.node, "bindInfo": text})
    return found


def first_difference(mine: Any, theirs: Any, path: str = "") -> str:
    """Where two JSON values differ first, and how."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key) != theirs.get(key):
                return first_difference(mine.get(key), theirs.get(key), f"{path}[{key!r}]")
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple) and len(mine) == len(theirs):
        for i, (x, y) in enumerate(zip(mine, theirs, strict=True)):
            if x != y:
                return first_difference(x, y, f"{path}[{i}]")
    return f"at {path or 'top'}: {str(mine)[:500]} != {str(theirs)[:500]}"


def changes_nothing(op: Op, result: Json) -> bool:
    """Was this only asked, and nothing carried out, or refused? (A preemption may be carried out by asking.)"""
    if op["op"] == "reserve":
        return result["kind"] != "ok"
    if op["op"] != "schedule" or op["phase"] != "Filtering":
        return op["op"] in {"inspect", "plan"}
    if "offer" in op:
        return False  # the pod's own preemption may be cancelled
    return result["kind"] != "bind" or not op["commit"]


def _comparable(result: Any) -> Any:
    """Without what is free: how some refusals are worded, and the order of inspected cells."""
    if isinstance(result, dict):
        return {k: _refusal(v) if k == "message" else _comparable(v) for k, v in result.items()}
    if isinstance(result, list | tuple):
        items = [_comparable(item) for item in result]
        is_cells = bool(items) and isinstance(items[0], dict) and "cellAddress" in items[0]
        return sorted(items, key=lambda cell: cell["cellAddress"]) if is_cells else items
    return result


def _refusal(message: str) -> str:
    return FREE_TEXTS[0] if any(text in message for text in FREE_TEXTS) else message


def config_document(spec: ClusterSpec) -> Op:
    """A `ClusterSpec` as a configuration file."""

    def cell(entry: PhysicalCellSpec) -> Op:
        keys = {
            "cellType": entry.cell_type,
            "cellAddress": entry.address,
            "pinnedCellId": entry.pinned_cell_id,
            "cellChildren": [cell(child) for child in entry.children],
        }
        return {key: value for key, value in keys.items() if value}

    return {
        "physicalCluster": {
            "cellTypes": {
                t.name: {
                    "childCellType": t.child_type,
                    "childCellNumber": t.child_count,
                    "isNodeLevel": t.is_node_level,
                }
                for t in spec.cell_types.values()
            },
            "physicalCells": [cell(top) for top in spec.physical_cells],
        },
        "virtualClusters": {
            vc.name: {
                "virtualCells": [{"cellType": v.cell_type, "cellNumber": v.cell_count} for v in vc.virtual_cells],
                "pinnedCells": [{"pinnedCellId": pin} for pin in vc.pinned_cell_ids],
                **({"placement": "topology"} if vc.packs_by_topology else {}),
                **({"sparing": True} if vc.spares else {}),
                **({"combine": True} if vc.combines else {}),
            }
            for vc in spec.virtual_clusters.values()
        },
        **({"rules": 2} if spec.rules is Rules.BETTER else {}),
    }
