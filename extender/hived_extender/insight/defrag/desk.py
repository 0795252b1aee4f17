"""Plans for a running service: carried out after they have been checked again, and made by itself where it is allowed.

A caller has the right to change the configuration. A plan is checked twice: here, move by move, in a copy of the core
that is made of the present state, and by the service before each step.

A plan counts against the budget of its virtual cluster for an hour from the moment that it begins. Where replicas share
a Secret, the list is kept there too, and is written before any group is moved. So neither a restart nor another leader
has a new budget. Without a Secret each term has one.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from hived.values.errors import InvariantError, UserError
from hived_config.rules import Budget
from hived_config.words import counted
from hived_extender.api.defrag import AutomaticMoves, DefragArgs, DefragPlan, Inputs, LastLook, MovingReport
from hived_extender.insight.defrag.collecting import Collected, collect
from hived_extender.insight.defrag.planner import Limits
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import wall_s
from hived_extender.machine.pods import PodState
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import MovesAsked, MovesLookedAt, MovesStopped

HOUR_S = 3600.0
TRIES = 3
"""Times that the list is written, as long as others change the Secret at the same moment."""


class Spent(msgspec.Struct, frozen=True, order=True):
    """The cost of one plan: when it began, in seconds since 1970, for which VC, GPU-hours and groups."""

    at: float
    vc: str
    gpu_hours: float
    groups: int


class Ledger(Protocol):
    """A store of text that replicas share; `BindingSecret` is one."""

    def read_moves(self) -> tuple[bytes, str]:
        """The text, and the version to be changed. Raises KubeError."""

    def write_moves(self, text: bytes, version: str) -> None:
        """Replace the text, if the version is still the one given. Raises KubeError."""


class Spending:
    """The costs of the last hour's plans, by virtual cluster. Thread-safe. `now` has seconds since 1970."""

    def __init__(self, ledger: Ledger | None, now: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now = now
        self._lock = threading.Lock()
        self._spent: list[Spent] = []
        self._term: int | None = None

    def begin_term(self, term: int) -> None:
        """Read what other replicas have spent, once for each term. Raises KubeError, and tries anew the next time."""
        with self._lock:
            if term != self._term:
                self._spent = [] if self._ledger is None else self._recent(_read(self._ledger)[0])
                self._term = term

    def left(self, vc: str, budget: Budget) -> Limits:
        """The part of a budget that is left in this hour."""
        with self._lock:
            spent = [one for one in self._recent(self._spent) if one.vc == vc]
        groups = None if budget.groups is None else max(0, budget.groups - sum(one.groups for one in spent))
        return Limits(max(0.0, budget.gpu_hours - sum(one.gpu_hours for one in spent)), groups)

    def add(self, vc: str, gpu_hours: float, groups: int, *, begins_anyway: bool = False) -> Spent:
        """Count a plan that is about to begin. Raises KubeError where that cannot be written.

        With `begins_anyway` it counts here even then; otherwise it has to be given up, and does not count.
        """
        with self._lock:
            one = Spent(self._now(), vc, gpu_hours, groups)
            before = self._recent(self._spent)
            self._spent = [*before, one]
            try:
                self._write(lambda stored: {*stored, one})
            except KubeError:
                if not begins_anyway:
                    self._spent = before
                raise
            return one

    def take_back(self, one: Spent) -> None:
        """A plan did not begin after all. Raises KubeError: it counts for other replicas then."""
        with self._lock:
            self._spent = [each for each in self._spent if each != one]
            self._write(lambda stored: {each for each in stored if each != one})

    def _write(self, change: Callable[[list[Spent]], Iterable[Spent]]) -> None:
        if self._ledger is None:
            return
        for tries_left in range(TRIES - 1, -1, -1):
            stored, version = _read(self._ledger)
            changed = sorted(change(self._recent(stored)))
            try:
                self._ledger.write_moves(msgspec.json.encode(changed), version)
                return
            except KubeError as error:
                if not error.is_conflict or not tries_left:
                    raise

    def _recent(self, spent: Iterable[Spent]) -> list[Spent]:
        """The plans of this hour. Clocks of replicas differ: a plan of the future counts as one of now."""
        now = self._now()
        return [
            one if one.at <= now else msgspec.structs.replace(one, at=now) for one in spent if one.at > now - HOUR_S
        ]


def _read(ledger: Ledger) -> tuple[list[Spent], str]:
    text, version = ledger.read_moves()
    try:
        return (msgspec.json.decode(text, type=list[Spent]) if text else []), version
    except msgspec.MsgspecError as error:
        raise KubeError(0, "Invalid", f"the costs of moves that are kept cannot be read: {error}") from error


log = logging.getLogger(__name__)

EVERY_S = 60.0
"""Least time between two looks at a virtual cluster."""

MOVING = "moving"
LOOK_S = 5.0
RETURN_S = 600.0
LEAST_RETURN_S, MOST_RETURN_S = 1.0, 24 * 3600.0
ITSELF = "hived"

MOVED, NO_JOB, OVER_BUDGET, REFUSED, FAILED = "moved", "no job waits", "over budget", "refused", "failed"


class DefragDesk:
    """Makes, checks and carries out plans. Thread-safe: one plan at a time.

    `text` gives the configuration in force, `ledger` keeps the costs of plans for later leaders. `clock` has seconds
    that no adjustment moves, `now` those since 1970.
    """

    def __init__(
        self,
        service: Service,
        text: Callable[[], str],
        ledger: Ledger | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = wall_s,
    ) -> None:
        self._service = service
        self._text = text
        self._clock, self._now = clock, now
        self._busy = threading.Lock()
        self._spending = Spending(ledger, now)
        self._looked: dict[str, tuple[float, object]] = {}
        self._last: dict[str, tuple[int, LastLook]] = {}  # by VC, with the term
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="defrag", daemon=True)

    # Questions of people

    def inputs(self) -> Inputs:
        """The inputs of a plan, as they are now."""
        return self._collect().inputs

    def report(self) -> MovingReport:
        """The progress of the moves, and the budgets of moves by itself. Raises UserError (503)."""
        found = self._moves()
        automatic = self._service.machine.interpreter.rules.moving.automatic
        try:
            limits = {vc: self._left(vc, automatic[vc]) for vc in sorted(automatic)}
        except KubeError as error:
            raise UserError(f"the costs of earlier moves cannot be read: {error}", 503) from error
        budgets = [self._budget_of(vc, automatic[vc], left) for vc, left in limits.items()]
        return msgspec.structs.replace(found, automatic=budgets)

    def apply(self, args: DefragArgs, who: str) -> MovingReport:
        """Carry out a plan. Raises UserError (409) if it is not what it was, (400) if it is none."""
        if not args.plan.moves:
            raise UserError("the plan has no moves")
        if not LEAST_RETURN_S <= args.return_seconds <= MOST_RETURN_S:
            raise UserError(f"returnSeconds is {args.return_seconds:g}, from 1 to 86400 are possible")
        if self._moves().state == MOVING:
            raise UserError("groups are being moved already: wait until that is over, or stop it", 409)
        with self._busy:
            return self._begin(self._collect(), args.plan, who, args.return_seconds)

    def stop_moving(self, who: str) -> MovingReport:
        """Move no further group, and give back what is held."""
        self._service.check_leads()
        found: MovingReport = self._service.runner.handle(MovesStopped(f"{who or 'a caller'} stopped it"))
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
        """Make room for the first waiting job of each virtual cluster whose minute is over (rule 28.11); returns these.

        A mistake of ours in one of them is logged and counted, and others go on. Cost: a copy of the core for each of
        them, without the lock.
        """
        made: list[str] = []
        if not self._service.is_ready:
            return made
        automatic = self._service.machine.interpreter.rules.moving.automatic
        for vc in sorted(automatic):
            if self._clock() - self._looked.get(vc, (-math.inf, None))[0] < EVERY_S:
                continue
            found = self._try(vc, automatic[vc])
            if found is None:
                continue
            self._service.metrics.looks_for_room.labels(found.outcome).inc()
            self._last[vc] = self._service.machine.term, found
            if found.outcome == MOVED:
                made.append(vc)
        return made

    def _follow(self) -> None:
        while not self._is_stopping.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.critical("looking for room has failed, and is tried again", exc_info=True)

    def _try(self, vc: str, budget: Budget) -> LastLook | None:
        """Look for room once; None if nothing has changed since the last time, or groups are on the move."""
        try:
            left = self._left(vc, budget)
            seen = self._version(), left
            if seen == self._looked.get(vc, (0.0, None))[1] or self._moves().state == MOVING:
                return None
            self._looked[vc] = self._clock(), seen
            found = self._make_room(vc, budget, left)
        except (UserError, KubeError) as error:
            self._looked[vc] = self._clock(), None
            found = LastLook(self._now(), REFUSED, reason=str(error))
        except Exception as error:
            if isinstance(error, InvariantError) and self._service.fault:
                return None  # the service has stopped, and has said so
            self._looked[vc] = self._clock(), None
            log.critical("looking for room has failed, and is tried again", exc_info=True, extra={"fields": {"vc": vc}})
            return LastLook(self._now(), FAILED, reason=f"a mistake in hived, see its log: {type(error).__name__}")
        fields = {"vc": vc, "job": found.job, "outcome": found.outcome, "reason": found.reason}
        log.log(
            logging.WARNING if found.outcome == REFUSED else logging.INFO, "looked for room", extra={"fields": fields}
        )
        return found

    def _make_room(self, vc: str, budget: Budget, left: Limits) -> LastLook:
        from hived_extender.insight.defrag import planner  # noqa: PLC0415  # planners, which most services do without

        with self._busy:
            collected = self._collect()
            job = planner.head(collected.inputs, vc)
            if job is None:
                return LastLook(self._now(), NO_JOB)
            if left.groups == 0:
                return LastLook(
                    self._now(),
                    OVER_BUDGET,
                    job,
                    f"the budget of this hour is spent: at most {counted(budget.groups or 0, 'group')}",
                )
            found = planner.plan_for(collected, job, left)
            if found.cause == planner.LIMITS:
                reason = f"{found.reason}: this is left of the budget of this hour, {_in_words(budget)}"
                return LastLook(self._now(), OVER_BUDGET, job, reason)
            if found.outcome != planner.PLAN:
                return LastLook(self._now(), found.outcome, job, found.reason)
            if not all(one.is_met for one in found.wanted):
                return LastLook(self._now(), planner.NOTHING_POSSIBLE, job, found.reason)
            self._begin(collected, found, ITSELF, RETURN_S)
            return LastLook(self._now(), MOVED, job)

    def _left(self, vc: str, budget: Budget) -> Limits:
        """The part of a budget that is left in this hour. Raises KubeError."""
        self._spending.begin_term(self._service.machine.term)
        return self._spending.left(vc, budget)

    def _budget_of(self, vc: str, budget: Budget, left: Limits) -> AutomaticMoves:
        term, last = self._last.get(vc, (0, None))
        return AutomaticMoves(
            vc=vc,
            max_gpu_hours=budget.gpu_hours,
            left_gpu_hours=left.gpu_hours or 0.0,
            max_groups=budget.groups,
            left_groups=left.groups,
            last_look=last if term == self._service.machine.term else None,
        )

    # Both

    def _collect(self) -> Collected:
        return collect(self._service, self._text())

    def _version(self) -> tuple[int, int, int]:
        """Another one after whatever may let a plan be made: of the state, or of the pods that wait."""
        with self._service.runner.look() as machine:
            core, counts = machine.cache.core, machine.cache.pods.counts()
            return (core.number, core.version, counts[PodState.WAITING.shown]) if core is not None else (0, 0, 0)

    def _moves(self) -> MovingReport:
        self._service.check_leads()
        found: MovingReport = self._service.runner.handle(MovesLookedAt())
        return found

    def _begin(self, collected: Collected, found: DefragPlan, who: str, return_s: float) -> MovingReport:
        """Begin to move groups, and count that. Raises UserError; KubeError if it is us who cannot count it."""
        from hived_extender.insight.defrag import planner  # noqa: PLC0415  # see above

        orders = planner.checked_orders(collected, found)
        jobs = planner.names_of_jobs(collected.inputs, found)
        asked = MovesAsked(orders, who, found.vc, return_s, collected.moving.movable, jobs)
        spent = None
        try:
            self._spending.begin_term(self._service.machine.term)
            spent = self._spending.add(found.vc, found.lost_gpu_hours, len(found.moves), begins_anyway=who != ITSELF)
        except KubeError as error:
            if who == ITSELF:
                raise
            log.warning("the cost of moves is not kept for later leaders", extra={"fields": {"reason": str(error)}})
        try:
            report: MovingReport = self._service.runner.handle(asked)
        except UserError:
            if spent is not None:
                self._take_back(spent)
            raise
        fields = {"who": who, "vc": found.vc, "groups": len(orders), "gpu_hours": found.lost_gpu_hours}
        log.info("groups are moved", extra={"fields": fields})
        return report

    def _take_back(self, spent: Spent) -> None:
        try:
            self._spending.take_back(spent)
        except KubeError as error:
            log.warning("a plan counts that was not begun", extra={"fields": {"reason": str(error)}})


def _in_words(budget: Budget) -> str:
    groups = "" if budget.groups is None else f" and {counted(budget.groups, 'group')}"
    return f"{budget.gpu_hours:g} GPU-hours{groups}"
