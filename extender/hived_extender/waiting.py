"""Trying the pods that wait on the core: preempt for those that need it, wake those that could run."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from hived.decisions import Bind, Preempt, Wait
from hived.errors import InvariantError, UserError
from hived.events import Phase
from hived.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_extender.announcements import Announcer
from hived_extender.binder import Binder
from hived_extender.evictor import Evictor, PreemptionPolicy
from hived_extender.facts import Facts
from hived_extender.ledger import Ledger
from hived_extender.nudge import Nudger
from hived_extender.pods import PodRecord, PodState
from hived_extender.preemptions import Preemptions

NO_CHAIN_REASON = "no cell chain could be tried"


class WaitingPods:
    """`exclusive` takes the service's lock, under which everything is done but `try_on_core` and `not_told`."""

    def __init__(
        self,
        exclusive: Callable[[], AbstractContextManager[None]],
        facts: Facts,
        policy: PreemptionPolicy,
        evictor: Evictor,
        binder: Binder,
        announcer: Announcer,
        nudger: Nudger,
    ) -> None:
        self.preemptions = Preemptions(facts.pods, evictor, announcer, self.ask_retry)
        self._exclusive = exclusive
        self._facts = facts
        self._policy = policy
        self._binder = binder
        self._announcer = announcer
        self._nudger = nudger

    def try_on_core(self, uids: Sequence[str]) -> list[str]:
        """Preempt for those of the pods that need it, wake those that could run. Takes the lock.

        Returns those that could run, but for which the service is to make room should others take their place before
        kube-scheduler asks about them. Cost: a decision for all that ask alike, one for each that has to preempt.
        """
        fitting: list[str] = []
        with suppress(InvariantError), self._exclusive():
            ledger = self._facts.ledger
            for uid in uids:
                record = self._facts.pods.get(uid)
                if ledger is None or record is None or not self._is_for_scheduler(ledger, record):
                    continue
                if record.request is not None and self._may_choose_nodes(record.request):
                    fitting.append(uid)
                if record.is_asked:
                    record.is_asked = False  # until kube-scheduler, which is awake now, asks
                    self.ask_retry(record)
        return fitting

    def ask_retry(self, record: PodRecord) -> None:
        """Have kube-scheduler try a pod again."""
        self._binder.ask_retry_later(record, lambda: self.not_told(record, PodState.WAITING))

    def not_told(self, record: PodRecord, state: PodState) -> None:
        """The API server could not be told of a pod; if nothing happened to it since, it must not be forgotten. Takes
        the lock.
        """
        with suppress(InvariantError), self._exclusive():
            if record.state is state and self._facts.pods.get(record.uid) is record:
                record.is_asked = True
                self._nudger.not_woken(record.uid)

    def _is_for_scheduler(self, ledger: Ledger, record: PodRecord) -> bool:
        """Could the pod run, or is at least nothing left that the service can do for it by itself?"""
        request = record.request
        if record.state is PodState.BINDING:
            return not record.is_force_binding
        if record.state is not PodState.WAITING or request is None or record.is_held:
            return False
        was_preempting = ledger.is_waiting_for_victims(request)
        may_choose = self._may_choose_nodes(request)
        record.is_told = True
        try:
            if may_choose and ledger.has_lost_cells(request):
                ledger.decide(request, Phase.PREEMPTING, None, commit=False)
            decision = ledger.try_waiting(request)
            if isinstance(decision, Preempt) and not was_preempting and not may_choose:
                return True  # it is for kube-scheduler to say where
            if isinstance(decision, Preempt) and self._policy.by_service:
                decision = self.preemptions.carry_on(ledger, record, request, decision, None)
        except UserError:
            return False
        if isinstance(decision, Preempt) and not was_preempting:
            self.preemptions.tell(record, decision)
        if isinstance(decision, Wait) and not record.is_asked:
            self._announcer.waiting(record, decision.reason or NO_CHAIN_REASON)
        return isinstance(decision, Bind)

    def _may_choose_nodes(self, request: PodRequest) -> bool:
        """May the service make room for a pod wherever its cells are, without asking kube-scheduler?"""
        is_guaranteed = request.spec.priority > OPPORTUNISTIC_PRIORITY
        return self._policy.by_service and is_guaranteed and request.spec.ignore_suggested_nodes
