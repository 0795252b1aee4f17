"""One change from the configuration in force to another: the successor state, its effects on jobs, and the switch."""

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hived.errors import InvariantError, UserError
from hived.state import State
from hived_config.changes import Changes
from hived_config.compare import compare
from hived_config.loader import Configuration
from hived_config.rules import names_for
from hived_extender.api.configuration import BadCells, ConfigReport, ReportedGroups, ReportedJob
from hived_extender.reconfiguration.node_checks import bad_nodes, judge
from hived_extender.reconfiguration.present import cluster_nodes, held, switch, waiting_jobs
from hived_extender.reconfiguration.successor import Successor
from hived_extender.reconfiguration.verdicts import HARM, Affected, Verdict, Verdicts
from hived_extender.reconfiguration.waiting_jobs import Waiting, outcomes, refused_by
from hived_extender.recording.record import Draft
from hived_extender.service.service import Service
from hived_extender.service.state_inputs import StateInputs

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


class Outcome(msgspec.Struct, frozen=True):
    """The effects of a change."""

    changes: Changes
    affected: Sequence[Affected]
    unaffected_count: int
    waiting: Sequence[ReportedJob]
    base_version: int
    warnings: Sequence[str] = ()
    refusals: Sequence[str] = ()
    bad: Sequence[BadCells] = ()

    @property
    def locked_out(self) -> list[str]:
        """The running guaranteed groups that lose cells guaranteed to their VC, by name."""
        return [one.name for one in self.affected if one.is_locked_out]

    def report(self, refusals: Sequence[str] = ()) -> ConfigReport:
        """The outcome as the HTTP API shows it."""
        return ConfigReport(
            self.base_version,
            self.changes.is_empty,
            [*self.refusals, *refusals],
            [*self.warnings],
            self.changes,
            ReportedGroups(self.unaffected_count, [_reported(one) for one in self.affected]),
            [*self.waiting],
            any(one.verdict in HARM for one in self.affected),
            bool(self.locked_out) and not self.refusals,
            [*self.bad],
        )


class Change:
    """See the module. `drop` it, unless it was switched to."""

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
            inputs, state = held(service)
            if self.catch_up(inputs) <= FEW:
                break
        try:
            self._successor.check()
        except InvariantError as error:
            raise UserError(f"the new state breaks a rule: {error}", 500) from error
        self._cluster = cluster_nodes(service)
        return state, waiting_jobs(service)

    def outcome(self, present: State, waiting: Sequence[Waiting]) -> Outcome:
        """The effects on running and waiting jobs. Cost: a search for each kind of job that waits."""
        affected = self._verdicts.affected(present)
        topology = self._successor.core.state.topology
        names = judge(self._old, self._new, self._cluster)
        return Outcome(
            compare(self._old, self._new, present.topology, topology),
            affected,
            max(0, len(present.groups) - len(affected)),
            outcomes(refused_by(self._new.rules.access, waiting), self._successor.core.state),
            self._base_version,
            (
                *names.warnings,
                *(_warn_of_names(self._old, self._new) if self._has_profiles else ()),
                *self._beside(self._new),
            ),
            names.refusals,
            bad_nodes(self._successor.core.state),
        )

    def switch(self, service: Service, agreed: Agreed | None, version: int = 0, *, may_lock_out: bool = True) -> float:
        """Put it in force as this version; returns how long requests had to wait, in seconds.

        Raises Disagreement if running work would fare other than `agreed`, where given. So does a lock-out of
        guaranteed work that is not allowed. Raises UserError if the switch is impossible. After each of these the old
        configuration stays in force.
        """

        def finish(inputs: StateInputs, present: State) -> None:
            try:
                self.catch_up(inputs)
                affected = () if agreed is None and may_lock_out else self._verdicts.affected(present)
                if agreed is not None:
                    check_agreed(affected, agreed, present)
                if not may_lock_out:
                    check_lock_out(affected)
            except UserError:
                raise
            except Exception as error:
                log.critical("a configuration is not taken up: its state is broken", exc_info=error)
                raise UserError(
                    f"the new state is broken ({type(error).__name__}: {error}); see the log", 500
                ) from error

        return switch(service, self._new, self._successor, finish, version)

    def drop(self) -> None:
        """It is not going to happen."""
        self._successor.drop()


def _reported(group: Affected) -> ReportedJob:
    return ReportedJob(group.name, group.vc, group.priority, [*group.pods], group.verdict.value, group.reason)


def _warn_of_names(old: Configuration, new: Configuration) -> list[str]:
    """kube-scheduler asks about pods of its own profiles only, which a configuration of ours does not change."""
    known = names_for(old.rules.scheduler_names, old.cluster.virtual_clusters)
    names = names_for(new.rules.scheduler_names, new.cluster.virtual_clusters)
    added = [name for name in names if name not in known]
    if not added:
        return []
    return [f"kube-scheduler needs a profile for each new scheduler name ({', '.join(added)}): see hived manifests"]


def check_agreed(affected: Sequence[Affected], agreed: Agreed, present: State) -> None:
    """Raise Disagreement unless the groups that are still there have exactly the agreed verdicts."""
    now = {one.name: one.verdict.value for one in affected if one.verdict is not Verdict.RESTORED}
    expected = {name: verdict for name, verdict in agreed.items() if verdict != Verdict.RESTORED.value}
    for name in sorted(now.keys() | expected.keys()):
        if name in present.groups and now.get(name) != expected.get(name):
            found, wanted = now.get(name, "unaffected"), expected.get(name, "unaffected")
            raise Disagreement(f"group {name} would be {found} now, and {wanted} was agreed to: plan again", 409)


def check_lock_out(affected: Sequence[Affected]) -> None:
    """Raise Disagreement if a running guaranteed group would lose cells guaranteed to its VC."""
    for one in affected:
        if one.is_locked_out:
            raise Disagreement(f"group {one.name} would be {one.verdict.value} now: plan again", 409)
