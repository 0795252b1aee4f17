"""Hived's pods as Kubernetes reports them, and their states.

    Held -> Waiting -> Binding -> Bound          any state -> gone
               |                    ^
               +---> Cleared -------+            pods that take no cells

Held: scheduling gates. Waiting: no placement yet. Cleared: takes no cells; kube-scheduler may choose the node. Binding:
the core holds a placement until the pod is gone. Bound: Kubernetes confirmed it, or reported it so at first.
Users see Waiting for the first three, and Preempting for a Waiting pod whose group reserves cells: the core knows it.
"""

import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, BindInfo, PodRequest, PodSpec, count_pods
from hived_extender.jobs.asks import Ask
from hived_extender.jobs.job import WORKLOAD, JobName, JobRef
from hived_extender.jobs.kinds import gangs, kueue
from hived_extender.jobs.kinds.description import Description, GangKey, ObjectRef
from hived_extender.jobs.node_names import Mask
from hived_extender.jobs.outcomes import DONE, EvictionName, evicted_of
from hived_extender.jobs.progress import GRACE_S, MOST_GRACE_S, UNKNOWN, Progress, grace_of
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import Owner, Pod
from hived_extender.kube.answers import is_older
from hived_extender.kube_rules.demands import RuledPod

REMEMBERED_ENDS = 4096
"""Pods that are gone and still known to be: an event about one of them that comes late must not bring it back."""

NEVER = "Never"
"""The preemption policy of pods that wait rather than have others leave; Kubernetes takes it from the class."""


class UnknownPodError(UserError):
    """A pod that Kubernetes has not reported: it never will, or is about to."""


class PodState(Enum):
    """The progress of a pod. `shown` is its name for users.

    `has_node`: a node is decided or confirmed; `is_placed`: the pod has a place, or needs none.
    """

    HELD = "Held"
    WAITING = "Waiting"
    CLEARED = "Cleared"
    BINDING = "Binding"
    BOUND = "Bound"

    def __init__(self, name: str) -> None:
        self.has_node = name in {"Binding", "Bound"}
        self.is_placed = self.has_node or name == "Cleared"
        self.shown = name if self.has_node else "Waiting"


class PodName(msgspec.Struct, frozen=True):
    """A pod in the API server; a later pod of the name has another uid."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as in kubectl."""
        return f"{self.namespace}/{self.name}"


class Seen(msgspec.Struct, frozen=True):
    """Kubernetes' own view of a pod.

    `version` is the newest resourceVersion; the controller of `owner` made the pod. A pod that `is_leaving` is being
    deleted: it is gone by `leaves_at`, `leaving_s` after that. It asks for `grace_s` to leave. `priority` is
    Kubernetes' own. kube-scheduler ignores it while it has `gates`. Without `preempts` its preemption policy is Never.
    `evicted` is why others end it, by its status. Of one that `is_done` the job is complete without it.
    """

    version: str = ""
    created: str = ""
    owner: Owner | None = None
    is_running: bool = False
    is_leaving: bool = False
    leaves_at: str = ""
    grace_s: float = GRACE_S
    priority: int = 0
    gates: tuple[str, ...] = ()
    leaving_s: float = 0.0
    preempts: bool = True
    evicted: EvictionName = ""
    is_done: bool = False

    @property
    def is_held_by_kueue(self) -> bool:
        """True if Kueue's scheduling gate is among its gates."""
        return any(gate in kueue.GATES for gate in self.gates)

    @classmethod
    def of(cls, pod: Pod) -> "Seen":
        """The view of a pod from a watch."""
        meta, spec = pod.metadata, pod.spec
        return cls(
            meta.version,
            meta.created or "",
            pod.owner,
            pod.is_running,
            bool(meta.deletion_timestamp),
            meta.deletion_timestamp or "",
            grace_of(pod),
            (spec.priority if spec is not None else None) or 0,
            pod.gates,
            float(min(max(meta.deletion_grace_s or 0, 0), MOST_GRACE_S)),
            spec is None or spec.preemption_policy != NEVER,
            evicted_of(pod.status),
            DONE in pod.labels,
        )


