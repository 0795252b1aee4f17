"""Pods in the core, and the annotations of bound pods, by which a later leader knows them.

A bound pod is replayed at the place in its annotations if these are proven. Hived rewrites annotations when a group
lost its place in its VC, or after an update from a version that did not prove them. If a tenant changed them, where no
admission policy forbids it, the original is stored out of tenants' reach for the next restart. Not thread-safe.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from hived.cells.state import Group
from hived.life.groups import bind_info_of_slot, without_place
from hived.values.errors import HivedError, UserError
from hived.values.specs import BindInfo, PodRequest, sizes_of
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, SCHEDULING_SPEC
from hived_extender.jobs.bind_info import Prover, annotations_anew, isolation_text
from hived_extender.jobs.device_words import NO_DEVICE
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.readings import Reading, ready
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeError
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.core import Core, Term
from hived_extender.machine.devices.keeper import DeviceKeeper
from hived_extender.machine.effects import AnnotatePod, KeepChanged, Outbox
from hived_extender.machine.gangs.gang import GroupNames, qualified, written_name
from hived_extender.machine.gangs.promises import Promises
from hived_extender.machine.gangs.rounds import Rounds
from hived_extender.machine.gangs.shrunk_groups import ShrunkGroups, part_of, with_group
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.pods import NO_PLACE, UNMARKED, Marks, Place, PodRecord, PodState, PodTable

TIMER = "rewrite"
KEEP_TIMER = "keep changed"

AT_ONCE = 16
WAITS_S = (0.2, 1.0, 5.0)
"""After each attempt but the last one."""

PAUSE_S = 0.5
"""The time between two writes of changed bindings: an owner may change a pod again and again."""

RETRY_S = 2.0


class Rewrites:
    """Bound pods to annotate, each with its newest annotations and a few attempts."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._wanted: dict[str, AnnotatePod] = {}
        self._failures: dict[str, int] = {}
        self._ready: dict[str, None] = {}
        self._under_way: set[str] = set()

    def ask(self, effect: AnnotatePod) -> None:
        """Queue annotations for a pod, replacing earlier ones."""
        uid = effect.pod.uid
        self._wanted[uid] = effect
        self._failures.pop(uid, None)
        self._be_ready(uid)

    def time_came(self, _: str, uid: str) -> None:
        """Retry a pod."""
        self._be_ready(uid)

    def wrote(self, effect: AnnotatePod, error: HivedError | None) -> None:
        """Take the result of a write."""
        uid = effect.pod.uid
        self._under_way.discard(uid)
        if self._wanted.get(uid) is not effect:
            self._be_ready(uid)
        else:
            count = self._failures.get(uid, 0)
            is_over = error is None or (isinstance(error, KubeError) and error.is_not_found)
            if is_over or count == len(WAITS_S):
                self._forget(uid)
            else:
                self._failures[uid] = count + 1
                self._outbox.wake_in((TIMER, uid), WAITS_S[count])
        self._send_due()

    def _be_ready(self, uid: str) -> None:
        """Queue a pod; one being written waits, as the later write must win."""
        if uid in self._wanted and uid not in self._under_way:
            self._ready[uid] = None
            self._send_due()

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        for uid in list(self._wanted):
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        del self._wanted[uid]
        self._failures.pop(uid, None)
        self._ready.pop(uid, None)
        self._outbox.timers.drop((TIMER, uid))

    def _send_due(self) -> None:
        while self._ready and len(self._under_way) < AT_ONCE:
            uid = next(iter(self._ready))
            del self._ready[uid]
            self._under_way.add(uid)
            self._outbox.send(self._wanted[uid])


class ChangedBindings:
    """The original annotations of changed pods, by uid; the newest are written at intervals."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._wanted: Mapping[str, Mapping[str, str]] | None = None
        self._is_under_way = False
        self._is_closing = False

    def keep(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the stored annotations."""
        self._wanted = changed
        self._send_due()

    def time_came(self, _: str, __: str) -> None:
        """Write the next version."""
        self._send_due()

    def flush(self) -> None:
        """Write without a pause before the process ends."""
        self._is_closing = True
        self._outbox.timers.drop((KEEP_TIMER, ""))
        self._send_due()

    def wrote(self, effect: KeepChanged, error: HivedError | None, *, is_current: bool) -> None:
        """Take the result of a write, of this term or an earlier one."""
        self._is_under_way = False
        if self._is_closing:
            self._send_due()
            return
        if error is not None and is_current and self._wanted is None:
            self._wanted = effect.changed
        self._outbox.wake_in((KEEP_TIMER, ""), PAUSE_S if error is None else RETRY_S)

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        self._wanted = None

    def _send_due(self) -> None:
        is_resting = (KEEP_TIMER, "") in self._outbox.timers
        if self._wanted is not None and not self._is_under_way and not is_resting:
            self._outbox.send(KeepChanged(self._wanted))
            self._wanted, self._is_under_way = None, True


