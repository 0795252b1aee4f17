"""Random stimuli for the machine alone, after each of which all has to hold that `machine_rules` says.

A second machine gets the same stimuli at the same moments. `finish` brings everything to rest, and compares the state
with the one of a machine that is started then.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hived.life.status import snapshot
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.progress import CHECKPOINTED_AT, MAY_MOVE, write_time
from hived_extender.jobs.wire import BindArgs, FilterResult
from hived_extender.kube.client import KubeError
from hived_extender.machine.effects import Awaits
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import BindAsked, Deposed, FilterAsked, NodeSeen, PreemptAsked, TimeCame, TryWaiting
from tests.extender.machine.small_cluster import NODES, Json, filter_args, node_json, preempt_args, spec_text
from tests.extender.machine.small_gangs import koordinator
from tests.property.choices import Choices
from tests.property.machine_cluster import REFUSED, SILENT, manifest, with_devices
from tests.property.machine_surroundings import CONFIGURATIONS, Surroundings
from tests.property.machine_twins import Broken, shown

NAMESPACES = {"ns": "a", "other": "b"}
CLASSES = {"": 0, "high": 100, "low": -1}
MOMENTS_S = (0.0, 0.05, 0.3, 1.0, 2.5, 6.0, 31.0, 70.0, 420.0, 700.0)
MOST_PODS = 14

OPERATIONS = {
    "create": 12, "place": 16, "ask": 14, "foresee": 2, "preempt": 3, "bind": 8, "bind_by_others": 1,
    "hear": 14, "write": 14, "answer": 14,
    "tick": 8, "try_waiting": 5, "pass_time": 5, "run": 2, "checkpoint": 2, "end": 2, "leave": 8, "delete": 2,
    "touch": 1, "tamper": 1, "gate": 1, "break_node": 1, "repair_node": 5, "cordon": 1, "lose_device": 1,
    "forget_node": 1, "relist": 1, "push": 1, "depose": 1, "elect": 6,
}  # fmt: skip


class MachineRun(Surroundings):
    """See the module. Each operation does one thing, and says in words which."""

    def __init__(self, choices: Choices) -> None:
        policy = PreemptionPolicy(by_service=choices.chance(80))
        super().__init__(policy, choices.pick(CONFIGURATIONS))
        self.choices = choices
        self.log: list[str] = []
        self._count = 0
        self._group = 0
        self._answers: dict[str, str] = {}

    def __str__(self) -> str:
        """The log of the run."""
        return "\n".join(self.log)

    def step(self, operations: Mapping[str, int] = OPERATIONS) -> None:
        """Do one of these things, chosen by chance, and check everything."""
        self.do(self.choices.weighted(dict(operations)))

    def do(self, kind: str) -> None:
        """Do one thing of a kind, if there is any, and check everything."""
        self.log.append(kind)
        told = getattr(self, kind)()
        self.log[-1] += f" {told}" if told else " nothing"
        self.check()

    # Pods

    def create(self) -> str:
        """One or more pods of a job come."""
        if len(self.api.pods) > MOST_PODS:
            return ""
        kind = self.choices.weighted({"own": 3, "group": 2, "gang": 4, "plain": 2})
        namespace, class_name = (
            self.choices.pick(tuple(NAMESPACES)),
            self.choices.weighted({"": 4, "high": 3, "low": 3}),
        )
        gpus, self._group = self.choices.weighted({4: 3, 2: 3, 1: 2, 0: 1}), self._group + 1
        count = self.choices.integer(1, 3) if kind in ("group", "gang") else 1
        notes: dict[str, str] = {}
        if kind in ("own", "group"):
            gpus = gpus or 1
            group = f"g{self._group}" if kind == "group" else ""
            more = {"ignoreK8sSuggestedNodes": self.choices.chance(20), "lazyPreemptionEnable": self.choices.chance(50)}
            vc = NAMESPACES[namespace] if self.choices.chance(95) else "empty"
            notes[SCHEDULING_SPEC] = spec_text(vc, gpus, CLASSES[class_name], group, count, **more)
        elif kind == "gang":
            count += self.choices.integer(0, 1)
            policy = self.choices.pick(("once-satisfied", "waiting-and-running", "only-waiting"))
            notes = koordinator(f"g{self._group}", self.choices.integer(1, count), match_policy=policy)
        names = [self._create(namespace, class_name, gpus, notes) for _ in range(count)]
        return f"{kind} {names} {namespace} {class_name or 'normal'} {gpus} {notes}"

    def touch(self) -> str:
        """Somebody changes a pod in a way that means nothing."""
        return self._change(lambda pod: pod["metadata"]["labels"].update(touched=str(self._count)), self.api.pods)

    def tamper(self) -> str:
        """An owner changes what was written onto a pod, or makes up what was not."""
        forged = {BIND_INFO: "node: n0", LEAF_CELL_ISOLATION: "0"}
        name = self.choices.pick((BIND_INFO, LEAF_CELL_ISOLATION))
        return self._change(lambda pod: pod["metadata"]["annotations"].update({name: forged[name]}), self.api.pods)

    def gate(self) -> str:
        """A gate is taken off all pods that have one."""
        names = [name for name, pod in self.api.pods.items() if pod["spec"].pop("schedulingGates", None)]
        for name in names:
            self.api.touch(self.api.pods[name])
        return str(names)

    def run(self) -> str:
        """A bound pod begins to run."""
        running = {"phase": "Running", "startTime": write_time(self.machines.at)}
        return self._change(lambda pod: pod["status"].update(running), self._bound("Pending"))

    def checkpoint(self) -> str:
        """The owner of a pod says that it has saved its work, or something else."""
        at_s = self.choices.integer(0, int(self.machines.at))
        text = self.choices.pick((write_time(at_s), write_time(self.machines.at), "yesterday", ""))
        notes = {CHECKPOINTED_AT: text, MAY_MOVE: self.choices.pick(("true", "false", "perhaps"))}
        return self._change(lambda pod: pod["metadata"]["annotations"].update(notes), self.api.pods) + f" {notes}"

    def end(self) -> str:
        """A bound pod ends."""
        return self._become(self.choices.pick(("Succeeded", "Failed")), self._bound("Pending", "Running"))

    def leave(self) -> str:
        """A pod that has begun to leave is gone."""
        return self._remove([name for name, pod in self.api.pods.items() if "deletionTimestamp" in pod["metadata"]])

    def delete(self) -> str:
        """Somebody deletes a pod, which goes at once, or begins to leave."""
        if self.choices.chance(50):
            return self._remove(list(self.api.pods))
        return self._change(lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-02T00:00:00Z"), self.api.pods)

    def bind_by_others(self) -> str:
        """Somebody else binds a pod, and says nothing about cells."""
        node = self.choices.pick(NODES)
        return self._change(lambda pod: pod["spec"].update(nodeName=node), self.unbound())

    def hear(self) -> str:
        """The machine hears some of what has become of pods."""
        return self.hear_some(self.choices.integer(1, 5))

    def ask(self) -> str:
        """kube-scheduler asks where a pod can run, and offers some nodes."""
        pods = [pod for pod in self.api.pods.values() if pod["metadata"]["name"] in self.unbound()]
        if not pods:
            return ""
        pod = self.choices.pick(pods)
        nodes = self.choices.weighted({"all": 6, "some": 3, "one": 1, "none": 1})
        offered = {
            "all": list(self.nodes), "some": self.choices.subset(list(self.nodes), 60),
            "one": [self.choices.pick(NODES)], "none": [],
        }[nodes]  # fmt: skip
        return f"{pod['metadata']['name']} on {offered}: {shown(self._ask(pod, offered))}"

    def _ask(self, pod: Json, offered: list[str]) -> Any:
        args = filter_args(pod, offered)
        answer = self.machines.tell(FilterAsked(args, self.texts.read_annotations(args.pod.metadata)))
        uid = pod["metadata"]["uid"]
        if isinstance(answer, FilterResult) and answer.node_names:
            self._answers[uid] = self.choices.pick(list(answer.node_names))
        else:
            self._answers.pop(uid, None)
        return answer

    def place(self) -> str:
        """All goes well for a pod, or for all there are: it is seen, asked about, bound, and seen again."""
        self.hear_all()
        unbound = self.unbound()
        if not unbound:
            return ""
        names = self.choices.shuffled(unbound) if self.choices.chance(30) else [self.choices.pick(unbound)]
        for name in names:
            pod = self.api.pods[name]
            self._ask(pod, list(self.nodes))
        for name in names:
            meta = self.api.pods[name]["metadata"]
            if meta["uid"] in self._answers:
                args = BindArgs(meta["name"], meta["namespace"], meta["uid"], self._answers[meta["uid"]])
                if isinstance(self.machines.tell(BindAsked(args), asked=args), Awaits):
                    sent = self.machines.sent[-1]
                    self.carry_out(sent, None)
                    self.tell_result(sent)
        self.hear_all()
        return f"{names}, bound are {self._bound('Pending')}"

    def foresee(self) -> str:
        """Somebody asks what would be said about a pod, which changes nothing."""
        core = self.machine.cache.core
        if core is None or not self.unbound():
            return ""
        pod = self.api.pods[self.choices.pick(self.unbound())]
        args, before, count = filter_args(pod, list(self.nodes)), snapshot(core.state), len(self.machines.sent)
        asked = FilterAsked(args, self.texts.read_annotations(args.pod.metadata), tentatively=True)
        answer = self.machines.tell(asked)
        if snapshot(core.state) != before or len(self.machines.sent) != count:
            raise Broken(f"{pod['metadata']['name']} was asked about tentatively, and something has changed")
        return f"{pod['metadata']['name']}: {shown(answer)}"

    def preempt(self) -> str:
        """kube-scheduler asks which pods should leave."""
        pods = [pod for pod in self.api.pods.values() if pod["metadata"]["name"] in self.unbound()]
        if not pods:
            return ""
        pod = self.choices.pick(pods)
        args = preempt_args(pod, self.choices.subset(list(self.nodes), 80))
        answer = self.machines.tell(PreemptAsked(args, self.texts.read_annotations(args.pod.metadata)))
        for victims in getattr(answer, "node_name_to_meta_victims", {}).values():
            for victim in victims.pods:
                self._evict(victim.uid)
        return f"{pod['metadata']['name']}: {shown(answer)}"

    def bind(self) -> str:
        """kube-scheduler binds a pod to a node that it was given, now or earlier, or to any."""
        named = {pod["metadata"]["uid"]: pod for pod in self.api.pods.values()}
        uids = [uid for uid in self._answers if uid in named]
        if not uids:
            return ""
        uid = self.choices.pick(uids)
        meta = named[uid]["metadata"]
        node = self._answers[uid] if self.choices.chance(90) else self.choices.pick(NODES)
        args = BindArgs(meta["name"], meta["namespace"], uid, node)
        return f"{meta['name']} to {node}: {shown(self.machines.tell(BindAsked(args), asked=args))}"

    # Effects and time

    def write(self) -> str:
        """An effect is carried out, or fails, or is carried out and nobody hears so."""
        sent = [one for one in self.machines.sent if one.wrote is None]
        if not sent:
            return ""
        one, failure = self.choices.pick(sent), self.choices.weighted({"": 7, "refused": 2, "silent": 1, "lost": 1})
        error = None
        if failure:
            status, reason = self.choices.pick(REFUSED) if failure == "refused" else SILENT
            error = KubeError(status, reason, "for a reason of its own")
        self.carry_out(one, error, is_done=failure == "lost")
        return f"{shown(one.effects[0])}: {failure or 'ok'} {one.wrote.error or ''}"

    def answer(self) -> str:
        """The machine hears what came of an effect."""
        sent = [one for one in self.machines.sent if one.wrote is not None]
        return self.tell_result(self.choices.pick(sent)) if sent else ""

    def tick(self) -> str:
        """The first timer is due."""
        due_at = self.machine.due_at
        if due_at == math.inf:
            return ""
        self.machines.at = max(self.machines.at, due_at)
        self.machines.tell(TimeCame())
        return f"{self.machines.at:.2f}"

    def try_waiting(self) -> str:
        """There is time to try some of those that wait."""
        if not self.machine.has_backlog:
            return ""
        self.machines.tell(TryWaiting())
        return "some"

    def pass_time(self) -> str:
        """Time goes by, with everything that is due on the way."""
        self.wait(self.choices.pick(MOMENTS_S))
        return f"{self.machines.at:.2f}"

    # Nodes

    def break_node(self) -> str:
        """A node turns bad."""
        return self.change_node(node_json(self.choices.pick(NODES), is_ready=False))

    def repair_node(self) -> str:
        """A node turns good, whatever it lacked."""
        return self.change_node(node_json(self.choices.pick(NODES)))

    def cordon(self) -> str:
        """A node takes no more pods."""
        return self.change_node(node_json(self.choices.pick(NODES), is_cordoned=True))

    def lose_device(self) -> str:
        """A node does not report all its devices."""
        count = self.choices.integer(0, 3)
        return f"{self.change_node(with_devices(self.choices.pick(NODES), count))} has {count}"

    def forget_node(self) -> str:
        """A node is gone."""
        if not self.nodes:
            return ""
        name = self.choices.pick(list(self.nodes))
        node = self.node(name)
        del self.nodes[name]
        self.machines.tell(NodeSeen(node, is_gone=True))
        return name

    # Terms

    def depose(self) -> str:
        """The term ends."""
        self.machines.tell(Deposed("another leads"))
        return "now"

    def push(self) -> str:
        """Another configuration is taken up, or the same once more."""
        index = self.choices.integer(0, len(CONFIGURATIONS) - 1)
        return f"{index}: {self.configure(CONFIGURATIONS[index])}"

    def elect(self) -> str:
        """A term begins, with all that has to be done before."""
        if self.machine.cache.core is not None:
            return ""
        self.begin_term()
        return "again"

    # Rest

    # In detail

    def _create(self, namespace: str, class_name: str, gpus: int, notes: Mapping[str, str]) -> str:
        self._count += 1
        pod = manifest(f"p{self._count}", self._count, namespace, class_name, gpus, notes)
        if self.choices.chance(5):
            pod["spec"]["schedulingGates"] = [{"name": "wait"}]
        self.api.add(pod)
        return str(pod["metadata"]["name"])

    def _bound(self, *phases: str) -> list[str]:
        return [
            name for name, pod in self.api.pods.items() if pod["spec"]["nodeName"] and pod["status"]["phase"] in phases
        ]

    def _change(self, how: Callable[[Json], object], names: Iterable[str]) -> str:
        names = list(names)
        if not names:
            return ""
        pod = self.api.pods[self.choices.pick(names)]
        how(pod)
        self.api.touch(pod)
        return f"{pod['metadata']['name']} {pod['spec']['nodeName']}"

    def _become(self, phase: str, names: list[str]) -> str:
        return self._change(lambda pod: pod["status"].update(phase=phase), names) + f" {phase}"

    def _remove(self, names: list[str]) -> str:
        if not names:
            return ""
        name = self.choices.pick(names)
        self.api.remove(name)
        return name

    def _evict(self, uid: str) -> None:
        for name, pod in list(self.api.pods.items()):
            if pod["metadata"]["uid"] == uid:
                self.api.evict_pod("", name, uid=uid)
