"""Values and pods as somebody would write them who wants to break what reads them, from a seeded source."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.asks import LEAF_CELL_TYPE, PINNED_CELL, PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.bind_info import POD_GANG, PROOF
from hived_extender.jobs.kinds import jobset, koordinator, table, yunikorn
from hived_extender.jobs.progress import CHECKPOINTED_AT, MAY_MOVE
from hived_extender.jobs.wire import ENABLE_LIMIT

Json = dict[str, Any]

KEYS = sorted(
    {SCHEDULING_SPEC, BIND_INFO, LEAF_CELL_ISOLATION, POD_GANG, PROOF, DEVICE_REQUESTS, LEAF_CELL_TYPE, PINNED_CELL}
    | {PRIORITY, VIRTUAL_CLUSTER, CHECKPOINTED_AT, MAY_MOVE, PREFIX + "pod-retry-at"}
    | {key for dialect in table.DIALECTS for key in dialect.keys}
    | {koordinator.PODGROUP_LABEL, yunikorn.APPLICATION, yunikorn.OLD_APPLICATION, koordinator.GROUP_NAME}
    | {jobset.TOPOLOGY, jobset.BY_NODE_SELECTOR, jobset.COMPLETION_INDEX, jobset.REPLICATED_JOB, jobset.REPLICAS}
    | {jobset.JOB_INDEX, "kubernetes.io/hostname", "app"}
)
"""Every label and annotation that hived reads, and a few that it does not."""

NUMBERS = (
    "0", "1", "-1", "2147483647", "2147483648", "9223372036854775808", "1e3", "1e999", "NaN", "0x7f", "007", "1_0", "٣",
    "1.5",
)  # fmt: skip
WORDS = (
    "a",
    "evil",
    "b",
    "gang",
    "true",
    "null",
    "~",
    "NODE",
    "GPU",
    "default/gang",
    "Strict",
    "Any",
    "10m",
    "-5s",
    "2026-11-23T15:04:05Z",
)
DEEP = "[" * 20_000
LONG_DIGITS = "9" * 5_000
MANY_GANGS = json.dumps([f"default/g{number}" for number in range(10_000)])
MANY_TASKS = json.dumps({f"t{number}": 0 for number in range(10_000)})
STRUCTURED = (
    "{}", "[]", "[[", "{", '{"', '"\\ud800"', "\x00", "\ufeff{}", "&a [*a]", "- a\n" * 300, "a: " * 300, "? ? ?",
    "{<<: *x}", "!!python/object/apply:os.system [echo]", "--- a\n--- b", '{"a": ' * 2_000, DEEP, LONG_DIGITS,
    '["default/gang", "x/y"]', '["' + "a/b" * 100 + '"]', '[{"name": "w", "minMember": 99999999999999999999}]',
    '{"resource": "nvidia.com/gpu", "total": 1, "containers": {}, "x": ' + DEEP, '{"digest": ' + DEEP,
    '{"name": "g", "peers": [{"uid": "x", "cells": [' + LONG_DIGITS + "]}]}", '{"packed": "eJwDAAAAAAE="}',
    '{"resource": 1, "total": -1}', '{"resource": "nvidia.com/gpu", "total": ' + LONG_DIGITS + "}",
    '{"resource": "nvidia.com/gpu", "total": 99999999999, "containers": {"main": 99999999999}}', '{"required": "NODE"}',
    '{"required": []}', '{"server": 1, "worker": -3}', "\U0001d7d8", "a" * 300, "a" * 40_000, " ", "\n", "é" * 200,
    "9" * 20_000, MANY_GANGS, MANY_TASKS,
)  # fmt: skip
QUANTITIES = (
    "1", "0", "-1", "1.5", "0.0000000001", "1e3", "1E400", "-1e-400", "1Ki", "9" * 19, "9" * 19 + "E", "9" * 60, "m",
    "", " 1 ", "NaN", "Infinity", "1n", "+1", ".", "1..2", "0x10", "\u0661", 1, -1, 1.5, 10**18, 10**400, 1e308,
)  # fmt: skip
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, 2**63, 65_536, 10**30, None)
STRUCTURE_KEYS = (
    "virtualCluster", "priority", "leafCellNumber", "leafCellType", "pinnedCellId", "affinityGroup", "members", "name",
    "podNumber", "gpuNumber", "node", "leafCellIsolation", "cellChain", "affinityGroupBindInfo", "podPlacements",
    "physicalNode", "physicalLeafCellIndices", "preassignedCellTypes", "elastic", "lazyPreemptionEnable",
    "gangReleaseEnable", "ignoreK8sSuggestedNodes", "multiChainRelaxEnable",
)  # fmt: skip
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like", "")
TOPOLOGY_KEYS = ("kubernetes.io/hostname", "zone", "", "a" * 317)


LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
QUANTITY = re.compile(r"\+?([0-9]+|[0-9]+\.[0-9]+)([eE][0-9]{1,2}|[munkMGTPE]|[KMGTPE]i)?")
TAKEN_PARTS = frozenset(
    {"priority", "priorityClassName", "resources", "schedulingGroup", "workloadRef", "resourceClaims"}
)
"""Fields that the API server decides itself, or knows by other names in some versions."""


class Hostile:
    """Makes hostile values; the same seed makes the same ones. With `is_stored` the API server takes the pods."""

    def __init__(self, seed: int, *, is_stored: bool = False) -> None:
        self.random = random.Random(seed)
        self._is_stored = is_stored
        self._quantities = [each for each in QUANTITIES if not is_stored or QUANTITY.fullmatch(str(each))]

    def may(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    # -- texts

    def text(self) -> str:
        """Of a label or annotation."""
        makers: tuple[Callable[[], str], ...] = (
            lambda: self.random.choice(NUMBERS),
            lambda: self.random.choice(WORDS),
            lambda: self.random.choice(STRUCTURED),
            self.document,
            lambda: self._broken(self.document()),
        )
        return self.random.choice(makers)()

    def document(self) -> str:
        """Something like a scheduling spec, or bind info, as JSON."""
        return json.dumps({self.random.choice(STRUCTURE_KEYS): self._value(0) for _ in range(self.random.randrange(8))})

    def spec(self) -> str:
        """A scheduling spec that asks for cells, mostly a sound one."""
        sound: Json = {"virtualCluster": self.random.choice(("evil", "b")), "priority": self.random.randrange(-1, 9),
                       "leafCellNumber": self.random.choice((1, 1, 2, 8))}  # fmt: skip
        if self.may(0.4):
            name, count = f"g{self.random.randrange(20)}", self.random.randrange(1, 4)
            members = [{"podNumber": count, "leafCellNumber": sound["leafCellNumber"]}]
            sound["affinityGroup"] = {"name": name, "members": members}
        if self.may(0.3):
            sound[self.random.choice(STRUCTURE_KEYS)] = self._value(0)
        return json.dumps(sound)

    def bind_info(self) -> str:
        """Bind info that could be hived's own."""
        node, cells = f"n{self.random.randrange(5)}", [self.random.choice((0, 1, 7, 8, -1, 2**40))]
        placement = {"physicalNode": node, "physicalLeafCellIndices": cells, "preassignedCellTypes": ["NODE"]}
        document = {"node": node, "leafCellIsolation": cells, "cellChain": self.random.choice(("NODE", "x", "")),
                    "affinityGroupBindInfo": [{"podPlacements": [placement]}]}  # fmt: skip
        if self.may(0.3):
            document[self.random.choice(STRUCTURE_KEYS)] = self._value(0)
        return json.dumps(document)

    def _broken(self, text: str) -> str:
        place = self.random.randrange(len(text) + 1)
        return text[:place] + self.random.choice(("", "}", "]", '"', ",", "\\", "\x01", "é")) + text[place + 1 :]

    def _value(self, depth: int) -> Any:
        scalars = (None, True, False, *INTEGERS, 1.5, "", *WORDS, *NUMBERS, "a" * 1_000)
        if depth > 3 or self.may(0.6):
            return self.random.choice(scalars)
        if self.may(0.5):
            return [self._value(depth + 1) for _ in range(self.random.randrange(4))]
        keys = self.random.choices(STRUCTURE_KEYS, k=self.random.randrange(4))
        return {key: self._value(depth + 1) for key in keys}

    # -- pods

    def pod(self, name: str) -> Json:
        """A pod as the API server could have stored it: the types are right, nothing else has to be."""
        annotations = {key: self.text() for key in self.random.sample(KEYS, self.random.randrange(5))}
        if self.may(0.5):
            annotations[SCHEDULING_SPEC] = self.spec()
        elif self.may(0.7):  # in the words of others, read further than to the first mistake
            annotations |= {VIRTUAL_CLUSTER: self.random.choice("ab"), PRIORITY: "1"}
        if self.may(0.2):
            annotations[BIND_INFO] = self.bind_info()
        labels = {key: self._label() for key in self.random.sample(KEYS, self.random.randrange(4))}
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}",
                    "annotations": annotations, "creationTimestamp": "2026-11-01T00:00:00Z",
                    "labels": labels}  # fmt: skip
        return {"metadata": metadata, "spec": self._pod_spec(), "status": self._status()}

    def _pod_spec(self) -> Json:
        count = self.random.randrange(self._is_stored, 4)
        spec: Json = {"schedulerName": self.random.choice(("hived", "hived-evil", "default-scheduler", "")),
                      "containers": [self._container(f"c{number}") for number in range(count)]}  # fmt: skip
        parts: dict[str, Callable[[], Any]] = {
            "nodeName": lambda: self.random.choice(("n0", "n1", "n20", "elsewhere", "")),
            "initContainers": lambda: [self._container("init")],
            "affinity": self._affinity,
            "topologySpreadConstraints": lambda: [self._spread() for _ in range(self.random.randrange(4))],
            "tolerations": lambda: [self._toleration() for _ in range(self.random.randrange(4))],
            "nodeSelector": lambda: {self.random.choice(KEYS): self._label()},
            "priority": lambda: self.random.choice((0, 1, -1, 2**31 - 1, -(2**31))),
            "priorityClassName": lambda: self.random.choice(("", "hived-5", "system-node-critical", "x" * 300)),
            "overhead": lambda: {"cpu": self._quantity(), "nvidia.com/gpu": self._quantity()},
            "resources": lambda: self._resources(("cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu")),
            "schedulingGates": lambda: [{"name": "a"}],
            "resourceClaims": lambda: [{"name": "a", "resourceClaimName": "x"}, {}],
            "volumes": lambda: [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "w"}],
            "schedulingGroup": lambda: {"podGroupName": self.random.choice(("", "g", "x" * 300))},
            "workloadRef": lambda: {"name": "w", "podGroup": "", "podGroupReplicaKey": "9" * 300},
        }
        if self._is_stored:
            parts = {name: maker for name, maker in parts.items() if name not in TAKEN_PARTS}
        for part in self.random.sample(sorted(parts), self.random.randrange(5)):
            spec[part] = parts[part]()
        return spec

    def _container(self, name: str) -> Json:
        resources = self._resources(("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu"))
        container: Json = {"name": name, "image": "none", "resources": resources}
        if self.may(0.6):
            container["resources"].setdefault("limits", {})[ENABLE_LIMIT] = "1"
        if self.may(0.1):
            port = {"containerPort": 1, "hostPort": self.random.choice((80, 0, 65_535)), "hostIP": self.text()[:9]}
            container["ports"] = [port]
        if self.may(0.1):
            container["restartPolicy"] = self.random.choice(("Always", "Never", ""))
        if self.may(0.1):
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": ""}]
        return container

    def _resources(self, names: tuple[str, ...]) -> Json:
        return {kind: {name: self._quantity() for name in names if self.may(0.3)}
                for kind in ("limits", "requests") if self.may(0.5)}  # fmt: skip

    def _quantity(self) -> Any:
        return self.random.choice(self._quantities)

    def _label(self) -> str:
        text = self.text()[:63]
        return text if not self._is_stored or LABEL_VALUE.fullmatch(text) else "x"

    def _affinity(self) -> Json:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        node = {required: {"nodeSelectorTerms": [
            {"matchExpressions": [self._requirement()], "matchFields": [self._requirement("metadata.name")]}, {}
        ]}}  # fmt: skip
        kinds = {"nodeAffinity": node, "podAffinity": {required: [self._term()]},
                 "podAntiAffinity": {required: [self._term(), self._term()]}}  # fmt: skip
        return {kind: value for kind, value in kinds.items() if self.may(0.5)}

    def _term(self) -> Json:
        return {
            "topologyKey": self.random.choice(TOPOLOGY_KEYS),
            "labelSelector": self.random.choice((None, {}, {"matchExpressions": [self._requirement()]})),
            "namespaceSelector": self.random.choice((None, {}, {"matchLabels": {"a": "b"}})),
            "namespaces": self.random.choice((None, [], ["default"], ["x"] * 50)),
            "matchLabelKeys": self.random.choice((None, [], ["app"])),
        }

    def _requirement(self, key: str = "") -> Json:
        values = [self.random.choice((*NUMBERS, *WORDS)) for _ in range(self.random.randrange(3))]
        return {"key": key or self.random.choice(KEYS), "operator": self.random.choice(OPERATORS), "values": values}

    def _spread(self) -> Json:
        return {
            "maxSkew": self.random.choice((1, 0, -1, 2**31 - 1)),
            "topologyKey": self.random.choice(TOPOLOGY_KEYS),
            "whenUnsatisfiable": self.random.choice(("DoNotSchedule", "ScheduleAnyway", "")),
            "labelSelector": self.random.choice((None, {}, {"matchExpressions": [self._requirement()]})),
            "minDomains": self.random.choice((None, 1, 0, -1, 2**31 - 1)),
            "nodeTaintsPolicy": self.random.choice((None, "Honor", "x")),
        }

    def _toleration(self) -> Json:
        return {"key": self.random.choice(("", "x", "a" * 300)), "operator": self.random.choice(("", "Exists", "Lt")),
                "value": self.text()[:63], "effect": self.random.choice(("", "NoSchedule", "x"))}  # fmt: skip

    def _status(self) -> Json:
        phase = self.random.choice(("Pending", "Pending", "Pending", "Running", "Failed", "Unknown", ""))
        condition = {"type": self.random.choice(("PodScheduled", "")), "status": "False", "reason": "", "message": "x"}
        return {"phase": phase, "conditions": self.random.choice((None, [], [condition]))}
