"""The surroundings of the machine alone: an API server, nodes, and time; and how everything comes to rest.

Effects wait until they are carried out, and what came of them waits until it is told, so that anything may happen in
between. What is carried out changes the API server, whose news the machines hear in order.
"""

from copy import deepcopy

from msgspec.structs import replace

from hived_config.loader import Configuration, load_text
from hived_extender.jobs.readings import Reading, Texts
from hived_extender.jobs.wire import Node, Pod, PodMetadata
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.effects import KeepChanged, ReadPod, WriteStatuses
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import (
    BindAsked,
    Elected,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    TimeCame,
    TryWaiting,
    Wrote,
)
from hived_extender.machine.writes.writer import Writer
from tests.extender.machine.small_cluster import CONFIG, NODES, Json, node_json, to_node, to_pod
from tests.extender.machine.small_gangs import RULES
from tests.property.machine_cluster import Api, Unreliable, with_devices
from tests.property.machine_rules import check, check_equal, check_rest
from tests.property.machine_twins import Broken, Machines, Sent, shown

REST_S = 5000.0
"""Longer than a binding that nobody asks about may last, with all its retries."""

MOST_TURNS = 2000


_PAIRS = """\
rules: 2
virtualClusters:
  a:
    combine: true
    sparing: true
    virtualCells: [{cellType: RACK.NODE.PAIR, cellNumber: 2}]
  other:"""

CONFIGURATIONS = tuple(
    replace(load_text(CONFIG.replace(*change), "small.yaml", environ={}), rules=RULES)
    for change in (
        ("", ""), ("cellNumber: 2}]", "cellNumber: 1}]"), ("cellNumber: 1}]", "cellNumber: 2}]"),
        ("virtualClusters:", "rules: 2\nvirtualClusters:"), ("virtualClusters:\n  a:", _PAIRS),
    )
)  # fmt: skip
"""The cluster of `cluster`; VC a has one node; VC b has two; better rules; VC a has pairs, and their keys."""


