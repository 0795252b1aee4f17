"""Plans for a running service: carried out after they have been checked again, and made by itself where it is allowed.

Who asks has the right to change the configuration. A plan is checked twice: here, move by move, in a copy of the core
that is made of the present state, and by the service before each step.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from hived.errors import HivedError, UserError
from hived_config.moving import Budget
from hived_extender.api.defrag import DefragArgs, DefragPlan, Inputs, MovingReport
from hived_extender.defrag.collecting import Collected, collect
from hived_extender.defrag.limits import Limits
from hived_extender.service.pods import PodState
from hived_extender.service.service import Service
from hived_extender.service.stimuli import MovesAsked, MovesLookedAt, MovesStopped

log = logging.getLogger(__name__)

HOUR_S = 3600.0
EVERY_S = 60.0
"""How often a virtual cluster is looked at."""

MOVING = "moving"
LOOK_S = 5.0
RETURN_S = 600.0
LEAST_RETURN_S, MOST_RETURN_S = 1.0, 24 * HOUR_S
ITSELF = "hived"


class _Spent(msgspec.Struct, frozen=True):
    at: float
    vc: str
    gpu_hours: float
    groups: int


class DefragDesk:
    """See the module. Thread-safe: one plan at a time. `text` gives the configuration in force."""

    def __init__(self, service: Service, text: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._text = text
        self._clock = clock
        self._busy = threading.Lock()
        self._spent: deque[_Spent] = deque()
        self._looked: dict[str, tuple[float, object]] = {}
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="defrag", daemon=True)

    # Questions of people

    def inputs(self) -> Inputs:
        """The inputs of a plan, as they are now."""
        return self._collect().inputs

    def report(self) -> MovingReport:
        """How far the moves have come."""
        self._service.check_leads()
        found: MovingReport = self._service.runner.handle(MovesLookedAt())
        return found

    def apply(self, args: DefragArgs, who: str) -> MovingReport:
        """Carry out a plan. Raises UserError (409) if it is not what it was, (400) if it is none."""
        if not args.plan.moves:
            raise UserError("the plan has no moves")
        if not LEAST_RETURN_S <= args.return_seconds <= MOST_RETURN_S:
            raise UserError(f"returnSeconds is {args.return_seconds:g}, from 1 to 86400 are possible")
        if self.report().state == MOVING:
            raise UserError("groups are being moved already: wait until that is over, or stop it", 409)
        with self._busy:
            return self._begin(self._collect(), args.plan, who, args.return_seconds)

    def stop_moving(self, who: str) -> MovingReport:
        """Move nobody else, and give back what is held."""
        self._service.check_leads()
        found: MovingReport = self._service.runner.handle(MovesStopped(f"{who or 'somebody'} stopped it"))
        return found

    # By itself

    def start(self) -> None:
        """Make room by itself, where the configuration says so."""
        self._thread.start()

    def stop(self) -> None:
        """Make no plans any more."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> list[str]:
        """Make room for the first job that waits in each virtual cluster that is due; returns those it did so for.

        Cost: a copy of the core for each of them, without the lock.
        """
        made: list[str] = []
        if not self._service.is_ready:
            return made
        automatic = self._service.machine.interpreter.rules.moving.automatic
        for vc in sorted(automatic):
            now, seen = self._clock(), (self._version(), self._left(vc, automatic[vc]))
            at, before = self._looked.get(vc, (-math.inf, None))
            if now - at < EVERY_S or seen == before or self.report().state == MOVING:
                continue
            self._looked[vc] = now, seen
            if self._make_room(vc, seen[1]):
                made.append(vc)
        return made

    def _follow(self) -> None:
        while not self._is_stopping.wait(LOOK_S):
            try:
                self.look()
            except HivedError as error:
                log.warning("no room was made", extra={"fields": {"reason": str(error)}})
            except Exception:
                log.critical("plans for moves are not made any more", exc_info=True)
                return

    def _make_room(self, vc: str, limits: Limits) -> bool:
        with self._busy:
            collected = self._collect()
            if limits.groups == 0:
                return False
            from hived_extender.defrag import automatic  # noqa: PLC0415  # planners, which most services do without

            found = automatic.plan_for_head(collected, vc, limits)
            if found is None:
                return False
            fields = {"vc": vc, "job": found.wanted[0].shape, "outcome": found.outcome, "reason": found.reason}
            log.info("looked for room", extra={"fields": fields})
            if found.outcome != automatic.PLAN or not all(one.is_met for one in found.wanted):
                return False
            self._begin(collected, found, ITSELF, RETURN_S)
            return True

    def _left(self, vc: str, budget: Budget) -> Limits:
        """What is left of a budget in this hour."""
        now = self._clock()
        while self._spent and self._spent[0].at <= now - HOUR_S:
            self._spent.popleft()
        spent = [one for one in self._spent if one.vc == vc]
        groups = None if budget.groups is None else max(0, budget.groups - sum(one.groups for one in spent))
        return Limits(max(0.0, budget.gpu_hours - sum(one.gpu_hours for one in spent)), groups)

    # Both

    def _collect(self) -> Collected:
        return collect(self._service, self._text())

    def _version(self) -> tuple[int, int, int]:
        """Another one after whatever may let a plan be made: of the state, or of the pods that wait."""
        with self._service.runner.look() as machine:
            core, counts = machine.cache.core, machine.cache.pods.counts()
            return (core.number, core.version, counts[PodState.WAITING.shown]) if core is not None else (0, 0, 0)

    def _begin(self, collected: Collected, found: DefragPlan, who: str, return_s: float) -> MovingReport:
        from hived_extender.defrag import automatic  # noqa: PLC0415  # see above

        orders = automatic.checked_orders(collected, found)
        asked = MovesAsked(orders, who, found.vc, return_s, collected.moving.movable)
        report: MovingReport = self._service.runner.handle(asked)
        self._spent.append(_Spent(self._clock(), found.vc, found.lost_gpu_hours, len(found.moves)))
        fields = {"who": who, "vc": found.vc, "groups": len(orders), "gpu_hours": found.lost_gpu_hours}
        log.info("groups are moved", extra={"fields": fields})
        return report
