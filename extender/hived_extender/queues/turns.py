"""The queues of one term of leadership, under one configuration: facts in, turns, calls on jobs and records out.

Made anew when a term or another configuration begins, and told all jobs then, with the state that their objects have.
Not thread-safe.

Jobs that need fewer cells than they started with give the rest back (rule 32.8): a pod has succeeded and is not made
anew, a job was scaled down, or a part of it has finished. A job gives back in steps, as its pods end.
"""

import dataclasses
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from hived.values.errors import InvariantError, UserError
from hived.values.specs import ClusterSpec, GroupSpec
from hived_config.rules import PodRules, Queueing
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import gangs, table
from hived_extender.jobs.kinds.gates import GATE
from hived_extender.jobs.kinds.marks import is_marked_held
from hived_extender.jobs.misspelt import misplaced
from hived_extender.jobs.needs import SeenJob
from hived_extender.jobs.quotas.backing import cells_of, virtual_cluster_of
from hived_extender.jobs.quotas.tree import MAX_JOBS, QuotaTree
from hived_extender.jobs.quotas.usage import EPSILON
from hived_extender.jobs.wire import Pod
from hived_extender.kube.clocks import FAR_S
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.claims import Lent
from hived_extender.machine.core import Core
from hived_extender.machine.holds import HeldBind
from hived_extender.machine.jobs import is_of
from hived_extender.machine.machine import Machine
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.quota_bound import QuotaBound
from hived_extender.machine.stand_ins import members_of
from hived_extender.machine.stimuli import (
    Claimed,
    GroupsEvicted,
    HoldDropped,
    HoldsLookedAt,
    HoldState,
    JobsBarred,
    LentAsked,
    Stimulus,
)
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.ledger import TreeLedger, Unlimited
from hived_extender.queues.live_room import LiveRoom, Surroundings, groups_within, leaves_of
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.policies import QueueRules, Rules, policy_named
from hived_extender.queues.publishing import Publisher, Records
from hived_extender.queues.queued_jobs import Action, JobRecord, QueuedJobs, is_resumed_by_owner
from hived_extender.queues.reasons import (
    NOT_BORN_HELD,
    RESUMED,
    Impossible,
    NeverFits,
    OverQuota,
    Reason,
    no_such_vc,
    told,
)
from hived_extender.queues.records import unit_key
from hived_extender.queues.room import Ask
from hived_extender.queues.table import BACK, USUAL, Kept, Life, Pace, read_kept
from hived_extender.queues.tree_use import TreeUse
from hived_extender.queues.units import (
    LATE,
    Cells,
    Evict,
    OtherUse,
    Start,
    Stop,
    TooLargeError,
    Unit,
    Upgrade,
    no_larger,
    unit_of,
)
from hived_extender.queues.watched import NOT_UNDERSTOOD, QueueObjects, WatchedClasses


class KnownQueues:
    """Leaves of a quota tree, and virtual clusters that back none of them. `vcs` has the virtual cluster of each."""

    def __init__(self, tree: QuotaTree | None, cluster: ClusterSpec, rules: PodRules) -> None:
        """Cost O(entries of the configuration, quotas)."""
        self._quotas = {} if tree is None else tree.quotas
        self._oversell = 1.0 if tree is None else tree.oversell
        leaves = () if tree is None else tree.leaves()
        self.vcs = {leaf.name: virtual_cluster_of(leaf, cluster) for leaf in leaves}
        self.vcs |= {vc: vc for vc in cluster.virtual_clusters if vc not in self.vcs.values()}
        self._cells = cells_of(cluster, rules.resources_in(cluster))

    def with_others(self, names: Iterable[str]) -> list[str]:
        """All names, ascending, and these, which have jobs."""
        return sorted({*self.vcs, *names})

    def with_objects(self, names: Iterable[str]) -> list[str]:
        """The same and all quotas above leaves."""
        return self.with_others((*self._quotas, *names))

    def guaranteed(self, name: str) -> dict[str, float]:
        """The `min` of a quota; the devices of a virtual cluster's cells."""
        if (quota := self._quotas.get(name)) is not None:
            return dict(quota.min)
        sizes = self._cells.get(name, {})
        return {resource: float(sum(size * count for size, count in each.items())) for resource, each in sizes.items()}

    def most(self, name: str) -> dict[str, float]:
        """The `max` of a quota and its number of jobs, without what is unlimited; nothing of a virtual cluster."""
        quota = self._quotas.get(name)
        if quota is None:
            return {}
        return dict(quota.max) if quota.max_jobs is None else {**quota.max, MAX_JOBS: float(quota.max_jobs)}

    def oversell(self, name: str) -> float:
        """So many times the `min` and `max` of a quota are its limits."""
        return self._oversell if name in self._quotas else 1.0


