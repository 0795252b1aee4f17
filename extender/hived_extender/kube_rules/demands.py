"""A pod's demands on nodes and on the pods around it, read once for all pods of one template.

These share one `Demands` object, which lives as long as it is referenced. Of each pod, only its namespace and labels
are kept beside it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

import msgspec

from hived.values.errors import UserError
from hived_config.selectors import IN, NOT_IN, Requirement, Selector, matches
from hived_extender.jobs.amounts import set_aside
from hived_extender.jobs.namespaces import NAMESPACE_NAME
from hived_extender.jobs.wire import ENABLE_LIMIT, Container, Pod, PodSpec
from hived_extender.kube_rules.selectors import MOST, LabelSelectorSpec, NodeTerm, NodeTermSpec, of_labels, units

ANY_IP = "0.0.0.0"

MOST_PARTS = 256
"""Of the rules of a pod: terms, keys and values. Each takes time for all nodes, with the service's lock held."""

MOST_RESOURCES = 128
"""Of a pod; if it names more, resources of Kubernetes itself come first."""

TOO_LARGE = "its rules about nodes and other pods have too many parts"

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels of namespaces by their names; one that is missing has NAMESPACE_NAME alone."""

_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "iscsi", "rbd")


class Toleration(NamedTuple):
    """A taint that a pod bears."""

    key: str
    operator: str
    value: str
    effect: str


EVERY_TAINT = Toleration("", "Exists", "", "")
"""Bears all taints, as Kubernetes has it."""


class HostPort(NamedTuple):
    """A port of the node itself; ANY_IP stands for all of its addresses."""

    protocol: str
    port: int
    ip: str

    def conflicts(self, other: "HostPort") -> bool:
        """Can two pods of one node not have both?"""
        is_same = (self.protocol, self.port) == (other.protocol, other.port)
        return is_same and (self.ip == other.ip or ANY_IP in (self.ip, other.ip))


class PodTerm(NamedTuple):
    """A term of required affinity or anti-affinity: which pods it means, and in which domains of nodes."""

    topology_key: str
    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None

    def means_namespace(self, namespace: str, namespace_labels: NamespaceLabels, *, in_doubt: bool = False) -> bool:
        """Does it mean pods of this namespace? `in_doubt` is the answer if its labels are needed and not known."""
        if namespace in self.namespaces:
            return True
        needs_labels = any(one.key != NAMESPACE_NAME for one in self.namespace_selector or ())
        if in_doubt and needs_labels and namespace not in namespace_labels:
            return True
        known = namespace_labels.get(namespace, {NAMESPACE_NAME: namespace})
        return matches(self.namespace_selector, known)


class SpreadConstraint(NamedTuple):
    """A topology spread constraint with DoNotSchedule; see Kubernetes for the fields."""

    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


class Demands(msgspec.Struct, frozen=True, weakref=True):
    """The rules in a pod's spec on where it may run. Values are hashable, and equal if the specs mean the same.

    `requests` has all resources that are asked for, in `quantities.units`, ascending by name. `affinity` terms have to
    hold together. `beyond` names a rule that only kube-scheduler's other plugins know, "" if there is none.
    """

    tolerations: tuple[Toleration, ...] = ()
    node_selector: Selector = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    requests: tuple[tuple[str, int], ...] = ()
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    beyond: str = ""

    @property
    def has_neighbour_rules(self) -> bool:
        """Do other pods matter?"""
        return bool(self.affinity or self.anti_affinity or self.spread)


class RuledPod(msgspec.Struct, frozen=True):
    """A pod as the rules see it."""

    namespace: str
    labels: Mapping[str, str]
    demands: Demands

    def is_meant(self, term: PodTerm, namespace_labels: NamespaceLabels, *, in_doubt: bool = False) -> bool:
        """Does a term of affinity, its own or another pod's, mean this pod?"""
        return matches(term.selector, self.labels) and term.means_namespace(
            self.namespace, namespace_labels, in_doubt=in_doubt
        )

    def is_counted(self, constraint: SpreadConstraint, namespace: str) -> bool:
        """Does a spread constraint of a pod in `namespace` count this pod?"""
        return self.namespace == namespace and matches(constraint.selector, self.labels)


def needs_kube_scheduler(demands: Demands) -> str:
    """Return why a pod must never be bound without kube-scheduler, "" if only taints and resources matter to it."""
    if demands.beyond:
        return demands.beyond
    said = {
        "it has a nodeSelector": demands.node_selector,
        "it has node affinity": demands.node_terms is not None,
        "it has pod affinity": demands.affinity,
        "it has pod anti-affinity": demands.anti_affinity,
        "it has topology spread constraints": demands.spread,
        "it has host ports": demands.ports,
    }
    return next((why for why, is_said in said.items() if is_said), "")


