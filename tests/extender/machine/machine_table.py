"""The machine alone in tests: stimuli in few words, effects and answers as short texts.

A cluster of four nodes of four GPUs, as in `cluster`; VC a owns two of them, VC b one. The machine leads unless told
otherwise, and the clock stands still until `wait`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hived.values.errors import HivedError, UserError
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.readings import Texts
from hived_extender.jobs.wire import BindArgs, FilterResult, Pod, PreemptResult
from hived_extender.kube.client import KubeError
from hived_extender.machine.effects import (
    Announce,
    Awaits,
    BindPod,
    Effect,
    EvictPod,
    HoldBindings,
    KeepChanged,
    Now,
    ReleaseBindings,
    WriteStatuses,
)
from hived_extender.machine.machine import Machine
from hived_extender.machine.notices import Announced
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.stimuli import (
    BindAsked,
    Deposed,
    Elected,
    FilterAsked,
    NodeSeen,
    NodesListed,
    PodGone,
    PodSeen,
    PreemptAsked,
    Stimulus,
    TimeCame,
    TryWaiting,
    Wrote,
)
from tests.extender.machine.small_cluster import (
    NODES,
    Json,
    cluster_spec,
    filter_args,
    node,
    preempt_args,
    spec_text,
    to_pod,
)
from tests.extender.machine.small_gangs import RULES, koordinator

ERRORS: dict[str, HivedError] = {
    "silent": KubeError(0, "NoAnswer", "it is away"),
    "budget": KubeError(429, "TooManyRequests", "no disruption is left"),
    "conflict": KubeError(409, "Conflict", "the version differs"),
    "missing": KubeError(404, "NotFound", "it is gone"),
    "changed": UserError("the pod changed 5 times meanwhile", code=409),
}
"""How effects fail, by a word."""


class Table:
    """A machine, the pods that it was told of, and the effects that nobody has answered yet.

    Every method that hands something in returns the answer in short. `sent` has what was sent since it was looked at
    last.
    """

    def __init__(self, *, is_leading: bool = True, policy: PreemptionPolicy | None = None, keys: Iterable[bytes] = ()):
        self.prover = Prover(tuple(keys))
        interpreter = Interpreter(cluster_spec(), RULES, NoObjects())
        self.machine = Machine(cluster_spec(), interpreter, preemption=policy or PreemptionPolicy(), prover=self.prover)
        self.at = 1000.0
        self.pods: dict[str, Json] = {}
        self.under_way: list[tuple[Any, int]] = []
        self.others: Mapping[str, Callable[[Table], Stimulus]] = {}
        self._sent: list[str] = []
        self._written: dict[str, dict[str, str]] = {}
        self._texts = Texts(self.prover, lambda pod: None)
        self.tell(NodesListed(NODES))
        for name in NODES:
            self.tell(NodeSeen(node(name)))
        if is_leading:
            self.tell(Elected())
            self.settle()
            self.wait(1.0)

    # Stimuli

    def tell(self, stimulus: Stimulus) -> str:
        """Hand a stimulus in."""
        answer, effects = self.machine.handle(stimulus, Now(self.at, self.at))
        for effect in effects:
            self._send(effect)
        if isinstance(answer, Awaits):
            self._send(answer.effect)
        return short_answer(answer)

    def own(self, *names: str, gpus: int = 4, priority: int = 0, group: str = "", vc: str = "a", **more: Any) -> None:
        """Pods in our own words come."""
        for name in names:
            text = spec_text(vc, gpus, priority, group, len(names), **more)
            self.create(name, {SCHEDULING_SPEC: text}, 1, namespace={"a": "ns", "b": "other"}[vc])

    def gang(self, *names: str, minimum: int, gpus: int = 4, priority_class: str = "", **more: Any) -> None:
        """Pods of one gang come, in the words of koordinator."""
        spec = {"priorityClassName": priority_class} if priority_class else {}
        for name in names:
            self.create(name, koordinator("train", minimum, **more), gpus, **spec)

    def create(self, name: str, notes: Mapping[str, str], gpus: int, *, namespace: str = "ns", **spec: Any) -> None:
        """A pod comes."""
        about = {
            "name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": dict(notes), "labels": {},
            "resourceVersion": str(len(self.pods) + 100),
            "creationTimestamp": f"2026-01-01T00:00:{len(self.pods):02d}Z",
        }  # fmt: skip
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
        container = {"name": "main", "resources": {"limits": limits}}
        spec = {"nodeName": "", "schedulerName": "hived", "containers": [container], **spec}
        self.pods[name] = {"metadata": about, "spec": spec, "status": {"phase": "Pending"}}
        self.see(name)

    def see(self, name: str, **spec: Any) -> str:
        """A watch shows a pod, maybe with something else in its spec, in another version."""
        pod = self.pods[name]
        pod["spec"].update(spec)
        pod["metadata"]["resourceVersion"] = str(int(pod["metadata"]["resourceVersion"]) + 100)
        return self._show(to_pod(pod))

    def _show(self, pod: Pod) -> str:
        return self.tell(PodSeen(pod, self._texts.read_annotations(pod.metadata, node=pod.node, pod=pod)))

    def claim(self, name: str) -> None:
        """A pod comes that needs a volume, with which nobody but kube-scheduler can bind it."""
        self.own(name)
        self.see(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])

    def hidden(self, name: str) -> None:
        """The machine has not heard of a pod that exists, or has heard that it is gone."""
        self.tell(PodGone(self.pods[name]["metadata"]["uid"]))

    def hand(self, name: str) -> str:
        """Hand in another stimulus, by its name in `others`."""
        return self.tell(self.others[name](self))

    def tamper(self, name: str) -> str:
        """The owner of a bound pod changes what hived has written onto it."""
        annotations = self.pods[name]["metadata"]["annotations"]
        self._written[name] = dict(annotations)
        annotations[BIND_INFO] = "node: elsewhere"
        return self.see(name)

    def repent(self, name: str) -> str:
        """The owner puts it back."""
        self.pods[name]["metadata"]["annotations"] = self._written[name]
        return self.see(name)

    def node(self, name: str, *, is_ready: bool = True) -> str:
        """A node turns good or bad."""
        return self.tell(NodeSeen(node(name, is_ready)))

    def become(self, name: str, phase: str) -> str:
        """A pod reaches a phase."""
        self.pods[name]["status"]["phase"] = phase
        return self.see(name)

    def leave(self, name: str) -> str:
        """A pod begins to leave."""
        self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        return self.see(name)

    def gone(self, name: str) -> str:
        """A pod is gone."""
        return self.tell(PodGone(self.pods.pop(name)["metadata"]["uid"]))

    def filter(self, name: str, *nodes: str) -> str:
        """kube-scheduler asks where a pod can run, and offers these nodes, or all."""
        args = filter_args(self.pods[name], nodes or NODES)
        return self.tell(FilterAsked(args, self._texts.read_annotations(args.pod.metadata)))

    def preempt(self, name: str) -> str:
        """kube-scheduler asks who should leave for a pod."""
        args = preempt_args(self.pods[name])
        return self.tell(PreemptAsked(args, self._texts.read_annotations(args.pod.metadata)))

    def bind(self, name: str, node: str = "n0") -> str:
        """kube-scheduler binds a pod."""
        meta = self.pods[name]["metadata"]
        return self.tell(BindAsked(BindArgs(meta["name"], meta["namespace"], meta["uid"], node)))

    def depose(self) -> str:
        """The term ends."""
        return self.tell(Deposed("another leads"))

    def elect(self) -> str:
        """A term begins."""
        return self.tell(Elected())

    def wait(self, seconds: float) -> None:
        """Time goes by, with everything that is due on the way, and without any answer to an effect."""
        until = self.at + seconds
        while self.machine.due_at <= until or self.machine.has_backlog:
            if self.machine.due_at <= until:
                self.at = max(self.at, self.machine.due_at)
                self.tell(TimeCame())
            else:
                self.tell(TryWaiting())
        self.at = until

    def do(self, steps: str) -> str:
        """Do steps such as "own p q gpus=2; filter p n0; fails budget: evict q"; returns the last answer."""
        answer = ""
        for step in filter(None, map(str.strip, steps.split(";"))):
            word, _, rest = step.partition(" ")
            if word == "done":
                answer = self.answer(rest)
            elif word == "fails":
                error, _, about = rest.partition(": ")
                answer = self.answer(about, ERRORS[error])
            elif word == "wait":
                self.wait(float(rest))
            else:
                words = [each.partition("=") for each in ([rest] if word == "hand" else rest.split())]
                more = {key: _value(text) for key, is_set, text in words if is_set}
                answer = getattr(self, word)(*(key for key, is_set, _ in words if not is_set), **more) or ""
        return answer

    # Effects

    def answer(self, about: str, error: HivedError | None = None) -> str:
        """The oldest effect of these words was carried out, or failed."""
        found: Any = None
        index = next(index for index, (effect, _) in enumerate(self.under_way) if short(effect) == about)
        effect, term = self.under_way.pop(index)
        if isinstance(effect, BindPod):
            found = effect.version
            if error is None:
                self.pods[effect.pod.name]["metadata"]["annotations"].update(effect.annotations)
        elif isinstance(effect, Announce):
            is_away = error is not None
            found = Announced(0, is_away=True) if is_away else Announced(len(effect.notices), True, effect.condition)
        elif isinstance(effect, WriteStatuses):
            keys = tuple(effect.states)
            found = (keys if error is ERRORS["conflict"] else (), keys if error is ERRORS["silent"] else ())
        return self.tell(Wrote(effect, error, found, is_current=self.machine.term == term))

    def settle(self) -> None:
        """Everything under way is carried out, and what follows from it; nobody looks at that."""
        while self.under_way:
            self.answer(short(self.under_way[0][0]))
        self.sent()

    def place(self, *names: str) -> None:
        """Pods are asked about, bound, and seen so."""
        for name in names:
            node = self.filter(name).removeprefix("node ")
            self.bind(name, node)
            self.answer(f"bind {name} to {node}")
            self.see(name, nodeName=node)

    def sent(self) -> list[str]:
        """The effects since the last look."""
        sent, self._sent = self._sent, []
        return sent

    def _send(self, effect: Effect) -> None:
        self._sent.append(short(effect))
        if not isinstance(effect, HoldBindings | ReleaseBindings):
            self.under_way.append((effect, self.machine.term))


def _value(text: str) -> Any:
    return text == "yes" if text in ("yes", "no") else int(text) if text.lstrip("-").isdigit() else text


def short(effect: Effect) -> str:
    """An effect by its kind and pods."""
    match effect:
        case BindPod():
            return f"bind {effect.pod.name} to {effect.node}" + (" by force" if effect.origin == "force" else "")
        case EvictPod():
            return f"{'delete' if effect.by_force else 'evict'} {effect.pod.name}"
        case Announce():
            return f"tell {effect.pod.name} {' '.join(notice.reason.value for notice in effect.notices)}".rstrip()
        case HoldBindings() | ReleaseBindings():
            word = "hold" if isinstance(effect, HoldBindings) else "release"
            return f"{word} {' '.join(uid.removeprefix('uid-') for uid in effect.uids)}"
        case KeepChanged():
            return f"keep {' '.join(uid.removeprefix('uid-') for uid in effect.changed)}".rstrip()
        case WriteStatuses():
            return f"write statuses of {' '.join(str(key) for key in effect.states)}"
    return f"{type(effect).__name__.removesuffix('Pod').lower()} {effect.pod.name}"


def short_answer(answer: Any) -> str:
    """An answer in a few words."""
    if isinstance(answer, UserError):
        return f"{answer.code}: {answer.message}"
    if isinstance(answer, Awaits):
        return f"awaits {short(answer.effect)}"
    if isinstance(answer, FilterResult):
        if answer.node_names:
            return f"node {' '.join(answer.node_names)}"
        return "; ".join(f"{key}: {text}" for key, text in (answer.failed_nodes or {}).items())
    if isinstance(answer, PreemptResult):
        victims = answer.node_name_to_meta_victims
        return "; ".join(f"{name}: {' '.join(pod.uid for pod in one.pods)}" for name, one in victims.items())
    return "" if answer is None else str(answer)
