"""From a pod's requests of Kubernetes to its requests of HiveD: virtual cluster, priority and cells (rules 21).

Where Kubernetes leaves something open, an annotation or label of ours decides. What is then still open is an error that
names it: nothing is guessed.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from math import ceil

import msgspec

from hived.values.errors import UserError
from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec, GroupSpec
from hived.values.specs import PodSpec as CoreSpec
from hived_config.access import PRIORITY_WORDS, Access, open_default
from hived_config.reader import is_clearly
from hived_config.rules import PodRules
from hived_extender.jobs.amounts import (
    DEVICE_REQUESTS,
    Capacity,
    Request,
    all_requested,
    cluster_capacity,
    leaves_below,
    own_requests,
    removed_devices,
    requested,
    sku,
    skus_needed,
    vc_capacity,
)
from hived_extender.jobs.annotations import MAX_COUNT, PREFIX
from hived_extender.jobs.kinds.description import Description, Within
from hived_extender.jobs.wire import ENABLE_LIMIT, Pod, PodSpec

VIRTUAL_CLUSTER = PREFIX + "virtual-cluster"
PRIORITY = PREFIX + "priority"
LEAF_CELL_TYPE = PREFIX + "leaf-cell-type"
PINNED_CELL = PREFIX + "pinned-cell-id"

_WORDS = (VIRTUAL_CLUSTER, PRIORITY, LEAF_CELL_TYPE, PINNED_CELL)

HOSTNAME = "kubernetes.io/hostname"

NAMED = 8
"""Resources that a message names."""


def parse_priority(text: str) -> int:
    """A priority from one of OpenPAI's words or a number from -1 to 1000. Raises UserError for anything else."""
    if text in PRIORITY_WORDS:
        return PRIORITY_WORDS[text]
    try:
        priority = int(text)
    except ValueError:
        priority = OPPORTUNISTIC_PRIORITY - 1
    if not OPPORTUNISTIC_PRIORITY <= priority <= MAX_GUARANTEED_PRIORITY:
        words, numbers = ", ".join(PRIORITY_WORDS), f"{OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
        raise UserError(f"priority {text!r}: expected {words} or a number from {numbers}")
    return priority


def priority_class_name(priority: int) -> str:
    """The PriorityClass that gives a pod the Kubernetes priority equal to its HiveD priority.

    Kubernetes looks for victims among pods of lower Kubernetes priority only, so the two must agree.
    """
    return "hived-opportunistic" if priority == OPPORTUNISTIC_PRIORITY else f"hived-priority-{priority}"


_ANY_GPU = re.compile(r"[^/]+/gpu")
_OWN_CLASSES = {priority_class_name(each): each for each in range(OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY + 1)}


def _check_is_one(resources: Collection[str]) -> None:
    """Raise UserError if a pod asks for devices of several resources (rule 21.5)."""
    if len(resources) > 1:
        named = " and ".join(islice(resources, NAMED))
        raise UserError(f"asks for {named}; keep only one: a pod has cells of one leaf cell type")


LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, none of one that is not known; see `namespaces.Namespaces`."""


def no_labels(namespace: str) -> Mapping[str, str]:
    """The labels of namespaces where none are known."""
    return {}


class Ask(msgspec.Struct, frozen=True):
    """The request of one pod of a dialect, without its gang.

    `leaf_cell_count` is 0 for a pod without devices: it takes no cells, but may belong to a gang. An empty text stands
    for no wish. `job_cell` is the cell type of which a Job of a JobSet with exclusive placement needs one, "" if the
    configuration has none. The gang of a pod that `prefers_near` is kept together unasked, where that costs nothing
    (rule 21.8). The other fields are those of `hived.values.specs.PodSpec`.
    """

    virtual_cluster: str
    priority: int
    leaf_cell_count: int
    leaf_cell_type: str = ""
    pinned_cell_id: str = ""
    lazy_preemption: bool = False
    within_cell: str = ""
    within_is_required: bool = True
    job_cell: str = ""
    prefers_near: bool = False

    def spec(self, group: GroupSpec) -> CoreSpec:
        """The request of a pod to the core, as a member of this group."""
        return CoreSpec(
            self.virtual_cluster,
            self.priority,
            self.leaf_cell_count,
            group,
            pinned_cell_id=self.pinned_cell_id,
            leaf_cell_type=self.leaf_cell_type,
            lazy_preemption=self.lazy_preemption,
            ignore_suggested_nodes=False,
            within_cell=self.within_cell,
            within_is_required=self.within_is_required and not self.prefers_near,
        )


class Wish(msgspec.Struct, frozen=True):
    """The virtual cluster and the priority that a pod asks for; None if an unknown object decides."""

    virtual_cluster: str | None
    priority: int | None


class AccessError(UserError):
    """The namespace of a pod may use no virtual cluster."""


class _Cells(msgspec.Struct, frozen=True):
    """The cells that a pod can have: of one type, or of `is_any` several, all of which the core tries.

    Where these are too many, the nodes that kube-scheduler offers tell them apart.
    """

    leaf_types: Collection[str]
    is_any: bool = False
    pinned_cell_id: str = ""


class Resolver:
    """Reads the requests of pods by one configuration.

    Cost of a pod O(its containers); of the first one of a VC, O(cells that the file spells out).
    """

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf = no_labels) -> None:
        self._labels_of = labels_of
        self._cluster = cluster
        self._rules = rules
        self.resources = rules.resources_in(cluster)
        self.devices = frozenset((*self.resources.values(), ENABLE_LIMIT))
        self._means = frozenset(self.resources.values())
        self._priorities = _OWN_CLASSES | dict(rules.priority_classes)
        self._everything = cluster_capacity(cluster)
        self._capacities: dict[str, Capacity] = {}
        self._levels = dict(rules.topology_levels)
        node_types = [name for name, each in cluster.cell_types.items() if each.is_node_level]
        self._node_leaves = dict(sorted(leaves_below(cluster, name) for name in node_types))  # the largest of a type
        if len(node_types) == 1:
            self._levels.setdefault(HOSTNAME, node_types[0])

    def resolve(self, pod: Pod, description: Description | None) -> Ask:
        """The request of a pod; `description` is None if it is in no gang and wishes for nothing.

        Raises UserError, which says what to set, where the pod, its gang and the configuration leave that open.
        """
        _check_words(pod)
        _check_podgroup(pod, description)
        vc = self._virtual_cluster(pod, description)
        priority = self.priority(pod, description)
        within = (description and description.within) or Within("", is_required=True)
        level = self._level(within)
        devices = self._devices(pod)
        if devices is None:
            return Ask(vc, priority, 0, within_cell=level, within_is_required=within.is_required)
        resource, device_count = devices
        cells = self._cells(pod, vc, priority, resource)
        asked = Request(
            device_count, min(requested(pod, "cpu"), MAX_COUNT), min(requested(pod, "memory") / 2**20, MAX_COUNT)
        )
        if cells.is_any:
            cells = self._large_enough(cells, asked, vc, is_guaranteed=priority > OPPORTUNISTIC_PRIORITY)
        topology = description.job_part.topology if description and description.job_part else ""
        job_cell = self._levels.get(topology, topology)
        leaf_cell_count = min(skus_needed(asked, sku(self._cluster, cells.leaf_types)), MAX_COUNT)
        return Ask(
            vc,
            priority,
            leaf_cell_count,
            leaf_cell_type="" if cells.is_any or cells.pinned_cell_id else next(iter(cells.leaf_types)),
            pinned_cell_id=cells.pinned_cell_id,
            within_cell=level,
            within_is_required=within.is_required,
            job_cell=job_cell if job_cell in self._cluster.cell_types else "",
            prefers_near=self._prefers_near(vc, description, leaf_cell_count, cells),
        )

    # ---- who

    def wish(self, pod: Pod, description: Description | None, *, has_unknown_objects: bool = False) -> Wish:
        """The virtual cluster and the priority that a pod asks for, as `resolve` has them.

        With `has_unknown_objects` the pod names objects that are not known here: they may say its queue, or its
        PriorityClass if it has none itself.
        """
        has_own = bool(_said(pod, PRIORITY) or (pod.spec and pod.spec.priority_class_name))
        is_open = has_unknown_objects and self._named_virtual_cluster(pod, description) is None
        return Wish(
            None if is_open else self._virtual_cluster(pod, description),
            None if has_unknown_objects and not has_own else self.priority(pod, description),
        )

    def _virtual_cluster(self, pod: Pod, description: Description | None) -> str:
        """See rule 21.3."""
        named = self._named_virtual_cluster(pod, description)
        queue = (description and description.queue) or ""
        return self._default_virtual_cluster(pod.metadata.namespace, queue) if named is None else named

    def _named_virtual_cluster(self, pod: Pod, description: Description | None) -> str | None:
        known = self._cluster.virtual_clusters
        said = _said(pod, VIRTUAL_CLUSTER)
        if said:
            if said not in known:
                raise UserError(f"{VIRTUAL_CLUSTER} is {said!r}; set it to a virtual cluster: {_listed(known)}")
            return said
        queue = (description and description.queue) or ""
        return queue if queue in known else None

    def default_virtual_cluster(self, namespace: str) -> str:
        """The virtual cluster of pods of a namespace that name none; "" if they have to name one, or may use none."""
        known, access = self._cluster.virtual_clusters, self._rules.access
        vc = access.default_virtual_cluster(namespace, self._labels_of(namespace) if access.needs_labels else {})
        vc = open_default(known) if vc is None and access.access is Access.EVERYBODY else vc
        return vc if vc is not None and vc in known else ""

    def _default_virtual_cluster(self, namespace: str, queue: str) -> str:
        """The virtual cluster of a pod that names none, and whose `queue` is none."""
        if vc := self.default_virtual_cluster(namespace):
            return vc
        names_none = f"{f'its queue {queue!r}' if queue else 'it'} names no virtual cluster: "
        listing = f"have the configuration list namespace {namespace} under virtualClusters.NAME.namespaces"
        if self._rules.access.access is not Access.EVERYBODY:
            raise AccessError(names_none + listing)
        raise UserError(
            f"{names_none}add {vc_options(self._cluster.virtual_clusters)} to hived submit, or set the annotation "
            f"{VIRTUAL_CLUSTER}; else {listing}"
        )

    def priority(self, pod: Pod, description: Description | None) -> int:
        """The priority of a pod (rule 21.4). Raises UserError if it is none that the configuration knows."""
        if said := _said(pod, PRIORITY):
            try:
                return parse_priority(said)
            except UserError as error:
                raise UserError(f"{PRIORITY}: {error.message}") from None
        spec = pod.spec or PodSpec()
        own_class = spec.priority_class_name or ""
        name = own_class or (description and description.priority_class) or ""
        if name in self._priorities:
            return self._priorities[name]
        # Kubernetes has looked up the value of a pod's own class; that of a gang's class is not known here.
        value = spec.priority if name == own_class else None
        if not name:
            value = value or 0
        if value is not None and value <= 0:
            return max(value, OPPORTUNISTIC_PRIORITY)
        worth = "" if value is None else f" (value {value})"
        raise UserError(
            f"PriorityClass {name!r}{worth} has no HiveD priority: add it to priorityClasses in the configuration, "
            f"or set the annotation {PRIORITY} to a number from -1 (opportunistic) to {MAX_GUARANTEED_PRIORITY}"
        )

    # ---- how much

    def _devices(self, pod: Pod) -> tuple[str, int] | None:
        """(resource, count) of the devices that a pod asks for, None if it asks for none."""
        found = sorted(all_requested(pod, self._device_names(pod)).items())
        asked = {name: ceil(min(count, MAX_COUNT)) for name, count in found if count > 0}
        _check_is_one(asked)
        if not asked:
            return removed_devices(pod)
        (device,) = asked.items()
        return device

    def check_devices(self, asked: Iterable[tuple[str, float]], spec: CoreSpec) -> None:
        """Raise UserError if a pod with HiveD's own annotation requests other devices than its cells (rule 21.7).

        asked : resources, and how much of each
        spec : what the annotation says
        """
        leaf_type, cells = spec.leaf_cell_type, spec.leaf_cell_count
        wanted = [(resource, count) for resource, count in asked if count > 0 and resource in self._means]
        _check_is_one([resource for resource, _ in wanted])
        for resource, count in wanted:
            having = [name for name, means in self.resources.items() if means == resource]
            if leaf_type:
                self._check_exists(leaf_type, spec)
                self._check_means(leaf_type, having, resource, "leafCellType")
            skus = self._cluster.sku_types
            most = cells * max([1, *(skus[name].gpu for name in having if name in skus and leaf_type in ("", name))])
            if count > most:
                raise UserError(
                    f"asks for {count:g} {resource}, and its leafCellNumber {cells} gives it {most}: make them equal"
                )

    def asks_for_devices(self, pod: Pod) -> bool:
        """Does a pod ask for devices (rule 21.2), including removed ones and those that no leaf cell stands for?"""
        asked = all_requested(pod, self._device_names(pod)).values()
        return DEVICE_REQUESTS in pod.annotations or any(count > 0 for count in asked)

    def _device_names(self, pod: Pod) -> set[str]:
        spec = pod.spec or PodSpec()
        containers = (*(spec.containers or ()), *(spec.init_containers or ()))
        names = {name for each in containers for name in own_requests(each.resources)}
        return {name for name in names if name in self._means or _ANY_GPU.fullmatch(name)}

    def _cells(self, pod: Pod, vc: str, priority: int, resource: str) -> _Cells:
        """The leaf cells that a pod may have for `resource` (rule 21.5)."""
        having = [name for name, means in self.resources.items() if means == resource]
        if not having:
            raise UserError(
                f"asks for {resource}, which no leaf cell type means: set skuTypes.LEAF_CELL_TYPE.resource in the "
                f"configuration, or ask for {_listed({*self.resources.values()})}"
            )
        wanted, pin = _said(pod, LEAF_CELL_TYPE), _said(pod, PINNED_CELL)
        if wanted and pin:
            raise UserError(f"{PINNED_CELL} says which cell to use, so remove {LEAF_CELL_TYPE}")
        if pin:
            pinned = self._capacity(vc).pinned
            if pin not in pinned:
                none = f"virtual cluster {vc} has no pinned cells: remove it"
                remedy = f"set it to one of virtual cluster {vc}: {_listed(pinned)}" if pinned else none
                raise UserError(f"{PINNED_CELL} is {pin!r}; {remedy}")
            self._check_means(pinned[pin][0], having, resource, PINNED_CELL)
            return _Cells((pinned[pin][0],), pinned_cell_id=pin)
        is_guaranteed = priority > OPPORTUNISTIC_PRIORITY
        owner = f"virtual cluster {vc}" if is_guaranteed else "the cluster"
        pool = (self._capacity(vc) if is_guaranteed else self._everything).by_type
        if wanted:
            if wanted not in pool:
                none = f"{owner} has no cells besides pinned ones: remove it"
                remedy = f"set it to a type that {owner} has: {_listed(pool)}" if pool else none
                raise UserError(f"{LEAF_CELL_TYPE} is {wanted!r}; {remedy}")
            self._check_means(wanted, having, resource, LEAF_CELL_TYPE)
            return _Cells((wanted,))
        if not any(name in having for name in pool):
            types = f"; its leaf cell types are {_listed(pool)}" if pool else ""
            settings = []
            if is_guaranteed and (others := self._others_with(having, pod, vc, priority)):
                settings.append(f"{VIRTUAL_CLUSTER} to one that has: {_listed(others)}")
            if is_guaranteed and (pinned := self._capacity(vc).pinned):
                settings.append(f"{PINNED_CELL} to one of its pinned cells: {_listed(pinned)}")
            remedy = f": set {', or '.join(settings)}" if settings else ""
            raise UserError(f"asks for {resource}, of which {owner} has no cells{types}{remedy}")
        elsewhere = [name for name in self._everything.by_type if name in having and name not in pool]
        if elsewhere and all(self._is_ruled_out(pod, name) for name in pool if name in having):
            self._refuse_what_others_have(pod, elsewhere, vc, priority, resource)
        return self._cells_by_labels(pod, [name for name in pool if name in having], pool, resource)

    def _cells_by_labels(self, pod: Pod, having: list[str], pool: Collection[str], resource: str) -> _Cells:
        """Of the types that stand for the resource, those that the nodeSelector chooses, if any."""
        fitting = [name for name in having if not self._is_ruled_out(pod, name)]
        if not fitting:
            labels = self._labels_of_types(having)
            raise UserError(f"its nodeSelector rules out every leaf cell type of {resource}: {labels}")
        fitting = [name for name in fitting if self._chosen_by(pod, name)] or fitting
        if len(fitting) == 1:
            return _Cells(fitting)
        others = [name for name in pool if name not in fitting]
        if requested(pod, resource) or all(self._is_ruled_out(pod, name) for name in others):
            return _Cells(fitting, is_any=True)
        raise UserError(
            f"asks for {resource}, which several leaf cell types are: set the annotation {LEAF_CELL_TYPE} to one of "
            f"{_listed(fitting)}, or nodeSelector to labels of one"
        )

    def _refuse_what_others_have(self, pod: Pod, types: list[str], vc: str, priority: int, resource: str) -> None:
        """Raise UserError if the nodeSelector chooses types that other virtual clusters have, and this one has not.

        It names the virtual clusters that have them and that the pod may use.
        """
        chosen = [name for name in types if self._chosen_by(pod, name) and not self._is_ruled_out(pod, name)]
        if not chosen:
            return
        others = self._others_with(chosen, pod, vc, priority)
        own = [name for name in self._capacity(vc).by_type if self.resources.get(name) == resource]
        remedy = f": set {VIRTUAL_CLUSTER} to one that has: {_listed(others)}" if others else ""
        raise UserError(
            f"its nodeSelector rules out every leaf cell type of {resource} that virtual cluster {vc} has: "
            f"{self._labels_of_types(own)}; it chooses {_listed(chosen)}, of which {vc} has no cells{remedy}"
        )

    def _others_with(self, types: Collection[str], pod: Pod, vc: str, priority: int) -> list[str]:
        """The virtual clusters besides `vc` that have cells of one of the types and that the pod may use."""
        access, namespace = self._rules.access, pod.metadata.namespace
        labels = self._labels_of(namespace) if access.needs_labels else {}
        return [
            other
            for other in self._cluster.virtual_clusters
            if other != vc
            and not self._capacity(other).by_type.keys().isdisjoint(types)
            and not access.refusal(namespace, labels, other, priority)
        ]

    def _labels_of_types(self, types: Collection[str]) -> str:
        return "; ".join(f"{name} has {_labels(self._rules.node_labels[name])}" for name in types)

    def _large_enough(self, cells: _Cells, asked: Request, vc: str, *, is_guaranteed: bool) -> _Cells:
        """The cells of types whose nodes are large enough for a pod, or of the type that comes closest."""
        largest = self._largest(vc) if is_guaranteed else self._node_leaves
        reach = {
            name: largest.get(name, 0) / skus_needed(asked, sku(self._cluster, (name,))) for name in cells.leaf_types
        }
        found = [name for name in cells.leaf_types if reach[name] >= 1] or [max(reach, key=reach.__getitem__)]
        return cells if len(found) == len(reach) else _Cells(found, is_any=len(found) > 1)

    def _largest(self, vc: str) -> Mapping[str, int]:
        """By type, the leaf cells of the largest pod that a virtual cluster can hold."""
        if self._cluster.virtual_clusters[vc].combines:
            return self._node_leaves
        found: dict[str, int] = {}
        for cells in self._cluster.virtual_clusters[vc].virtual_cells:
            leaf_type, count = leaves_below(self._cluster, cells.cell_type.rsplit(".", 1)[-1])
            found[leaf_type] = max(found.get(leaf_type, 0), min(count, self._node_leaves.get(leaf_type, count)))
        return found

    def _check_exists(self, leaf_type: str, spec: CoreSpec) -> None:
        if leaf_type in self._everything.by_type or leaf_type in self.resources:
            return
        vc, is_owner = spec.virtual_cluster, spec.priority > OPPORTUNISTIC_PRIORITY
        has = f"VC {vc}" if is_owner and vc in self._cluster.virtual_clusters else "the cluster"
        pool = self._everything if has == "the cluster" else self._capacity(vc)
        raise UserError(f"there is no leaf cell type {leaf_type}; {has} has {_listed(pool.by_type)}")

    def _check_means(self, leaf_type: str, having: Collection[str], resource: str, key: str) -> None:
        if leaf_type not in having:
            means = self.resources.get(leaf_type, "no device")
            raise UserError(f"asks for {resource}, but {key} means {leaf_type}, which is {means}; change one of them")

    def _chosen_by(self, pod: Pod, leaf_type: str) -> set[str]:
        """The keys of the pod's nodeSelector that are labels of this type's nodes."""
        return _node_selector(pod).keys() & self._rules.node_labels.get(leaf_type, {}).keys()

    def _is_ruled_out(self, pod: Pod, leaf_type: str) -> bool:
        selector, labels = _node_selector(pod), self._rules.node_labels.get(leaf_type, {})
        return any(selector[key] != labels[key] for key in self._chosen_by(pod, leaf_type))

    def _capacity(self, vc: str) -> Capacity:
        if vc not in self._capacities:
            self._capacities[vc] = vc_capacity(self._cluster, vc)
        return self._capacities[vc]

    # ---- where

    def _prefers_near(self, vc: str, description: Description | None, leaf_cell_count: int, cells: _Cells) -> bool:
        """Is a gang kept together unasked (rule 21.8)? Its pods fill nodes, so that no node is broken for it."""
        if description is None or description.gang is None or description.within or vc in self._rules.packed:
            return False
        return all(leaf_cell_count == self._node_leaves.get(each) for each in cells.leaf_types)

    def _level(self, within: Within) -> str:
        """The cell type of a topology wish; "" for the lowest level with room."""
        cell_types = self._cluster.cell_types
        level = self._levels.get(within.level, within.level)
        if level and level not in cell_types:
            raise UserError(
                f"its topology wish names {within.level!r}, which is no level: add it to topologyLevels in the "
                f"configuration, as one of {_listed(cell_types)}"
            )
        return level


def _check_words(pod: Pod) -> None:
    """Raise UserError for a word of ours that is one of these four misspelt: what it asks for would not count."""
    for word in (*pod.annotations, *pod.labels):
        if word.startswith(PREFIX) and word not in _WORDS:
            for meant in _WORDS:
                if is_clearly(word[len(PREFIX) :], meant[len(PREFIX) :]):
                    raise UserError(f"{word} means nothing, did you mean {meant}?")


def _said(pod: Pod, key: str) -> str:
    """The value of the annotation or the label of this name, "" if there is neither."""
    annotation, label = (values.get(key, "").strip() for values in (pod.annotations, pod.labels))
    if annotation and label and annotation != label:
        raise UserError(f"{key} is {annotation!r} as an annotation and {label!r} as a label; remove one of them")
    return annotation or label


def _node_selector(pod: Pod) -> dict[str, str]:
    return (pod.spec and pod.spec.node_selector) or {}


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def vc_options(known: Collection[str]) -> str:
    """The options of `hived submit` that name a virtual cluster, one of which has to be given."""
    few = [f"--vc {name}" for name in sorted(known)]
    return " or ".join(few) if 0 < len(few) <= MOST_OPTIONS else f"--vc NAME, which is one of {_listed(known)},"


MOST_OPTIONS = 4
"""So many virtual clusters have their option spelt out."""


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "(none is configured)"


def _check_podgroup(pod: Pod, description: Description | None) -> None:
    """Raise UserError if a pod's PodGroup has another priority, as kube-scheduler would then start no pod of it."""
    group = description.kube_priority if description is not None else None
    spec = pod.spec or PodSpec()
    if description is None or group is None or spec.priority is None or spec.priority == group:
        return
    named = description.source.name if description.source is not None else ""
    raise UserError(
        f"its priority is {spec.priority}{_class_of(spec.priority_class_name)}, and that of PodGroup {named} is "
        f"{group}{_class_of(description.priority_class)}: kube-scheduler of Kubernetes 1.37 and later starts no such "
        "group; create it and its pods anew with one priorityClassName"
    )


def _class_of(name: str | None) -> str:
    return f" (PriorityClass {name})" if name else " (no PriorityClass)"