UNSEEN = Seen()


class Translation(msgspec.Struct, frozen=True):
    """The request by another scheduler's annotations; empty for a pod with hived's own, which win.

    `description` may name a gang. `ask` is None for a request with a `mistake`. `objects` are named by the pod;
    `digest` covers all that it says.
    """

    digest: int | None = None
    description: Description | None = None
    ask: Ask | None = None
    mistake: str = ""
    objects: frozenset[ObjectRef] = frozenset()


OWN_WORDS = Translation()


class Offered(msgspec.Struct, frozen=True, eq=False):
    """The nodes that kube-scheduler last offered to a pod, with the count of changes then."""

    mask: Mask
    moment: int


class KubeOffer(msgspec.Struct, frozen=True, eq=False):
    """kube-scheduler's view of the nodes for a pod.

    `latest` is the last offer. `refused` are nodes not offered for an unknown reason. A pod that `is_doubted` delayed
    the start of its gang: kube-scheduler must ask about it before the next start.
    """

    latest: Offered | None = None
    refused: Offered | None = None
    is_doubted: bool = False


NO_OFFER = KubeOffer()


class Place(msgspec.Struct, frozen=True):
    """The decided place of a pod. `info` is None if the annotations of a bound pod lack it or do not prove it.

    `promised_by` is the uid of a bound gang pod whose annotations have this place. A group that `is_rewritten` was
    lazily preempted after the decision, and `info` says so. For `quota` see `proofs.Proof`.
    """

    node: str = ""
    info: BindInfo | None = None
    promised_by: str = ""
    is_rewritten: bool = False
    quota: Mapping[str, str] | None = None


NO_PLACE = Place()


class Writing(msgspec.Struct, frozen=True):
    """The writing of a pod's binding: `count` attempts under way or written.

    Without an answer it `is_unanswered`, and may be written until the pod has a later version than `tried_version`.
    """

    count: int = 0
    is_unanswered: bool = False
    tried_version: str = ""

    @property
    def is_open(self) -> bool:
        """True if a binding is under way, or may be written and not seen yet."""
        return self.count > 0 or self.is_unanswered

    def begun(self) -> "Writing":
        """Count an attempt."""
        return replace(self, count=self.count + 1)

    def ended(self, *, is_unanswered: bool = False) -> "Writing":
        """End an attempt that failed or has an unknown result."""
        return Writing(self.count - 1, self.is_unanswered or is_unanswered, self.tried_version)

    def seen(self, version: str) -> "Writing":
        """Note that the pod has no node in this version."""
        is_open = self.is_unanswered and not is_older(self.tried_version, version)
        return self if is_open == self.is_unanswered else replace(self, is_unanswered=False)


NOT_WRITTEN = Writing()


class Marks(msgspec.Struct, frozen=True):
    """The annotations of a bound pod compared with hived's own.

    Annotations that are `is_proven` prove that hived bound the pod; `is_changed` ones differ from its own. The group's
    name `is_bare` of the namespace if an earlier version bound the pod or a mate.
    """

    is_proven: bool = False
    is_changed: bool = False
    is_bare: bool = False


UNMARKED = Marks()


