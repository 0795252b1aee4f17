"""The pods of ours that Kubernetes told us about, and how far each has come.

    Held -> Waiting -> Binding -> Bound          any state -> gone
               |                    ^
               +---> Cleared -------+            pods that take no cells

Held: scheduling gates keep the pod from being scheduled. Waiting: no placement yet. Cleared: the pod takes no cells,
and kube-scheduler may choose its node. Binding: a placement is decided and held by the core; it stands until the pod is
gone. Bound: Kubernetes confirmed it, or reported it so in the first place.

People see Waiting for the first three. They see Preempting as well: a Waiting pod whose group reserves cells. The core
knows that, and may cancel the preemption for another pod's sake.
"""

import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, BindInfo, PodRequest, PodSpec
from hived_extender.jobs.asks import Ask
from hived_extender.jobs.job import WORKLOAD, JobName
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.description import Description, GangKey, ObjectRef
from hived_extender.jobs.node_names import Mask
from hived_extender.jobs.progress import MOST_S, UNKNOWN, Progress
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import Owner, Pod
from hived_extender.kube.answers import is_older
from hived_extender.kube_rules.demands import RuledPod

REMEMBERED_ENDS = 4096
"""Pods that are gone and still known to be: an event about one of them that comes late must not bring it back."""

GRACE_S = 30.0
"""Kubernetes gives this long to a pod that says nothing of it."""

MOST_GRACE_S = int(MOST_S)
"""A longer time to leave counts as so long, and nobody says when such a pod is gone. The API server takes any."""

NEVER = "Never"
"""The preemption policy of pods that wait rather than have others leave; Kubernetes takes it from the class."""


class UnknownPodError(UserError):
    """Kubernetes has not told us of the pod: it never will, or it is about to."""


class PodState(Enum):
    """How far a pod has come. `shown` is the name that people see; `has_node`: a node is decided or confirmed;
    `is_placed`: the pod has a place, or needs none.
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
    """A pod as the API server knows it; another one of the name has another uid."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as kubectl users know it."""
        return f"{self.namespace}/{self.name}"


class Seen(msgspec.Struct, frozen=True):
    """Kubernetes' own view of a pod. `version` is the newest resourceVersion; the controller of `owner` made the pod,
    and a pod that `is_leaving` is being deleted: it is gone at `leaves_at` at the latest, `leaving_s` after that.
    It asks for `grace_s` to leave. `priority` is Kubernetes' own. While it has `gates`, kube-scheduler leaves it alone.
    One that does not `preempts` has the preemption policy Never.
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

    @property
    def is_held_by_kueue(self) -> bool:
        """Is one of its scheduling gates Kueue's?"""
        return any(gate in kueue.GATES for gate in self.gates)

    @classmethod
    def of(cls, pod: Pod) -> "Seen":
        """The view of a pod as a watch has it."""
        meta, spec = pod.metadata, pod.spec
        grace_s = spec.termination_grace_period_seconds if spec is not None else None
        return cls(
            meta.version,
            meta.created or "",
            pod.owner,
            pod.is_running,
            bool(meta.deletion_timestamp),
            meta.deletion_timestamp or "",
            GRACE_S if grace_s is None else float(min(max(grace_s, 0), MOST_GRACE_S)),
            (spec.priority if spec is not None else None) or 0,
            pod.gates,
            float(min(max(meta.deletion_grace_s or 0, 0), MOST_GRACE_S)),
            spec is None or spec.preemption_policy != NEVER,
        )


UNSEEN = Seen()


class Translation(msgspec.Struct, frozen=True):
    """The request of a pod in the words of other schedulers; empty for a pod in our own words, which come first.

    `description` may name a gang. `ask` is None if it cannot be made out, for a `mistake`. `objects` are named by the
    pod, `digest` is one of all that it says.
    """

    digest: int | None = None
    description: Description | None = None
    ask: Ask | None = None
    mistake: str = ""
    objects: frozenset[ObjectRef] = frozenset()


OWN_WORDS = Translation()


class Offered(msgspec.Struct, frozen=True, eq=False):
    """The nodes that kube-scheduler offered when it asked about a pod last, and the count of changes at that moment."""

    mask: Mask
    moment: int