log = logging.getLogger(__name__)


class BoundPods:
    """Tells the core of bound pods and keeps their annotations right. `devices` counts lost devices, which depend on
    cell users.

    `quota_labels` gives the labels of a pod being bound, by its uid; see `proofs.Proof`.
    """

    def __init__(
        self,
        term: Term,
        pods: PodTable,
        gangs: Gangs,
        rounds: Rounds,
        interpreter: Interpreter,
        prover: Prover,
        outbox: Outbox,
        announcements: Announcements,
    ) -> None:
        self._term = term
        self._pods = pods
        self._rounds = rounds
        self._interpreter = interpreter
        self._prover = prover
        self._metrics = outbox.metrics
        self._announcements = announcements
        self._changed: dict[str, Mapping[str, str]] = {}
        self._unaccounted: dict[str, tuple[str, str]] = {}  # by uid: pods that run where the core cannot have them
        self._names = GroupNames()
        self.shrunk = ShrunkGroups()
        self.promises = Promises(pods, gangs)
        self.rewrites = Rewrites(outbox)
        self.kept = ChangedBindings(outbox)
        self.devices = DeviceKeeper(announcements, self.holds_cells)
        self.quota_labels: Callable[[str], Mapping[str, str] | None] = lambda uid: None

    @property
    def unaccounted(self) -> list[tuple[str, str]]:
        """The pods that run where the core cannot have them, and why, by name."""
        return sorted(self._unaccounted.values())

    def begin(self) -> None:
        """Begin a term: write annotations that are out of date."""
        self._changed.clear()
        self.keep_changed(*(record for record in self._pods if record.marks.is_changed))
        for record in self._pods if self._prover.has_key else ():
            if record.place.info is not None and not (record.marks.is_proven or record.marks.is_changed):
                self.write_anew(record)  # an earlier version, or HiveD, has bound it

    def end(self) -> None:
        """End the term: write nothing more."""
        self.devices.end()
        self.rewrites.forget_all()
        self.kept.forget_all()

    def gone(self, record: PodRecord) -> None:
        """Delete a pod from the core and forget it."""
        self._unaccounted.pop(record.uid, None)
        self._names.forget(record.uid)
        self.shrunk.forget(record.uid)
        self.release(record)
        if record.marks.is_changed:
            record.marks = UNMARKED
            self.keep_changed(record)

    def release(self, record: PodRecord) -> None:
        """Delete a pod from the core."""
        request, place = record.request, record.place
        record.request, record.place, record.written_group = None, NO_PLACE, ""
        if self._term.core is not None and record.is_in_core and request is not None:
            is_unbound = place.info is not None and record.state is not PodState.BOUND and not record.writing.is_open
            self._term.core.delete(request, was_bound=not is_unbound)
            if place.info is not None:
                self.devices.pods_moved(place.node)
        record.is_in_core = False

    def ask_for(self, core: Core, record: PodRecord, request: PodRequest) -> None:
        """Prepare a question to the core for a pod whose request may have changed.

        Raises UserError, and changes nothing, if it may not.
        """
        if record.is_in_core and record.request != request:
            core.check_changed(request)
            self.release(record)
        record.request, record.is_in_core = request, True
        self._rounds.asked_alone(record)

    def holds_cells(self, uid: str) -> bool:
        """True if the core has cells for the pod."""
        record = self._pods.get(uid)
        return record is not None and record.is_in_core and record.place.info is not None

    def own_request(self, record: PodRecord, reading: Reading) -> PodRequest:
        """The request of a pod with hived's annotation. Raises UserError if the pod may not have it.

        A waiting pod may ask for part of its affinity group; see `ShrunkGroups`.
        """
        request, core = self._written_request(record, reading), self._term.core
        if reading.proof is not None or not self.shrunk:
            return request
        present = None if core is None else core.state.groups.get(request.spec.group.name)
        return self.shrunk.as_returned(request, present, record.key)

    def has_cells(self, record: PodRecord) -> None:
        """Note a placed pod whose cells are part of its author's group."""
        if self.shrunk and record.request is not None and record.reading is not None:
            with suppress(UserError):
                group = self._written_request(record, record.reading).spec.group
                if group != record.request.spec.group:
                    self.shrunk.put(record.uid, group, record.request.spec.leaf_cell_count)
                    record.written_group = group.name

    def _written_request(self, record: PodRecord, reading: Reading) -> PodRequest:
        """The request as the author wrote it. Raises UserError if the pod may not have it."""
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
            if record.ruled is not None:
                self._interpreter.check_devices(record.ruled.demands.requests, spec)
        return record.own_request(spec, group)

    def seen(self, record: PodRecord, pod: Pod, reading: Reading) -> None:
        """Take in a pod with a node: hived's choice, or that of another scheduler or an earlier process."""
        self.promises.drop(record.uid)
        if record.state is PodState.BINDING and _is_bound_as_decided(record, pod, reading):
            self._pods.move(record, PodState.BOUND)
            with suppress(UserError):
                self.promises.take(record, reading)  # another replica may lead before all of them are kept
            log.info("bound", extra={"fields": {"pod": record.key, "node": pod.node}})
            self._tell_scheduled(record, self._announcements.scheduled)
            if record.place.is_rewritten:
                self.write_anew(record)
            self.compare(record, reading)
            return
        self.release(record)
        record.place = Place(pod.node)
        self._pods.move(record, PodState.BOUND)
        try:
            self._read(record, reading)
        except UserError as error:
            self.tell_unaccounted(record, error)
            return
        if self._term.core is not None:
            self.account(self._term.core, record)

    def _read(self, record: PodRecord, reading: Reading) -> None:
        """Read the place from a bound pod's annotations. Raises UserError if it is missing or not proven."""
        record.reading = None  # its text may be long
        if reading.proof is None:
            ready(reading.place)
        self.promises.take(record, reading)
        ask = record.translation.ask
        if isinstance(reading.place, UserError) and ask is not None and not ask.leaf_cell_count:
            return
        info = ready(reading.place)
        request = self._written_request(record, reading)
        group = request.spec.group.name
        record.request = self.shrunk.as_placed(request, info, record.key) if reading.is_own else request
        record.written_group = self.shrunk.written(record.request).spec.group.name
        quota = None if reading.proof is None else reading.proof.quota
        record.place = replace(record.place, info=info, quota=quota)
        is_bare = reading.is_own and _is_bare(reading, group)
        record.marks = replace(record.marks, is_proven=reading.is_signed, is_bare=is_bare)
        if is_bare and group != record.key:
            self._names.keep(record.uid, record.namespace, group)

    def compare(self, record: PodRecord, reading: Reading) -> None:
        """Compare the annotations of a bound pod with hived's own."""
        record.reading = None
        has_place = isinstance(reading.place, BindInfo)
        if has_place and (record.place.info is None or self._term.core is None):
            was_known = record.place.info is not None
            with suppress(UserError):  # its binding has been proven meanwhile, or the leader has written it anew
                self._read(record, reading)
                if self._term.core is not None and not was_known:
                    self.account(self._term.core, record)
        if record.place.info is None or not self._prover.has_key:
            return
        if reading.is_signed and not record.marks.is_proven:
            record.marks = replace(record.marks, is_proven=True)
        self._note_changed(record, reading.proof is None or reading.place != record.place.info)

    def _note_changed(self, record: PodRecord, is_changed: bool) -> None:
        """Note whether the annotations of a bound pod differ from hived's own."""
        if is_changed == record.marks.is_changed:
            return
        record.marks = replace(record.marks, is_changed=is_changed)
        if not record.place.is_rewritten:
            log.warning("bound pod changed", extra={"fields": {"pod": record.key, "is_as_written": not is_changed}})
        elif not is_changed:
            record.place = replace(record.place, is_rewritten=False)
        self.keep_changed(record)

    def keep_changed(self, *records: PodRecord) -> None:
        """Store the places of changed pods where their owners cannot write."""
        for record in records:
            annotations = self._annotations_anew(record) if record.marks.is_changed else {}
            if annotations:
                self._changed[record.uid] = annotations
            else:
                self._changed.pop(record.uid, None)
        if self._term.core is not None:
            self.kept.keep(dict(self._changed))

    def _annotations_anew(self, record: PodRecord) -> dict[str, str]:
        """The full annotations of a bound pod, made again."""
        if record.request is None or record.place.info is None:
            return {}
        gang = str(record.gang or "") if record.is_of_dialect else None
        request = self.shrunk.written(record.request)
        written = written_name(record.namespace, request.spec.group.name) if gang is None else ""
        written = "" if written == record.key else written
        texts = annotations_anew(request, record.place.info, gang, written) | self._withheld(record)
        return texts | self._sign(record, record.place.node, texts)

    def take_changed(self, changed: Mapping[str, Reading]) -> None:
        """Take the stored annotations of changed pods, by uid, before a term begins."""
        for uid, reading in changed.items():
            record = self._pods.get(uid)
            if record is None or record.state is not PodState.BOUND or record.place.info == reading.place:
                continue  # the pod says so again
            if isinstance(reading.place, BindInfo):
                with suppress(UserError):
                    self._read(record, reading)
                    record.marks = replace(record.marks, is_changed=record.place.info is not None)

    def to_write(self, record: PodRecord, node: str) -> dict[str, str]:
        """The annotations of a pod being bound to a node, with their proof."""
        texts = self._rounds.annotations(record) | self._withheld(record)
        if record.request is not None and not record.is_of_dialect:
            request = self.shrunk.written(record.request)
            record.marks = Marks(is_bare=self._names.is_bare(record.namespace, request.spec.group.name))
        record.place = replace(record.place, quota=self.quota_labels(record.uid))
        return texts | self._sign(record, node, texts) if texts else texts

    def _withheld(self, record: PodRecord) -> dict[str, str]:
        """An annotation that gives no devices, if the numbers of the pod's cells match other pods' devices."""
        info = record.place.info
        is_misread = info is not None and self.devices.is_misread(info.node, info.cell_chain)
        return {LEAF_CELL_ISOLATION: NO_DEVICE} if is_misread else {}

    def _sign(self, record: PodRecord, node: str, texts: Mapping[str, str]) -> dict[str, str]:
        return self._prover.sign(record.uid, node, texts, is_bare=record.marks.is_bare, quota=record.place.quota)

    def account(self, core: Core, record: PodRecord) -> None:
        """Tell the core of a bound pod."""
        if record.request is None or record.place.info is None:
            return
        try:
            self._adopt(core, record, record.request, record.place.info)
        except UserError as error:
            self.tell_unaccounted(record, error)
            return
        record.is_in_core = True
        self._unaccounted.pop(record.uid, None)
        self.devices.pods_moved(record.place.node)
        self._tell_scheduled(record, self._announcements.replayed)
        log.debug("bound pod replayed", extra={"fields": {"pod": record.key, "node": record.place.node}})

    def _adopt(self, core: Core, record: PodRecord, request: PodRequest, info: BindInfo) -> None:
        """Tell the core of a bound pod. Raises UserError.

        After cells of a group were given back, the last leader may have annotated only some of its pods.
        """
        group = core.state.groups.get(request.spec.group.name)
        if group is not None and group.spec.group != request.spec.group:
            mended = dataclasses.replace(request, spec=with_group(request.spec, group.spec.group))
            with suppress(UserError):
                core.adopt(mended, info, record.progress.times)
                record.request = mended
                return
        core.adopt(request, info, record.progress.times)

    def _tell_scheduled(self, record: PodRecord, tell: Callable[..., None]) -> None:
        info = record.place.info
        if record.request is not None and info is not None:
            spec, cells = record.request.spec, info.leaf_cell_indices
            tell(record, record.place.node, cells, vc=spec.virtual_cluster, group=spec.group.name)

    def tell_unaccounted(self, record: PodRecord, error: UserError) -> None:
        """Announce a pod that runs where the core cannot have it."""
        self._metrics.recovery_failures.inc()
        self._unaccounted[record.uid] = record.key, error.message
        log.warning("bound pod not accounted", extra={"fields": {"pod": record.key, "reason": error.message}})

    def downgrade(self, group: Group) -> None:
        """Tell pods that their group lost its place in its VC, and annotate them (rule 27.15).

        Bind info without preassigned cell types says this to HiveD too.
        """
        if self._term.core is None or group.lazy_preemptor in (None, group.name):
            return
        records = (self._pods.get(holder.uid) for holder in group.holders if holder is not None)
        members = None
        for record in dict.fromkeys(one for one in records if one is not None):
            self._announcements.lazily_preempted(record, group.lazy_preemptor or "")
            info = record.place.info
            if info is None:
                continue
            members = members or without_place(info.members)
            record.place = replace(record.place, info=dataclasses.replace(info, members=members), is_rewritten=True)
            if record.state is PodState.BOUND:
                self.write_anew(record)
                if self._prover.has_key:  # until the pod says so
                    self._note_changed(record, True)
                    self.keep_changed(record)

    def upgrade(self, core: Core, changed: Iterable[tuple[PodRecord, PodRequest]]) -> None:
        """Annotate pods whose borrowed cells became cells of their VC, at the priority of these requests.

        A rebuild reads this from preassigned cell types in the bind info. Until a pod has it, the text is stored where
        its owner cannot write.
        """
        self._replaced((record, request, core.info_of(request)) for record, request in changed)

    def _replaced(self, changed: Iterable[tuple[PodRecord, PodRequest, BindInfo]]) -> None:
        """Write new requests and places onto pods, stored until the pods have them."""
        for record, request, info in changed:
            record.request = request
            record.place = replace(record.place, info=info, is_rewritten=True)
            if record.state is PodState.BOUND:
                self.write_anew(record)
                if self._prover.has_key:
                    self._note_changed(record, True)
                    self.keep_changed(record)

    def shrink(self, core: Core, group: Group, gone: Sequence[int]) -> list[int]:
        """Give back empty slots of an allocated group and annotate its pods. Their cells do not move.

        Returns the remaining slots in their new order; none, with nothing changed, if it is not possible.
        """
        holders = {slot: pod for slot, pod in enumerate(group.holders) if pod is not None}
        records = [self._pods.get(pod.uid) for pod in holders.values()]
        known = [one for one in records if one is not None and one.is_in_core and not one.is_of_dialect]
        if not known or len(known) < len(records) or len({one.uid for one in known}) < len(known):
            return []
        sizes = sizes_of(group.members)
        first = min(holders)  # a split seats it in the first slot of its size
        kept = sorted(set(range(len(sizes))) - set(gone), key=lambda slot: (sizes[slot], slot != first, slot))
        part = part_of(group.spec.group, Counter(sizes[slot] for slot in kept), known[0].key)
        requests = {
            slot: dataclasses.replace(pod, spec=with_group(pod.spec, part)) for slot, pod in sorted(holders.items())
        }
        rest = dataclasses.replace(part_of(group.spec.group, Counter(sizes[slot] for slot in gone), ""),
                                   name=f"{group.name}#gone")  # fmt: skip
        spec = dataclasses.replace(group.spec, group=rest, leaf_cell_count=sizes[gone[0]])
        stand_in = PodRequest(f"{rest.name}:0", known[0].name, known[0].namespace, spec)
        written = {one.uid: self.shrunk.written(pod).spec for one, pod in zip(known, holders.values(), strict=True)}
        core.split(group.name, [requests[first], stand_in], [kept, sorted(gone)])
        core.delete(stand_in)
        left, place = core.state.groups[part.name], {slot: new for new, slot in enumerate(kept)}
        infos = {slot: bind_info_of_slot(core.state, left, place[slot]) for slot in holders}
        for record, (slot, request) in zip(known, requests.items(), strict=True):
            if slot != first:
                core.adopt(request, infos[slot], record.progress.times)
            self.shrunk.put(record.uid, written[record.uid].group, request.spec.leaf_cell_count)
            record.written_group = written[record.uid].group.name
        self._replaced((one, requests[slot], infos[slot]) for one, slot in zip(known, holders, strict=True))
        return kept

    def write_anew(self, record: PodRecord) -> None:
        """Rewrite the annotations of a bound pod."""
        info = record.place.info
        if record.request is not None and info is not None:
            anew = self._annotations_anew(record)
            names = (BIND_INFO, SCHEDULING_SPEC) if record.is_of_dialect else (BIND_INFO,)
            changed = {name: anew[name] for name in names}
            self.rewrites.ask(AnnotatePod(record.named, changed, anew, record.marks.is_bare, record.place.quota))


def _is_bare(reading: Reading, written: str) -> bool:
    """True if an earlier version bound the pod, in a group named without its namespace; bare names have no colon."""
    return reading.proof is not None and reading.proof.is_bare and ":" not in written


def _is_bound_as_decided(record: PodRecord, pod: Pod, reading: Reading) -> bool:
    """False if the pod has another node or other annotated leaf cells: another scheduler placed it.

    Unproven annotations say nothing: the pod's owner may have changed them at once.
    """
    if record.place.node != pod.node:
        return False
    if reading.proof is None and record.writing.count:
        return True
    written, info = pod.annotations.get(LEAF_CELL_ISOLATION), record.place.info
    return info is None or written in (None, NO_DEVICE, isolation_text(info))
