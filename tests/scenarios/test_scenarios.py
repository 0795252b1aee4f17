"""HiveD's features, one file each: events, then the expected decisions (README.md describes the files)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived.values.specs import ClusterSpec
from hived_config.loader import load_text
from hived_extender.machine.recording.operations import decode_operation
from hived_extender.machine.recording.replay import CoreScheduler, Replay, Scheduler, StateDetail
from tests.core.naive import NaiveScheduler

Json = dict[str, Any]
CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
ANSWERS = {"bind", "preempt", "wait", "error"}
EXPECTATIONS = {"expect", "groups", "cells"}
OTHER_KEYS = {"schedule", "group", "members", "suggested", "phase", "commit"}


class Run:
    """One case on one scheduler."""

    def __init__(self, case: Json, make: type) -> None:
        self.scheduler: Scheduler
        self.make = make
        self.clusters = {name: self.cluster(document) for name, document in case["clusters"].items()}
        self.replay = Replay(self.start, self.clusters.__getitem__, StateDetail.NONE, check=True)
        self.config = next(iter(self.clusters))
        self.count = 0
        self.record({"op": "new", "config": self.config})
        self.record({"op": "addNodes"})

    def cluster(self, document: Json) -> ClusterSpec:
        return load_text(yaml.safe_dump(document, sort_keys=False), "case.yaml").cluster

    def start(self, spec: ClusterSpec) -> Scheduler:
        self.scheduler = self.make(spec)
        return self.scheduler

    def record(self, op: Json) -> Json:
        self.count += 1
        return self.replay.record(self.count, decode_operation(json.dumps(op).encode()))["result"]

    def step(self, step: Json) -> Json:
        """Carry out a step; its last result."""
        match step:
            case {"schedule": pod}:
                return self.record(schedule_op(pod, step))
            case {"delete": pod}:
                return self.record({"op": "delete", "pod": pod})
            case {"healthy": nodes}:
                return self.record({"op": "addNodes", "nodes": nodes})
            case {"bad": nodes}:
                return [self.record({"op": "deleteNode", "node": node}) for node in nodes][-1]
            case {"lose": node}:
                op = {"leafType": step["type"], "count": step["count"], "known": step.get("known", [])}
                return self.record({"op": "loseLeaves", "node": node, **op})
            case {"restart": pods}:
                self.config = step.get("config", self.config)
                order = "podsFirst" if step.get("pods_first") else "nodesFirst"
                op = {"op": "restart", "config": self.config, "order": order, "badNodes": [], "pods": pods}
                return self.record(op)
        raise AssertionError(f"no such step: {step}")


def schedule_op(pod: str, step: Json) -> Json:
    names = {"vc": "virtualCluster", "gpus": "leafCellNumber", "priority": "priority", "type": "leafCellType"}
    names |= {"pin": "pinnedCellId", "lazy": "lazyPreemptionEnable"}
    spec = {names[key]: value for key, value in step.items() if key in names}
    spec["ignoreK8sSuggestedNodes"] = "suggested" not in step
    if "group" in step:
        members = [{"podNumber": pods, "leafCellNumber": gpus} for gpus, pods in step["members"].items()]
        spec["affinityGroup"] = {"name": step["group"], "members": members}
    unknown = step.keys() - names.keys() - EXPECTATIONS - OTHER_KEYS
    assert not unknown, f"unknown keys {unknown} in {step}"
    return {
        "op": "schedule",
        "pod": pod,
        "spec": spec,
        "phase": step.get("phase", "Filtering"),
        "suggested": step.get("suggested", "all"),
        "commit": step.get("commit", True),
    }


def answer(result: Json) -> tuple[str, Any]:
    """A result in the words of `expect`."""
    match result["kind"]:
        case "bind":
            devices = ",".join(map(str, result["bind"]["leafCellIsolation"]))
            return "bind", f"{result['bind']['node']}/{devices}"
        case "preempt":
            return "preempt", sorted({pod for pods in result["victimsByNode"].values() for pod in pods})
        case "wait":
            return "wait", result["reason"]
        case "error":
            return "error", result["message"]
    return result["kind"], None


def check(run: Run, step: Json, result: Json) -> None:
    kind, told = answer(result)
    if "expect" in step:
        ((wanted_kind, wanted),) = step["expect"].items()
        assert wanted_kind in ANSWERS
        assert kind == wanted_kind, f"{step}: {kind} {told}"
        assert wanted in told if kind in {"wait", "error"} else wanted == told, f"{step}: {kind} {told}"
    else:
        assert kind == "ok", f"{step}: {kind} {told}"
    cells, _, groups = run.scheduler.snapshot()
    for address, wanted in step.get("cells", {}).items():
        assert cells.get(address) == wanted, f"{step}: cell {address} is {cells.get(address)}"
    for name, wanted in step.get("groups", {}).items():
        group = groups.get(name)
        shown = None if group is None or wanted is None else {key: group[key] for key in wanted}
        assert (group if wanted is None else shown) == wanted, f"{step}: group {name} is {group}"


@pytest.mark.parametrize("make", [CoreScheduler, NaiveScheduler])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_feature_works_as_described(path: Path, make: type) -> None:
    case = yaml.safe_load(path.read_text())
    run = Run(case, make)
    for step in case["steps"]:
        check(run, step, run.step(step))
