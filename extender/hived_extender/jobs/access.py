"""The checks of a pod when it is created, before hived has seen its gang; the configuration alone decides.

`Permissions`: may its namespace have this virtual cluster at this priority? The queue or PriorityClass of a PodGroup
may not be known yet, nor the labels of a new namespace. The pod passes then, unless it is refused either way: the
scheduler asks again when it places it.

`ForeignDevices`: would it use devices of hived's nodes that hived has not given to it? Pods of kube-system pass, and of
namespaces with the label `EXEMPT`, such as that of an operator whose pods test each device. Administrators label
namespaces.

`Sizes`: can it never run, as it asks for more than any cell of its virtual cluster has? A refused pod could not run in
an empty cluster. Pods that pass may have to wait forever all the same, and the scheduler says so then.
"""

from collections.abc import Iterable, Mapping
from math import ceil

import msgspec

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.rules import PodRules, names_for
from hived_config.words import counted
from hived_extender.jobs.amounts import all_requested, leaves_below, pinned_cells, requested
from hived_extender.jobs.annotations import BIND_INFO, PREFIX, SCHEDULING_SPEC, is_quickly_read, read_spec
from hived_extender.jobs.asks import AccessError, Ask, LabelsOf, Resolver, Wish, no_labels
from hived_extender.jobs.bind_info import asks_in_own_words
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.wire import NodeSelector, Pod


class Permissions:
    """Checks pods against the access rules of one configuration (rule 21.9)."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf = no_labels) -> None:
        self._access = rules.access
        self._grace = rules.grace
        self._labels_of = labels_of
        self._resolver = Resolver(cluster, rules, self._labels)

    def refusal(self, pod: Pod) -> str:
        """Return why a pod for hived is refused, "" if it is not, or cannot be read."""
        access, namespace = self._access, pod.metadata.namespace
        if access.is_unrestricted:
            return ""
        labels = self._labels(namespace)
        if access.needs_labels and not labels:
            return ""
        try:
            wish = self._wish(pod)
        except AccessError as error:
            return error.message
        except UserError:
            return ""  # the scheduler says why
        if wish.virtual_cluster is None:
            return ""
        if wish.priority is not None:
            return access.refusal(namespace, labels, wish.virtual_cluster, wish.priority)
        guaranteed = access.refusal(namespace, labels, wish.virtual_cluster, OPPORTUNISTIC_PRIORITY + 1)
        opportunistic = access.refusal(namespace, labels, wish.virtual_cluster, OPPORTUNISTIC_PRIORITY)
        return guaranteed if opportunistic else ""

    def most_grace_s(self, pod: Pod) -> int | None:
        """The most seconds that an opportunistic pod may take to leave, if it asks for more (rule 22.6).

        None if it does not, if its priority is not known yet, or if it cannot be read.
        """
        asked_s = pod.spec.termination_grace_period_seconds if pod.spec is not None else None
        if asked_s is None:
            return None
        try:
            wish = self._wish(pod)
        except UserError:
            return None
        if wish.priority is None or wish.priority > OPPORTUNISTIC_PRIORITY:
            return None
        ceiling_s = self._grace.ceiling_s(wish.virtual_cluster or "", is_lent=True)
        return ceiling_s if asked_s > ceiling_s else None

    def concerns(self, pod: Pod, *, is_served: bool) -> bool:
        """Is the pod hived's: would it get cells, or has it some? `is_served`: its schedulerName is one of ours."""
        if pod.is_ours or (pod.node and BIND_INFO in pod.annotations):
            return True
        is_ours = SCHEDULING_SPEC in pod.annotations or table.is_marked_by_author(pod)
        return is_served and (is_ours or self._resolver.asks_for_devices(pod))

    def _labels(self, namespace: str) -> Mapping[str, str]:
        return self._labels_of(namespace) if self._access.needs_labels else {}

    def _wish(self, pod: Pod) -> Wish:
        """Its virtual cluster and priority as far as they are known. Raises UserError if the pod cannot be read."""
        if asks_in_own_words(pod.annotations):
            text = pod.annotations[SCHEDULING_SPEC]
            if not is_quickly_read(text):
                raise UserError("reviews of other pods wait: the scheduler asks again")
            spec = read_spec(text)
            return Wish(spec.virtual_cluster, spec.priority)
        description = table.describe(pod, NoObjects())
        return self._resolver.wish(pod, description, has_unknown_objects=bool(table.objects_of(pod)))


