"""Whether a waiting job would start after some changes: tried by the core on the state of a snapshot, and taken back.

A job starts at once if all its parts are bound, or if they are once the groups that they preempt have left. Nodes that
groups leave, and nodes that heal, are offered to the pods that they could take by the rules of Kubernetes.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

import msgspec
from msgspec.structs import replace

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.checks import check_request
from hived.scheduler import Asked, Fact, handle, plan_in_turn
from hived.values.decisions import Bind, Decision, Wait
from hived.values.errors import UserError
from hived.values.events import LeavesLost, NodeHealthChanged, PodDeleted
from hived.values.specs import PodRequest, PodSpec
from hived_extender.insight.changes import Change, Ends, Heal, Move, Priority
from hived_extender.insight.snapshot import Snapshot, WaitingEntry
from hived_extender.insight.wanted import Wanted, changed, offered, rows_of, slot_count
from hived_extender.service.sentences import NEVER_PREEMPTS

SLOTS_OF_A_TRIAL = 256
"""A trial counts once more for so many pods."""


class Outcome(msgspec.Struct, frozen=True):
    """Would the job start, on which nodes, and which jobs would have to leave? Else why not."""

    starts: bool
    nodes: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    reason: str = ""


class _World(msgspec.Struct, frozen=True):
    """Parts that are asked for after these facts, with the nodes that are offered then. Groups that `comes_back` names
    start anew after the job, and nobody may have to leave for them. Parts of other jobs are asked for `before`.
    """

    wanted: tuple[Wanted, ...]
    facts: tuple[Fact, ...]
    comes_back: tuple[str, ...]
    before: tuple[tuple[Wanted, ...], ...]


class Trials:
    """Trials for one job; `count` says how many were made, where those of large jobs count more.

    Not thread-safe: whoever makes trials holds `Snapshot.lock`.
    """

    def __init__(self, snapshot: Snapshot, entry: WaitingEntry, before: Sequence[WaitingEntry] = ()) -> None:
        """Jobs `before` this one are asked for first, at their priority, and keep the cells that they get."""
        self.snapshot, self.entry, self.count = snapshot, entry, 0
        self.state: State = snapshot.state
        self.wanted = _parts(entry)
        self._before = [tuple(changed(part, Priority(one.priority)) for part in _parts(one)) for one in before]
        slots = sum(slot_count(spec.group.members) for spec in self.specs)
        self._weight = 1 + slots // SLOTS_OF_A_TRIAL
        self._own = {one.request.spec.group.name for one in self.wanted}
        self._own_jobs = {entry.name, entry.gang}

    @property
    def jobs(self) -> Mapping[str, Sequence[str]]:
        """The groups with cells by the name of their job, without those of the job itself."""
        return {name: groups for name, groups in self.snapshot.jobs.items() if name not in self._own_jobs}

    @property
    def specs(self) -> tuple[PodSpec, ...]:
        """Each part's own."""
        return tuple(one.request.spec for one in self.wanted)

    @property
    def can_be_asked(self) -> bool:
        """Do the cells exist that the job asks for, be they free or not?"""
        with suppress(UserError):
            for one in self.wanted:
                check_request(self.state, one.request)
            return True
        return False

    def job_of(self, group: str) -> str:
        """The job of a group, as people name it."""
        facts = self.snapshot.running.get(group)
        return facts.job if facts is not None else group

    def namespace_of(self, job: str) -> str:
        """The namespace of a job that has cells, or of one that waits; "" if it is not known."""
        running = (self.snapshot.running.get(name) for name in self.snapshot.jobs.get(job, ()))
        facts = next((one for one in running if one is not None), None) or self.snapshot.find(job)
        return facts.namespace if facts is not None else ""

    def groups_of(self, names: Iterable[str]) -> list[str]:
        """The groups of jobs, or groups, with these names."""
        found = chain.from_iterable(self.snapshot.jobs.get(name, (name,)) for name in names)
        return [name for name in dict.fromkeys(found) if name in self.state.groups]

    def change(self, changes: Iterable[Change]) -> Outcome:
        """The outcome of some changes at once; none of `Cells`, which need another state."""
        world, evicted = self._world(changes), list[str]()
        before = [_asked(parts) for parts in world.before]
        back = [[Asked(each) for each in self._first_pods(name)] for name in world.comes_back]
        self.count += self._weight
        bundles = [*before, _asked(world.wanted), *back]
        plans = plan_in_turn(self.state, bundles, self.snapshot.at, world.facts, evicted)
        found, *others = plans[len(before) :]
        if isinstance(found, UserError):
            return Outcome(False, reason=found.message)
        if (wait := next((one for one in found if isinstance(one, Wait)), None)) is not None:
            return Outcome(False, reason=wait.reason)
        if back and (evicted or not all(_binds(one) for one in others)):
            return Outcome(False, reason="others would have to leave, or a group that moves finds no other place")
        if not self.entry.preempts and any(self.state.groups[name].virtual is not None for name in evicted):
            return Outcome(False, reason=NEVER_PREEMPTS)
        victims = tuple(dict.fromkeys(self.job_of(name) for name in evicted))
        if self._own_jobs & set(victims):
            return Outcome(False, reason="its own pods would have to leave")
        return Outcome(True, _nodes_in(found), victims)

    def may_start(self, changes: Iterable[Change]) -> bool:
        """Is the job bound after some changes, or would it preempt others? Costs less than `change`, which says whether
        that is enough.
        """
        world = self._world(changes)
        self.count += self._weight
        (found,) = plan_in_turn(self.state, [_asked(world.wanted)], self.snapshot.at, world.facts)
        return not isinstance(found, UserError) and not any(isinstance(one, Wait) for one in found)

    def changed(self, changes: Iterable[Change]) -> tuple[Snapshot, WaitingEntry]:
        """The snapshot and the job after the same changes. Cost: a copy of the state."""
        world, state = self._world(changes), copy_state(self.state)
        for fact in world.facts:
            handle(state, fact)
        first = world.wanted[0].request.spec
        entry = replace(
            self.entry,
            vc=first.virtual_cluster,
            priority=first.priority,
            requests=tuple(one.request for one in world.wanted),
            offers=tuple(one.offer for one in world.wanted),
            fits=tuple(one.fit for one in world.wanted),
        )
        return replace(self.snapshot, state=state), entry

    def _world(self, changes: Iterable[Change]) -> "_World":
        """The parts and the facts of some changes."""
        wanted, comes_back, opened = self.wanted, list[str](), set[int]()
        facts: list[Fact] = self.ended(name for name in self._own if name in self.state.groups)
        for one in changes:
            match one:
                case Ends(names) | Move(names):
                    groups = self.groups_of(names)
                    facts += self.ended(groups)
                    opened |= self.nodes_of(groups)
                    comes_back += groups if isinstance(one, Move) else ()
                case Heal(nodes):
                    facts += chain.from_iterable(self.healed(node) for node in nodes)
                case _:
                    wanted = tuple(changed(part, one) for part in wanted)
        healed = {self.state.topology.node_index[one.node] for one in facts if isinstance(one, NodeHealthChanged)}
        asked, *before = (
            tuple(replace(one, offer=offered(self.snapshot, one, opened, healed)) for one in parts)
            for parts in (wanted, *self._before)
        )
        return _World(asked, tuple(facts), tuple(comes_back), tuple(before))

    def ended(self, groups: Iterable[str]) -> list[Fact]:
        """All pods of these groups are gone."""
        found = (self.state.groups[name] for name in groups)
        pods = (one for group in found for one in (*group.holders, *group.preempting_pods.values()))
        return [PodDeleted(one) for one in pods if one is not None]

    def healed(self, node: str) -> list[Fact]:
        """The node is healthy, and so are all its devices."""
        arrays, number = self.state.arrays, self.state.topology.node_index[node]
        leaves = arrays.node_leaf[arrays.node_leaf_start[number] : arrays.node_leaf_start[number + 1]]
        lost = leaves[self.state.cells.lost[leaves] > 0].tolist()
        types = dict.fromkeys(self.state.topology.cell_type(leaf) for leaf in lost)
        return [NodeHealthChanged(node, True), *(LeavesLost(node, leaf_type, 0) for leaf_type in types)]

    def nodes_of(self, groups: Iterable[str]) -> set[int]:
        """The nodes on which these groups have cells."""
        found: set[int] = set()
        for name in groups:
            leaves = self.state.groups[name].physical
            found.update(self.state.arrays.node[leaves[leaves != NO_CELL]].tolist())
        return found

    def may_move(self, names: Iterable[str]) -> bool:
        """Do the owners of these jobs allow that they start anew elsewhere?"""
        facts = [self.snapshot.running.get(name) for name in self.groups_of(names)]
        return all(one is not None and one.may_move for one in facts)

    def _first_pods(self, name: str) -> list[PodRequest]:
        """The pod that asks for the whole of a group."""
        group = self.state.groups[name]
        pods = (*group.holders, *group.preempting_pods.values())
        return [one for one in pods if one is not None][:1]


def _parts(entry: WaitingEntry) -> tuple[Wanted, ...]:
    parts = zip(entry.requests, entry.offers, entry.fits, entry.demands, strict=True)
    return tuple(Wanted(one, offer, rows_of(one, fit), demands) for one, offer, fit, demands in parts)


def _asked(parts: Iterable[Wanted]) -> list[Asked]:
    return [Asked(one.request, offer=one.offer) for one in parts]


def _binds(found: list[Decision] | UserError) -> bool:
    return not isinstance(found, UserError) and all(isinstance(one, Bind) for one in found)


def _nodes_in(found: Iterable[Decision]) -> tuple[str, ...]:
    places = (place.node for one in found if isinstance(one, Bind) for size in one.bind_info.members for place in size)
    return tuple(dict.fromkeys(places))


def refusal(snapshot: Snapshot, entry: WaitingEntry, vc: str, priority: int) -> str:
    """Why the job may not have this priority in this virtual cluster, "" if it may."""
    return snapshot.access.refusal(entry.namespace, snapshot.labels.get(entry.namespace, {}), vc, priority)
