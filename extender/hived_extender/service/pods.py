"""The pods of ours that Kubernetes told us about, and how far each has come.

    Waiting -> Binding -> Bound          any state -> gone

Waiting: no placement yet. Binding: a placement is decided and held by the core; it stands until the pod is gone. Bound:
Kubernetes confirmed it, or reported it so in the first place. People see a fourth state: a Waiting pod whose group
reserves cells is Preempting. That is for the core to know, which may cancel the preemption for another pod's sake.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from hived.errors import UserError
from hived.specs import BindInfo, PodRequest, PodSpec
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.pods.asks import Ask
from hived_extender.pods.dialects.description import Description, GangKey, ObjectRef
from hived_extender.pods.node_names import Mask
from hived_extender.pods.readings import Reading
from hived_extender.pods.wire import Owner

REMEMBERED_ENDS = 4096
"""Pods that are gone and still known to be: an event about one of them that comes late must not bring it back."""


class UnknownPodError(UserError):
    """Kubernetes has not told us of the pod: it never will, or it is about to."""


class PodState(Enum):
    """Values are the names that people see."""

    WAITING = "Waiting"
    BINDING = "Binding"
    BOUND = "Bound"


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod as the API server knows it; another one of the name has another uid."""

    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`, as kubectl users know it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """The nodes that kube-scheduler offered when it asked about a pod last, and the count of changes at that moment."""

    mask: Mask
    moment: int


@dataclass(slots=True, eq=False)
class PodRecord:
    """One pod of ours, changed only by the service under its lock.

    `reading` is what its annotations say until it is bound, and `request` what it was last seen to ask for. `is_told`
    says that the core knows of it, which then has to be told of its end as well; `is_asked` that kube-scheduler has
    asked about it, and since it was last woken. `version` is the newest resourceVersion seen. A pod that `is_held` is
    not to be scheduled yet. One that `is_downgraded` belongs to a group that was preempted lazily after its place was
    decided, and `bind_info` says so. A bound pod `is_proven` if its annotations proved that hived has bound it; it
    `is_changed` if they do not say what hived wrote any more, and its group's name `is_bare` of the namespace if an
    earlier version has bound it or a mate.

    A pod that asks in the words of other schedulers has a `description`, which may name its gang, and an `ask`, None if
    it cannot be made out, for a `mistake`; `objects` are those that the pod names, `marks` is a digest of all that it
    says. A pod that `is_doubted` held up the start of its gang: kube-scheduler has to ask about it before the next one.
    `may_go` says that a pod that takes no cells may run on any node. `promised_by` is the uid of a bound pod of its
    gang whose annotations have its place. `created`, `owner` (whose controller made it), `is_running` and `is_leaving`
    (it is being deleted) are Kubernetes' own.

    Until a pod is bound, `ruled` is what it demands of nodes, `offered` has those that were offered last, and `refused`
    those that are not offered although nothing that is known is in the way. `writes` counts bindings that are under
    way or written, `is_unanswered` says that one may be, `tried_version` with which version; `is_probed` that another
    node alone was offered last. `refusal_count` is how often a place that was decided for it was refused,
    `emptied_count` how often one was that others had left for it.
    """

    uid: str
    name: str
    namespace: str
    version: str = ""
    state: PodState = PodState.WAITING
    node: str = ""
    request: PodRequest | None = None
    bind_info: BindInfo | None = None
    is_told: bool = False
    is_asked: bool = False
    is_held: bool = False
    is_downgraded: bool = False
    repeat_count: int = 0
    writes: int = 0
    is_unanswered: bool = False
    tried_version: str = ""
    is_probed: bool = False
    refusal_count: int = 0
    emptied_count: int = 0
    description: Description | None = None
    ask: Ask | None = None
    is_running: bool = False
    is_leaving: bool = False
    created: str = ""
    owner: Owner | None = None
    is_doubted: bool = False
    may_go: bool = False
    mistake: str = ""
    objects: frozenset[ObjectRef] = frozenset()
    marks: int | None = None
    ruled: RuledPod | None = field(default=None, repr=False)
    offered: Offered | None = field(default=None, repr=False)
    refused: Offered | None = field(default=None, repr=False)
    promised_by: str = ""
    reading: Reading | None = field(default=None, repr=False)
    is_proven: bool = False
    is_changed: bool = False
    is_bare: bool = False

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
        return self.description.gang if self.description is not None else None

    @property
    def is_binding(self) -> bool:
        """True from the decision until Kubernetes confirms the binding."""
        return self.state is PodState.BINDING

    @property
    def is_writing(self) -> bool:
        """Is a binding under way, or written and not seen yet?"""
        return self.writes > 0

    @property
    def is_of_dialect(self) -> bool:
        """False if the pod's author has written our own annotation, which goes before all dialects."""
        return self.marks is not None

    def own_request(self, spec: PodSpec, group: str) -> PodRequest:
        """What the pod asks for in our own words, as one of a group.

        A pod that needs more of kube-scheduler than a node, such as volumes, cannot ignore which nodes that offers.
        """
        ignores = spec.ignore_suggested_nodes and not (self.ruled is not None and self.ruled.demands.beyond)
        spec = replace(spec, group=replace(spec.group, name=group), ignore_suggested_nodes=ignores)
        return PodRequest(self.uid, self.name, self.namespace, spec)


class PodTable:
    """Records by uid, how many there are in each state, and which pods have lately gone."""

    def __init__(self, on_move: Callable[[PodRecord], None] = lambda record: None) -> None:
        """`on_move` is called with each pod whose state has changed, or that may go."""
        self._on_move = on_move
        self._records: dict[str, PodRecord] = {}
        self._counts: Counter[PodState] = Counter()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._records.values())

    def get(self, uid: str) -> PodRecord | None:
        """The record, None if the pod is not known."""
        return self._records.get(uid)

    def uids(self) -> tuple[str, ...]:
        """All uids."""
        return tuple(self._records)

    def records(self, state: PodState) -> list[PodRecord]:
        """All pods in a state, in the order in which they became known."""
        return [record for record in self._records.values() if record.state is state]

    def has_ended(self, uid: str) -> bool:
        """True if the pod was removed lately. Uids are never given to another pod."""
        return uid in self._ended

    def add(self, uid: str, name: str, namespace: str) -> PodRecord:
        """A new Waiting pod."""
        self._ended.pop(uid, None)
        record = self._records[uid] = PodRecord(uid, name, namespace)
        self._counts[record.state] += 1
        return record

    def remove(self, uid: str, *, is_over: bool = True) -> PodRecord | None:
        """Drop a pod, which is not to come back if it `is_over`; returns its record, None if it was not known."""
        if is_over:
            self._ended[uid] = None
        if len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)
        record = self._records.pop(uid, None)
        if record is not None:
            self._counts[record.state] -= 1
        return record

    def move(self, record: PodRecord, state: PodState) -> None:
        """Change a pod's state."""
        self._counts[record.state] -= 1
        self._counts[state] += 1
        record.state = state
        self._on_move(record)

    def let_go(self, record: PodRecord) -> None:
        """A pod that takes no cells may run wherever kube-scheduler likes."""
        record.may_go = True
        self._on_move(record)

    def counts(self) -> dict[str, int]:
        """How many pods are in each state, by its name."""
        return {state.value: self._counts[state] for state in PodState}