log = logging.getLogger(__name__)


class Suspending:
    """Suspends jobs: notes it, announces it, has their pods wait, and gives back what is held for them."""

    def __init__(self, machine: Machine, queues: QueuedJobs, shared: "Shared") -> None:
        self._machine, self._queues, self._metrics = machine, queues, shared.metrics
        self._events, self._now = shared.events, shared.now

    def reclaim(self, key: str, winner: str, *, loses_turn: bool = False) -> None:
        """As `preempt`; it counts as a reclaim."""
        self._metrics.queue_reclaimed.labels(self._queues.queue_of(key)).inc()
        self.preempt(key, winner, loses_turn=loses_turn)

    def preempt(self, key: str, winner: str, *, loses_turn: bool = False) -> None:
        """As `suspend`; its pods count as preempted."""
        self.put(JobsBarred(reclaimed=self._queues.entries[key].job.ref))
        self.suspend(key, winner, loses_turn=loses_turn)

    def suspend(self, key: str, winner: str, *, loses_turn: bool = False) -> None:
        """A job gives its cells back: its pods are to end, and new ones get none."""
        entry, other = self._queues.entries[key], self._queues.entries.get(winner)
        priority = None if other is None or other.asks is None else other.asks.spec.priority
        self._events.lost(entry.job.ref, winner, priority, self._now(), is_borrowed=entry.kept.is_borrowed)
        self._queues.suspend(key, winner, self._now())
        if loses_turn:
            self._queues.lost_turn(key)
        self.tell_suspended(self._queues.entries[key])

    def tell_suspended(self, entry: JobRecord) -> None:
        """It is noted already, as the job was changed by others."""
        job = entry.job.ref
        if entry.kept.is_suspended:
            self._events.suspended(job, self._queues.queue_of(job.key), self._now())
        else:
            queue, notice = self._queues.queue_of(job.key), entry.kept.rest_notice(self._now())
            self._events.evicted(job, queue, entry.kept.evicted_for, self._now(), notice)
        self.bar(job)
        self.put(HoldDropped(job.key))

    def lose_cells(self, key: str, winner: str) -> None:
        """A job has lost its cells, with `LATE` as it made no pod: then those behind it go first."""
        self.suspend(key, winner, loses_turn=winner == LATE)
        if winner == LATE:
            self._queues.move(key, BACK)

    def requeue_gone(self) -> None:
        """Jobs wait again once their pods are gone, and these are evicted where nothing else makes them leave."""
        for entry, has_failed in self._queues.still_leaving(self._now()):
            pods = [one for one in self._machine.cache.jobs.pods_of(entry.job.ref) if one.state.is_placed]
            left = [one.request for one in pods if one.request is not None and not one.seen.is_leaving]
            if has_failed and left and entry.job.comes_back:
                groups = dict.fromkeys(request.spec.group.name for request in left)
                self.put(GroupsEvicted(tuple(groups), entry.kept.evicted_for))
            elif not pods and (has_failed or entry.is_suspended):
                self._queues.requeue(entry.key, self._now())

    def bar(self, job: JobRef) -> None:
        """Have the pods of a job wait until its turn (rule 32.10): its owner may have resumed it."""
        entry = self._queues.entries.get(job.key)
        if entry is None or entry.life.has_cells or entry.asks is None:
            self.put(JobsBarred(freed=(job.job_name,)))
        else:
            self.put(JobsBarred({job.job_name: entry.asks.queue}))

    def put(self, stimulus: Stimulus) -> None:
        """Tell the machine, which may take no part in it just now."""
        try:
            self._machine.ask(stimulus)
        except UserError as error:
            log.info("the service does not take part", extra={"fields": {"cause": error.message}})


