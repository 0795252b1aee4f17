"""The service for its callers: facts from watches, questions of kube-scheduler and of users.

Text is parsed before the machine gets it: the lock is held for decisions, never for a parser or a call.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypedDict, Unpack

from msgspec.structs import replace

from hived.kernels.jit import kernels_in_use
from hived.values.errors import InvariantError, UserError
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.api.cells import LostDevices, Shortage
from hived_extender.api.waiting import PodOutcome
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import LabelsOf, no_labels
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import Lookup, NoObjects, ObjectRef
from hived_extender.jobs.readings import Reading, Texts
from hived_extender.jobs.wire import (
    AskedPod,
    BindArgs,
    FilterArgs,
    FilterResult,
    Node,
    Pod,
    PodMetadata,
    PreemptArgs,
    PreemptResult,
)
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Gauges, Metrics
from hived_extender.kube.priority_classes import PriorityClass
from hived_extender.kube.watch import drained
from hived_extender.machine.core import Core
from hived_extender.machine.counts import PodEnd, gauges_of, with_groups
from hived_extender.machine.machine import Machine
from hived_extender.machine.notices import Pace
from hived_extender.machine.pods import PodState, UnknownPodError
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.questions import Questions
from hived_extender.machine.reader import Reader
from hived_extender.machine.recording.record import Draft, Recorder
from hived_extender.machine.runner import Runner, Writes
from hived_extender.machine.stimuli import (
    BindAsked,
    Deposed,
    DeviceObject,
    DeviceSeen,
    DevicesListed,
    Elected,
    FilterAsked,
    NamespaceChanged,
    NodeSeen,
    NodesListed,
    ObjectSeen,
    PodGone,
    PodSeen,
    PreemptAsked,
    Stimulus,
    WhatIfAsked,
)
from hived_extender.machine.terms import Began
from hived_extender.machine.verbs import NotLeadingError, VerbSettings
from hived_extender.machine.what_if import check_count
from hived_extender.machine.writes import binding
from hived_extender.machine.writes.binding_secret import BindingSecret
from hived_extender.machine.writes.statuses import StatusWriter
from hived_extender.machine.writes.writer import Writer


class PodFollower(Protocol):
    """Receives pods besides the machine, on the threads of watches."""

    def listed(self, pods: Iterable[Pod], /) -> None:
        """Take all pods of a listing."""

    def seen(self, pod: Pod, /) -> None:
        """Take a present pod, perhaps a moment late."""

    def gone(self, uid: str, /) -> None:
        """Take a deleted pod."""


class Intake:
    """Parses facts of watches and tells the machine, from any thread, in any order, twice or late."""

    def __init__(self, machine: Machine, runner: Runner, texts: Texts) -> None:
        self.machine = machine
        self.runner = runner
        self._texts = texts
        self._pods = machine.cache.pods
        self._followers: list[PodFollower] = []

    def follow_pods(self, follower: PodFollower) -> None:
        """Add a follower of all pods; call it before the first pod."""
        self._followers.append(follower)

    def node_seen(self, node: Node) -> None:
        """Take in an existing node."""
        self.tell(NodeSeen(node))

    def node_gone(self, node: Node) -> None:
        """Take in a deleted node."""
        self.tell(NodeSeen(node, is_gone=True))

    def sync_nodes(self, nodes: Iterable[Node]) -> None:
        """Take in a listing of all nodes."""
        nodes = list(nodes)
        self.tell(NodesListed(tuple(node.metadata.name for node in nodes)))
        for node in drained(nodes):
            self.node_seen(node)

    def pod_seen(self, pod: Pod, *, is_listed: bool = False) -> None:
        """Take in a pod; one that `is_listed` surely exists."""
        for each in self._followers:
            each.seen(pod)
        reading = self._texts.read_annotations(pod.metadata, node=pod.node, pod=pod)
        self.tell(PodSeen(pod, reading, is_listed))

    def pod_gone(self, uid: str) -> None:
        """Take in a deleted pod."""
        for each in self._followers:
            each.gone(uid)
        self.tell(PodGone(uid))

    def sync_pods(self, pods: Iterable[Pod]) -> None:
        """Take in a listing of all pods."""
        pods = list(pods)
        for each in self._followers:
            each.listed(pods)
        present = {pod.metadata.uid for pod in pods}
        with self.runner.look() as machine:
            known = machine.cache.known_pods()
        for uid in known:
            if uid not in present:
                self.pod_gone(uid)
        for pod in drained(pods):
            self.pod_seen(pod, is_listed=True)

    def devices_listed(self, kind: type[DeviceObject], objects: Iterable[Any]) -> None:
        """Take in all objects of dynamic resource allocation of a kind."""
        self.tell(DevicesListed(kind, tuple(objects)))

    def device_seen(self, item: DeviceObject, *, is_gone: bool = False) -> None:
        """Take in an object of dynamic resource allocation, as seen or when deleted."""
        self.tell(DeviceSeen(item, is_gone))

    def object_seen(self, ref: ObjectRef) -> None:
        """Take in a change of an object that describes gangs."""
        self.tell(ObjectSeen(ref))

    def namespace_changed(self, namespace: str) -> bool:
        """Take in labels of a namespace. True if its pods may act otherwise now, and must be told again."""
        return bool(self.tell(NamespaceChanged(namespace)))

    def tell(self, fact: Stimulus) -> Any:
        """Hand in a fact. A fault is logged, not raised: watches do not listen any more."""
        with suppress(InvariantError):
            return self.runner.handle(fact)
        return None

    def _read_late(self, pod: Pod) -> None:
        """Take in a pod whose text could not be parsed at once."""
        if self._pods.get(pod.metadata.uid) is not None:
            self.pod_seen(pod)


log = logging.getLogger(__name__)

WHAT_IF = "/what-if"
"""The payer of the time to read the YAML of pods that are only asked about; no namespace is called so."""

CLOSE_S = 1.0
"""For what follows the last writes."""


class Setup(TypedDict, total=False):
    """Optional parts of a service.

    `pace` limits writes about each pod. `prover` proves bindings; originals of changed ones are stored in `secret`.
    `labels_of` gives a namespace's labels, `class_of` the PriorityClass of a name, for "" the default one.
    """

    verb_settings: VerbSettings
    preemption: PreemptionPolicy
    recorder: Recorder | None
    metrics: Metrics
    rules: PodRules
    objects: Lookup
    serves_every_name: bool
    statuses: StatusWriter
    pace: Pace | None
    prover: Prover | None
    secret: BindingSecret | None
    labels_of: LabelsOf
    class_of: Callable[[str], PriorityClass | None]


def no_class(name: str) -> None:
    """Know no PriorityClass."""


class Service(Intake):
    """The machine with its runner, for callers on any thread.

    Verbs raise UserError for requests that cannot be served (400), NotLeadingError (503) and UnknownPodError among
    them; BusyError if the lock is taken for longer than `wait_s`; InvariantError once stopped.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        kube: KubeClient,
        *,
        run: Callable[[Machine, Writes], Runner] = Runner,
        **setup: Unpack[Setup],
    ) -> None:
        """`run` makes the runner of the machine."""
        self.metrics = setup.get("metrics") or Metrics()
        self.kernels: Callable[[], str] = kernels_in_use
        prover = setup.get("prover") or Prover()
        self._kube = kube
        self._class_of = setup.get("class_of", no_class)
        self._recorder = setup.get("recorder")
        self._secret = setup.get("secret")
        interpreter = Interpreter(
            spec,
            setup.get("rules") or PodRules(),
            setup.get("objects") or NoObjects(),
            serves_every_name=setup.get("serves_every_name", False),
            labels_of=setup.get("labels_of", no_labels),
        )
        machine = Machine(
            spec,
            interpreter,
            verb_settings=setup.get("verb_settings"),
            preemption=setup.get("preemption"),
            recorder=self._recorder,
            metrics=self.metrics,
            pace=setup.get("pace"),
            prover=prover,
        )
        self._writer = Writer(kube, self.metrics, prover, self._secret, setup.get("statuses"))
        super().__init__(machine, run(machine, self._writer), Texts(prover, self._read_late))
        self.reader = Reader(self._open_core)
        self.questions = Questions(machine, self.runner)
        self.metrics.observe(self._gauges)
        self.runner.start()

    @property
    def fault(self) -> str:
        """The internal error, "" while the service is healthy."""
        return self.runner.fault

    @property
    def standing(self) -> str:
        """The reason why this replica does not lead."""
        return self.machine.verbs.standing

    @property
    def verb_settings(self) -> VerbSettings:
        """The present limits for kube-scheduler's questions."""
        return self.machine.verbs.verb_settings

    @property
    def record(self) -> str:
        """The folder `FOLDER/RUN` of this run's recording; "" without one, or after its end."""
        return "" if self._recorder is None else self._recorder.where

    @property
    def is_ready(self) -> bool:
        """True while this replica leads and is healthy."""
        return self.machine.cache.core is not None and self.runner.holds() and not self.fault

    # Leadership

    def ping(self) -> str:
        """Change a pod, a waiting one if possible; returns the version that the pod watch must reach.

        A watch at that version has told everything before. "" if there is no pod to change.
        """
        with self.runner.look():
            records = self._pods.without_node() or self._pods.records(PodState.BOUND)
        return binding.ping(self._kube, records[0].named) if records else ""

    def fence(self, fenced: set[str], *, is_lenient: bool = False) -> None:
        """Make every binding fail that another replica, or an earlier term, may still be writing.

        `fenced` has uids of pods done before in this term, and grows: after a KubeError, call again to go on. With
        `is_lenient`, pods that the API server refuses to change are skipped. Cost: one API call for each pod without a
        node.
        """
        with self.runner.look():
            waiting = [record.named for record in self._pods.without_node() if record.uid not in fenced]
        for pod in binding.fence(self._kube, waiting, is_lenient=is_lenient):
            self.pod_seen(pod)
            fenced.add(pod.metadata.uid)

    def prepare(self, standing: str, holds: Callable[[], bool]) -> None:
        """Set the standing of this replica before it leads; does nothing if the term is over."""
        with self.runner.look() as machine:
            if holds() and machine.cache.core is None:
                machine.verbs.standing = standing

    def lead(self, holds: Callable[[], bool]) -> None:
        """Begin a term: build the state from all nodes and bound pods, and answer from now on.

        `holds` tells from any thread and at once whether the term goes on; does nothing if it is over.
        """
        changed = self._changed_bindings()
        with suppress(InvariantError), self.runner.exclusive():
            if holds():
                self.runner.holds = holds
                self.runner.handle_within(Elected(changed))

    def follow(self, standing: str) -> None:
        """End the term, if there is one: stop answering, and undo decisions that Kubernetes has not confirmed."""
        self._writer.forget_counts()
        self.tell(Deposed(standing))

    def close(self) -> None:
        """Wait for bindings and evictions under way, then close the recording."""
        self._texts.close()
        self.runner.close(CLOSE_S)
        with self.runner.look() as machine:
            self.metrics.events.labels("dropped").inc(machine.announcements.unwritten_count)
            if self._recorder is not None:
                self._recorder.close()

    # Questions of kube-scheduler

    def filter_nodes(self, args: FilterArgs, *, wait_s: float | None = None) -> FilterResult:
        """Decide where a pod runs: one node, or none and why (rules 5.1, 5.2)."""
        found: FilterResult = self._ask(FilterAsked(args, self._reading(args.pod)), wait_s=wait_s)
        return found

    def preempt_victims(self, args: PreemptArgs, *, wait_s: float | None = None) -> PreemptResult:
        """Name the victims on one of the candidate nodes (rule 8.4); an empty answer if there is nothing to do."""
        found: PreemptResult = self._ask(PreemptAsked(args, self._reading(args.pod)), wait_s=wait_s)
        return found

    def bind_pod(self, args: BindArgs) -> None:
        """Write a decided binding to the API server. Repeats are harmless, also after success.

        Raises UserError if there is no such decision, or the API server refuses.
        """
        stranger = self._ask(BindAsked(args))
        if stranger is not None:
            self._ask(BindAsked(args, stranger))

    def hold_of(self, uid: str) -> Future[None] | None:
        """A future done when this pod's binding is released; None if it is not held. Never waits."""
        return self.runner.hold_of(uid)

    # Questions of users

    def serves(self, scheduler_name: str) -> bool:
        """True if pods of this schedulerName are hived's."""
        return self.machine.interpreter.serves(scheduler_name)

    def what_if(self, pods: Sequence[Pod]) -> list[PodOutcome]:
        """The outcomes of these pods if they were created now; nothing changes. Cost O(cells) for each gang, apart.

        Call it in a `questions.place`. UserError if there are too many.
        """
        check_count(pods)
        self.check_leads()
        pods = [self._as_admitted(pod) for pod in pods]
        readings = [(pod, self._texts.read_annotations(pod.metadata, payer=WHAT_IF)) for pod in pods]
        return self.questions.ask(WhatIfAsked(tuple(readings)))

    def _as_admitted(self, pod: Pod) -> Pod:
        """A pod with the defaults of its PriorityClass: priority and preemption policy."""
        spec = pod.spec
        if spec is None or (spec.priority is not None and spec.preemption_policy is not None):
            return pod
        found = self._class_of(spec.priority_class_name or "")
        if found is None:
            return pod
        admitted = replace(
            spec,
            priority=found.value if spec.priority is None else spec.priority,
            preemption_policy=spec.preemption_policy or found.preemption_policy,
        )
        return replace(pod, spec=admitted)

    def term_began(self) -> tuple[Began, list[tuple[str, str]]]:
        """Return how this term began, and the pods that run now where the core cannot have them, and why.

        Cost O(pods).
        """
        self.check_leads()
        with self.runner.look() as machine:
            return machine.began, machine.cache.bound.unaccounted

    def lost_devices(self) -> list[LostDevices]:
        """The lost devices of configured nodes, by node and leaf cell type, with reasons."""
        with self._open_core():
            return self.machine.cache.devices.reported_losses()

    def shortages(self) -> list[Shortage]:
        """By chain, the promises to VCs that can be kept one by one, but not all together."""
        with self._open_core():
            return self.machine.cache.devices.shortages()

    def await_ends(self, pods: Sequence[PodEnd]) -> None:
        """See `Tallies.await_ends`."""
        with self.runner.look() as machine:
            machine.tallies.await_ends(pods)

    def draft(self, config_text: str) -> Draft | None:
        """A draft of a future state's recording; None without recording."""
        with self.runner.look():
            return None if self._recorder is None else self._recorder.draft(config_text)

    def _ask(self, question: Stimulus, *, wait_s: float | None = None) -> Any:
        self.check_leads()
        return self.runner.handle(question, wait_s=wait_s)

    def check_leads(self) -> None:
        """Raise NotLeadingError unless the term goes on."""
        if not self.fault and (self.machine.cache.core is None or not self.runner.holds()):
            raise NotLeadingError(self.standing or "the term of this replica has ended")

    def _reading(self, pod: AskedPod) -> Reading:
        """Parse an asked pod's annotations without the lock. Raises UnknownPodError if that takes longer."""
        meta = pod.metadata
        record = self._pods.get(meta.uid)
        known = record.reading if record is not None else None
        if known is not None and known.text == pod.annotations.get(SCHEDULING_SPEC, "") and not known.is_pending:
            return known
        reading = self._texts.read_annotations(meta)
        if reading.is_pending and isinstance(reading.spec, UserError):
            raise UnknownPodError(reading.spec.message)
        return reading

    def _changed_bindings(self) -> dict[str, Reading]:
        """The original annotations of changed pods, by uid, read from the API server without the lock.

        Raises KubeError.
        """
        found = {}
        for uid, annotations in (self._secret.changed() if self._secret is not None else {}).items():
            record = self._pods.get(uid)
            if record is not None and (node := record.place.node):
                meta = PodMetadata(record.name, record.namespace, uid, annotations=dict(annotations))
                found[uid] = self._texts.read_annotations(meta, node=node)
        return found

    @contextmanager
    def _open_core(self, wait_s: float | None = None) -> Iterator[Core]:
        """Take the lock. A stopped service may still be read."""
        with self.runner.look(wait_s=wait_s) as machine:
            yield machine.verbs.core

    def _gauges(self) -> Gauges:
        """Take the lock, but not while tens of thousands of groups are counted; these may change meanwhile."""
        with self.runner.look() as machine:
            state = machine.cache.core.state if machine.cache.core else None
            gauges = gauges_of(self._pods.counts(), state, machine.cache.devices.counts())
            groups = list(state.groups.values()) if state else []
        gauges = replace(gauges, is_ready=self.is_ready, is_healthy=not self.fault)
        return with_groups(gauges, groups) if state else gauges
