"""The nodes as Kubernetes shows them, whatever runs there, and the offers that follow. Not thread-safe."""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from hived.values.errors import UserError
from hived_extender.kube.versions import is_older
from hived_extender.kube_rules.demands import NamespaceLabels, RuledPod
from hived_extender.kube_rules.nodes import CORDON, RuledNode
from hived_extender.kube_rules.residents import Residents, Standing
from hived_extender.pods.device_refusals import MIRROR
from hived_extender.pods.progress import seconds_of
from hived_extender.pods.wire import Node, Pod
from hived_extender.service.core import Core, Term
from hived_extender.service.offers import Offers
from hived_extender.service.pods import PodRecord, Seen
from hived_extender.service.retries import Retries

log = logging.getLogger(__name__)

NODE_VERSIONS = 10_000
"""Nodes that are gone or not healthy of which the last version is remembered; names of autoscaled nodes never end."""

USER_LABEL = "userName"
"""The label by which pods of `hived submit` name their user, as OpenPAI's do."""


class ClusterNodes:
    """`offers` is another one in each term. `healthy` and `residents` are for others to read."""

    def __init__(self, term: Term, retries: Retries, namespace_labels: NamespaceLabels | None = None) -> None:
        self._keeps_shares = True
        self._namespace_labels = namespace_labels if namespace_labels is not None else {}
        self._term = term
        self._retries = retries
        self._nodes: dict[str, RuledNode] = {}
        self._versions: dict[str, str] = {}
        self._troubles: dict[str, tuple[str, float | None]] = {}  # of nodes that are there and not healthy
        self.residents = Residents()
        self.offers = Offers(None, (), self.residents, ())
        self.healthy: set[str] = set()

    def keep_shares(self, keeps_shares: bool) -> None:
        """From now on borrowers get no more of a node than their cells' share, or all they ask for."""
        self._keeps_shares = self.offers.keeps_shares = keeps_shares

    @property
    def names(self) -> frozenset[str]:
        """The nodes that there are, ours or not."""
        return frozenset(self._nodes)

    def begin(self, core: Core, devices: Collection[str]) -> None:
        """Offer the nodes of this core from now on. `devices` are the resources that count as cells."""
        if self.residents.names != core.node_names:
            self.residents.order(core.node_names)
        self.offers = Offers(
            core.state.topology, self._nodes.values(), self.residents, devices, self.offers,
            self._namespace_labels, core.state.spec,
        )  # fmt: skip
        self.offers.keeps_shares = self._keeps_shares

    def seen(self, node: Node, *, is_gone: bool = False) -> bool:
        """A node was seen like this, or was when it went, which is as bad as bad. False if more is known already."""
        name, version = node.metadata.name, node.metadata.version
        if is_older(version, self._versions.get(name, "")):
            return False
        self._versions[name] = version
        if is_gone:
            self._nodes.pop(name, None)
            self.offers.remove(name)
        else:
            ruled = self._nodes[name] = RuledNode.read(node)
            if self.offers.put(ruled) and self._term.core is not None:
                # Pods that kube-scheduler has no node for, but may have now, it would ask about only if they fit.
                self._retries.room_made()
        if is_gone or node.is_healthy:
            self._troubles.pop(name, None)
        else:
            why, since = _trouble(node)
            self._troubles[name] = why, seconds_of(since)
        self._set_health(name, node.is_healthy and not is_gone)
        if len(self._versions) > NODE_VERSIONS + len(self.healthy):
            gone = self._versions.keys() - self.healthy
            for other in sorted(gone)[: len(gone) // 2]:
                del self._versions[other]
        return True

    def sync(self, names: Collection[str]) -> None:
        """There are no other nodes than these, and what is seen next of them is new."""
        self._versions.clear()
        for name in self._nodes.keys() - set(names):
            del self._nodes[name]
            self._troubles.pop(name, None)
            self.offers.remove(name)
        for name in sorted(self.healthy - set(names)):
            self._set_health(name, False)

    def ruled(self, name: str) -> RuledNode | None:
        """A node as the rules see it; None if it is not there."""
        return self._nodes.get(name)

    def trouble(self, name: str) -> tuple[str, float | None]:
        """Why a node cannot be used, and since when (seconds since 1970, None if unknown)."""
        return self._troubles.get(name, ("not in Kubernetes", None))

    def _set_health(self, name: str, is_healthy: bool) -> None:
        if is_healthy == (name in self.healthy):
            return
        (self.healthy.add if is_healthy else self.healthy.discard)(name)
        self.offers.changed(name)
        if self._term.core is not None and name in self._term.core.state.topology.node_index:
            self._term.core.set_node(name, is_healthy)
            log.info("node", extra={"fields": {"node": name, "healthy": is_healthy}})

    def note_resident(
        self, pod: Pod, ruled: Callable[[Pod], RuledPod], is_lent: Callable[[Pod], bool], *, has_cells: bool
    ) -> None:
        """A pod of any scheduler uses its node, and other pods may not want to be near it.

        `ruled` reads it, or raises UserError. `is_lent`: one without cells leaves for owners of cells.
        """
        meta = pod.metadata
        if pod.has_completed or not pod.node:
            self.left(meta.uid)
            return
        known = self.residents.get(meta.uid)
        is_leaving = bool(meta.deletion_timestamp)
        if known is None or known.is_leaving != is_leaving or known.pod.labels != pod.labels:
            with suppress(UserError):
                standing = None if has_cells else _standing(pod, is_lent=is_lent(pod))
                may_leave = has_cells or (standing is not None and standing.is_lent)
                self.residents.put(
                    meta.uid, pod.node, ruled(pod), is_leaving=is_leaving,
                    has_cells=may_leave or (known is not None and known.has_cells), standing=standing,
                )  # fmt: skip

    def left(self, uid: str) -> None:
        """A pod does not run any more."""
        resident = self.residents.remove(uid)
        if resident is not None:
            self.offers.changed(resident.node)
            if resident.standing is not None and self._term.core is not None:
                self._retries.room_made()

    def user_of(self, record: PodRecord) -> str:
        """The user that the labels of a pod name; "" for none."""
        ruled = record.ruled
        if ruled is None and (resident := self.residents.get(record.uid)) is not None:
            ruled = resident.pod
        return ruled.labels.get(USER_LABEL, "") if ruled is not None else ""


def _standing(pod: Pod, *, is_lent: bool) -> Standing:
    spec, seen = pod.spec, Seen.of(pod)
    priority = (spec.priority if spec is not None else None) or 0
    return Standing(pod.metadata.name, priority, seen.grace_s, MIRROR in pod.annotations, is_lent)


def _trouble(node: Node) -> tuple[str, str]:
    """Why a node that is not healthy cannot be used, and since when in RFC 3339; "" if that is not known."""
    conditions = (node.status.conditions or ()) if node.status is not None else ()
    ready = next((one for one in conditions if one.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return "NotReady", (ready.changed or "") if ready is not None else ""
    taints = (node.spec.taints or ()) if node.spec is not None else ()
    return "cordoned", next((one.time_added or "" for one in taints if one.key == CORDON.key), "")