class Shrinking:
    """Has jobs that need fewer cells than they started with give the rest back."""

    def __init__(self, machine: Machine, queues: QueuedJobs, room: LiveRoom) -> None:
        self._machine, self._queues, self._room = machine, queues, room
        self._smaller: dict[str, None] = {}  # jobs with cells that need less than they have

    def seen(self, key: str) -> None:
        """A job looks different. A gang whose pods a controller makes anew needs all of its places."""
        entry, had = self._queues.entries.get(key), self._queues.running_unit(key)
        if entry is None or entry.asks is None or had is None or not entry.life.has_cells:
            self._smaller.pop(key, None)
            return
        if entry.job.ref.kind == gangs.KIND and entry.job.comes_back:
            return
        if any(count < _sizes(had)[size] for size, count in _needed(had, entry.asks).items()):
            self._smaller[key] = None
        else:
            self._smaller.pop(key, None)

    def look(self) -> None:
        """Give back what no pod has or will have any more. Cost O(pods of jobs that need less)."""
        for key in list(self._smaller):
            entry, had = self._queues.entries.get(key), self._queues.running_unit(key)
            if entry is None or entry.asks is None or had is None or not entry.life.has_cells:
                del self._smaller[key]
                continue
            unit = self._of_now(entry.job.ref, had, entry.asks)
            if unit.leaf_count < had.leaf_count:
                self._give_back(entry.job.ref, unit, is_borrowed=entry.kept.is_borrowed)
            if all(count >= _sizes(unit)[size] for size, count in _needed(unit, entry.asks).items()):
                del self._smaller[key]

    def _of_now(self, job: JobRef, had: Unit, needs: Unit) -> Unit:
        """The unit with the pods that are needed, and those that have cells still. One slot is left at least."""
        placed = Counter(self._machine.holds.placed_sizes(job))
        before, needed = _sizes(had), _needed(had, needs)
        sizes = [
            size for size, count in before.items() for _ in range(min(count, max(needed[size], placed[size])))
        ] or [max(before)]
        group = GroupSpec(had.spec.group.name, members_of(sizes))
        spec = dataclasses.replace(had.spec, group=group, leaf_cell_count=max(sizes))
        left, least = sum(sizes), min(needs.leaf_count, had.leaf_count)
        part = (left - least) / (had.leaf_count - least) if had.leaf_count > least else 1.0
        names = dict.fromkeys((*had.request, *needs.request))
        request = {
            name: min(had.request.get(name, 0.0), _between(needs.request, had.request, name, part)) for name in names
        }
        return replace(had, spec=spec, request=request)

    def _give_back(self, job: JobRef, unit: Unit, *, is_borrowed: bool) -> None:
        held = self._room.shrink(Ask(unit, is_borrowed))
        core, pods = self._machine.cache.core, self._machine.cache.jobs.pods_of(job)
        groups = list(dict.fromkeys(one.request.spec.group.name for one in pods if one.request is not None))
        own = () if core is None or is_borrowed else leaves_of(core.state, unit, groups, held)
        self._queues.shrink(unit, own)


def _sizes(unit: Unit) -> Counter[int]:
    """The pods of a unit by their leaf cells."""
    return Counter({member.leaf_cell_count: member.pod_count for member in unit.spec.group.members})


def _needed(had: Unit, needs: Unit) -> dict[int, int]:
    """The pods of each size that a unit had and needs still."""
    wanted = _sizes(needs)
    return {size: min(count, wanted[size]) for size, count in _sizes(had).items()}


def _between(least: Mapping[str, float], most: Mapping[str, float], name: str, part: float) -> float:
    low, high = least.get(name, 0.0), most.get(name, 0.0)
    return low + (high - low) * part


GATED = frozenset([("", gangs.KIND), *((kind.group, kind.kind) for kind in table.KINDS if kind.has_gates)])
"""Groups and kinds of jobs whose pods are held by a gate."""

MOVES = "others, as its turn has come and its own cells are elsewhere"
"""Words for the winner, where a job moves to its own cells."""

ASK_ALL_S = 30.0
"""After so many seconds jobs that were refused are asked for again, though no change was reported: labels, taints and
other pods of a node bear on an answer, too, and the core does not know of them."""


