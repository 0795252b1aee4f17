"""Random operations on a cluster, in the scenario format, so that a failing run is a file that `hived replay` takes."""

import json
from collections.abc import Callable
from typing import Any

from hived.values.specs import ClusterSpec, PhysicalCellSpec
from tests.property.choices import Choices

Op = dict[str, Any]
PRIORITIES = {0: 6, 1: 4, 5: 3, 10: 2, 1000: 1, -1: 6}
KINDS = {
    "new group": 30,
    "next pod": 24,
    "delete": 18,
    "delete victims": 8,
    "node": 9,
    "again": 8,
    "bound": 2,
    "odd": 2,
    "restart": 3,
    "inspect": 2,
}
KINDS_BEYOND = KINDS | {"split": 5, "plan": 5, "reserve": 6, "rebuild": 4, "lose": 12}


class Operations:
    """Makes one operation after the other, learning from the answers which pods wait, run or preempt.

    With `beyond`, also what the reference does not have: groups that are split, plans, leaves that are lost,
    reservations that outlive the state that they were made in. `reservations` says what makes those of the present
    state again.
    """

    def __init__(
        self,
        choices: Choices,
        configs: dict[str, ClusterSpec],
        *,
        beyond: bool = False,
        reservations: Callable[[], list[Op]] = list,
    ) -> None:
        self.choices = choices
        self._reservations = reservations
        self._queued: list[Op] = []
        self._kinds = KINDS_BEYOND if beyond else KINDS
        self._configs = configs
        self._config = next(iter(configs))
        self._use_config()
        self._pod_count = 0
        self._specs: dict[str, Op] = {}  # of live pods
        self._waiting: list[str] = []
        self._bound: dict[str, Op] = {}  # pod -> bind info
        self._victims: list[str] = []

    def start(self) -> list[Op]:
        return [{"op": "new", "config": self._config}, {"op": "addNodes"}]

    def next(self) -> Op:
        return self.make(self.choices.weighted(self._kinds))

    def make(self, kind: str) -> Op:
        if self._queued:
            return self._queued.pop(0)
        makers = {
            "new group": self._new_group,
            "next pod": self._next_pod,
            "delete": self._delete,
            "delete victims": self._delete_victims,
            "node": self._node,
            "lose": self._lose,
            "again": self._again,
            "split": self._split,
            "plan": self._plan,
            "bound": self._add_bound,
            "odd": self._odd,
            "restart": self._restart,
            "reserve": self._reserve,
            "rebuild": self._rebuild,
            "inspect": self._inspect,
        }
        return makers[kind]()

    def learn(self, op: Op, result: Op) -> None:
        """Take in what became of an operation."""
        match op["op"]:
            case "schedule":
                self._learn_schedule(op, result)
            case "split" if result["kind"] == "ok":
                self._learn_split(op)
            case "reserve":
                for one in op["pods"]:
                    self._specs[one["pod"]] = one["spec"]
                    if one["pod"] not in self._waiting:
                        self._waiting.append(one["pod"])
            case "delete":
                self._forget(op["pod"])
            case "addBound" if result["kind"] == "ok":
                self._bound[op["pod"]] = json.loads(op["bindInfo"])
            case "restart":
                failed = {error["pod"] for error in result.get("errors", ())}
                self._bound = {pod: info for pod, info in self._bound.items() if pod in set(op["pods"]) - failed}
                self._waiting = [pod for pod in self._specs if pod not in self._bound]
                self._config = op["config"]
                self._use_config()

    def _learn_schedule(self, op: Op, result: Op) -> None:
        pod = op["pod"]
        if pod in self._waiting:
            self._waiting.remove(pod)
        if result["kind"] == "bind" and op["commit"] and "commit" not in result:
            self._bound[pod] = result["bind"]
        elif result["kind"] != "error":
            self._waiting.append(pod)
        if result["kind"] == "preempt":
            self._victims = sorted({victim for pods in result["victimsByNode"].values() for victim in pods})

    def _forget(self, pod: str) -> None:
        self._specs.pop(pod, None)
        self._bound.pop(pod, None)
        if pod in self._waiting:
            self._waiting.remove(pod)
        if pod in self._victims:
            self._victims.remove(pod)

    def _learn_split(self, op: Op) -> None:
        whole = [pod for pod in self._bound if _group_name(self._specs[pod]) == op["group"]]
        members = self._bound[whole[0]]["affinityGroupBindInfo"]
        chain = self._bound[whole[0]]["cellChain"]
        for pod in whole:
            self._forget(pod)
        placements = [placement for member in members for placement in member["podPlacements"]]
        for part, placement in zip(op["pods"], placements, strict=True):
            self._specs[part["pod"]] = part["spec"]
            self._bound[part["pod"]] = {
                "node": placement["physicalNode"],
                "leafCellIsolation": placement["physicalLeafCellIndices"],
                "cellChain": chain,
                "affinityGroupBindInfo": [{"podPlacements": [placement]}],
            }

    def _use_config(self) -> None:
        spec = self._configs[self._config]
        self._cells = [cell for top in spec.physical_cells for cell in _walk(top)]
        node_types = {name for name, cell_type in spec.cell_types.items() if cell_type.is_node_level}
        self._nodes = sorted({cell.address for cell in self._cells if cell.cell_type in node_types})
        leaves = {cell.cell_type for cell in self._cells if not cell.children}
        self._cell_types = sorted({*spec.cell_types, *leaves})
        self._chains = sorted({top.cell_type for top in spec.physical_cells})
        self._large_gang = max(2, sum(not cell.children for cell in self._cells) // 32)
        self._leaf_types = sorted({cell.cell_type for cell in self._cells if not cell.children})
        self._vcs = sorted(spec.virtual_clusters)
        self._rich_vcs = [vc for vc in self._vcs if spec.virtual_clusters[vc].virtual_cells] or self._vcs
        self._largest_node = max(_leaf_count(cell) for cell in self._cells if cell.cell_type in node_types)
        self._preassigned_types = sorted(
            {
                cell.cell_type.rsplit(".", maxsplit=1)[-1]
                for vc in spec.virtual_clusters.values()
                for cell in vc.virtual_cells
            }
        )
        self._pins = [(vc, pin) for vc in self._vcs for pin in spec.virtual_clusters[vc].pinned_cell_ids]

    # --- scheduling ------------------------------------------------------------------------------------------------

    def _schedule(self, pod: str, spec: Op) -> Op:
        self._specs[pod] = spec
        choices = self.choices
        return {
            "op": "schedule",
            "pod": pod,
            "spec": spec,
            "phase": choices.weighted({"Filtering": 2, "Preempting": 1}),
            "suggested": self._suggested(),
            "commit": choices.chance(85),
        }

    def _suggested(self) -> Any:
        kind = self.choices.weighted({"all": 6, "except": 3, "list": 1})
        if kind == "all":
            return "all"
        nodes = self.choices.subset(self._nodes, 30)
        return {"except": nodes} if kind == "except" else nodes

    def _new_pod(self) -> str:
        self._pod_count += 1
        return f"p{self._pod_count}"

    def _new_group(self) -> Op:
        choices = self.choices
        pod = self._new_pod()
        vcs = self._rich_vcs if choices.chance(95) else self._vcs
        spec: Op = {"virtualCluster": choices.pick(vcs), "priority": choices.weighted(PRIORITIES)}
        if self._pins and choices.chance(20):
            spec["virtualCluster"], spec["pinnedCellId"] = choices.pick(self._pins)
        elif choices.chance(30):
            spec["leafCellType"] = choices.pick(self._leaf_types)
        if choices.chance(50):
            spec["lazyPreemptionEnable"] = True
        if choices.chance(50):
            spec["ignoreK8sSuggestedNodes"] = choices.chance(25)
        if self._kinds is KINDS_BEYOND and choices.chance(60):
            spec |= self._wish()
        if self._kinds is KINDS_BEYOND and choices.chance(40):
            spec["elastic"] = True
        possible = [size for size in (1, 2, 1, 4, 3, 2, 8, 5, 16) if size <= self._largest_node]
        sizes = [choices.pick(possible) for _ in range(choices.pick([1, 1, 1, 2, 3]))]
        spec["leafCellNumber"] = choices.pick(sizes)
        if len(sizes) > 1 or choices.chance(60):
            pods = [1, 2, 1, 1, 3, self._large_gang]
            members = [{"podNumber": choices.pick(pods), "leafCellNumber": size} for size in sizes]
            spec["affinityGroup"] = {"name": f"g{self._pod_count}", "members": members}
        return self._schedule(pod, spec)

    def _wish(self) -> Op:
        """How near together, and to whom."""
        choices = self.choices
        cell_type = choices.pick(self._cell_types)
        wishes: list[Op] = [
            {"withinCell": cell_type},
            {"withinCell": {"required": cell_type}},
            {"withinCell": {"preferred": choices.pick([cell_type, ""])}},
        ]
        wish = choices.pick(wishes)
        groups = [_group_name(spec) or f"ns/{pod}" for pod, spec in self._specs.items()]
        return wish | ({"beside": choices.pick(groups[-6:])} if groups and choices.chance(30) else {})

    def _next_pod(self) -> Op:
        """Another pod of a gang that has one."""
        gangs = [spec for spec in self._specs.values() if spec.get("affinityGroup", {}).get("members")]
        if not gangs:
            return self._new_group()
        spec = dict(self.choices.pick(gangs[-8:]))
        spec["leafCellNumber"] = self.choices.pick(spec["affinityGroup"]["members"])["leafCellNumber"]
        return self._schedule(self._new_pod(), spec)

    def _again(self) -> Op:
        """A pod that was not bound is tried again."""
        if not self._waiting:
            return self._next_pod()
        pod = self.choices.pick(self._waiting[-6:])
        return self._schedule(pod, self._specs[pod])

    def _odd(self) -> Op:
        """A pod whose spec cannot be right, or does not agree with its group."""
        changes: list[Op] = [
            {"virtualCluster": self.choices.pick([*self._vcs, "NOVC"])},
            {"priority": self.choices.pick([3, 7, -1, 1001])},
            {"pinnedCellId": self.choices.pick(["nopin", "pin0", "pin1"])},
            {"leafCellType": self.choices.pick(["NOTYPE", *self._leaf_types])},
            {"leafCellNumber": self.choices.pick([0, 7, 100])},
            {"affinityGroup": {"name": "", "members": []}},
            {"lazyPreemptionEnable": self.choices.chance(50)},
        ]
        base = self.choices.pick(list(self._specs.values())[-8:] or [{"virtualCluster": "VC1", "leafCellNumber": 1}])
        return self._schedule(self._new_pod(), base | self.choices.pick(changes))

    # --- everything else -------------------------------------------------------------------------------------------

    def _delete(self) -> Op:
        pods = list(self._specs)
        return {"op": "delete", "pod": self.choices.pick(pods) if pods else "nobody"}

    def _delete_victims(self) -> Op:
        return {"op": "delete", "pod": self.choices.pick(self._victims)} if self._victims else self._delete()

    def _node(self) -> Op:
        node = self.choices.pick([*self._nodes, "unknown"])
        kind = self.choices.pick(["addNode", "updateNode", "deleteNode", "addNodes"])
        if kind == "addNode":
            return {"op": kind, "node": node, "healthy": self.choices.chance(60)}
        if kind == "updateNode":
            return {"op": kind, "node": node, "old": self.choices.chance(50), "new": self.choices.chance(70)}
        return {"op": kind, "node": node} if kind == "deleteNode" else {"op": kind}

    def _lose(self) -> Op:
        """Some leaf cells of a node cannot be had, more or fewer than before."""
        choices = self.choices
        return {
            "op": "loseLeaves",
            "node": choices.pick([*self._nodes, *self._nodes, "unknown"]),
            "leafType": choices.pick([*self._leaf_types * 4, "NOTYPE"]),
            "count": choices.pick([1, 1, 0, 2, 1, 3, 0, 5, 100, -1]),
            "known": choices.pick([[], [], [1], [0, 2], [99], [3, 3, 32]]),
        }

    def _split(self) -> Op:
        """A gang goes on as pods of their own; sometimes its group does not exist, or a pod does not fit its slot."""
        choices = self.choices
        gangs = [pod for pod in self._bound if "affinityGroup" in self._specs[pod]]
        if not gangs:
            return {"op": "split", "group": "nobody", "pods": []}
        spec = self._specs[choices.pick(gangs[-8:])]
        sizes: list[int] = []
        for member in spec["affinityGroup"]["members"]:
            sizes += [member["leafCellNumber"]] * member["podNumber"]
        parts = []
        for size in sorted(sizes):
            pod = self._new_pod()
            part = {key: value for key, value in spec.items() if key != "affinityGroup"} | {"leafCellNumber": size}
            if choices.chance(2):
                part |= {"priority": 7}
            if choices.chance(30):
                part["elastic"] = choices.chance(50)
            if choices.chance(30):
                part["affinityGroup"] = {"name": pod, "members": [{"podNumber": 1, "leafCellNumber": size}]}
            parts.append({"pod": pod, "spec": part})
        return {"op": "split", "group": spec["affinityGroup"]["name"], "pods": parts}

    def _plan(self) -> Op:
        """New groups, and pods of groups that are there; they are forgotten at once."""
        known, count = dict(self._specs), self._pod_count
        made = [self.choices.pick([self._new_group, self._new_group, self._next_pod])() for _ in range(3)]
        pods = [{"pod": op["pod"], "spec": op["spec"]} for op in made]
        self._specs, self._pod_count = known, count
        return {"op": "plan", "pods": pods, "suggested": self._suggested()}

    def _inspect(self) -> Op:
        groups = [f"group:{spec['affinityGroup']['name']}" for spec in self._specs.values() if "affinityGroup" in spec]
        vcs = [f"vc:{vc}" for vc in [*self._vcs, "NOVC"]]
        return {
            "op": "inspect",
            "what": self.choices.pick(["groups", "cluster", "physical", "vcs", *vcs, *groups[-4:]]),
        }

    def _restart(self) -> Op:
        choices = self.choices
        config = choices.pick([self._config, *self._configs])
        return {
            "op": "restart",
            "config": config,
            "order": choices.pick(["nodesFirst", "podsFirst"]),
            "badNodes": choices.subset(self._nodes, 15) if choices.chance(50) else [],
            "pods": choices.shuffled([pod for pod in self._bound if choices.chance(90)]),
        }

    def _rebuild(self) -> Op:
        """A restart after which the reservations of now are made again."""
        self._queued = self._reservations()
        return self._restart() | {"order": "nodesFirst"}

    def _reserve(self) -> Op:
        """A reservation that nobody made: of cells that somebody uses, or of any."""
        choices = self.choices
        infos = list(self._bound.values())[-8:]
        info = choices.pick(infos) if infos and choices.chance(93) else self._made_up_bind_info()
        placed, other = [], choices.pick(self._preassigned_types) if self._preassigned_types else "NOTYPE"
        for member in info["affinityGroupBindInfo"]:
            placements = [
                placement | {"preassignedCellTypes": [each or other for each in placement["preassignedCellTypes"]]}
                for placement in member["podPlacements"]
            ]
            placed.append({"podPlacements": choices.shuffled(placements)})
        info = info | {"affinityGroupBindInfo": placed}
        counts = {len(m["podPlacements"][0]["physicalLeafCellIndices"]): len(m["podPlacements"]) for m in placed}
        base = {
            "virtualCluster": choices.pick(self._rich_vcs),
            "priority": choices.weighted(PRIORITIES | {1000: 12, -1: 1}),
            "lazyPreemptionEnable": choices.chance(30),
            "elastic": choices.chance(20),
        }
        if self._pins and choices.chance(20):
            base["virtualCluster"], base["pinnedCellId"] = choices.pick(self._pins)
        if choices.chance(10):
            base["withinCell"] = {"required": choices.pick(self._cell_types)}
        pods = []
        for _ in range(choices.pick([1, 2])):
            pod = self._new_pod()
            members = [{"podNumber": count, "leafCellNumber": size} for size, count in counts.items()]
            base.setdefault("affinityGroup", {"name": f"g{pod}", "members": members})
            pods.append({"pod": pod, "spec": base | {"leafCellNumber": choices.pick([*counts])}})
        if choices.chance(3):
            pods[-1]["spec"] |= {"priority": 7}
        return {"op": "reserve", "pods": pods, "node": info["node"], "bindInfo": json.dumps(info)}

    def _add_bound(self) -> Op:
        """A bound pod that nobody decided: sound, overlapping, or nonsense."""
        choices = self.choices
        pod = self._new_pod()
        infos = list(self._bound.values())[-8:]
        info = choices.pick(infos) if infos and choices.chance(40) else self._made_up_bind_info()
        if self._waiting and choices.chance(30):
            return self._bound_elsewhere(choices.pick(self._waiting), info)
        sizes: dict[int, int] = {}
        for member in info["affinityGroupBindInfo"]:
            placements = member["podPlacements"]
            sizes[len(placements[0]["physicalLeafCellIndices"])] = len(placements)
        spec = {
            "virtualCluster": choices.pick(self._vcs),
            "priority": choices.weighted(PRIORITIES),
            "leafCellNumber": len(info["leafCellIsolation"]),
            "lazyPreemptionEnable": choices.chance(30),
            "affinityGroup": {
                "name": f"g{self._pod_count}",
                "members": [{"podNumber": count, "leafCellNumber": size} for size, count in sizes.items()],
            },
        }
        if self._pins and choices.chance(20):
            spec["virtualCluster"], spec["pinnedCellId"] = choices.pick(self._pins)
        self._specs[pod] = spec
        return {"op": "addBound", "pod": pod, "node": info["node"], "spec": spec, "bindInfo": json.dumps(info)}

    def _bound_elsewhere(self, pod: str, info: Op) -> Op:
        """A pod that waits or preempts turns out to be bound, to a place of its size if there is one in `info`."""
        spec = self._specs[pod]
        members = spec.get("affinityGroup", {}).get("members") or [{"podNumber": 1, "leafCellNumber": 1}]
        counts: dict[int, int] = {}
        for member in members:
            counts[member["leafCellNumber"]] = counts.get(member["leafCellNumber"], 0) + member["podNumber"]
        nodes = [placement["physicalNode"] for m in info["affinityGroupBindInfo"] for placement in m["podPlacements"]]
        placements = {
            size: [
                {
                    "physicalNode": self.choices.pick(nodes),
                    "physicalLeafCellIndices": [i * size + k for k in range(size)],
                    "preassignedCellTypes": [self.choices.pick([*self._preassigned_types, ""])] * size,
                }
                for i in range(count)
            ]
            for size, count in counts.items()
        }
        mine = placements.get(spec["leafCellNumber"], next(iter(placements.values())))[0]
        bound = {
            "node": mine["physicalNode"],
            "leafCellIsolation": mine["physicalLeafCellIndices"],
            "cellChain": info["cellChain"],
            "affinityGroupBindInfo": [{"podPlacements": placements[size]} for size in sorted(placements)],
        }
        return {"op": "addBound", "pod": pod, "node": mine["physicalNode"], "spec": spec, "bindInfo": json.dumps(bound)}

    def _made_up_bind_info(self) -> Op:
        choices = self.choices
        types = sorted({cell.cell_type for cell in self._cells})
        members = []
        for size in choices.pick([(1,), (2,), (1, 2), (4, 1), (4,)]):
            placements = []
            for _ in range(choices.pick([1, 2])):
                first = choices.pick([0, 1, 2, 4, 8, 32])
                cell_type = choices.pick([*types, "", "NOTYPE"])
                placements.append(
                    {
                        "physicalNode": choices.pick([*self._nodes, "unknown"]),
                        "physicalLeafCellIndices": [first + i for i in range(size)],
                        "preassignedCellTypes": [cell_type] * size,
                    }
                )
            members.append({"podPlacements": placements})
        mine = choices.pick(members[0]["podPlacements"])
        return {
            "node": mine["physicalNode"],
            "leafCellIsolation": mine["physicalLeafCellIndices"],
            "cellChain": choices.pick(self._chains),
            "affinityGroupBindInfo": members,
        }


def _group_name(spec: Op) -> str:
    return spec.get("affinityGroup", {}).get("name", "")


def _leaf_count(cell: PhysicalCellSpec) -> int:
    return sum(not below.children for below in _walk(cell))


def _walk(cell: PhysicalCellSpec) -> list[PhysicalCellSpec]:
    return [cell, *(below for child in cell.children for below in _walk(child))]
