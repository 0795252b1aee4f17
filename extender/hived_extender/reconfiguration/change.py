"""One change from the configuration in force to another: the successor state, its effects on jobs, and the switch."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hived.cells.state import State
from hived.values.errors import InvariantError, UserError
from hived_config.changes import Changes
from hived_config.compare import compare
from hived_config.document import gc_paused
from hived_config.loader import Configuration
from hived_config.rules import names_for
from hived_extender.api.configuration import BadCells, ConfigReport, ReportedGroups, ReportedJob
from hived_extender.machine.core import StateInputs
from hived_extender.machine.explaining import CacheFacts
from hived_extender.machine.pods import PodState
from hived_extender.machine.recording.record import Draft
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import Configured, Reconfigured, Switched
from hived_extender.reconfiguration.judging import (
    HARM,
    Affected,
    Verdict,
    Verdicts,
    Waiting,
    bad_nodes,
    in_turn,
    judge,
    news_of,
    note_waiting,
    outcomes,
    refused_by,
)
from hived_extender.reconfiguration.successor import Successor

LOOKED_AT_ONCE = 100
"""Waiting pods; gangs of which the plan is not known cost 0.1 ms each."""


def waiting_jobs(service: Service) -> list[Waiting]:
    """The jobs that wait, highest priority first. Others are served in between."""
    with service.runner.exclusive() as machine:
        records = machine.cache.pods.records(PodState.WAITING)
    found: dict[str, Waiting] = {}
    for first in range(0, len(records), LOOKED_AT_ONCE):
        with service.runner.exclusive() as machine:
            note_waiting(found, machine.cache, records[first : first + LOOKED_AT_ONCE])
        time.sleep(0)  # let another waiter have the lock first
    return in_turn(found)


def jobs_of(service: Service) -> dict[str, str]:
    """The job of each group with cells, as lists name it. Others are served in between. Cost O(pods)."""
    with service.runner.exclusive() as machine:
        names = list(machine.verbs.core.state.groups)
    found: dict[str, str] = {}
    for first in range(0, len(names), LOOKED_AT_ONCE):
        with service.runner.exclusive() as machine:
            facts = CacheFacts(machine.cache, machine.verbs.core)
            members = [facts.members(name) for name in names[first : first + LOOKED_AT_ONCE]]
        found |= {one.group: known.job for one in members if (known := one.facts) is not None}
        time.sleep(0)  # as above
    return found


def nodes_in_use(service: Service) -> frozenset[str]:
    """The nodes that pods of ours run on, or are being bound to."""
    with service.runner.look() as machine:
        return frozenset(record.place.node for record in machine.cache.pods if record.place.node)


def configure(service: Service, configuration: Configuration, text: str) -> bool:
    """Take up another configuration on a replica that does not lead; False on one that does, which has to switch.

    Pods that this makes ours, or reads differently, have to be listed anew.
    """
    return bool(service.runner.handle(Configured(configuration, text)))


def tell_affected(service: Service, affected: Iterable[Affected]) -> None:
    """Tell the owners of running pods how another configuration has affected them."""
    news = [(one.uids, told) for one in affected if (told := news_of(one)) is not None]
    service.tell(Reconfigured(tuple(news)))


log = logging.getLogger(__name__)

Agreed = Mapping[str, str]
"""The verdict on each group by name, as the author of a push has seen it; groups that end meanwhile do not matter."""

Beside = Callable[[Configuration], Sequence[str]]
"""Gives warnings about another configuration that follow from all that waits in queues now."""

ROUNDS = 8
FEW = 16
"""Differences that are left for the switch itself; while there are more, they are caught up with, in a few rounds."""

DOWNGRADE_REMEDY = "--allow-downgrade"


class Disagreement(UserError):
    """Something else would become of running work than was agreed to."""


class Switch(NamedTuple):
    """The time that requests had to wait, in seconds, and those affected of how many groups; None if nobody had to
    know.
    """

    seconds: float
    affected: Sequence[Affected] | None
    group_count: int


class Outcome(msgspec.Struct, frozen=True):
    """The effects of a change. `jobs` has the job of each group with cells, at the time of the plan, and `pods` counts
    those of each such job.
    """

    changes: Changes
    affected: Sequence[Affected]
    unaffected_count: int
    waiting: Sequence[ReportedJob]
    base_version: int
    warnings: Sequence[str] = ()
    refusals: Sequence[str] = ()
    bad: Sequence[BadCells] = ()
    jobs: Mapping[str, str] = {}
    pods: Mapping[str, int] = {}

    def at(self, switch: Switch) -> "Outcome":
        """The same as it was at the switch, where groups had come and gone since."""
        if switch.affected is None:
            return self
        count = max(0, switch.group_count - len(switch.affected))
        return replace(self, affected=switch.affected, unaffected_count=count)

    @property
    def locked_out(self) -> list[str]:
        """The jobs of running guaranteed groups that lose cells guaranteed to their VC, by the names of these."""
        return [*dict.fromkeys(self._job_of(one.name) for one in self.affected if one.is_locked_out)]

    def _job_of(self, group: str) -> str:
        return self.jobs.get(group, group)

    def report(self, refusals: Sequence[str] = ()) -> ConfigReport:
        """The outcome as the HTTP API shows it."""
        return ConfigReport(
            self.base_version,
            self.changes.is_empty,
            [*self.refusals, *refusals],
            [*self.warnings],
            self.changes,
            self._groups(),
            [*self.waiting],
            any(one.verdict in HARM for one in self.affected),
            bool(self.locked_out) and not self.refusals,
            [*self.bad],
        )

    def _groups(self) -> ReportedGroups:
        affected = [_reported(one, job := self._job_of(one.name), self.pods.get(job, 0)) for one in self.affected]
        spared = {*self.jobs.values()} - {one.job for one in affected}
        return ReportedGroups(self.unaffected_count, affected, len(spared))


class Change:
    """One change. `drop` it, unless it was switched to."""

    def __init__(
        self,
        old: Configuration,
        new: Configuration,
        draft: Draft | None,
        base_version: int,
        *,
        has_profiles: bool = False,
        beside: Beside = lambda new: (),
    ) -> None:
        """Cost O(cells). `has_profiles`: there is a kube-scheduler, which has a profile for each schedulerName."""
        self._beside = beside
        self._old = old
        self._new = new
        self._base_version = base_version
        self._has_profiles = has_profiles
        self._successor = Successor(new.cluster, draft, new.rules)
        self._verdicts = Verdicts(self._successor)
        self._cluster: frozenset[str] = frozenset()
        self._jobs: Mapping[str, str] = {}

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes of the configuration to come."""
        return self._successor.core.node_names

    def catch_up(self, inputs: StateInputs) -> int:
        """Bring the successor up to date with the present state; returns the number of differences since last time."""
        return self._successor.catch_up(inputs)

    def catch_up_with(self, service: Service) -> tuple[State, list[Waiting]]:
        """Catch up until few differences are left, and check the invariants; returns the present state and the waiting
        jobs.

        Raises UserError if the state to come is broken, NotLeadingError if the present one is gone.
        """
        for _ in range(ROUNDS):
            service.check_leads()
            with service.runner.exclusive() as machine:
                inputs, state = machine.terms.inputs(), machine.verbs.core.state
            if self.catch_up(inputs) <= FEW:
                break
        try:
            self._successor.check()
        except InvariantError as error:
            raise UserError(f"the new state breaks a rule: {error}", 500) from error
        with service.runner.look() as machine:
            self._cluster = machine.cache.nodes.names
        self._jobs = jobs_of(service)
        return state, waiting_jobs(service)

    def outcome(self, present: State, waiting: Sequence[Waiting]) -> Outcome:
        """The effects on running and waiting jobs. Cost: a search for each kind of job that waits."""
        affected = self._verdicts.affected(present)
        topology = self._successor.core.state.topology
        names = judge(self._old, self._new, self._cluster)
        groups, pods = present.groups.copy(), Counter[str]()
        jobs = {name: self._jobs.get(name, name) for name in groups}
        for name, group in groups.items():
            pods[jobs[name]] += sum(pod is not None for pod in group.holders)
        return Outcome(
            compare(self._old, self._new, present.topology, topology),
            affected,
            max(0, len(present.groups) - len(affected)),
            outcomes(
                refused_by(self._new.rules.access, waiting), self._successor.core.state, present.topology.node_names
            ),
            self._base_version,
            (
                *names.warnings,
                *(_warn_of_names(self._old, self._new) if self._has_profiles else ()),
                *_warn_of_queues(self._new, affected),
                *self._beside(self._new),
            ),
            names.refusals,
            bad_nodes(self._successor.core.state),
            jobs,
            pods,
        )

    def switch(self, service: Service, agreed: Agreed | None, version: int = 0, *, may_lock_out: bool = True) -> Switch:
        """Replace the state with its successor between two requests.
        Raises Disagreement if running work would fare other than `agreed`, where given. So does a lock-out of
        guaranteed work that is not allowed. Raises UserError if the switch is impossible. After each of these the old
        configuration stays in force.
        """
        service.check_leads()
        with gc_paused(), service.runner.exclusive() as machine:
            began = time.perf_counter()
            present = machine.verbs.core.state  # kept until nobody waits any more: to give it back takes milliseconds
            affected = self._finish(machine.terms.inputs(), present, agreed, may_lock_out)
            new = self._successor
            service.runner.handle_within(Switched(self._new, new.core, new.losses, new.unaccounted, version))
            return Switch(time.perf_counter() - began, affected, len(present.groups))

    def _finish(
        self, inputs: StateInputs, present: State, agreed: Agreed | None, may_lock_out: bool
    ) -> Sequence[Affected] | None:
        """Catch up with the last differences; returns whom they affect, None if nobody has to know.

        Raises UserError, and nothing else, to keep the present state.
        """
        try:
            self.catch_up(inputs)
            if agreed is None and may_lock_out:
                return None
            affected = self._verdicts.affected(present)
            if agreed is not None:
                check_agreed(affected, agreed, present)
            for one in affected if not may_lock_out else ():
                if one.is_locked_out:
                    raise Disagreement(
                        f"job {self._jobs.get(one.name, one.name)} would be {one.verdict.value} now: plan again", 409
                    )
            return affected
        except UserError:
            raise
        except Exception as error:
            log.critical("a configuration is not taken up: its state is broken", exc_info=error)
            raise UserError(f"the new state is broken ({type(error).__name__}: {error}); see the log", 500) from error

    def drop(self) -> None:
        """It is not going to happen."""
        self._successor.drop()