@dataclass(slots=True, eq=False)
class PodRecord:
    """One of hived's pods, changed only by the service under its lock.

    `reading` is the annotations' text until the pod is bound, `request` the last request. A pod that `is_in_core` must
    be deleted from the core at its end. `is_asked`: kube-scheduler has asked since it was last woken.
    `is_told_forming`: it was told that its gang is incomplete. `ruled` are the pod's demands on nodes until it is
    bound. `progress` has its start, its checkpoints and leave to move. `cause` is that of its last certificate, one of
    `api.waiting.CauseName`, or "". Cells are held for it with `job_object`, whose queue may set its priority `runs_at`;
    `maker` is the outermost job object that made it, of the kinds that hived follows; `shown_owner` is one of others.
    `made_from` is the uid of the record from which `hived submit` made it, "" of others.
    `user` is who owns it, by its own words. `written_group` is its affinity group as its author wrote it: the core may
    have one of what is left of it.
    """

    uid: str
    name: str
    namespace: str
    state: PodState = PodState.WAITING
    seen: Seen = UNSEEN
    reading: Reading | None = field(default=None, repr=False)
    translation: Translation = OWN_WORDS
    ruled: RuledPod | None = field(default=None, repr=False)
    request: PodRequest | None = None
    is_in_core: bool = False
    is_asked: bool = False
    is_told_forming: bool = False
    offer: KubeOffer = field(default=NO_OFFER, repr=False)
    place: Place = NO_PLACE
    writing: Writing = NOT_WRITTEN
    marks: Marks = UNMARKED
    progress: Progress = field(default=UNKNOWN, repr=False)
    cause: str = ""
    job_object: JobName | None = None
    maker: JobName | None = None
    shown_owner: JobName | None = None
    made_from: str = ""
    user: str = ""
    runs_at: int | None = None
    written_group: str = ""

    @property
    def named(self) -> PodName:
        """The pod in the API server."""
        return PodName(self.uid, self.namespace, self.name)

    @property
    def key(self) -> str:
        """`namespace/name`, as in kubectl."""
        return f"{self.namespace}/{self.name}"

    @property
    def gang(self) -> GangKey | None:
        """The gang by another scheduler's annotations."""
        description = self.translation.description
        return description.gang if description is not None else None

    @property
    def job(self) -> str:
        """The name of its job for users: of its queue's job, else its gang, its affinity group, or itself."""
        return str(self.job_object) if self.is_queued else self._started_with

    @property
    def _started_with(self) -> str:
        """The name of what starts together with it, "namespace/name" of itself if it starts alone."""
        request = self.request  # another thread may take it away
        alone = self.key if request is None else self.written_group or request.spec.group.name
        return alone if self.gang is None else f"podgroup/{self.gang}"

    @property
    def shown_job(self) -> str:
        """The name of its job in lists and messages: that of its object, if there is one."""
        return self.job if self.owner is None else str(self.owner)

    @property
    def owner(self) -> JobName | None:
        """The job object that made it: the outermost that hived follows, for a pod that starts alone any other.

        Rules 24.4 and 24.14.
        """
        is_alone = self._started_with == self.key and (self.unit is not None or not self.is_queued)
        return self.maker or (self.shown_owner if is_alone else None)

    @property
    def claimant(self) -> str:
        """The key of the job for which it takes cells, as queues name jobs: its owner, or itself."""
        by, owner = self.seen.owner, self.owner
        if owner is None:
            return JobRef("v1", "Pod", self.namespace, self.name, self.uid).key
        uid = by.uid if by is not None else self.uid
        return JobRef(owner.group, owner.kind, owner.namespace, owner.name, uid).key

    @property
    def whole(self) -> JobName | None:
        """The object of which its gang may be one of several (rule 24.14), with a place in a queue or without."""
        return self.maker or self.shown_owner

    @property
    def unit(self) -> JobName | None:
        """The gang without an object as which it queues (rule 24.12); None if it has none."""
        return self.job_object if self.job_object is not None and self.job_object.kind == gangs.KIND else None

    @property
    def wanted(self) -> int:
        """The number of pods of its gang or group, itself among them."""
        said = self.translation.description
        if said is not None and said.gang is not None:
            return said.total or said.minimum or 1
        request = self.request
        return 1 if request is None else count_pods(request.spec.group.members)

    @property
    def is_queued(self) -> bool:
        """True if a queue of hived runs its job; Kueue's Workloads hold cells too, but are not."""
        return self.runs_at is not None and self.job_object is not None and self.job_object.kind != WORKLOAD

    @property
    def claim(self) -> tuple[str, int]:
        """Its VC and priority; opportunistic without a VC if unknown."""
        if self.request is not None:
            return self.request.spec.virtual_cluster, self.request.spec.priority
        ask = self.ask
        return ("", OPPORTUNISTIC_PRIORITY) if ask is None else (ask.virtual_cluster, ask.priority)

    @property
    def ask(self) -> Ask | None:
        """Its request by another scheduler's annotations, at its job's priority."""
        ask = self.translation.ask
        if ask is None or self.runs_at is None or ask.priority == self.runs_at:
            return ask
        return replace(ask, priority=self.runs_at)

    @property
    def is_cleared(self) -> bool:
        """True if kube-scheduler may choose the pod's node."""
        return self.state is PodState.CLEARED

    @property
    def is_of_dialect(self) -> bool:
        """False if the pod has hived's own annotation, which wins over others."""
        return self.translation.digest is not None

    def own_request(self, spec: PodSpec, group: str) -> PodRequest:
        """The pod's request in hived's form, as one of a group.

        A pod that needs more of kube-scheduler than a node, such as volumes, cannot ignore its offers. A waiting pod
        asks at its job's priority.
        """
        if self.runs_at is not None and self.state is not PodState.BOUND:
            spec = dataclasses.replace(spec, priority=self.runs_at)
        ignores = spec.ignore_suggested_nodes and not (self.ruled is not None and self.ruled.demands.beyond)
        if group != spec.group.name or ignores != spec.ignore_suggested_nodes:
            spec = spec.of_group(group, ignores)
        return PodRequest(self.uid, self.name, self.namespace, spec)