class KubeOffer(msgspec.Struct, frozen=True, eq=False):
    """kube-scheduler's view of the nodes for a pod.

    `latest` was offered last. `refused` is not offered although nothing that is known is in the way. A pod that
    `is_doubted` held up the start of its gang: kube-scheduler has to ask about it before the next start.
    """

    latest: Offered | None = None
    refused: Offered | None = None
    is_doubted: bool = False


NO_OFFER = KubeOffer()


class Place(msgspec.Struct, frozen=True):
    """The decided place of a pod. `info` is None where the annotations of a bound pod do not say, or prove, it.

    `promised_by` is the uid of a bound pod of the gang whose annotations have this place. A group that `is_rewritten`
    was preempted lazily after the decision, and `info` says so. For `quota` see `proofs.Proof`.
    """

    node: str = ""
    info: BindInfo | None = None
    promised_by: str = ""
    is_rewritten: bool = False
    quota: Mapping[str, str] | None = None


NO_PLACE = Place()


class Writing(msgspec.Struct, frozen=True):
    """The writing of a pod's binding: `count` attempts are under way or written. One may be written without an answer
    if the writing `is_unanswered`, until the pod has a later version than `tried_version`.
    """

    count: int = 0
    is_unanswered: bool = False
    tried_version: str = ""

    @property
    def is_open(self) -> bool:
        """Is a binding under way, or may one be written and not seen yet?"""
        return self.count > 0 or self.is_unanswered

    def begun(self) -> "Writing":
        """One more is under way."""
        return replace(self, count=self.count + 1)

    def ended(self, *, is_unanswered: bool = False) -> "Writing":
        """One has failed, or nobody knows."""
        return Writing(self.count - 1, self.is_unanswered or is_unanswered, self.tried_version)

    def seen(self, version: str) -> "Writing":
        """The pod has no node in this version."""
        is_open = self.is_unanswered and not is_older(self.tried_version, version)
        return self if is_open == self.is_unanswered else replace(self, is_unanswered=False)


NOT_WRITTEN = Writing()


class Marks(msgspec.Struct, frozen=True):
    """The annotations of a bound pod against hived's own text.

    Annotations that are `is_proven` prove that hived bound the pod; `is_changed` ones differ from what hived wrote. The
    group's name `is_bare` of the namespace if an earlier version bound the pod or a mate.
    """

    is_proven: bool = False
    is_changed: bool = False
    is_bare: bool = False


UNMARKED = Marks()


