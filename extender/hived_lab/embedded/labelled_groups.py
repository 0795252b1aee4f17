"""A PodGroup for each gang that pods describe by labels, their name and their minimum, as ACK's scheduler makes one.

It has the minimum of the oldest pod that is not leaving, and goes with the last of them. A PodGroup that somebody else
has made stays as it is, and a name that no object can have gets none. Runs on the event loop of the API server.
"""

from collections import defaultdict

from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE
from hived_lab.embedded.apiserver.models import DeleteOptions, is_dns_subdomain
from hived_lab.embedded.apiserver.registry import Registry, follow
from hived_lab.embedded.apiserver.resources import OLD_POD_GROUPS, PODS
from hived_lab.embedded.apiserver.store import Key

MADE = "embedded.hived/made-of-labels"
"""The annotation of a PodGroup that was made here."""


class LabelledGroups:
    """The PodGroups of labels of one embedded cluster."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._groups: dict[Key, Key] = {}  # by pod
        self._minimums: defaultdict[Key, dict[Key, int]] = defaultdict(dict)  # by group and pod, oldest pods first

    async def run(self) -> None:
        """Keep the PodGroups until cancelled."""
        await follow(self._registry, PODS, self._pod_seen, lambda: self._groups)

    def _pod_seen(self, pod: Key) -> None:
        seen = self._registry.collection(PODS).revisions.get(pod)
        labels = {} if seen is None or seen.view.metadata.deletion_timestamp else seen.view.metadata.labels
        before, name, minimum = self._groups.pop(pod, None), labels.get(GROUP_NAME, ""), labels.get(MIN_AVAILABLE, "")
        group = Key(pod.namespace, name) if is_dns_subdomain(name) and minimum.isdecimal() else None
        if before is not None and before != group:
            del self._minimums[before][pod]
            self._keep(before)
        if group is not None:
            self._groups[pod] = group
            self._minimums[group][pod] = int(minimum)
            self._keep(group)

    def _keep(self, group: Key) -> None:
        """Make the PodGroup be as its pods say."""
        minimum = next(iter(self._minimums[group].values()), None)
        if minimum is None:
            del self._minimums[group]
        there = self._registry.collection(OLD_POD_GROUPS).revisions.get(group)
        if there is None and minimum is not None:
            metadata = {"namespace": group.namespace, "name": group.name, "annotations": {MADE: "true"}}
            kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
            self._registry.create(OLD_POD_GROUPS, {**kind, "metadata": metadata, "spec": {"minMember": minimum}})
        elif there is None or MADE not in there.view.metadata.annotations:
            return
        elif minimum is None:
            self._registry.delete(OLD_POD_GROUPS, group, DeleteOptions())
        elif there.body["spec"] != {"minMember": minimum}:
            self._registry.update(OLD_POD_GROUPS, group, {**there.body, "spec": {"minMember": minimum}})