class PodTable:
    """Records by uid, counts by state, and the uids of pods gone lately."""

    def __init__(self, on_move: Callable[[PodRecord], None] = lambda record: None) -> None:
        """`on_move` is called with each pod that changes its state."""
        self._on_move = on_move
        self._records: dict[str, PodRecord] = {}
        self._counts: Counter[str] = Counter()  # by the name of the state that people see
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._records.values())

    def get(self, uid: str) -> PodRecord | None:
        """The record, None if unknown."""
        return self._records.get(uid)

    def records(self, state: PodState) -> list[PodRecord]:
        """All pods in a state, in order of appearance."""
        return [record for record in self._records.values() if record.state is state]

    def is_waiting(self, names: Collection[str]) -> bool:
        """True if a pod waits with one of these names, as `namespace/name`, of its own or its affinity
        group. O(pods).
        """
        return any(
            record.key in names or (record.request is not None and record.request.spec.group.name in names)
            for record in self._records.values()
            if record.state is PodState.WAITING
        )

    def without_node(self) -> list[PodRecord]:
        """All pods without a decided node, in order of appearance."""
        return [record for record in self._records.values() if not record.state.has_node]

    def has_ended(self, uid: str) -> bool:
        """True if the pod was removed lately. Uids are never reused."""
        return uid in self._ended

    def add(self, uid: str, name: str, namespace: str) -> PodRecord:
        """Add a new Waiting pod."""
        self._ended.pop(uid, None)
        record = self._records[uid] = PodRecord(uid, name, namespace)
        self._counts[record.state.shown] += 1
        return record

    def remove(self, uid: str, *, is_over: bool = True) -> PodRecord | None:
        """Remove a pod, for good if it `is_over`; returns its record, None if unknown."""
        if is_over:
            self._ended[uid] = None
        if len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)
        record = self._records.pop(uid, None)
        if record is not None:
            self._counts[record.state.shown] -= 1
        return record

    def move(self, record: PodRecord, state: PodState) -> None:
        """Change a pod's state."""
        self._counts[record.state.shown] -= 1
        self._counts[state.shown] += 1
        record.state = state
        self._on_move(record)

    def place(self, record: PodRecord, request: PodRequest, info: BindInfo, promised_by: str = "") -> None:
        """Record the core's decision for a pod, which becomes Binding."""
        record.request, record.is_in_core = request, True
        record.place = Place(info.node, info, promised_by)
        self.move(record, PodState.BINDING)

    def hold(self, record: PodRecord, *, is_held: bool) -> None:
        """Set Held or Waiting by the pod's scheduling gates. A decided pod has none."""
        if not record.state.is_placed:
            record.state = PodState.HELD if is_held else PodState.WAITING

    def counts(self) -> dict[str, int]:
        """The number of pods in each state, by its name for users."""
        return {state.shown: self._counts[state.shown] for state in PodState}