MIRROR = "kubernetes.io/config.mirror"
"""Annotation of mirror pods. A mirror pod shows a static pod, which runs whether or not the API server knows it.

Any client may write the annotation. It counts only if a kubelet creates the pod.
"""

SYSTEM_NAMESPACES = ("kube-system",)
EXEMPT, ALLOW = PREFIX + "foreign-devices", "allow"
"""Label of a namespace, and its value, whose pods may use devices past hived."""


class ForeignDevices:
    """Refuses pods that take devices past hived (rule 22.4)."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf = no_labels) -> None:
        """Cost O(cells) if any resource is refused, else nothing."""
        self._labels_of = labels_of
        means = rules.resources_in(cluster)
        self._types = {
            resource: [leaf_type for leaf_type, each in means.items() if each == resource]
            for resource in rules.refused_in(cluster)
        }
        from hived.cells.layout import build_topology  # noqa: PLC0415  # loads numpy, which `hived submit` does without

        self._nodes = frozenset(build_topology(cluster).node_names if self._types else ())
        self._node_labels = rules.node_labels
        self._names = names_for(rules.scheduler_names, cluster.virtual_clusters)

    def refusal(self, pod: Pod, *, is_ours: bool, is_by_kubelet: bool = False) -> str:
        """Return why a new pod is refused, "" if it is not. `is_ours`: it gets cells, unless it names a node."""
        is_static = is_by_kubelet and MIRROR in pod.annotations
        if not self._types or (is_ours and not pod.node) or is_static or self._is_exempt(pod.metadata.namespace):
            return ""
        resource = next((name for name in self._types if requested(pod, name) > 0), "")
        node = pod.node or _daemon_node(pod)
        if not resource or (node and node not in self._nodes) or (not node and self._is_elsewhere(pod, resource)):
            return ""
        if pod.node:
            remedy = "leave nodeName out" + ("" if is_ours else f" and set schedulerName to {self._named()}")
        else:
            remedy = f"set schedulerName to {self._named()}"
        place = f"on node {node}" if node else "on the nodes of this cluster"
        return f"it asks for {resource}, which hived gives away {place}: {remedy}"

    def _is_exempt(self, namespace: str) -> bool:
        return namespace in SYSTEM_NAMESPACES or self._labels_of(namespace).get(EXEMPT) == ALLOW

    def _named(self) -> str:
        return " or ".join(self._names[:3])

    def _is_elsewhere(self, pod: Pod, resource: str) -> bool:
        """Does its nodeSelector rule out the nodes of every leaf cell type of the resource?"""
        selector = (pod.spec and pod.spec.node_selector) or {}
        labels = [self._node_labels.get(leaf_type, {}) for leaf_type in self._types[resource]]
        return all(any(selector.get(key, value) != value for key, value in each.items()) for each in labels)


class _NodeAffinity(msgspec.Struct):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


def _daemon_node(pod: Pod) -> str:
    """The node for which a DaemonSet has made a pod, "" if none has."""
    try:
        affinity = msgspec.convert((pod.spec and pod.spec.affinity) or {}, _Affinity)
    except ValueError:
        return ""  # the API server refuses it, in its own words
    required = affinity.node_affinity and affinity.node_affinity.required
    return required.only_node if required else ""


class Sizes:
    """Checks pods against the largest cells of one configuration (rule 22.5)."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf = no_labels) -> None:
        """Cost O(cells that the file spells out)."""
        self._cluster = cluster
        self._resolver = Resolver(cluster, rules, labels_of)
        self._anywhere = self._bounds(cell.cell_type for cell in cluster.physical_cells)
        self._pinned = {pin: self._in_a_node(cell_type)[1] for pin, cell_type in pinned_cells(cluster)}

    def refusal(self, pod: Pod) -> str:
        """Return why a pod for hived can never run, "" if it can, or cannot be read."""
        try:
            ask = self._ask(pod)
        except UserError:
            return ""  # the scheduler says why
        if ask is None or ask.virtual_cluster not in self._cluster.virtual_clusters:
            return ""
        most, place = self._most(ask)
        if ask.leaf_cell_count <= most or not most:
            return ""
        return (
            f"it asks for {counted(ask.leaf_cell_count, 'GPU')} in one pod and can never run: the largest cell of "
            f"{place} that a pod can have has {most}; ask for smaller pods"
        )

    def warning(self, pod: Pod) -> str:
        """A warning about CPU or memory beyond the share of borrowed cells by `skuTypes`; "" if none or not known."""
        try:
            ask = self._ask(pod)
        except UserError:
            return ""
        if ask is None or ask.priority > OPPORTUNISTIC_PRIORITY or not ask.leaf_cell_count or pod.spec is None:
            return ""
        skus = [sku for name, sku in self._cluster.sku_types.items() if ask.leaf_cell_type in ("", name)]
        if not skus or not all(sku.cpu and sku.memory_mib for sku in skus):
            return ""  # a node's allocatable amounts count, which only the scheduler knows
        wanted, count = all_requested(pod, {"cpu", "memory"}), ask.leaf_cell_count
        for resource, unit, word, share in (
            ("cpu", 1, "CPUs", max(sku.cpu for sku in skus)),
            ("memory", 2**30, "Gi of memory", max(sku.memory_mib for sku in skus) / 1024),
        ):
            asked = wanted.get(resource, 0) / unit
            if asked > ceil(share * count):
                return (
                    f"it borrows {counted(count, 'GPU')} and asks for {asked:g} {word}, more than their share of "
                    f"{share * count:g}: with borrowedResources: share it waits unless a node has more that is "
                    "promised to none"
                )
        return ""

    def _ask(self, pod: Pod) -> Ask | None:
        if asks_in_own_words(pod.annotations):
            text = pod.annotations[SCHEDULING_SPEC]
            if not is_quickly_read(text):
                return None
            spec = read_spec(text)
            return Ask(
                spec.virtual_cluster, spec.priority, spec.leaf_cell_count, spec.leaf_cell_type, spec.pinned_cell_id
            )
        if table.objects_of(pod):
            return None  # they may name its virtual cluster
        return self._resolver.resolve(pod, table.describe(pod, NoObjects()))

    def _most(self, ask: Ask) -> tuple[int, str]:
        """(leaf cells of the largest cell that the pod could have, 0 if not known; the place of that cell)."""
        if ask.pinned_cell_id:
            return self._pinned.get(ask.pinned_cell_id, 0), f"pinned cell {ask.pinned_cell_id}"
        vc = self._cluster.virtual_clusters[ask.virtual_cluster]
        if ask.priority <= OPPORTUNISTIC_PRIORITY or vc.combines:
            bounds, place = self._anywhere, "the cluster"
        else:
            bounds, place = self._bounds(one.cell_type.rsplit(".", 1)[-1] for one in vc.virtual_cells), f"VC {vc.name}"
        counts = [most for leaf_type, most in bounds.items() if ask.leaf_cell_type in ("", leaf_type)]
        return max(counts, default=0), place

    def _bounds(self, cell_types: Iterable[str]) -> dict[str, int]:
        """By leaf cell type, the leaves of the largest of these cells, or of a node in it if it is larger."""
        found: dict[str, int] = {}
        for cell_type in dict.fromkeys(cell_types):
            leaf_type, count = self._in_a_node(cell_type)
            found[leaf_type] = max(found.get(leaf_type, 0), count)
        return found

    def _in_a_node(self, cell_type: str) -> tuple[str, int]:
        """(leaf type below a cell type, leaves of one such cell, or of a node in it if it is larger)."""
        types, inner = self._cluster.cell_types, cell_type
        while inner in types and not types[inner].is_node_level:
            inner = types[inner].child_type
        return leaves_below(self._cluster, inner if inner in types else cell_type)
