"""Decides which pods are ours, and reads their asks, by the rules of one configuration."""

from collections.abc import Iterable, Mapping
from typing import Any

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodSpec
from hived_config.rules import PodRules, names_for
from hived_extender.jobs.amounts import CellAmounts, all_requested
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.asks import Ask, LabelsOf, Resolver, no_labels
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import Description, Lookup, ObjectRef
from hived_extender.jobs.wire import Pod


class AccessRefused(UserError):
    """The namespace of a pod may not have what the pod asks for."""


def reading_of(cluster: ClusterSpec, rules: PodRules) -> tuple[Any, ...]:
    """All that pods and jobs are read by: if it is another one, they are to be read anew."""
    return rules, cluster.virtual_clusters, cluster.cell_types, cluster.sku_types


class Interpreter:
    """Reads pods by the `rules` of one configuration.

    `serves_every_name`: there is no other scheduler that pods could be for. `labels_of` has the labels of namespaces.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        rules: PodRules,
        objects: Lookup,
        *,
        serves_every_name: bool = False,
        labels_of: LabelsOf = no_labels,
    ) -> None:
        self.labels_of = labels_of
        self.configure(cluster, rules)
        self._objects = objects
        self._serves_every_name = serves_every_name

    def configure(self, cluster: ClusterSpec, rules: PodRules) -> None:
        """Uses another configuration from now on."""
        self.rules, self.reading = rules, reading_of(cluster, rules)
        self.virtual_clusters = frozenset(cluster.virtual_clusters)
        self.cell_amounts = CellAmounts(cluster, rules)
        self._resolver = Resolver(cluster, rules, self.labels_of)
        self._names = frozenset(names_for(rules.scheduler_names, cluster.virtual_clusters))

    @property
    def resources(self) -> Mapping[str, str]:
        """The device resource of each leaf cell type that stands for devices."""
        return self._resolver.resources

    @property
    def devices(self) -> frozenset[str]:
        """The resources that leaf cells stand for."""
        return self._resolver.devices

    def is_ours(self, pod: Pod) -> bool:
        """Does the pod have the enabling limit, or name our scheduler and ask for devices or a gang (rules 2.1, 21.2)?

        Cost for a pod of another scheduler: 1 us.
        """
        if pod.is_ours:
            return True
        spec = pod.spec
        if spec is None or not self.serves(spec.scheduler_name or ""):
            return False
        return table.is_marked_by_author(pod) or self._resolver.asks_for_devices(pod)

    def asks_for_devices(self, pod: Pod) -> bool:
        """Does the pod ask for anything that is a device?"""
        return self._resolver.asks_for_devices(pod)

    def is_opportunistic(self, pod: Pod) -> bool:
        """Does a pod that names our scheduler ask for opportunistic priority? It need not be ours."""
        if pod.spec is None or not self.serves(pod.spec.scheduler_name or ""):
            return False
        try:
            return self._resolver.priority(pod, None) <= OPPORTUNISTIC_PRIORITY
        except UserError:
            return False

    def serves(self, scheduler_name: str) -> bool:
        """Is this one of our names?"""
        return self._serves_every_name or scheduler_name in self._names

    def describe(self, pod: Pod) -> Description | None:
        """The gang and wishes of a pod, None if it has none. Raises UserError."""
        return table.describe(pod, self._objects)

    def ask(self, pod: Pod, description: Description | None) -> Ask:
        """The ask of a pod. Raises UserError, which names the field to set, if something is open."""
        return self._resolver.resolve(pod, description)

    def default_virtual_cluster(self, namespace: str) -> str:
        """The virtual cluster of pods of a namespace that name none; "" if they have to name one, or may use none."""
        return self._resolver.default_virtual_cluster(namespace)

    def check_devices(self, asked: Iterable[tuple[str, float]], spec: PodSpec) -> None:
        """See `Resolver.check_devices`; `spec` is what the pod's own annotation says."""
        self._resolver.check_devices(asked, spec)

    def own_spec(self, pod: Pod) -> PodSpec:
        """The content of HiveD's own annotation. Raises UserError, also for devices beyond its cells."""
        spec = read_spec(pod.annotations[SCHEDULING_SPEC])
        self.check_devices(all_requested(pod, self.devices).items(), spec)
        return spec

    def check_access(self, namespace: str, virtual_cluster: str, priority: int) -> None:
        """Raise UserError if pods of a namespace may not use a virtual cluster at this priority (rule 21.9)."""
        access = self.rules.access
        labels = self.labels_of(namespace) if access.needs_labels else {}
        if refusal := access.refusal(namespace, labels, virtual_cluster, priority):
            raise AccessRefused(refusal)

    def objects_of(self, pod: Pod) -> frozenset[ObjectRef]:
        """The objects that its description depends on."""
        return table.objects_of(pod)