class Surroundings:
    """See the module. Two machines lead from the beginning."""

    def __init__(self, policy: PreemptionPolicy, configuration: Configuration = CONFIGURATIONS[0]) -> None:
        self.api = Api()
        self.configuration, self._has_changed = configuration, False
        self.machines = Machines(2, policy, self.configuration)
        self.machine = self.machines.first
        self.nodes = {name: node_json(name) for name in NODES}
        self._unreliable = Unreliable(self.api)
        self._writer = Writer(self._unreliable, Metrics(), self.machines.prover, self.api, None)
        self.texts = Texts(self.machines.prover, lambda pod: None)
        self.relist()
        self.begin_term()

    # What is told

    def relist(self) -> str:
        """Nodes and pods are listed anew."""
        self.api.news.clear()
        self.machines.tell(NodesListed(tuple(self.nodes)))
        for name in self.nodes:
            self.machines.tell(NodeSeen(self.node(name)))
        pods = [to_pod(deepcopy(pod)) for pod in self.api.pods.values()]
        present = {pod.metadata.uid for pod in pods}
        for uid in self.machine.cache.known_pods():
            if uid not in present:
                self.machines.tell(PodGone(uid))
        for pod in pods:
            self.tell_pod(pod, is_listed=True)
        return "all"

    # kube-scheduler

    def hear_some(self, count: int) -> str:
        """The machine hears the next news of pods."""
        told = []
        for _ in range(min(count, len(self.api.news))):
            one = self.api.news.popleft()
            if isinstance(one, str):
                self.machines.tell(PodGone(one))
                told.append(f"{one} is gone")
            else:
                self.tell_pod(one)
                told.append(one.metadata.name)
        return ", ".join(told)

    def hear_all(self) -> None:
        """The machine hears all that has become of pods."""
        self.hear_some(len(self.api.news))

    def tell_pod(self, pod: Pod, *, is_listed: bool = False) -> None:
        """A pod is seen."""
        self.machines.tell(PodSeen(pod, self.texts.read_annotations(pod.metadata, node=pod.node, pod=pod), is_listed))

    def node(self, name: str) -> Node:
        """A node as it is now."""
        return to_node(self.nodes[name])

    def change_node(self, body: Json) -> str:
        """A node comes, or looks like this now."""
        name = str(body["metadata"]["name"])
        self.nodes[name] = body
        self.machines.tell(NodeSeen(self.node(name)))
        return name

    # Terms

    def begin_term(self) -> None:
        """Catch up, change every pod without a node so that earlier bindings fail, and lead."""
        self.hear_all()
        for name in self.unbound(is_gated=True):
            self.api.touch(self.api.pods[name])
        self.hear_all()
        self.machines.tell(Elected(self._changed()))

    def _changed(self) -> dict[str, Reading]:
        """As `Service` reads what the Secret has."""
        found = {}
        for uid, annotations in self.api.kept.items():
            record = self.machine.cache.pods.get(uid)
            if record is not None and record.place.node:
                meta = PodMetadata(record.name, record.namespace, uid, annotations=dict(annotations))
                found[uid] = self.texts.read_annotations(meta, node=record.place.node)
        return found

    def configure(self, configuration: Configuration) -> str:
        """Another configuration is taken up, as by a push."""
        self.configuration, self._has_changed = configuration, True
        return str(self.machines.configure(configuration))

    # Effects and time

    def carry_out(self, sent: Sent, error: KubeError | None, *, is_done: bool = False) -> None:
        """Carry an effect out, whose call may fail."""
        machine, effect = self.machine, sent.effects[0]
        self._unreliable.fail(error, is_done=is_done)
        if isinstance(effect, WriteStatuses):
            keys = list(effect.states)
            found = (keys[:1], keys[1:2]) if error is not None else ((), ())
            sent.wrote = Wrote(effect, found=found)
        elif isinstance(effect, KeepChanged) and error is not None:
            sent.wrote = Wrote(effect, error)
        else:
            leads = machine.cache.core is not None and machine.term == sent.term
            sent.wrote = self._writer.write(effect, lambda: leads)
        self._unreliable.fail(None)

    def tell_result(self, sent: Sent) -> str:
        """The machine hears what came of an effect."""
        effect, asked = sent.effects[0], sent.asked
        answer = self.machines.answer(sent)
        if isinstance(effect, ReadPod) and isinstance(answer, Pod) and asked is not None:
            answer = self.machines.tell(BindAsked(asked, answer), asked=asked)
        return f"{shown(effect)}: {sent.wrote.error or 'ok'}, {shown(answer)}"

    def wait(self, seconds: float) -> None:
        """Time goes by, with everything that is due on the way."""
        until = self.machines.at + seconds
        while self.machine.due_at <= until or self.machine.has_backlog:
            if self.machine.due_at <= until:
                self.machines.at = max(self.machines.at, self.machine.due_at)
                self.machines.tell(TimeCame())
            else:
                self.machines.tell(TryWaiting())
            self.check()
        self.machines.at = until

    # What has to hold, and rest

    def check(self) -> None:
        """After every step."""
        check(self.machines, self.api)

    def finish(self) -> None:
        """Everything comes to rest; whoever waits then goes. The state has to be that of a machine that is started."""
        for name in NODES:
            self.change_node(with_devices(name, 4))
        if self.machine.cache.core is None:
            self.begin_term()
            self.check()
        self._rest()
        check_rest(self.machines, self.api)
        for name, pod in list(self.api.pods.items()):
            # Which devices pods of others use is not known, and the core goes by what it took to be lost before.
            record = self.machine.cache.pods.get(pod["metadata"]["uid"])
            if record is None or record.place.info is None:
                self.api.remove(name)
        self._rest()
        if (
            self._has_changed
        ):  # a group that lost its place to a push has it again with the next state, if there is room
            self.configure(self.configuration)
            self._rest()
        check_rest(self.machines, self.api)
        self._check_rebuilt()

    def _rest(self) -> None:
        """Carry everything out, let victims leave and time go by."""
        self.hear_all()
        until = self.machines.at + REST_S
        for _ in range(MOST_TURNS):
            while self.machines.sent:
                one = self.machines.sent[0]
                if one.wrote is None:
                    self.carry_out(one, None)
                self.tell_result(one)
                self.check()
            for name in [name for name, pod in self.api.pods.items() if "deletionTimestamp" in pod["metadata"]]:
                self.api.remove(name)
            self.hear_all()
            if self.machines.sent:
                continue
            if self.machine.due_at <= until:
                self.machines.at = max(self.machines.at, self.machine.due_at)
                self.machines.tell(TimeCame())
            elif self.machine.has_backlog:
                self.machines.tell(TryWaiting())
            else:
                self.machines.at = until
                return
            while self.machine.has_backlog:
                self.machines.tell(TryWaiting())
            self.check()
        raise Broken("it does not come to rest")

    def _check_rebuilt(self) -> None:
        """A machine that is started now has the same state."""
        present, machines = self.machine, self.machines
        self.machines = Machines(1, PreemptionPolicy(), self.configuration)
        self.machine, self.machines.at = self.machines.first, machines.at
        self.relist()
        self.machines.tell(Elected(self._changed()))
        check_equal(present, self.machine)
        self.machine, self.machines = present, machines

    def unbound(self, *, is_gated: bool = False) -> list[str]:
        """Pods that kube-scheduler would ask about, and others without a node."""
        pods = self.api.pods.items()
        return [
            name
            for name, pod in pods
            if not pod["spec"]["nodeName"] and (is_gated or not pod["spec"].get("schedulingGates"))
        ]
