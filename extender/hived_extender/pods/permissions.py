"""May this pod have what it asks for? Answered when a pod is created, before hived has seen its gang.

The queue or PriorityClass of a PodGroup may not be known here, nor the labels of a new namespace. The pod passes then,
unless it is refused either way: the scheduler asks again when it places it.
"""

from collections.abc import Callable, Mapping

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.rules import PodRules
from hived_extender.pods import dialects
from hived_extender.pods.annotations import BIND_INFO, SCHEDULING_SPEC, is_quickly_read, read_spec
from hived_extender.pods.asks import AccessError, Resolver, Wish
from hived_extender.pods.dialects.kinds import NoObjects
from hived_extender.pods.gang_annotations import asks_in_own_words
from hived_extender.pods.wire import Pod

LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, none of one that is not known; see `namespaces.Namespaces`."""


class Permissions:
    """The answers of one configuration. Without `labels_of` a pod passes wherever a rule needs labels."""

    def __init__(self, cluster: ClusterSpec, rules: PodRules, labels_of: LabelsOf | None = None) -> None:
        self._access = rules.access
        self._grace = rules.grace
        self._labels_of = labels_of
        self._resolver = Resolver(cluster, rules, self._labels)

    def refusal(self, pod: Pod) -> str:
        """Why a pod is refused that is for hived; "" if it is not, or if it cannot be read."""
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
        """The most seconds that an opportunistic pod may take to leave, if it asks for more; None if it does not.

        A pod whose priority is not known yet, or that cannot be read, asks for nothing here.
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
        """Whether hived would give a pod cells, or take it for one that has them already.

        `is_served` says whether its schedulerName is one of ours.
        """
        if pod.is_ours or (pod.node and BIND_INFO in pod.annotations):
            return True
        is_ours = SCHEDULING_SPEC in pod.annotations or dialects.is_marked_by_author(pod)
        return is_served and (is_ours or self._resolver.asks_for_devices(pod))

    def _labels(self, namespace: str) -> Mapping[str, str]:
        return self._labels_of(namespace) if self._labels_of is not None and self._access.needs_labels else {}

    def _wish(self, pod: Pod) -> Wish:
        """As far as it can be made out. Raises UserError if the pod cannot be read."""
        if asks_in_own_words(pod.annotations):
            text = pod.annotations[SCHEDULING_SPEC]
            if not is_quickly_read(text):
                raise UserError("reviews of other pods wait: the scheduler asks again")
            spec = read_spec(text)
            return Wish(spec.virtual_cluster, spec.priority)
        description = dialects.describe(pod, NoObjects())
        return self._resolver.wish(pod, description, has_unknown_objects=bool(dialects.objects_of(pod)))
