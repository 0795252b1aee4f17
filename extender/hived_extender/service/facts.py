"""What Kubernetes has told of nodes and pods, and what the core is told of it while this replica leads.

Facts are kept at all times. `ledger` is the core of the present term, None while another replica leads; `begin_term`
builds it from the facts, `end_term` drops it together with every decision that Kubernetes has not confirmed. Facts may
come late, twice and in any order. Not thread-safe: the service calls everything under its lock.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from hived.errors import UserError
from hived.specs import OPPORTUNISTIC_PRIORITY, BindInfo, ClusterSpec, PodRequest
from hived.state import Group
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.versions import is_older
from hived_extender.kube_rules.demands import DemandsReader, RuledPod
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.residents import Residents
from hived_extender.pods.annotations import BIND_INFO, LEAF_CELL_ISOLATION, bind_annotations, isolation_text
from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.pods.gang_annotations import annotations_anew
from hived_extender.pods.interpreter import Interpreter
from hived_extender.pods.proofs import Prover
from hived_extender.pods.readings import Reading, ready
from hived_extender.pods.wire import Node, Pod
from hived_extender.recording.record import Recorder
from hived_extender.service.devices.keeper import DeviceKeeper
from hived_extender.service.gangs.growth import Growth
from hived_extender.service.gangs.members import Members
from hived_extender.service.gangs.named_groups import NamedGroups
from hived_extender.service.gangs.names import GroupNames, qualified, written_name
from hived_extender.service.gangs.promises import Promises
from hived_extender.service.gangs.rounds import Rounds
from hived_extender.service.gangs.table import Gangs
from hived_extender.service.holdings import Holdings, Placed, in_replay_order, reservations, without_place
from hived_extender.service.ledger import Ledger
from hived_extender.service.nudge import Nudger
from hived_extender.service.offers import Offers
from hived_extender.service.pods import PodRecord, PodState, PodTable
from hived_extender.service.writes.announcer import Announcer
from hived_extender.service.writes.binder import Binder
from hived_extender.service.writes.binding_secret import Changed
from hived_extender.service.writes.evictor import Evictor
from hived_extender.service.writes.notices import CONDITION_TYPE

log = logging.getLogger(__name__)

NODE_VERSIONS = 10_000
"""Nodes that are gone or not healthy of which the last version is remembered; names of autoscaled nodes never end."""


class Facts:
    """See the module. `pods` and `healthy_nodes` are for others to read; `devices` takes in facts about devices."""

    def __init__(
        self,
        spec: ClusterSpec,
        recorder: Recorder | None,
        metrics: Metrics,
        announcer: Announcer,
        nudger: Nudger,
        evictor: Evictor,
        binder: Binder,
        interpreter: Interpreter,
        prover: Prover,
        keep: Callable[[Changed], None],
        on_gang_change: Callable[[GangKey], None],
    ) -> None:
        """`keep` is called, with locks held, with the annotations that hived gave to pods which do not have them any
        more, by uid.
        """
        self.ledger: Ledger | None = None
        self.gangs = Gangs(on_gang_change)
        self.growth = Growth()
        self.pods = PodTable(self._moved)
        self._named = NamedGroups()
        self._names = GroupNames()
        self._residents = Residents()
        self._nodes: dict[str, RuledNode] = {}
        self._demands = DemandsReader()
        self.offers = Offers(None, (), self._residents, ())
        self.rounds = Rounds(self.pods, self.gangs, self.offers)
        self.healthy_nodes: set[str] = set()
        self._node_versions: dict[str, str] = {}
        self._spec = spec
        self._recorder = recorder
        self._metrics = metrics
        self._announcer = announcer
        self._nudger = nudger
        self._evictor = evictor
        self._binder = binder
        self._interpreter = interpreter
        self._prover = prover
        self._keep = keep
        self._changed: dict[str, Mapping[str, str]] = {}
        self._members = Members(interpreter, self.gangs, self._gang_changed)
        self._promises = Promises(self.pods, self.gangs)
        self.devices = DeviceKeeper(announcer, self._holds_cells)

    # Terms

    def begin_term(self) -> Ledger:
        """Build the state from all nodes and bound pods.

        Pods are replayed by falling priority, so that a group which was preempted lazily finds its cells taken again.
        """
        ledger = Ledger(self._spec, self._recorder, self._nudger.room_made, self._downgrade)
        self._offer_nodes_of(ledger)
        for name in ledger.node_names:
            if name in self.healthy_nodes:
                ledger.set_node(name, True)
        for placed in in_replay_order(self.holdings().placed.values()):
            record = self.pods.get(placed.request.uid)
            if record is not None:
                self._account(ledger, record)
        self.devices.begin(ledger, self._spec, self._interpreter.rules)
        self._promises.keep_all(ledger)
        for record in self.pods.records(PodState.WAITING):
            # Whom kube-scheduler asked before, or when it was woken by the fence, may have refused it.
            record.is_asked = True
            self._nudger.appeared(record.uid)
        self.ledger = ledger
        self._changed.clear()
        self._keep_changed(*(record for record in self.pods if record.is_changed))
        for record in self.pods:
            if self._prover.has_key and record.bind_info is not None and not (record.is_proven or record.is_changed):
                self._write_anew(record)  # an earlier version, or HiveD, has bound it
        return ledger

    def _offer_nodes_of(self, ledger: Ledger) -> None:
        if self._residents.names != ledger.node_names:
            before, self._residents = self._residents, Residents(ledger.node_names)
            for uid in before.uids():
                resident = before.get(uid)
                if resident is not None:
                    self._residents.put(
                        uid, resident.node, resident.pod, is_leaving=resident.is_leaving, has_cells=resident.has_cells
                    )
        self.offers = self.rounds.offers = Offers(
            ledger.state.topology, self._nodes.values(), self._residents, self._interpreter.devices, self.offers
        )

    def holdings(self) -> Holdings:
        """What a state is built from, in any configuration. Cost O(pods)."""
        placed = {
            record.uid: Placed(record.request, record.bind_info)
            for record in self.pods
            if record.bind_info is not None and record.request is not None and record.state is not PodState.WAITING
        }
        reserved = reservations(self.ledger.state) if self.ledger is not None else {}
        return Holdings(frozenset(self.healthy_nodes), placed, reserved, *self.devices.facts())

    def configure(self, spec: ClusterSpec) -> None:
        """From the next term on, states are built for this cluster. The interpreter has got its rules already."""
        self._spec = spec
        self.forget_readings()

    def forget_readings(self) -> None:
        """Pods may mean something else, or may do something else, when they are seen next."""
        self._members.forget_readings()

    def switched(self, unaccounted: Mapping[str, UserError], *, are_other_nodes: bool) -> None:
        """The ledger has got a state of another configuration, which was told of all holdings; `unaccounted` has the
        pods that it refused, by uid.
        """
        if self.ledger is not None:
            self._offer_nodes_of(self.ledger)
        for record in self.pods:
            if are_other_nodes:
                record.offered, record.refused, record.is_doubted = None, None, False
            if record.state is PodState.WAITING:
                record.is_asked = True  # what it was told may not be true any more
                self._nudger.appeared(record.uid)
                continue
            error = unaccounted.get(record.uid)
            record.is_told = record.request is not None and record.bind_info is not None and error is None
            if error is not None:
                self._tell_unaccounted(record, error)
        gangs = dict.fromkeys(record.description.gang for record in self.pods if record.description is not None)
        for gang in gangs:
            if gang is not None:
                self.gangs.changed(gang)
        self._nudger.room_made()

    def end_term(self) -> None:
        """Drop the state, and take back what Kubernetes has not confirmed."""
        self.ledger = None
        self.devices.end()
        self.rounds.forget()
        self._nudger.forget_all()
        self._announcer.resign()
        for record in self.pods.records(PodState.BINDING):
            self.pods.move(record, PodState.WAITING)
            record.node, record.bind_info = "", None
        for record in self.pods:
            record.writes, record.is_unanswered = 0, False
            record.is_told = record.is_downgraded = record.is_doubted = record.may_go = False
            record.offered = record.refused = None
            if record.gang is not None:
                self.gangs.changed(record.gang)

    # Nodes

    def node_seen(self, node: Node, *, is_gone: bool = False) -> None:
        """A node was seen like this, or was when it went, which is as bad as bad."""
        name, version = node.metadata.name, node.metadata.version
        if not is_older(version, self._node_versions.get(name, "")):
            self._node_versions[name] = version
            if is_gone:
                self._nodes.pop(name, None)
                self.offers.remove(name)
            else:
                ruled = self._nodes[name] = RuledNode.read(node)
                if self.offers.put(ruled) and self.ledger is not None:
                    # Pods that kube-scheduler has no node for, but may have now, it would ask about only if they fit.
                    self._nudger.room_made()
            self._set_health(name, node.is_healthy and not is_gone)
            if is_gone:
                self.devices.node_gone(name)
            else:
                self.devices.node_seen(node)
            if len(self._node_versions) > NODE_VERSIONS + len(self.healthy_nodes):
                gone = self._node_versions.keys() - self.healthy_nodes
                for other in sorted(gone)[: len(gone) // 2]:
                    del self._node_versions[other]

    def sync_nodes(self, names: Collection[str]) -> None:
        """There are no other nodes than these, and what is seen next of them is new."""
        self._node_versions.clear()
        for name in self._nodes.keys() - set(names):
            del self._nodes[name]
            self.offers.remove(name)
        for name in sorted(self.healthy_nodes - set(names)):
            self._set_health(name, False)
        self.devices.sync_nodes(names)

    def _set_health(self, name: str, is_healthy: bool) -> None:
        if is_healthy == (name in self.healthy_nodes):
            return
        (self.healthy_nodes.add if is_healthy else self.healthy_nodes.discard)(name)
        self.offers.changed(name)
        if self.ledger is not None and name in self.ledger.state.topology.node_index:
            self.ledger.set_node(name, is_healthy)
            log.info("node", extra={"fields": {"node": name, "healthy": is_healthy}})

    # Pods

    def pod_seen(self, pod: Pod, reading: Reading, *, is_listed: bool) -> None:
        """A pod was seen like this. What `is_listed` is never late: versions may be lower after a restore."""
        self._pod_seen(pod, reading, is_listed=is_listed)
        self.devices.pod_seen(pod, is_listed=is_listed)

    def _pod_seen(self, pod: Pod, reading: Reading, *, is_listed: bool) -> None:
        meta = pod.metadata
        has_place = isinstance(reading.place, BindInfo)
        record = self.pods.get(meta.uid)
        if record is not None and is_older(meta.version, record.version) and not is_listed:
            return
        was_placed = record is not None and record.bind_info is not None
        self._note_resident(pod, has_cells=has_place or was_placed)
        # Whom we have placed is ours until it ends, whatever name it was placed under.
        is_ours = self._interpreter.is_ours(pod) or has_place or was_placed
        if not is_ours and record is None:
            return
        if self.pods.has_ended(meta.uid) and not is_listed:
            if meta.uid in self.gangs.ended:
                self._members.end(pod, None)  # it may be on its way out now
            return
        if not is_ours or pod.is_over:
            self._end(pod)
            return
        record = record or self.pods.add(meta.uid, meta.name, meta.namespace)
        record.version = meta.version
        record.created = meta.created or ""
        was_held, phase = record.is_held, (record.is_held, record.is_running, record.is_leaving)
        if record.state is not PodState.BINDING:  # what was decided is written, whatever it says since
            record.reading = reading
        record.is_held, record.is_running = pod.is_held, pod.is_running
        record.is_leaving = bool(meta.deletion_timestamp)
        if not pod.node:
            record.is_unanswered = record.is_unanswered and not is_older(record.tried_version, meta.version)
            with suppress(UserError):  # the API server does not take what cannot be read
                record.ruled = self._demands.read(pod)
        is_new = record.marks is None
        self._interpret(record, pod, reading)
        if record.gang is not None and is_new and not is_listed:
            self.growth.has_grown(record.gang)
        if record.gang is not None and phase != (record.is_held, record.is_running, record.is_leaving):
            self._gang_changed(record.gang, was_held)
        self._announcer.observe(record, pod.condition(CONDITION_TYPE))
        if pod.node and record.state is not PodState.BOUND:
            self._confirm_or_adopt(record, pod, reading)
        elif pod.node:
            self._compare(record, reading)
        elif record.state is PodState.WAITING and (record.request is None or (was_held and not record.is_held)):
            self._take_note(record, reading)

    def known_pods(self) -> list[str]:
        """The uids of all pods of which anything is remembered."""
        return list(
            dict.fromkeys((*self.pods.uids(), *self.gangs.ended, *self._residents.uids(), *self.devices.pods()))
        )

    def _note_resident(self, pod: Pod, *, has_cells: bool) -> None:
        """Whoever places a pod: it uses its node, and other pods may not want to be near it."""
        meta = pod.metadata
        if pod.has_completed or not pod.node:
            self._left(meta.uid)
            return
        known = self._residents.get(meta.uid)
        is_leaving = bool(meta.deletion_timestamp)
        if known is None or known.is_leaving != is_leaving or known.pod.labels != pod.labels:
            with suppress(UserError):
                self._residents.put(meta.uid, pod.node, self._ruled(pod), is_leaving=is_leaving, has_cells=has_cells)

    def _ruled(self, pod: Pod) -> RuledPod:
        """A pod that has a node, as the rules see it: as before it had one, mostly. Raises UserError."""
        record = self.pods.get(pod.metadata.uid)
        if record is not None and record.ruled is not None and record.ruled.labels == pod.labels:
            return record.ruled
        return self._demands.read(pod)

    def _left(self, uid: str) -> None:
        resident = self._residents.remove(uid)
        if resident is not None:
            self.offers.changed(resident.node)
            if not resident.has_cells and self.ledger is not None:
                self._nudger.room_made()

    def pod_gone(self, uid: str) -> None:
        """A pod was deleted."""
        self._left(uid)
        self._members.forget_end(uid)
        self._remove(uid)
        self.devices.pod_gone(uid)

    def object_seen(self, ref: ObjectRef) -> None:
        """An object that describes gangs was created, changed or deleted."""
        for uid, pod in self._members.naming(ref):
            record = self.pods.get(uid)
            if record is not None:
                self._members.read(record, pod, is_changed=True)
                self._look_again(record)
            else:
                self._members.forget_end(uid)
                self._members.end(pod, None)

    def _look_again(self, record: PodRecord) -> None:
        """What a waiting pod asks for may have become another thing."""
        if self.ledger is None or record.state is not PodState.WAITING:
            return
        if record.mistake:
            self._announcer.refused(record, record.mistake)
        self._nudger.appeared(record.uid)

    def _end(self, pod: Pod) -> None:
        """A pod has completed, will never begin, or is not ours any more, which may change again. What it was to its
        gang is remembered until it is deleted.
        """
        uid = pod.metadata.uid
        record = self.pods.get(uid)
        description = record.description if record is not None else None
        self._remove(uid, is_over=pod.is_over)
        if pod.has_completed:
            self._members.end(pod, description)

    def _remove(self, uid: str, *, is_over: bool = True) -> None:
        record = self.pods.remove(uid, is_over=is_over)
        self._promises.drop(uid)
        if record is not None:
            self._members.leave(record)
            self._named.remove(uid)
            self._names.forget(uid)
            self.rounds.gone(uid)
            self._nudger.settled(uid)
            self._evictor.gone(uid)
            self._announcer.forget(uid)
            self.release(record)
            if record.is_changed:
                record.is_changed = False
                self._keep_changed(record)
            log.info("pod gone", extra={"fields": {"pod": record.key, "state": record.state.value}})

    def _holds_cells(self, uid: str) -> bool:
        """Does the core know of cells that this pod has?"""
        record = self.pods.get(uid)
        return record is not None and record.is_told and record.bind_info is not None

    def slots(self, record: PodRecord, request: PodRequest) -> list[PodRecord]:
        """The pods that an offer for this request is about; see `Offers.of` and `NamedGroups.slots`."""
        is_placed = self.ledger is not None and self.ledger.has_group(request.spec.group.name)
        return [record] if is_placed or record.is_of_dialect else self._named.slots(record, request)

    def release(self, record: PodRecord) -> None:
        """Take back what the core knows of a pod."""
        request, node, held = record.request, record.node, record.bind_info is not None
        record.request, record.bind_info, record.node = None, None, ""
        if self.ledger is not None and record.is_told and request is not None:
            self.ledger.delete(request)
            if held:
                self.devices.pods_moved(node)
        record.is_told = False

    def ask_for(self, ledger: Ledger, record: PodRecord, request: PodRequest) -> None:
        """The core is about to be asked on behalf of a pod, which may ask for something else than before.

        Raises UserError, and changes nothing, if it may not.
        """
        if record.is_told and record.request != request:
            ledger.check_changed(request)
            self.release(record)
        record.request, record.is_told = request, True
        self.rounds.asked_alone(record)

    def _interpret(self, record: PodRecord, pod: Pod, reading: Reading) -> None:
        """Make out what a pod asks for that does not speak our own words, which it may be given later."""
        if not reading.is_own:
            is_open = record.state is PodState.WAITING and record.bind_info is None
            if is_open and not record.is_of_dialect and not pod.node:
                self.release(record)
            if is_open or record.is_of_dialect:
                self._members.read(record, pod)
        elif record.is_of_dialect and record.state is PodState.WAITING:
            self._members.leave(record)
            self.release(record)
            record.may_go = False

    def _moved(self, record: PodRecord) -> None:
        if record.state is not PodState.WAITING:
            record.promised_by = ""
            self._announcer.placed(record.uid)
        if record.state is PodState.BOUND:  # its nodes take more memory than all the rest
            record.ruled = record.offered = record.refused = None
        if record.gang is not None:
            self.gangs.changed(record.gang)

    def _gang_changed(self, key: GangKey, may_help: bool) -> None:
        """Pods of the gang came, went or changed: others may start for it, or have to let go of what they reserve."""
        self.gangs.changed(key)
        if self.ledger is not None:
            self.reconcile(self.ledger, key)
            if may_help:
                self._nudger.room_made()

    def reconcile(self, ledger: Ledger, key: GangKey) -> None:
        """A gang is not what it was: nothing stays reserved for pods that are not to start as they were."""
        for record in self.rounds.reconcile(ledger, key):
            self.release(record)

    def own_request(self, record: PodRecord, reading: Reading) -> PodRequest:
        """What a pod asks for in our own words. Raises UserError if it asks for what it may not have."""
        spec = ready(reading.spec)
        written = spec.group.name
        if not written or (reading.proof is not None and not reading.is_own):
            group = written or record.key
        elif reading.proof is None:
            group = self._names.name(record.namespace, written)
        else:
            group = written if _is_bare(reading, written) else qualified(record.namespace, written)
        if reading.proof is None:
            self._interpreter.check_access(record.namespace, spec.virtual_cluster, spec.priority)
        return record.own_request(spec, group)

    def _take_note(self, record: PodRecord, reading: Reading) -> None:
        """A pod waits that nobody has asked about yet, or could have."""
        if not reading.is_own:
            self._look_again(record)
            return
        if reading.is_pending:
            return
        try:
            request = self.own_request(record, reading)
        except UserError as error:
            if self.ledger is not None:
                self._announcer.refused(record, error.message)
            return
        record.request = record.request or request
        self._named.put(record, request.spec.group)
        if self.ledger is not None:
            self._nudger.appeared(record.uid)

    def _confirm_or_adopt(self, record: PodRecord, pod: Pod, reading: Reading) -> None:
        """The pod has a node: ours as decided, or one that somebody else, or an earlier process, gave it."""
        self._nudger.settled(record.uid)
        self._promises.drop(record.uid)
        if record.state is PodState.BINDING and record.node == pod.node and _is_bound_as_decided(record, pod, reading):
            self.pods.move(record, PodState.BOUND)
            with suppress(UserError):
                self._promises.take(record, reading)  # another replica may lead before all of them are kept
            log.info("bound", extra={"fields": {"pod": record.key, "node": record.node}})
            self._tell_scheduled(record, self._announcer.scheduled)
            if record.is_downgraded:
                self._write_anew(record)
            self._compare(record, reading)
            return
        self.release(record)
        record.node = pod.node
        self.pods.move(record, PodState.BOUND)
        try:
            self._read(record, reading)
        except UserError as error:
            self._tell_unaccounted(record, error)
            return
        if self.ledger is not None:
            self._account(self.ledger, record)

    def _read(self, record: PodRecord, reading: Reading) -> None:
        """Take what a bound pod's annotations say of its place. Raises UserError if they do not say, or prove, it."""
        record.reading = None  # its text may be long
        if reading.proof is None:
            ready(reading.place)
        self._promises.take(record, reading)
        if isinstance(reading.place, UserError) and record.ask is not None and not record.ask.leaf_cell_count:
            return
        info = ready(reading.place)
        record.request, record.bind_info = self.own_request(record, reading), info
        record.is_proven = reading.is_signed
        record.is_bare = reading.is_own and _is_bare(reading, record.request.spec.group.name)
        if record.is_bare and record.request.spec.group.name != record.key:
            self._names.keep(record.uid, record.namespace, record.request.spec.group.name)

    def _compare(self, record: PodRecord, reading: Reading) -> None:
        """A pod that is known to be bound was seen: does it still say what hived wrote?"""
        record.reading = None
        has_place = isinstance(reading.place, BindInfo)
        if has_place and (record.bind_info is None or self.ledger is None):
            with suppress(UserError):  # its binding has been proven meanwhile, or the leader has written it anew
                was_known = record.bind_info is not None
                self._read(record, reading)
                if self.ledger is not None and not was_known:
                    self._account(self.ledger, record)
        if record.bind_info is None or not self._prover.has_key:
            return
        record.is_proven = record.is_proven or reading.is_signed
        self._note_changed(record, reading.proof is None or reading.place != record.bind_info)

    def _note_changed(self, record: PodRecord, is_changed: bool) -> None:
        """A bound pod does not say what hived wrote, or not yet what it is about to write; or it does again."""
        if is_changed == record.is_changed:
            return
        record.is_changed = is_changed
        if not record.is_downgraded:
            log.warning("bound pod changed", extra={"fields": {"pod": record.key, "is_as_written": not is_changed}})
        record.is_downgraded = record.is_downgraded and is_changed
        self._keep_changed(record)

    def _keep_changed(self, *records: PodRecord) -> None:
        """Have what is not to be read from these pods any more written down, where their owners cannot."""
        for record in records:
            annotations = self._annotations_anew(record) if record.is_changed else {}
            if annotations:
                self._changed[record.uid] = annotations
            else:
                self._changed.pop(record.uid, None)
        if self.ledger is not None:
            self._keep(dict(self._changed))

    def _annotations_anew(self, record: PodRecord) -> dict[str, str]:
        """All that binding has written onto a pod, made again."""
        if record.request is None or record.bind_info is None:
            return {}
        gang = str(record.gang or "") if record.is_of_dialect else None
        written = written_name(record.namespace, record.request.spec.group.name) if gang is None else ""
        texts = annotations_anew(record.request, record.bind_info, gang, "" if written == record.key else written)
        return texts | self._prover.sign(record.uid, record.node, texts, is_bare=record.is_bare)

    def take_changed(self, changed: Mapping[str, Reading]) -> None:
        """What pods were given whose annotations do not say so any more, by uid; to be told before a term begins."""
        for uid, reading in changed.items():
            record = self.pods.get(uid)
            is_bound = record is not None and record.state is PodState.BOUND
            if record is None or not is_bound or record.bind_info == reading.place:
                continue  # the pod says so again
            if isinstance(reading.place, BindInfo):
                with suppress(UserError):
                    self._read(record, reading)
                    record.is_changed = record.bind_info is not None

    def to_write(self, record: PodRecord, node: str) -> dict[str, str]:
        """The annotations of a pod that is being bound to a node, and the proof that it was."""
        texts = self.rounds.annotations(record)
        if record.request is not None and not record.is_of_dialect:
            record.is_bare = self._names.is_bare(record.namespace, record.request.spec.group.name)
        return texts | self._prover.sign(record.uid, node, texts, is_bare=record.is_bare) if texts else texts

    def _account(self, ledger: Ledger, record: PodRecord) -> None:
        """Tell the core of a bound pod."""
        if record.request is None or record.bind_info is None:
            return
        try:
            ledger.adopt(record.request, record.bind_info)
        except UserError as error:
            self._tell_unaccounted(record, error)
            return
        record.is_told = True
        self.devices.pods_moved(record.node)
        self._tell_scheduled(record, self._announcer.replayed)
        log.debug("bound pod replayed", extra={"fields": {"pod": record.key, "node": record.node}})

    # People

    def explained(self, record: PodRecord, reason: str) -> str:
        """Why a pod waits, with what its VC lacks of its guarantee because of devices that cannot be had."""
        if record.request is not None:
            vc, priority = record.request.spec.virtual_cluster, record.request.spec.priority
        elif record.ask is not None:
            vc, priority = record.ask.virtual_cluster, record.ask.priority
        else:
            return reason
        return self.devices.explained(reason, vc) if priority > OPPORTUNISTIC_PRIORITY else reason

    def _tell_scheduled(self, record: PodRecord, tell: Callable[..., None]) -> None:
        if record.request is not None and record.bind_info is not None:
            spec, cells = record.request.spec, record.bind_info.leaf_cell_indices
            tell(record, record.node, cells, vc=spec.virtual_cluster, group=spec.group.name)

    def _tell_unaccounted(self, record: PodRecord, error: UserError) -> None:
        self._metrics.recovery_failures.inc()
        log.warning("bound pod not accounted", extra={"fields": {"pod": record.key, "reason": error.message}})

    def _downgrade(self, group: Group) -> None:
        """A group has lost its place in its VC: tell its pods, and write that onto them, for a rebuild to know.

        Bind info without preassigned cell types means just that, to HiveD too. A group that finds its place taken when
        it is replayed keeps its annotations: another configuration may have room for it again.
        """
        if self.ledger is None or group.lazy_preemptor in (None, group.name):
            return
        records = (self.pods.get(holder.uid) for holder in group.holders if holder is not None)
        members = None
        for record in dict.fromkeys(one for one in records if one is not None):
            self._announcer.lazily_preempted(record, group.name, group.lazy_preemptor or "")
            if record.bind_info is None:
                continue
            members = members or without_place(record.bind_info.members)
            record.bind_info = replace(record.bind_info, members=members)
            record.is_downgraded = True
            if record.state is PodState.BOUND:
                self._write_anew(record)
                if self._prover.has_key:  # until the pod says so
                    self._note_changed(record, True)
                    self._keep_changed(record)

    def _write_anew(self, record: PodRecord) -> None:
        ledger = self.ledger
        if record.request is not None and record.bind_info is not None:
            changed = {BIND_INFO: bind_annotations(record.bind_info)[BIND_INFO]}
            anew = self._annotations_anew(record)
            self._binder.annotate_later(record, changed, anew, record.is_bare, lambda: self.ledger is ledger)


def _is_bare(reading: Reading, written: str) -> bool:
    """Did an earlier version bind the pod, in a group of a name without the namespace? None has a colon in it."""
    return reading.proof is not None and reading.proof.is_bare and ":" not in written


def _is_bound_as_decided(record: PodRecord, pod: Pod, reading: Reading) -> bool:
    """False if the pod's annotation names other leaf cells: another scheduler placed it on our node. Annotations that
    nothing proves say nothing: its owner may have changed them at once.
    """
    if reading.proof is None and record.is_writing:
        return True
    written = pod.annotations.get(LEAF_CELL_ISOLATION)
    return record.bind_info is None or written in (None, isolation_text(record.bind_info))