def _reported(group: Affected, job: str, job_pods: int) -> ReportedJob:
    return ReportedJob(
        group.name, group.vc, group.priority, [*group.pods], group.verdict.value, group.reason, job, job_pods
    )


def _warn_of_names(old: Configuration, new: Configuration) -> list[str]:
    """kube-scheduler asks about pods of its own profiles only, which a configuration of ours does not change."""
    known = names_for(old.rules.scheduler_names, old.cluster.virtual_clusters)
    names = names_for(new.rules.scheduler_names, new.cluster.virtual_clusters)
    added = [name for name in names if name not in known]
    if not added:
        return []
    return [f"kube-scheduler needs a profile for each new scheduler name ({', '.join(added)}): see hived manifests"]


def _warn_of_queues(new: Configuration, affected: Sequence[Affected]) -> list[str]:
    """Jobs without a guarantee are borrowers to their queues, which have cells given back without being asked."""
    loses = any(one.verdict is Verdict.LAZILY_PREEMPTED for one in affected)
    return [QUEUES_SUSPEND] * (loses and new.rules.queueing.is_enabled)


QUEUES_SUSPEND = (
    "queues are on: they may suspend borrowers, and jobs that lose their guarantee, at once; "
    "hived why JOB says for whom"
)


def check_agreed(affected: Sequence[Affected], agreed: Agreed, present: State) -> None:
    """Raise Disagreement unless the groups that are still there have exactly the agreed verdicts (rule 33.2)."""
    now = {one.name: one.verdict.value for one in affected if one.verdict is not Verdict.RESTORED}
    expected = {name: verdict for name, verdict in agreed.items() if verdict != Verdict.RESTORED.value}
    for name in sorted(now.keys() | expected.keys()):
        if name in present.groups and now.get(name) != expected.get(name):
            found, wanted = now.get(name, "unaffected"), expected.get(name, "unaffected")
            raise Disagreement(f"{name} would be {found} now, and {wanted} was agreed to: plan again", 409)
