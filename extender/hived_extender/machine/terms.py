"""Terms of leadership: the core is built from facts when one begins, and dropped when it ends. Not thread-safe."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Placed, StateInputs, in_replay_order, reservations
from hived_extender.machine.gangs.telling import TellingGangs
from hived_extender.machine.pods import NO_OFFER, NO_PLACE, NOT_WRITTEN, PodState
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.retries import Retries


class Began(NamedTuple):
    """The begin of a term, in seconds since 1970, with the number of bound pods with cells, and of those that wait."""

    at_s: float
    bound: int
    waiting: int


class Terms:
    """Begins and ends terms, and switches configurations."""

    def __init__(
        self,
        spec: ClusterSpec,
        recorder: Recorder | None,
        cache: ClusterCache,
        announcements: Announcements,
        retries: Retries,
    ) -> None:
        self._spec = spec
        self._recorder = recorder
        self._cache = cache
        self._announcements = announcements
        self._retries = retries
        self._telling = TellingGangs(cache.gangs)

    def begin(self) -> Core:
        """Build the state from all nodes and bound pods (rule 11.1).

        Pods are replayed by falling priority, so that lazily preempted groups find their cells taken again.
        """
        core = Core(self._spec, self._recorder, self._retries.room_made, self._cache.bound.downgrade)
        self._offer_nodes_of(core)
        for name in core.node_names:
            if name in self._cache.nodes.healthy:
                core.set_node(name, True)
        for placed in in_replay_order(self.inputs().placed.values()):
            record = self._cache.pods.get(placed.request.uid)
            if record is not None:
                self._cache.bound.account(core, record)
        self._cache.devices.begin(core, self._spec, self._cache.interpreter.rules)
        self._cache.bound.promises.place_all(core)
        for record in self._cache.pods.without_node():
            # The last leader, or this replica while fencing, may have refused it.
            record.is_asked = True
            self._retries.appeared(record.uid)
        core.before_victims = lambda: self._telling.tell(core)
        self._cache.term.core = core
        self._cache.bound.begin()
        return core

    def _offer_nodes_of(self, core: Core) -> None:
        self._cache.nodes.begin(core, self._cache.interpreter.devices)
        self._cache.rounds.offers = self._cache.nodes.offers

    def inputs(self) -> StateInputs:
        """The inputs of a state in any configuration. Cost O(pods)."""
        placed = {
            record.uid: Placed(record.request, record.place.info, record.progress.times)
            for record in self._cache.pods
            if record.place.info is not None and record.request is not None
        }
        reserved = reservations(self._cache.core.state) if self._cache.core is not None else {}
        queued = [
            [placed[each.uid].request.spec.group.name for each in self._cache.jobs.pods_of(job) if each.uid in placed]
            for job in self._cache.jobs.admitted()
        ]
        return StateInputs(
            frozenset(self._cache.nodes.healthy), placed, reserved, *self._cache.devices.inputs(), queued
        )

    @property
    def spec(self) -> ClusterSpec:
        """The cluster of the configuration, in this term or the next."""
        return self._spec

    def configure(self, spec: ClusterSpec) -> None:
        """Set the cluster of the next term; the interpreter has its rules already."""
        self._spec = spec
        self._cache.forget_readings()

    def switched(self, unaccounted: Mapping[str, UserError], *, are_other_nodes: bool) -> None:
        """Go on with a core of another configuration, told of all inputs; `unaccounted` has refused pods, by uid."""
        if self._cache.core is not None:
            self._offer_nodes_of(self._cache.core)
        for record in self._cache.pods:
            if are_other_nodes:
                record.offer = NO_OFFER
            if not record.state.has_node:
                record.is_asked = True  # what it was told may not be true any more
                self._retries.appeared(record.uid)
                continue
            error = unaccounted.get(record.uid)
            record.is_in_core = record.request is not None and record.place.info is not None and error is None
            if error is not None:
                self._cache.bound.tell_unaccounted(record, error)
        self._all_gangs_changed()
        self._retries.room_made()

    def end(self) -> None:
        """Drop the state, and undo decisions that Kubernetes has not confirmed."""
        self._cache.term.core = None
        self._cache.bound.end()
        self._cache.rounds.forget()
        self._retries.forget_all()
        self._announcements.resign()
        for record in self._cache.pods:
            record.writing, record.offer, record.is_in_core = NOT_WRITTEN, NO_OFFER, False
            if record.state in (PodState.BINDING, PodState.CLEARED):
                record.place = NO_PLACE
                self._cache.bound.shrunk.lost(record.uid)
                self._cache.pods.move(record, PodState.WAITING)
            elif record.place.is_rewritten:
                record.place = replace(record.place, is_rewritten=False)
        self._all_gangs_changed()

    def _all_gangs_changed(self) -> None:
        for gang in list(self._cache.gangs.all()):
            self._cache.gangs.changed(gang.key)
