"""Terms of leadership: the core is built from the facts when one begins, and dropped when it ends. Not thread-safe."""

from collections.abc import Mapping

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_extender.recording.record import Recorder
from hived_extender.service.announcements import Announcements
from hived_extender.service.facts import Facts
from hived_extender.service.holdings import Holdings, Placed, in_replay_order, reservations
from hived_extender.service.ledger import Ledger
from hived_extender.service.pods import PodState
from hived_extender.service.retries import Retries


class Terms:
    """See the module."""

    def __init__(
        self,
        spec: ClusterSpec,
        recorder: Recorder | None,
        facts: Facts,
        announcements: Announcements,
        retries: Retries,
    ) -> None:
        self._spec = spec
        self._recorder = recorder
        self._facts = facts
        self._announcements = announcements
        self._retries = retries

    def begin(self) -> Ledger:
        """Build the state from all nodes and bound pods.

        Pods are replayed by falling priority, so that a group which was preempted lazily finds its cells taken again.
        """
        ledger = Ledger(self._spec, self._recorder, self._retries.room_made, self._facts.bound.downgrade)
        self._offer_nodes_of(ledger)
        for name in ledger.node_names:
            if name in self._facts.nodes.healthy:
                ledger.set_node(name, True)
        for placed in in_replay_order(self.holdings().placed.values()):
            record = self._facts.pods.get(placed.request.uid)
            if record is not None:
                self._facts.bound.account(ledger, record)
        self._facts.devices.begin(ledger, self._spec, self._facts.interpreter.rules)
        self._facts.bound.promises.keep_all(ledger)
        for record in self._facts.pods.records(PodState.WAITING):
            # Whom kube-scheduler asked before, or when it was woken by the fence, may have refused it.
            record.is_asked = True
            self._retries.appeared(record.uid)
        self._facts.term.ledger = ledger
        self._facts.bound.begin()
        return ledger

    def _offer_nodes_of(self, ledger: Ledger) -> None:
        self._facts.nodes.begin(ledger, self._facts.interpreter.devices)
        self._facts.rounds.offers = self._facts.nodes.offers

    def holdings(self) -> Holdings:
        """What a state is built from, in any configuration. Cost O(pods)."""
        placed = {
            record.uid: Placed(record.request, record.bind_info)
            for record in self._facts.pods
            if record.bind_info is not None and record.request is not None and record.state is not PodState.WAITING
        }
        reserved = reservations(self._facts.ledger.state) if self._facts.ledger is not None else {}
        return Holdings(frozenset(self._facts.nodes.healthy), placed, reserved, *self._facts.devices.facts())

    def configure(self, spec: ClusterSpec) -> None:
        """From the next term on, states are built for this cluster. The interpreter has got its rules already."""
        self._spec = spec
        self._facts.forget_readings()

    def switched(self, unaccounted: Mapping[str, UserError], *, are_other_nodes: bool) -> None:
        """The ledger has got a state of another configuration, which was told of all holdings; `unaccounted` has the
        pods that it refused, by uid.
        """
        if self._facts.ledger is not None:
            self._offer_nodes_of(self._facts.ledger)
        for record in self._facts.pods:
            if are_other_nodes:
                record.offered, record.refused, record.is_doubted = None, None, False
            if record.state is PodState.WAITING:
                record.is_asked = True  # what it was told may not be true any more
                self._retries.appeared(record.uid)
                continue
            error = unaccounted.get(record.uid)
            record.is_told = record.request is not None and record.bind_info is not None and error is None
            if error is not None:
                self._facts.bound.tell_unaccounted(record, error)
        gangs = dict.fromkeys(record.description.gang for record in self._facts.pods if record.description is not None)
        for gang in gangs:
            if gang is not None:
                self._facts.gangs.changed(gang)
        self._retries.room_made()

    def end(self) -> None:
        """Drop the state, and take back what Kubernetes has not confirmed."""
        self._facts.term.ledger = None
        self._facts.bound.end()
        self._facts.rounds.forget()
        self._retries.forget_all()
        self._announcements.resign()
        for record in self._facts.pods.records(PodState.BINDING):
            self._facts.pods.move(record, PodState.WAITING)
            record.node, record.bind_info = "", None
        for record in self._facts.pods:
            record.writes, record.is_unanswered = 0, False
            record.is_told = record.is_downgraded = record.is_doubted = record.may_go = False
            record.offered = record.refused = None
            if record.gang is not None:
                self._facts.gangs.changed(record.gang)
