"""Kubernetes' nodes and pods as last seen, told to the core while this replica leads.

Facts are stored at all times; they may come late, twice and in any order. `core` is the core of the present term, None
while another replica leads (`terms.py`). Not thread-safe.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.events import Offer
from hived.values.specs import NO_TIMES, OPPORTUNISTIC_PRIORITY, BindInfo, GroupSpec, PodRequest, sizes_of
from hived_config.reader import printable
from hived_extender.jobs.access import MIRROR
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.jobs.kinds.table import shown_owner
from hived_extender.jobs.namespaces import KnownLabels
from hived_extender.jobs.progress import read_progress, seconds_of
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import AskedPod, Node, Pod
from hived_extender.kube.answers import is_older
from hived_extender.kube_rules.demands import DemandsReader, NamespaceLabels, RuledPod
from hived_extender.kube_rules.nodes import CORDON, RuledNode
from hived_extender.kube_rules.residents import Residents, Standing
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.bound_pods import BoundPods
from hived_extender.machine.core import Core, Term
from hived_extender.machine.effects import Outbox
from hived_extender.machine.gangs.gang import Growth
from hived_extender.machine.gangs.members import MISSING_S, Members, NamedGroups
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Rounds
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.jobs import Jobs
from hived_extender.machine.notices import CONDITION_TYPE, Reason
from hived_extender.machine.offers import Offers
from hived_extender.machine.plain_pods import PlainPods
from hived_extender.machine.pods import NO_OFFER, PodRecord, PodState, PodTable, Seen
from hived_extender.machine.retries import Retries

log = logging.getLogger(__name__)

MISSING_TIMER = "missing members"

NODE_VERSIONS = 10_000
"""Nodes that are gone or not healthy of which the last version is remembered; names of autoscaled nodes never end."""

GONE = "not in Kubernetes"
"""The trouble of a node that is not there."""

CORDONED = "cordoned"
"""The beginning of the trouble of a node that is alive, and takes no new pods."""

NODE_REASON = PREFIX + "reason"
"""The annotation of a node with the reason why it is taken out, for people."""

LONGEST_REASON = 120
"""Characters of it that are shown."""


class ClusterNodes:
    """The nodes with all their pods, and the offers that follow. `offers` is replaced in each term.

    `healthy` and `residents` are for others to read.
    """

    def __init__(self, term: Term, retries: Retries, outbox: Outbox, namespace_labels: NamespaceLabels) -> None:
        self._keeps_shares, self._outbox = True, outbox
        self._namespace_labels = namespace_labels
        self._term = term
        self._retries = retries
        self._nodes: dict[str, RuledNode] = {}
        self._versions: dict[str, str] = {}
        self._troubles: dict[str, tuple[str, float | None]] = {}  # of nodes that were seen and are not healthy
        self.residents = Residents()
        self.offers = Offers(None, (), self.residents, ())
        self.healthy: set[str] = set()

    def keep_shares(self, keeps_shares: bool) -> None:
        """Limit borrowers to their cells' share of a node, or lift the limit."""
        self._keeps_shares = self.offers.keeps_shares = keeps_shares

    @property
    def names(self) -> frozenset[str]:
        """All existing nodes, configured or not. Cost O(nodes)."""
        return frozenset(self._nodes)

    def exists(self, name: str) -> bool:
        """Is there a node of this name, configured or not?"""
        return name in self._nodes

    def begin(self, core: Core, devices: Collection[str]) -> None:
        """Begin offering the nodes of this core. `devices` are the resources that count as cells."""
        if self.residents.names != core.node_names:
            self.residents.order(core.node_names)
        self.offers = Offers(
            core.state.topology, self._nodes.values(), self.residents, devices, self.offers,
            self._namespace_labels, core.state.spec,
        )  # fmt: skip
        self.offers.keeps_shares = self._keeps_shares

    def seen(self, node: Node, *, is_gone: bool = False) -> bool:
        """Take in a node as seen; a deleted one counts as bad. False if a newer version is known."""
        name, version = node.metadata.name, node.metadata.version
        if is_older(version, self._versions.get(name, "")):
            return False
        self._versions[name] = version
        if is_gone:
            self._nodes.pop(name, None)
            self.offers.remove(name)
        else:
            ruled = self._nodes[name] = RuledNode.of(node)
            if self.offers.put(ruled) and self._term.core is not None:
                # kube-scheduler would ask about pods without a node only if they fit.
                self._retries.room_made()
        if not is_gone and node.is_healthy:
            self._troubles.pop(name, None)
        else:
            why, since = (GONE, "") if is_gone else _trouble(node)
            self._note_trouble(name, why, seconds_of(since))
        self._set_health(name, node.is_healthy and not is_gone)
        if len(self._versions) > NODE_VERSIONS + len(self.healthy):
            gone = self._versions.keys() - self.healthy
            for other in sorted(gone)[: len(gone) // 2]:
                del self._versions[other]
                if other not in self._nodes:
                    self._troubles.pop(other, None)
        return True

    def sync(self, names: Collection[str]) -> None:
        """Drop nodes that are not in a listing; the next sight of a node counts as new."""
        self._versions.clear()
        for name in self._nodes.keys() - set(names):
            del self._nodes[name]
            self._note_trouble(name, GONE, None)
            self.offers.remove(name)
        for name in sorted(self.healthy - set(names)):
            self._set_health(name, False)

    def ruled(self, name: str) -> RuledNode | None:
        """A node as the rules see it; None if it does not exist."""
        return self._nodes.get(name)

    def trouble(self, name: str) -> tuple[str, float | None]:
        """The reason why a node is unusable, and since when (seconds since 1970, None if unknown)."""
        return self._troubles.get(name, (GONE, None))

    def _note_trouble(self, name: str, why: str, since_s: float | None) -> None:
        """Keep why a node is unusable. Where Kubernetes has no moment, it is when the node was seen to become so."""
        if since_s is None:
            seen_s = self._outbox.now.wall if name in self.healthy else None
            since_s = self._troubles.get(name, ("", seen_s))[1]
        self._troubles[name] = why, since_s

    def _set_health(self, name: str, is_healthy: bool) -> None:
        """Tell the core. No pod is evicted for it (rule 10.15)."""
        if is_healthy == (name in self.healthy):
            return
        (self.healthy.add if is_healthy else self.healthy.discard)(name)
        self.offers.changed(name)
        if self._term.core is not None and name in self._term.core.state.topology.node_index:
            self._term.core.set_node(name, is_healthy)
            fields = {"node": name, "healthy": is_healthy}
            log.info("node", extra={"fields": fields if is_healthy else fields | {"reason": self.trouble(name)[0]}})

    def note_resident(
        self, pod: Pod, ruled: Callable[[Pod], RuledPod], is_lent: Callable[[Pod], bool], *, has_cells: bool
    ) -> None:
        """Count a pod of any scheduler on its node, with its anti-affinity.

        `ruled` reads it, or raises UserError. `is_lent`: a pod without cells leaves for owners of cells.
        """
        meta = pod.metadata
        if pod.has_completed or not pod.node:
            self.left(meta.uid)
            return
        known = self.residents.get(meta.uid)
        is_leaving = bool(meta.deletion_timestamp)
        if known is None or known.is_leaving != is_leaving or known.pod.labels != pod.labels:
            with suppress(UserError):
                standing = None if has_cells else _standing_of(pod, is_lent=is_lent(pod))
                may_leave = has_cells or (standing is not None and standing.is_lent)
                self.residents.put(
                    meta.uid, pod.node, ruled(pod), is_leaving=is_leaving,
                    has_cells=may_leave or (known is not None and known.has_cells), standing=standing,
                )  # fmt: skip

    def left(self, uid: str) -> None:
        """Stop counting a pod that has ended."""
        resident = self.residents.remove(uid)
        if resident is not None:
            self.offers.changed(resident.node)
            if resident.standing is not None and self._term.core is not None:
                self._retries.room_made()

    def labels_of(self, record: PodRecord) -> Mapping[str, str]:
        """The pod's labels, as far as they are known."""
        ruled = record.ruled
        if ruled is None and (resident := self.residents.get(record.uid)) is not None:
            ruled = resident.pod
        return ruled.labels if ruled is not None else {}


def _standing_of(pod: Pod, *, is_lent: bool) -> Standing:
    spec, seen = pod.spec, Seen.of(pod)
    priority = (spec.priority if spec is not None else None) or 0
    return Standing(pod.metadata.name, priority, seen.grace_s, MIRROR in pod.annotations, is_lent)


def _trouble(node: Node) -> tuple[str, str]:
    """The reason why an unhealthy node is unusable, and since when in RFC 3339; "" if unknown.

    Who cordons a node may write the reason onto it, in words of their own: `cordoned: new fans on Monday`.
    """
    why, since = _seen_trouble(node)
    said = " ".join((node.metadata.annotations or {}).get(NODE_REASON, "").split())
    return (f"{why}: {printable(said[:LONGEST_REASON])}" if said else why), since


def _seen_trouble(node: Node) -> tuple[str, str]:
    conditions = (node.status.conditions or ()) if node.status is not None else ()
    ready = next((one for one in conditions if one.type == "Ready"), None)
    if ready is None or ready.status != "True":
        return "NotReady", (ready.changed or "") if ready is not None else ""
    return CORDONED, node.cordoned_at(CORDON.key)


MOST_MATCHED = 64
"""Pods of a group, and free slots, that are matched when one takes its slot."""


class Progressing:
    """Sets `PodRecord.progress`, tells the core of times, and owners of mistakes in their annotations."""

    def __init__(self, term: Term, outbox: Outbox, announcements: Announcements) -> None:
        self._term = term
        self._outbox = outbox
        self._announcements = announcements

    def seen(self, record: PodRecord, pod: Pod) -> None:
        """Take in a pod. A pod placed later tells its times then."""
        before, record.progress = record.progress, read_progress(pod, self._outbox.now.wall)
        times, mistakes, core = record.progress.times, record.progress.mistakes, self._term.core
        if core is None:
            return
        if mistakes and mistakes != before.mistakes:
            self._announcements.say(record, Reason.IGNORED_ANNOTATION, "; ".join(mistakes))
        if times != before.times and record.is_in_core and record.request is not None and record.place.info is not None:
            core.progress(record.request, times)

    def placed(self, record: PodRecord) -> None:
        """Tell the core the times of a newly placed pod. An earlier checkpoint counts, as after a restart."""
        times, core = record.progress.times, self._term.core
        if times != NO_TIMES and core is not None and record.request is not None:
            core.progress(record.request, times)


class ClusterCache:
    """The nodes, devices, gangs and pods that Kubernetes reports; its parts are public to the machine."""

    def __init__(
        self, interpreter: Interpreter, prover: Prover, outbox: Outbox, announcements: Announcements, retries: Retries
    ) -> None:
        self._announcements, self._retries, self._outbox = announcements, retries, outbox
        self.interpreter = interpreter
        self.term = Term()
        self.pods = PodTable(self._moved)
        self.plain = PlainPods()
        self.gangs = Gangs()
        self.growth = Growth(lambda: outbox.now.at)
        self._progress = Progressing(self.term, outbox, announcements)
        self.nodes = ClusterNodes(self.term, retries, outbox, KnownLabels(interpreter.labels_of))
        self.rounds = Rounds(self.pods, self.gangs, self.nodes.offers)
        self.bound = BoundPods(
            self.term, self.pods, self.gangs, self.rounds, interpreter, prover, outbox, announcements
        )
        self.devices = self.bound.devices
        self.jobs = Jobs()
        self._removed: list[str] = []
        self._begun: dict[str, None] = {}  # affinity groups
        self._left: list[tuple[str, list[int], bool]] = []
        self._named = NamedGroups()
        self._demands = DemandsReader()
        self._members = Members(interpreter, self.gangs, self.gang_changed)

    @property
    def core(self) -> Core | None:
        """The present term's core."""
        return self.term.core

    @property
    def offers(self) -> Offers:
        """The offers of nodes by kube-scheduler, with reasons."""
        return self.nodes.offers

    def job_of(self, uid: str) -> str:
        """The name of a pod's job for users; "" if there is no such pod."""
        record = self.pods.get(uid)
        return "" if record is None else record.job

    def forget_readings(self) -> None:
        """Read all pods again when they are seen next: their meaning may have changed."""
        self._members.forget_readings()

    # Nodes

    def node_seen(self, node: Node, *, is_gone: bool = False) -> None:
        """Take in a node as seen; a deleted one counts as bad."""
        if self.nodes.seen(node, is_gone=is_gone):
            if is_gone:
                self.devices.node_gone(node.metadata.name)
            else:
                self.devices.node_seen(node)

    def sync_nodes(self, names: Collection[str]) -> None:
        """Drop nodes that are not in a listing."""
        self.nodes.sync(names)
        self.devices.sync_nodes(names)

    # Pods

    def pod_seen(self, pod: Pod, reading: Reading, *, is_listed: bool) -> None:
        """Take in a pod. A listing is never late: versions may be lower after a restore."""
        self._pod_seen(pod, reading, is_listed=is_listed)
        self.devices.pod_seen(pod, is_listed=is_listed)

    def _pod_seen(self, pod: Pod, reading: Reading, *, is_listed: bool) -> None:
        meta = pod.metadata
        has_place = isinstance(reading.place, BindInfo)
        record = self.pods.get(meta.uid)
        if record is not None and is_older(meta.version, record.seen.version) and not is_listed:
            return
        was_placed = record is not None and record.place.info is not None
        self.nodes.note_resident(pod, self._ruled, self.interpreter.is_opportunistic, has_cells=has_place or was_placed)
        # A pod that we have placed is ours until it ends, whatever name it was placed under.
        is_ours = self.interpreter.is_ours(pod) or has_place or was_placed
        if not is_ours and record is None:
            if self.interpreter.serves(pod.spec.scheduler_name or "" if pod.spec is not None else ""):
                owner = self.jobs.maker_of(pod) or shown_owner(pod.labels, meta.owners or (), meta.namespace)
                self.plain.seen(pod, owner, is_listed=is_listed)
            else:
                self.plain.gone(meta.uid)
            return
        self.plain.gone(meta.uid)
        if self.pods.has_ended(meta.uid) and not is_listed:
            if meta.uid in self.gangs.ended:
                self._members.end(pod, None)  # it may be on its way out now
            return
        if not is_ours or pod.is_over:
            self._end(pod)
            return
        record = record or self.pods.add(meta.uid, meta.name, meta.namespace)
        was_held, before = record.state is PodState.HELD, _gang_state(record)
        if record.state is not PodState.BINDING:  # what was decided is written, whatever it says since
            record.reading = reading
        record.seen = Seen.of(pod)
        self.jobs.seen(record, pod)
        self._progress.seen(record, pod)
        self.pods.hold(record, is_held=pod.is_held)
        if not pod.node:
            record.writing = record.writing.seen(meta.version)
            with suppress(UserError):  # the API server does not take what cannot be read
                record.ruled = self._demands.read_pod(pod)
        is_new = not record.is_of_dialect
        self._interpret(record, pod, reading)
        if record.gang is not None and is_new and not is_listed:
            self.growth.has_grown(record.gang)
        if record.gang is not None and before != _gang_state(record):
            self.gang_changed(record.gang, was_held)
        self._announcements.observe(record, pod.condition(CONDITION_TYPE))
        if pod.node and record.state is not PodState.BOUND:
            self._retries.settled(record.uid)
            self.bound.seen(record, pod, reading)
            if record.request is not None and not record.is_of_dialect:
                self._begun[record.request.spec.group.name] = None
        elif pod.node:
            self.bound.compare(record, reading)
        elif not record.state.has_node and (record.request is None or (was_held and record.state is not PodState.HELD)):
            self.note_waiting(record, reading)

    def pod_asked(self, record: PodRecord, pod: AskedPod, reading: Reading) -> None:
        """Take in a pod that kube-scheduler knows in a later version than our watch.

        It may have lost its gates and got annotations and labels at once, as Kueue does in one call.
        """
        if record.state is PodState.HELD:
            self._pod_seen(pod.whole(), reading, is_listed=False)
        else:
            record.seen = replace(record.seen, version=pod.metadata.version)

    def take_removed(self) -> list[str]:
        """The uids of pods removed since the last call."""
        uids, self._removed = self._removed, []
        return uids

    def take_group_news(self) -> tuple[list[str], list[tuple[str, list[int], bool]]]:
        """Since the last call: the groups with newly placed pods, and the slots that pods left (group, slot, and if the
        pod succeeded).
        """
        news = list(self._begun), self._left
        self._begun, self._left = {}, []
        return news

    def waiting_sizes(self, group: GroupSpec) -> Counter[int]:
        """The leaf cells of waiting pods of an affinity group, counted by size."""
        requests = [one.request for one in self._named.waiting(group.name)]
        return Counter(one.spec.leaf_cell_count for one in requests if one is not None and one.spec.group == group)

    def group_shrank(self, name: str) -> None:
        """Read the waiting pods of a smaller affinity group again: they ask for the remaining slots, or alone."""
        self._read_anew(self._named.waiting(name))

    def members_are_late(self, _: str, name: str) -> None:
        """Let an opportunistic affinity group start without the pods that have not come (rule 26.14)."""
        waiting = self._named.waiting(name)
        group = next((one.request.spec.group for one in waiting if one.request is not None), None)
        if self.core is None or group is None or self.core.has_group(name) or not self._named.missing(group):
            return
        present = self._named.present(group)
        starting = [one for one in waiting if one.uid in present]
        if starting and all(one.claim[1] <= OPPORTUNISTIC_PRIORITY for one in starting):
            log.info("group starts in part", extra={"fields": {"group": name, "pods": len(starting)}})
            whole = self.bound.shrunk.whole(starting[0].uid, group)
            self.bound.shrunk.start_without(whole, present, starting[0].key)
            self._read_anew(starting)

    def _read_anew(self, records: Iterable[PodRecord]) -> None:
        """Read waiting pods again that ask for other cells now, by the pods of their affinity group."""
        for record in records:
            self.bound.release(record)
            self._named.remove(record.uid)
            if record.reading is not None:
                self.note_waiting(record, record.reading)

    def known_pods(self) -> list[str]:
        """The uids of all remembered pods."""
        others = (*self.gangs.ended, *self.nodes.residents.uids(), *self.devices.pods(), *self.plain.uids())
        return list(dict.fromkeys((*(record.uid for record in self.pods), *others)))

    def _ruled(self, pod: Pod) -> RuledPod:
        """A pod with a node as the rules see it, mostly as before it had one. Raises UserError."""
        record = self.pods.get(pod.metadata.uid)
        if record is not None and record.ruled is not None and record.ruled.labels == pod.labels:
            return record.ruled
        return self._demands.read_pod(pod)

    def pod_gone(self, uid: str) -> None:
        """Remove a deleted pod."""
        self.nodes.left(uid)
        self.plain.gone(uid)
        self._members.forget_end(uid)
        self._remove(uid)
        self.devices.pod_gone(uid)

    def object_seen(self, ref: ObjectRef) -> None:
        """Read pods again after a change of an object that describes gangs."""
        for uid, pod in self._members.naming(ref):
            record = self.pods.get(uid)
            if record is not None:
                self._members.read(record, pod, is_changed=True)
                self._read_again(record)
            else:
                self._members.forget_end(uid)
                self._members.end(pod, None)

    def _read_again(self, record: PodRecord) -> None:
        if self.core is None or record.state.has_node:
            return
        if record.translation.mistake:
            self._announcements.say(record, Reason.INVALID_SPEC, record.translation.mistake)
        self._retries.appeared(record.uid)

    def _end(self, pod: Pod) -> None:
        """Remove a pod that has completed, will never begin, or left this scheduler. Its part in its gang is remembered
        until it is deleted.
        """
        uid = pod.metadata.uid
        record = self.pods.get(uid)
        description = record.translation.description if record is not None else None
        self._remove(uid, is_over=pod.is_over, has_succeeded=pod.has_succeeded)
        if pod.has_completed:
            self._members.end(pod, description)

    def _remove(self, uid: str, *, is_over: bool = True, has_succeeded: bool = False) -> None:
        record = self.pods.remove(uid, is_over=is_over)
        if record is not None and self.core is not None and record.request is not None and record.is_in_core:
            name = record.request.spec.group.name
            if slots := self.core.slots_of(name, uid):
                self._left.append((name, slots, has_succeeded))
        self.bound.promises.drop(uid)
        if record is not None:
            self.jobs.gone(record)
            self._members.leave(record)
            self._named.remove(uid)
            self.rounds.gone(uid)
            self._retries.settled(uid)
            self._removed.append(uid)
            self._announcements.forget(uid)
            self.bound.gone(record)
            log.info("pod gone", extra={"fields": {"pod": record.key, "state": record.state.shown}})

    def missing_members(self, request: PodRequest) -> str:
        """The reason why an opportunistic pod waits for unborn pods of its affinity group; "" if it does not."""
        is_placed = self.core is None or self.core.has_group(request.spec.group.name)
        if is_placed or request.spec.priority > OPPORTUNISTIC_PRIORITY:
            return ""
        group = request.spec.group
        missing = self._named.missing(group, self.bound.shrunk.whole(request.uid, group))
        if missing and (key := (MISSING_TIMER, request.spec.group.name)) not in self._outbox.timers:
            self._outbox.wake_in(key, MISSING_S)
        return missing

    def slots(self, record: PodRecord, request: PodRequest) -> list[PodRecord]:
        """The pods of the slots of this request; see `Offers.of` and `NamedGroups.slots`.

        For a group that reserves cells, all pods: its places may change until one has its node.
        """
        core = self.core
        is_placed = core is not None and core.has_group(request.spec.group.name) and not core.reserves(request)
        return [record] if is_placed or record.is_of_dialect else self._named.slots(record, request)

    def requests(self, record: PodRecord, asked: Round | PodRequest) -> list[tuple[PodRequest, Sequence[PodRecord]]]:
        """The requests of a question about a pod, and the pods of the slots of each; see `Offers.of`."""
        if isinstance(asked, Round):
            return [(part.request, part.slots) for part in asked.parts]
        return [(asked, self.slots(record, asked))]

    def leaves_slots(self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None) -> Offer | None:
        """The offer to a pod of a placed group, less slots that its mates need because they fit no other.

        Cost O(slots), and a matching of the waiting mates if some cannot have every free slot.
        """
        group = core.state.groups.get(request.spec.group.name)
        if offer is None or group is None or record.is_of_dialect or len(group.holders) < 3 or core.reserves(request):
            return offer
        wanted = request.spec.leaf_cell_count
        sizes = sizes_of(group.members)
        index = core.state.topology.node_index
        nodes = [
            index[node]
            for node, size, holder in zip(core.slot_nodes(group), sizes, group.holders, strict=True)
            if node and size == wanted and holder is None
        ]
        mates = [
            one
            for one in self._named.waiting(group.name)
            if one is not record and one.request is not None and one.request.spec.leaf_cell_count == wanted
        ]
        if not mates or not 1 < len(nodes) <= MOST_MATCHED or len(mates) > MOST_MATCHED:
            return offer
        could = self.offers.could_take(mates)[:, nodes]
        own = np.asarray(offer.nodes.any(axis=0))[nodes]
        if could.all() or not own.any():
            return offer
        counts = {at: most_matched(np.delete(could, at, axis=1)) for at in np.flatnonzero(own).tolist()}
        best = np.zeros(len(core.node_names), np.bool_)
        best[[nodes[at] for at, count in counts.items() if count == max(counts.values())]] = True
        return dataclasses.replace(offer, nodes=offer.nodes & best)

    def _interpret(self, record: PodRecord, pod: Pod, reading: Reading) -> None:
        """Read the request of a pod without hived's annotation, which it may get later."""
        if not reading.is_own:
            is_open = not record.state.has_node
            if is_open and not record.is_of_dialect and not pod.node:
                self.bound.release(record)
            if is_open or record.is_of_dialect:
                self._members.read(record, pod)
        elif record.is_of_dialect and not record.state.has_node:
            self.use_own_annotation(record)

    def use_own_annotation(self, record: PodRecord) -> None:
        """Take a pod without a node out of its gang: it has hived's annotation from now on."""
        self._members.leave(record)
        self.bound.release(record)
        if record.state is PodState.CLEARED:
            self.pods.move(record, PodState.WAITING)

    def _moved(self, record: PodRecord) -> None:
        self.jobs.note(record.job_object)
        if record.state is PodState.BINDING:
            self._progress.placed(record)
            self.jobs.placed(record)
        if record.state.has_node:
            self._announcements.placed(record.uid)
            if record.request is not None and not record.is_of_dialect:
                self.bound.has_cells(record)
                self._begun[record.request.spec.group.name] = None
        if record.state is PodState.BOUND:  # its nodes take more memory than all the rest
            record.ruled, record.offer = None, NO_OFFER
        if record.gang is not None:
            self.gangs.changed(record.gang)

    def gang_changed(self, key: GangKey, may_help: bool) -> None:
        """Handle a change of a gang's pods: gangs may start, or lose reservations."""
        self.gangs.changed(key)
        if self.core is not None:
            self.reconcile(self.core, key)
            if may_help:
                self._retries.room_made()

    def reconcile(self, core: Core, key: GangKey) -> None:
        """Cancel reservations of a changed gang for pods that will not start as planned."""
        for record in self.rounds.reconcile(core, key):
            self.bound.release(record)

    def note_waiting(self, record: PodRecord, reading: Reading) -> None:
        """Take in a waiting pod about which kube-scheduler has not asked."""
        if not reading.is_own:
            self._read_again(record)
            return
        if reading.is_pending:
            return
        try:
            request = self.bound.own_request(record, reading)
        except UserError as error:
            if self.core is not None:
                self._announcements.say(record, Reason.INVALID_SPEC, error.message)
            return
        record.request = record.request or request
        self._named.put(record, request.spec.group)
        is_opportunistic = request.spec.priority <= OPPORTUNISTIC_PRIORITY
        if is_opportunistic:
            early = (self.pods.get(uid) for uid in self.bound.shrunk.wait_for(record.uid, request.spec.group))
            self._read_anew([one for one in early if one is not None])
        if self.core is None:
            return
        self._retries.appeared(record.uid)
        if is_opportunistic:
            self._outbox.wake_in((MISSING_TIMER, request.spec.group.name), MISSING_S)
            for uid in self._named.waiting_for(record.uid, request.spec.group):
                self._retries.appeared(uid)

    def explained(self, record: PodRecord, reason: str) -> str:
        """Add to a reason to wait the part of the VC's guarantee that lost devices take."""
        vc, priority = record.claim
        return self.devices.explained(reason, vc) if priority > OPPORTUNISTIC_PRIORITY else reason


def _gang_state(record: PodRecord) -> tuple[bool, bool, bool]:
    """The changing state of a pod that its gang counts: held, running, leaving."""
    return record.state is PodState.HELD, record.seen.is_running, record.seen.is_leaving


def most_matched(could: npt.NDArray[np.bool_]) -> int:
    """The most rows that can each have a column of their own; bool, shape (rows, columns)."""
    row_of: dict[int, int] = {}

    def give(row: int, seen: set[int]) -> bool:
        for column in np.flatnonzero(could[row]).tolist():
            if column not in seen:
                seen.add(column)
                if column not in row_of or give(row_of[column], seen):
                    row_of[column] = row
                    return True
        return False

    return sum(give(row, set()) for row in range(len(could)))