@dataclass(frozen=True, slots=True)
class Shared:
    """All that the turns of several terms share.

    Times that were `learned` are only shown. `outside` are claims of guaranteed work of no queue, by key. Without
    `classes` every job preempts.
    """

    prover: Prover
    publisher: Publisher
    now: Callable[[], float]
    events: JobEvents
    learned: Learned | None = None
    outside: Mapping[str, Claimed] = field(default_factory=dict)
    classes: WatchedClasses | None = None
    metrics: Metrics = field(default_factory=Metrics)
    pace: Pace = USUAL


def _seen_before(key: str, earlier: Sequence["Turns"]) -> JobRecord | None:
    """The latest record of a job in earlier turns."""
    known = (each.queues.entries.get(key) for each in earlier)
    return next((each for each in known if each is not None), None)


class Turns:
    """The queues of one term. `queues`, `known`, `use` and `room` may be looked at between calls."""

    def __init__(
        self, machine: Machine, core: Core, queueing: Queueing, tree: QuotaTree | None, shared: Shared
    ) -> None:
        """Without a `tree` each virtual cluster is a queue. Cost O(cells)."""
        self._machine, self._prover, self._now, self._events = machine, shared.prover, shared.now, shared.events
        self._classes, self._metrics = shared.classes, shared.metrics
        self.queues = QueuedJobs(core.state.spec, shared.learned, shared.pace, start_s=queueing.start_s)
        self._tree, self.cluster = tree, core.state.spec
        self.known = KnownQueues(tree, self.cluster, machine.interpreter.rules)
        self._cells = Cells(core.state.spec, len(core.state.arrays.node_leaf))
        self._new_ledger = Unlimited if tree is None else partial(TreeLedger, tree)
        self.rules = self._configured = rules_of(queueing, tree, self.cluster)
        self.queues.told_rules(self.rules, self._new_ledger)
        self.use = TreeUse(tree, self.queues, shared.now)
        self._suspending = Suspending(machine, self.queues, shared)
        self._publisher = shared.publisher
        self._records = Records(shared.publisher, () if tree is None else tree.quotas)
        self._inactive: frozenset[tuple[str, str]] = frozenset()
        self._surroundings = Surroundings(self.queues, core)
        self._version = -1
        self._to_look_at: dict[JobName, None] = {}
        self._gone: list[JobName] = []
        self._gated: dict[JobRef, None] = {}  # jobs with cells that may have pods at their gate
        self._lent_left = 0
        self._refs: dict[str, tuple[JobRef, Sequence[tuple[Pod, int]]]] = {}
        self._names: dict[JobName, JobRef] = {}
        self._names_changed = 0
        self._charged_at: object = None
        self.room = LiveRoom(machine, self._refs, shared.outside)
        self._shrinking = Shrinking(machine, self.queues, self.room)
        self._asked_all_s = shared.now()
        self.is_new = True  # has not been told of the words in Queue objects

    # Facts

    def job_seen(
        self, name: JobName, seen: SeenJob | None, *, is_first: bool = False, earlier: Sequence["Turns"] = ()
    ) -> None:
        """A job looks like this now; None if it is gone. `is_first`: it was there when these turns began, after
        `earlier` ones, the latest first.

        A mistake of ours in taking it in is its own trouble, and stops no other's turn.
        """
        before = self._names.get(name)
        if before is not None and (seen is None or seen.job.ref != before):
            self._job_gone(name, before)
        if seen is None:
            return
        try:
            self._take_in(name, seen, earlier, is_first=is_first)
        except (UserError, InvariantError):
            raise
        except Exception:
            log.exception("a job cannot be queued", extra={"fields": {"job": str(seen.job.ref)}})
            self._take_in(name, replace(seen, need=None, problem=NOT_UNDERSTOOD), earlier, is_first=is_first)

    def _take_in(self, name: JobName, seen: SeenJob, earlier: Sequence["Turns"], *, is_first: bool) -> None:
        now, entry = self._now(), self.queues.entries.get(seen.job.ref.key)
        is_ours = seen.need is not None or bool(seen.problem)
        if not is_ours and name not in self._names and not is_marked_held(seen.job.annotations):
            return
        job = _of_the_past(seen.job, now if entry is None else entry.job.created_s, now)
        self._names_changed += name not in self._names
        self._names[name], self._to_look_at[name] = job.ref, None
        unit, problem, too_large_for = None, seen.problem.removeprefix(f"{job.ref}: "), ""
        if seen.need is not None:
            self._refs[job.ref.key] = job.ref, seen.need.pods
            try:
                preempts = self._classes is None or self._classes.preempts(pod for pod, _ in seen.need.pods)
                unit = unit_of(job, seen.need, self._cells, self._tree, preempts=preempts)
            except UserError as error:
                problem, too_large_for = error.message, error.queue if isinstance(error, TooLargeError) else ""
        before = _seen_before(job.ref.key, earlier) if entry is None else entry
        vc = "" if before is None else before.vc
        if seen.need is not None:
            vc = seen.need.spec.virtual_cluster
        if vc and vc not in self.cluster.virtual_clusters and (seen.need is not None or problem):
            has_started = job.state is not JobState.HELD
            problem = no_such_vc(vc, self.cluster.virtual_clusters, has_started=has_started)
            unit, too_large_for = None, ""
        was = None if entry is None else entry.asks
        is_new, had_cells = entry is None or entry.asks is None, entry is not None and entry.life.has_cells
        has_cells = (is_new or (entry is not None and entry.life is Life.LEAVING)) and self._has_cells(job.ref)
        newest = self._kept(job, entry, earlier)
        if unit is not None and unit.minimum is not None and newest.is_resumed and newest.leaf_count:
            unit, job = no_larger(unit, newest.leaf_count), replace(job, grows=True)
        is_resumed = entry is not None and is_resumed_by_owner(entry, job, newest)
        # One that is in no queue is resumed once nothing is in its way.
        why = seen.wait.sentence if unit is None and not problem and seen.wait is not None else problem
        self.queues.job_seen(job, unit, newest, now, why, has_cells=has_cells, is_first=is_first)
        self.queues.wait(job.ref.key, seen.wait)
        entry = self.queues.entries.get(job.ref.key)  # none for a job that is over
        if entry is not None:
            entry.spec, entry.too_large_for = (None if seen.need is None else seen.need.spec), too_large_for
            entry.vc = vc
        self._suspending.bar(job.ref)
        self._shrinking.seen(job.ref.key)
        if had_cells and seen.need is None and not seen.problem:
            self._suspending.put(HoldDropped(job.ref.key))  # no pod of it needs cells any more
        if had_cells and entry is not None and entry.asks is not None and not entry.life.has_cells:
            self._suspending.tell_suspended(entry)
        if is_new and unit is not None and entry is not None:
            self._hold_again(entry, unit, has_cells=has_cells)
            if entry.life is Life.LEAVING and not newest.version:
                self._events.enqueued(job.ref, unit.queue, 0.0, now, NOT_BORN_HELD)
            elif entry.life is Life.WAITING:
                warning = misplaced(job, (pod for pod, _ in seen.need.pods)) if seen.need is not None else ""
                self._events.enqueued(job.ref, unit.queue, now - job.created_s, now, warning)
        if is_resumed and unit is not None:
            self._events.enqueued(job.ref, unit.queue, 0.0, now, RESUMED)
        if problem and job.ref.kind != gangs.KIND and job.roles_in is None:  # others become whole in a moment
            self._events.refused(job.ref, problem, now)
        if unit is not None and unit != was and entry is not None and entry.life is Life.WAITING:
            _say_if_never(self.queues, self._events, entry, now)
        if unit is not None and self.is_inactive(job.ref):
            self.queues.held(job.ref.key, True)
        if job.state.is_over:
            self._events.gone(job.ref.key)
            self._suspending.put(HoldDropped(job.ref.key))

    def wrote(self, action: Action, error: str) -> None:
        """A call on a job was made, or refused."""
        self.queues.wrote(action, error, self._now())

    def pods_changed(self, jobs: Iterable[JobName]) -> bool:
        """Pods of these jobs came, went, or have other cells; True if one of them is known here."""
        known = [job for job in jobs if job in self._names]
        self._to_look_at |= dict.fromkeys(known)
        return bool(known)

    @property
    def has_other_version(self) -> bool:
        """True if the core has changed since the last `follow_pods`."""
        core = self._machine.cache.core
        return core is not None and core.version != self._version

    def follow_pods(self) -> None:
        """See how far the pods of jobs with cells have come, and what goes on beside the queues.

        Cost O(nodes + groups of no queue + pods of jobs that have changed).
        """
        core, jobs, now = self._machine.cache.core, self._machine.cache.jobs, self._now()
        changed, self._to_look_at = [self._names[one] for one in self._to_look_at if one in self._names], {}
        keys = dict.fromkeys((*(job.key for job in changed), *self.queues.overdue(now)))
        states: Mapping[str, HoldState] = self._machine.ask(HoldsLookedAt(tuple(keys)))
        for name, victims in jobs.take_preempted().items():
            if (job := self._names.get(name)) is not None and (winner := self._winner_over(job, victims)):
                self.reclaim_for(job.key, winner)
        for key, winner in self.queues.progressed(states, now).items():
            self._suspending.lose_cells(key, winner)
        self._gated |= {job: None for job in changed if (job.job_name.group, job.kind) in GATED}
        for job in list(self._gated):
            entry = self.queues.entries.get(job.key)
            has_cells = entry is not None and entry.life.has_cells
            if has_cells and any(GATE in one.seen.gates for one in jobs.pods_of(job)):
                self.queues.pods_are_gated(job.key)
            else:
                del self._gated[job]
        self._shrinking.look()
        if (charged := self._other_use(self._machine.holds.quotas, core)) is not None:
            self.queues.told_others(charged)
        if core is not None:
            self._version = core.version
            leaves = {job: self.queues.leaf_count_of(job.key) for job in changed}
            queued = {job.job_name: groups_within(jobs.pods_of(job), count) for job, count in leaves.items()}
            found = self._surroundings.look(core, {name: set[str]() for name in self._gone} | queued)
            self._gone = []
            if found is not None:
                self._surroundings.tell(found)
        lent_left = self._machine.cache.nodes.residents.lent_left
        if self._lent_left != lent_left:
            self._lent_left = lent_left
            self.queues.room_made(has_own=True)
        self._suspending.requeue_gone()

    def _winner_over(self, job: JobRef, victims: Mapping[PodRecord, str]) -> str:
        """The first winner of cells that a queue gave to a job; "" if its victims stay, or are beyond its size.

        A victim that is gone counts if the job lacks pods now.
        """
        pods, count = self._machine.cache.jobs.pods_of(job), self.queues.leaf_count_of(job.key)
        counted = groups_within(pods, count)
        left = [one.request.spec.leaf_cell_count for one in pods if one.is_in_core and one.request is not None]
        lacks_pods, must_leave = sum(left) < count, self._machine.preemptions.must_leave
        for victim, winner in victims.items():
            if not victim.is_in_core or victim.request is None:
                is_lost = lacks_pods and is_of(victim, job)
            else:
                is_lost = victim.request.spec.group.name in counted and must_leave(victim)
            if is_lost:
                return winner
        return ""

    def _other_use(self, quotas: QuotaBound, core: Core | None) -> tuple[OtherUse, ...] | None:
        """The use of quotas by all pods beyond the requests of units with cells; None if nothing has changed."""
        if core is None or self._tree is None:
            return None
        moment = quotas.settled_version(core), self._names_changed, self.queues.run_changes
        if moment == self._charged_at:
            return None
        self._charged_at, found = moment, list[OtherUse]()
        for charge in quotas.charges(core):
            ref = self._names.get(charge.job) if isinstance(charge.job, JobName) else None
            unit = None if ref is None else self.queues.running_unit(ref.key)
            if unit is None or unit.queue != charge.leaf:
                found.append(OtherUse(charge.leaf, charge.amounts, charge.guaranteed, lent=charge.lent))
                continue
            request, own = _beyond(charge.amounts, unit.request), _beyond(charge.guaranteed, unit.request)
            if request:
                found.append(OtherUse(charge.leaf, request, own, jobs=0))
        return tuple(found)

    def told_objects(self, objects: QueueObjects) -> None:
        """Obey the words of users in Queue and QueueUnit objects. Cost O(jobs) if they have changed."""
        rules = objects.obeyed(self._configured)
        if rules != self.rules:
            self.rules = rules
            self.queues.told_rules(rules, self._new_ledger)
        before, self._inactive = self._inactive, self._publisher.inactive()
        changed = before ^ self._inactive
        for entry in self.queues.entries.values() if changed else ():
            if unit_key(entry.job.ref) in changed:
                self.queues.held(entry.key, entry.may_not_start or self.is_inactive(entry.job.ref))

    def leave_off(self, goes_on: "Turns | None" = None) -> None:
        """Drop what is held for jobs, and let their pods be placed, but for jobs of the turns that go on.

        These keep the cells of jobs that have some there, too, or are in no queue any more. Cost O(jobs).
        """
        if (core := self._machine.cache.core) is not None:
            self._surroundings.leave(core)
        others = {} if goes_on is None else goes_on.queues.entries
        gone = (name for name, job in self._names.items() if job.key not in others)
        self._suspending.put(JobsBarred(freed=tuple(gone)))
        if goes_on is None:
            self._machine.cache.jobs.take_preempted()
        for key in self._machine.holds.states(job.key for job in self._names.values()):
            now = others.get(key)
            if now is None or (now.asks is not None and not now.life.has_cells):
                self._suspending.put(HoldDropped(key))

    # Questions

    def is_inactive(self, job: JobRef) -> bool:
        """Does a user say `active: false` of the unit of a job?"""
        return bool(self._inactive) and unit_key(job) in self._inactive

    # Turns

    def take_turn(self) -> None:
        """Decide whose turn it is, and note what is to be done about it."""
        now = self._now()
        for key, quota in self.use.drained().items():
            self._suspending.reclaim(key, f"others, as quota {quota} was lowered below its use", loses_turn=True)
        if now - self._asked_all_s >= ASK_ALL_S:
            self._asked_all_s = now
            self.queues.room_made(has_own=True)
        for order in self.queues.turn(now, self.room):
            match order:
                case Start(key=key, is_borrowed=is_borrowed):
                    self._metrics.queue_admitted.labels(self.queues.queue_of(key)).inc()
                    self.queues.resume(key, now, is_borrowed=is_borrowed)
                    job = self.queues.entries[key].job.ref
                    self._to_look_at[job.job_name] = None
                    self._events.dequeued(job, self.queues.queue_of(key), now, is_borrowed=is_borrowed)
                case Upgrade(key=key):
                    self.queues.own(key)
                    self._events.upgraded(self.queues.entries[key].job.ref, now)
                case Stop(key=key, winner=winner):
                    self._suspending.reclaim(key, MOVES if winner == key else winner)
                case Evict(groups=groups, winner=winner):
                    self._suspending.put(GroupsEvicted(groups, winner))

    def lent(self) -> Lent:
        """The jobs on borrowed cells."""
        return self.room.lent(self.queues.lent(self._now()))

    def reclaim_for(self, key: str, winner: str) -> None:
        """A job leaves for guaranteed work of no queue (rule 32.14). Its turn is over if its cells are not borrowed."""
        entry = self.queues.entries.get(key)
        if entry is None or not entry.life.has_cells or not entry.job.comes_back:
            return
        if entry.kept.is_borrowed:
            self._suspending.reclaim(key, winner)
        else:
            self._suspending.preempt(key, winner, loses_turn=True)

    def take_actions(self, limit: int) -> list[Action]:
        """The next calls on jobs."""
        return self.queues.take_actions(self._now(), limit)

    def record(self, limit: int = sys.maxsize) -> bool:
        """Have the objects of so many jobs say what is so now; True if others are left.

        Then the first job of each queue is told that a quota is in its way.
        """
        if self._records.update(self.queues, limit):
            return True
        now = self._now()
        for key in self._records.heads.values():
            reason = _say_if_never(self.queues, self._events, self.queues.entries[key], now)
            if isinstance(reason, OverQuota):
                self._events.insufficient(self.queues.entries[key].job.ref, reason.text, now)
        return False

    def _job_gone(self, name: JobName, job: JobRef) -> None:
        self._names.pop(name, None)
        self._gone.append(name)
        self._names_changed += 1
        self._events.gone(job.key)
        self._suspending.put(JobsBarred(freed=(name,)))  # a later job of the name may be in no queue
        self._refs.pop(job.key, None)
        self.queues.job_gone(job)
        self._suspending.put(HoldDropped(job.key))

    def _kept(self, job: Job, entry: JobRecord | None, earlier: Sequence["Turns"]) -> Kept:
        """The state that is kept on a job. Its owner may write an older one again, which an earlier term knows better.

        That of a gang was on its pods, which are gone once it is suspended.
        """
        found = read_kept(job.annotations, job.ref.uid, self._prover)
        if entry is None and earlier:
            entry = _seen_before(job.ref.key, earlier)
            if entry is not None and entry.kept.version > found.version and job.state is JobState.HELD:
                return replace(entry.kept, is_resumed=False)  # not its owner: it is yet to be resumed
        elif entry is None or job.ref.kind != gangs.KIND or entry.life.has_cells:
            return found
        return found if entry is None else max(found, entry.kept, key=lambda one: one.version)

    def _hold_again(self, entry: JobRecord, unit: Unit, *, has_cells: bool) -> None:
        """Hold cells again for a job that an earlier term resumed (rule 32.11), at the priority of then."""
        found = None
        if entry.life.has_cells and entry.kept.is_resumed:
            if has_cells:
                self._see_whose(entry)
            found = self.room.hold_again(Ask(unit, entry.kept.is_borrowed, self.queues.own_cells(unit.key)))
            if not has_cells and not isinstance(found, HeldBind):
                if entry.job.comes_back:
                    self._suspending.suspend(unit.key, "")
                else:
                    self.queues.job_seen(entry.job, None, entry.kept, self._now())  # until it has cells as in no queue
                return
        elif entry.life is not Life.LEAVING:
            return
        core, cache = self._machine.cache.core, self._machine.cache
        requests = [one.request for one in cache.jobs.pods_of(entry.job.ref)]
        groups = list(dict.fromkeys(each.spec.group.name for each in requests if each is not None))
        held = found.virtual if isinstance(found, HeldBind) else ()
        if core is not None:
            is_leaving = entry.life is Life.LEAVING
            self.queues.runs_on(unit.key, leaves_of(core.state, unit, groups, held, is_leaving=is_leaving))

    def _see_whose(self, entry: JobRecord) -> None:
        """A crash may have been between an upgrade's writes onto the pods and the one onto the job: the pods say it."""
        is_lent: bool | None = self._machine.ask(LentAsked(entry.job.ref))
        if is_lent is not None and is_lent != entry.kept.is_borrowed:
            self.queues.correct_borrowed(entry.key, is_borrowed=is_lent)

    def _has_cells(self, job: JobRef) -> bool:
        return any(record.state.is_placed for record in self._machine.cache.jobs.pods_of(job))