@dataclass(slots=True, eq=False)
class PodRecord:
    """One pod of ours, changed only by the service under its lock.

    `reading` is the annotations' own text until the pod is bound, and `request` the last request seen. The core knows
    of a pod that `is_in_core`, and has to be told of its end. `is_asked`: kube-scheduler has asked about the pod, and
    since it was last woken. `is_told_forming`: its answer was that its gang is not complete. `ruled` is the pod's
    demands on nodes until it is bound. `progress` has its start, its checkpoints and whether it may be moved. `cause`
    that of the last certificate that was told for it, one of `api.waiting.CauseName`; "" if it had none. It belongs to
    `job_object`, whose pods run at the priority `runs_at` if a queue says so.
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
    runs_at: int | None = None

    @property
    def named(self) -> PodName:
        """As the API server knows it."""
        return PodName(self.uid, self.namespace, self.name)

    @property
    def key(self) -> str:
        """`namespace/name`, as kubectl users know it."""
        return f"{self.namespace}/{self.name}"

    @property
    def gang(self) -> GangKey | None:
        """The gang that a dialect puts it in."""
        description = self.translation.description
        return description.gang if description is not None else None

    @property
    def job(self) -> str:
        """The name of its job as people know it: of its queue's job, else its gang, its affinity group, or itself."""
        if self.is_queued:
            return str(self.job_object)
        alone = self.key if self.request is None else self.request.spec.group.name
        return alone if self.gang is None else f"podgroup/{self.gang}"

    @property
    def is_queued(self) -> bool:
        """Does a queue of hived's run its job? Workloads have cells like jobs of queues, and are Kueue's."""
        return self.runs_at is not None and self.job_object is not None and self.job_object.kind != WORKLOAD

    @property
    def claim(self) -> tuple[str, int]:
        """Its VC and priority; those of opportunistic work of no VC if nobody knows them."""
        if self.request is not None:
            return self.request.spec.virtual_cluster, self.request.spec.priority
        ask = self.ask
        return ("", OPPORTUNISTIC_PRIORITY) if ask is None else (ask.virtual_cluster, ask.priority)

    @property
    def ask(self) -> Ask | None:
        """Its request in the words of a dialect, at the priority at which its job runs."""
        ask = self.translation.ask
        if ask is None or self.runs_at is None or ask.priority == self.runs_at:
            return ask
        return replace(ask, priority=self.runs_at)

    @property
    def is_cleared(self) -> bool:
        """May kube-scheduler choose the pod's node?"""
        return self.state is PodState.CLEARED

    @property
    def is_of_dialect(self) -> bool:
        """False if the pod's author has written our own annotation, which goes before all dialects."""
        return self.translation.digest is not None

    def own_request(self, spec: PodSpec, group: str) -> PodRequest:
        """The pod's request in our own words, as one of a group.

        A pod that needs more of kube-scheduler than a node, such as volumes, cannot ignore which nodes that offers. One
        that waits asks at the priority at which its job runs.
        """
        if self.runs_at is not None and self.state is not PodState.BOUND:
            spec = dataclasses.replace(spec, priority=self.runs_at)
        ignores = spec.ignore_suggested_nodes and not (self.ruled is not None and self.ruled.demands.beyond)
        if group != spec.group.name or ignores != spec.ignore_suggested_nodes:
            spec = spec.of_group(group, ignores)
        return PodRequest(self.uid, self.name, self.namespace, spec)


class PodTable:
    """Records by uid, the number of pods in each state, and the uids of pods that have lately gone."""

    def __init__(self, on_move: Callable[[PodRecord], None] = lambda record: None) -> None:
        """`on_move` is called with each pod that has moved."""
        self._on_move = on_move
        self._records: dict[str, PodRecord] = {}
        self._counts: Counter[str] = Counter()  # by the name of the state that people see
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._records.values())

    def get(self, uid: str) -> PodRecord | None:
        """The record, None if the pod is not known."""
        return self._records.get(uid)

    def records(self, state: PodState) -> list[PodRecord]:
        """All pods in a state, in the order in which they became known."""
        return [record for record in self._records.values() if record.state is state]

    def is_waiting(self, names: Collection[str]) -> bool:
        """Does a pod wait that has one of these names, as `namespace/name`, or whose affinity group has? O(pods)."""
        return any(
            record.key in names or (record.request is not None and record.request.spec.group.name in names)
            for record in self._records.values()
            if record.state is PodState.WAITING
        )

    def without_node(self) -> list[PodRecord]:
        """All pods that no node is decided for, in that order."""
        return [record for record in self._records.values() if not record.state.has_node]

    def has_ended(self, uid: str) -> bool:
        """True if the pod was removed lately. Uids are never given to another pod."""
        return uid in self._ended

    def add(self, uid: str, name: str, namespace: str) -> PodRecord:
        """A new Waiting pod."""
        self._ended.pop(uid, None)
        record = self._records[uid] = PodRecord(uid, name, namespace)
        self._counts[record.state.shown] += 1
        return record

    def remove(self, uid: str, *, is_over: bool = True) -> PodRecord | None:
        """Drop a pod, which is not to come back if it `is_over`; returns its record, None if it was not known."""
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
        """Take down the core's decision for a pod, which is Binding from now on."""
        record.request, record.is_in_core = request, True
        record.place = Place(info.node, info, promised_by)
        self.move(record, PodState.BINDING)

    def hold(self, record: PodRecord, *, is_held: bool) -> None:
        """Note whether scheduling gates keep a pod from being scheduled. A decided pod has none."""
        if not record.state.is_placed:
            record.state = PodState.HELD if is_held else PodState.WAITING

    def counts(self) -> dict[str, int]:
        """The number of pods in each state, by the name that people see."""
        return {state.shown: self._counts[state.shown] for state in PodState}