# ---- the spec


class _NodeSelectorSpec(msgspec.Struct, rename="camel"):
    node_selector_terms: list[NodeTermSpec] | None = None


class _NodeAffinitySpec(msgspec.Struct):
    required: _NodeSelectorSpec | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _PodTermSpec(msgspec.Struct, rename="camel"):
    topology_key: str = ""
    label_selector: LabelSelectorSpec | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelectorSpec | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None

    @property
    def size(self) -> int:
        """The number of its parts."""
        selectors = (self.label_selector, self.namespace_selector)
        keys = (self.namespaces, self.match_label_keys, self.mismatch_label_keys)
        return 1 + sum(each.size for each in selectors if each is not None) + sum(len(each or ()) for each in keys)


class _PodAffinitySpec(msgspec.Struct):
    required: list[_PodTermSpec] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class AffinitySpec(msgspec.Struct, rename="camel"):
    """A pod's affinity as JSON has it: the required part."""

    node_affinity: _NodeAffinitySpec | None = None
    pod_affinity: _PodAffinitySpec | None = None
    pod_anti_affinity: _PodAffinitySpec | None = None

    @property
    def size(self) -> int:
        """The number of its parts."""
        of_node = self.node_affinity.required if self.node_affinity else None
        of_pods = [each.required or () for each in (self.pod_affinity, self.pod_anti_affinity) if each is not None]
        terms = (of_node.node_selector_terms if of_node else None) or ()
        return sum(term.size for term in terms) + sum(term.size for each in of_pods for term in each)


class SpreadSpec(msgspec.Struct, rename="camel"):
    """A topology spread constraint as JSON has it."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelectorSpec | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None

    @property
    def size(self) -> int:
        """The number of its parts."""
        return 1 + (self.label_selector.size if self.label_selector else 0) + len(self.match_label_keys or ())


def demands_of(pod: Pod, *, is_unbounded: bool) -> Demands:
    """A pod's demands, not shared. Raises UserError as `DemandsReader.read_pod`. Cost: some 20 us."""
    spec = pod.spec or PodSpec()
    try:
        affinity = msgspec.convert(spec.affinity or {}, AffinitySpec)
        spread = msgspec.convert(spec.topology_spread_constraints or [], list[SpreadSpec])
    except msgspec.ValidationError as error:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise UserError(f"the affinity or topologySpreadConstraints of pod {name} cannot be read: {error}") from None
    requests = _requests(spec)
    if not is_unbounded and (_size(spec, affinity, spread) > MOST_PARTS or len(requests) > MOST_RESOURCES):
        foremost = sorted(requests, key=lambda one: ("/" in one[0], one))[:MOST_RESOURCES]
        return Demands(tolerations=(EVERY_TAINT,), requests=tuple(sorted(foremost)), beyond=TOO_LARGE)
    required = affinity.node_affinity.required if affinity.node_affinity else None
    return Demands(
        tolerations=tuple(
            Toleration(each.key or "", each.operator or "", each.value or "", each.effect or "")
            for each in spec.tolerations or ()
        ),
        node_selector=of_labels(spec.node_selector or {}),
        node_terms=None if required is None else _node_terms(required),
        requests=requests,
        ports=tuple(_ports(spec)),
        affinity=_pod_terms(affinity.pod_affinity, pod),
        anti_affinity=_pod_terms(affinity.pod_anti_affinity, pod),
        spread=tuple(_constraint(each, pod.labels) for each in spread if each.when_unsatisfiable == "DoNotSchedule"),
        beyond=beyond_of(spec),
    )


def _size(spec: PodSpec, affinity: AffinitySpec, spread: list[SpreadSpec]) -> int:
    ports = sum(len(each.ports or ()) for each in (*(spec.containers or ()), *(spec.init_containers or ())))
    own = len(spec.tolerations or ()) + len(spec.node_selector or ()) + ports
    return own + affinity.size + sum(each.size for each in spread)


def _node_terms(selector: _NodeSelectorSpec) -> tuple[NodeTerm, ...]:
    terms = (each.read() for each in selector.node_selector_terms or ())
    return tuple(term for term in terms if term is not None)


def _pod_terms(affinity: _PodAffinitySpec | None, pod: Pod) -> tuple[PodTerm, ...]:
    return tuple(_pod_term(each, pod) for each in (affinity.required if affinity else None) or ())