def _beyond(amounts: Mapping[str, float], request: Mapping[str, float]) -> dict[str, float]:
    """The part of some amounts that is beyond a request."""
    more = {name: amount - request.get(name, 0.0) for name, amount in amounts.items()}
    return {name: amount for name, amount in more.items() if amount > EPSILON}


def _say_if_never(queues: QueuedJobs, events: JobEvents, entry: JobRecord, now: float) -> Reason | None:
    """Tell the owner of a job that waits if it can never start; returns why it does not start now."""
    reason = queues.refusal(entry.key)
    if isinstance(reason, NeverFits | Impossible):
        events.refused(entry.job.ref, told(reason, str).sentence, now)
    return reason


def rules_of(queueing: Queueing, tree: QuotaTree | None, cluster: ClusterSpec) -> Rules:
    """The rules of all queues, by the configuration. The leaves of a tree have those of their virtual clusters, but
    borrow as the tree says.
    """
    policy = policy_named(queueing.policy.value)
    queues = {
        vc: QueueRules(
            policy=policy,
            weight=own.weight,
            borrows=own.borrows,
            most_running=own.most_running,
            most_waiting=own.most_waiting,
        )
        for vc, own in queueing.virtual_clusters.items()
    }
    for leaf in tree.leaves() if tree is not None else ():
        of_vc = queues.get(virtual_cluster_of(leaf, cluster), QueueRules(policy=policy))
        queues[leaf.name] = replace(of_vc, borrows=None)
    return Rules(QueueRules(policy=policy, borrows=False), queues, queueing.half_life_s)


def _of_the_past(job: Job, known_s: float, now: float) -> Job:
    """A job that the API server's clock has made far in the future counts as made when it was first seen, `known_s`."""
    return job if job.created_s <= now + FAR_S else replace(job, created_s=min(job.created_s, known_s))