def _pod_term(term: _PodTermSpec, pod: Pod) -> PodTerm:
    selector = term.label_selector.read() if term.label_selector is not None else None
    selector = _with_own(selector, IN, term.match_label_keys, pod.labels)
    selector = _with_own(selector, NOT_IN, term.mismatch_label_keys, pod.labels)
    by_labels = term.namespace_selector.read() if term.namespace_selector is not None else None
    namespaces = tuple(sorted(set(term.namespaces or ())))
    if not namespaces and by_labels is None:
        namespaces = (pod.metadata.namespace,)
    return PodTerm(term.topology_key, selector, namespaces, by_labels)


def _constraint(spec: SpreadSpec, labels: Mapping[str, str]) -> SpreadConstraint:
    selector = spec.label_selector.read() if spec.label_selector is not None else None
    return SpreadConstraint(
        topology_key=spec.topology_key,
        max_skew=spec.max_skew,
        selector=_with_own(selector, IN, spec.match_label_keys, labels),
        min_domains=1 if spec.min_domains is None else spec.min_domains,
        honors_affinity=spec.node_affinity_policy != "Ignore",
        honors_taints=spec.node_taints_policy == "Honor",
    )


def _with_own(
    selector: Selector | None, operator: str, keys: list[str] | None, labels: Mapping[str, str]
) -> Selector | None:
    """The selector with the pod's own values of these labels. The API server may have added them already."""
    if selector is None:
        return None
    own = (Requirement(key, operator, (labels[key],)) for key in keys or () if key in labels)
    return (*selector, *(each for each in own if each not in selector))


# ---- resources


def _requests(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    """The amounts that kube-scheduler sets aside, in `units`."""
    total = set_aside(spec, units)
    return tuple(
        sorted((name, min(int(count), MOST)) for name, count in total.items() if count and name != ENABLE_LIMIT)
    )


# ---- the rest


def _ports(spec: PodSpec) -> Iterator[HostPort]:
    beside = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    running: list[Container] = [*beside, *(spec.containers or ())]
    for each in running:
        for port in each.ports or ():
            if port.host_port:
                yield HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP)


def beyond_of(spec: PodSpec) -> str:
    """The rule that only kube-scheduler's other plugins know, "" if there is none."""
    if spec.resource_claims:
        return "it has resource claims"
    return next((why for why in map(_of_volume, spec.volumes or ()) if why), "")


def _of_volume(volume: Mapping[str, Any]) -> str:
    name = volume.get("name", "")
    if volume.get("persistentVolumeClaim") is not None or volume.get("ephemeral") is not None:
        return f"its volume {name} is a claim"
    return f"its volume {name} is a disk" if any(volume.get(kind) is not None for kind in _DISKS) else ""


KEPT_TEXTS = 1024
KEPT_SIZE = 4096
"""Specs that a reader has read lately, and the bytes of each as JSON: a longer one is read anew for each pod."""


class DemandsReader:
    """Reads pods; equal demands are one object.

    A rule of more than MOST_PARTS is left to kube-scheduler, unless the reader `is_unbounded`: it stands in for
    kube-scheduler.
    """

    def __init__(self, *, is_unbounded: bool = False) -> None:
        self._is_unbounded = is_unbounded
        self._known: WeakValueDictionary[Demands, Demands] = WeakValueDictionary()
        self._read: OrderedDict[bytes, ref[Demands]] = OrderedDict()  # by all that they were read from

    def read_pod(self, pod: Pod) -> RuledPod:
        """The rules' view of a pod. Raises UserError if its affinity or its spread constraints cannot be read.

        Cost: 2 us for a pod like one that was read lately, else some 20.
        """
        source = _source(pod)
        kept = self._read.get(source)
        demands = kept() if kept is not None else None
        if demands is None:
            found = demands_of(pod, is_unbounded=self._is_unbounded)
            demands = self._known.setdefault(found, found)
            if source:
                self._read[source] = ref(demands)
                if len(self._read) > KEPT_TEXTS:
                    self._read.popitem(last=False)
        else:
            self._read.move_to_end(source)
        return RuledPod(pod.metadata.namespace, pod.labels, demands)


_encoder = msgspec.json.Encoder()


def _source(pod: Pod) -> bytes:
    """The parts of a pod that its demands follow from, equal for pods of one template; b"" if they are long.

    Volumes have names of their own in each pod, so only their consequence is part of it.
    """
    spec = pod.spec or PodSpec()
    has_rules = spec.affinity or spec.topology_spread_constraints
    parts = (
        spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.tolerations, spec.node_selector,
        spec.affinity, spec.topology_spread_constraints, beyond_of(spec),
        (pod.metadata.namespace, pod.metadata.labels) if has_rules else None,
    )  # fmt: skip
    try:
        text = _encoder.encode(parts)
    except RecursionError:
        return b""
    return text if len(text) <= KEPT_SIZE else b""
