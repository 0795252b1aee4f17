"""The certificates of waiting jobs, from a snapshot: the core's causes, and those that only the service knows."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from msgspec.structs import replace

from hived.cells.state import GroupState
from hived.cells.topology import NO_CELL
from hived.scenario import Scenario
from hived.values.decisions import Bind, Decision, HoldingGroup, Preempt, Wait
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodSpec
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied
from hived_extender.api.waiting import RECLAIMING, BadNode, CauseName, Certificate
from hived_extender.insight.forward import may_have
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, own_pods
from hived_extender.jobs.job import JobName
from hived_extender.jobs.quotas.usage import TOO_LARGE
from hived_extender.machine.certificates import (
    NOBODY_HELPS,
    GroupFacts,
    asks_of,
    certificate_of,
    first_never,
    holders_of,
    is_derived,
    of_all_parts,
    once_others_left,
    rfc3339,
    sized_by,
    with_sentence,
)
from hived_extender.machine.devices.keeper import SHORT
from hived_extender.machine.explaining import shape_of

HELD = "its cells are held, and its pods get them when kube-scheduler asks about these next"
OF_QUOTA = "it asks for cells only once its quota has room"
ROOM = "has room now; it starts when kube-scheduler asks about it next"

_Shape = tuple[str, bool, tuple[str, ...], tuple[tuple[PodSpec, bytes], ...]]


class SnapshotFacts:
    """Names and moments of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of_group(self, name: str) -> GroupFacts | None:
        """A group that has cells; its job is the object that made all of its pods, if there is one."""
        known = self._snapshot.running.get(name)
        if known is None:
            entry = self._snapshot.find(name)
            return (
                None if entry is None else GroupFacts(_named(entry.name, entry.owner), entry.namespace, is_waiting=True)
            )
        ends_s = known.leaves_s if known.is_leaving else known.declared_end_s
        return GroupFacts(_named(known.job, known.owner), known.namespace, known.started_s, ends_s, known.is_leaving)

    def of_node(self, name: str) -> BadNode:
        """A node that cannot be used; one that is healthy has lost devices."""
        reason, since_s = self._snapshot.bad.get(name, (SHORT, None))
        return BadNode(name, reason, rfc3339(since_s))


def _named(part: str, owner: JobName | None) -> str:
    return part if owner is None else str(owner)


class Judge:
    """Says why jobs of one snapshot wait, to who holds its lock. Jobs that ask alike cost one."""

    def __init__(self, snapshot: Snapshot, emptied: Emptied, turn: AbstractContextManager[object]) -> None:
        """`emptied` is the empty cluster of the same configuration, asked by who has `turn`."""
        self._snapshot = snapshot
        self._emptied, self._turn = emptied, turn
        self._facts = SnapshotFacts(snapshot)
        self._known: dict[_Shape, Certificate] = {}

    def certificate(self, entry: WaitingEntry) -> Certificate:
        """Return why a job waits. Cost: its search and an explanation, for the first of those that ask alike."""
        if not entry.requests:
            cause: CauseName = "incomplete" if entry.is_incomplete else "quota" if entry.is_over_quota else "invalid"
            sentence = entry.refusal or entry.reason
            never = entry.is_over_quota and sentence.endswith(TOO_LARGE)
            return Certificate(
                sentence=sentence, cause=cause, vc=entry.vc, reason=entry.refusal, never=never,
                untried=OF_QUOTA if entry.is_over_quota else "",
            )  # fmt: skip
        if self._snapshot.holds_cells_of(entry):
            return replace(self._plain(entry), cause="order", sentence=HELD, reason=entry.reason)
        sizes = tuple(self._sized_by(entry, part) for part in range(len(entry.requests)))
        shapes = tuple(shape_of(one.request, one.offer) for one in entry.parts)
        shape = entry.rules + _in_vain(entry), entry.preempts, sizes, shapes
        is_shared = not self._reserves(entry)
        found = self._known.get(shape) if is_shared else None
        if found is None:
            found = self._judge(entry)
            if is_shared:
                self._known[shape] = found
        found = self._without_own(replace(found, reason=found.reason or entry.reason), entry)
        return with_sentence(found, self._snapshot.at, entry.namespace) if is_derived(found) else found

    def _without_own(self, found: Certificate, entry: WaitingEntry) -> Certificate:
        """The certificate without the pods of the job itself, which are counted instead."""
        own = self._own_pods.get(entry.object, {})
        if not own or found.cause in RECLAIMING:
            return found
        holders = [one for one in found.holders if one.group not in own and one.group != str(entry.object)]
        more = max(0, found.more_holders - (len(own) - len(found.holders) + len(holders)))
        return replace(found, holders=holders, more_holders=more, own_pods=sum(own.values()))

    @cached_property
    def _own_pods(self) -> dict[JobName | None, dict[str, int]]:
        return own_pods(self._snapshot)

    def _reserves(self, entry: WaitingEntry) -> bool:
        return any(request.spec.group.name in self._snapshot.state.groups for request in entry.requests)

    def _judge(self, entry: WaitingEntry) -> Certificate:
        snapshot = self._snapshot
        plain = self._plain(entry)
        (found,) = Scenario(snapshot.state, snapshot.at).plan([[one.asked for one in entry.parts]])
        if isinstance(found, UserError):
            sentence = found.message.removeprefix(f"[{entry.requests[0].label}]: ")
            return replace(plain, cause="invalid", sentence=sentence, reason=sentence)
        waits = [at for at, one in enumerate(found) if isinstance(one, Wait)]
        if not waits:
            return self._of_room(plain, entry, found)
        at = waits[0]
        decision = found[at]
        assert isinstance(decision, Wait)
        if self._reserves(entry):  # the core has a place for it, and says what the place waits for
            return replace(plain, cause=self._reclaimed_from(entry), sentence=decision.reason, reason=decision.reason)
        with self._turn:
            if len(entry.requests) > 1:  # nobody's end helps where one part can never run
                never = first_never(self._emptied, snapshot.state, entry.requests, [one.offer for one in entry.parts])
                at = at if never is None else never
            part = entry.parts[at]
            offer = part.offer and once_others_left(part.request, part.offer, part.fit)
            explanation = explain_wait(snapshot.state, part.request, offer, self._emptied)
            explanation = of_all_parts(self._emptied, snapshot.state, entry.requests, explanation)
        return certificate_of(
            explanation, entry.requests, snapshot.state.topology, self._facts, snapshot.at, reason=decision.reason,
            rules=entry.rules, sized_by=self._sized_by(entry, at),
        )  # fmt: skip

    def _reclaimed_from(self, entry: WaitingEntry) -> CauseName:
        """From whom the cells are reclaimed that a job reserves."""
        groups = self._snapshot.state.groups
        own = [groups[one.spec.group.name].physical for one in entry.requests if one.spec.group.name in groups]
        leaves = {int(leaf) for each in own for leaf in each} - {NO_CELL}
        is_lent = all(
            group.virtual is None
            for group in groups.values()
            if group.state is GroupState.BEING_PREEMPTED and not leaves.isdisjoint(group.physical.tolist())
        )
        return "lent" if is_lent else "preempting"

    def _sized_by(self, entry: WaitingEntry, part: int) -> str:
        one = entry.parts[part]
        demands = next(iter(one.demands), None) if len(entry.parts) == 1 else None
        return "" if demands is None else sized_by(one.request, demands, self._snapshot.state.spec)

    def _plain(self, entry: WaitingEntry) -> Certificate:
        spec = entry.requests[0].spec
        return Certificate(
            sentence="", cause="unknown", vc=entry.vc, asks=asks_of(entry.requests, spec.leaf_cell_type),
            is_opportunistic=entry.priority <= OPPORTUNISTIC_PRIORITY, pinned=spec.pinned_cell_id,
        )  # fmt: skip

    def _of_room(self, plain: Certificate, entry: WaitingEntry, found: Sequence[Decision]) -> Certificate:
        """Nothing is in the way but jobs that have to leave for it, if any."""
        victims = {uid for one in found if isinstance(one, Preempt) for uid in one.victims}
        plain = replace(plain, asks=self._asks(entry, found))
        if not victims:
            if self._reserves(entry) and (bad := self._bad_nodes_of(found)):
                return with_sentence(replace(plain, cause="bad", bad_nodes=bad), self._snapshot.at)
            sentence = f"needs {plain.asks}; {plain.vc or 'the cluster'} {ROOM}"
            return replace(plain, cause="order", sentence=sentence)
        if (in_vain := _in_vain(entry)) and not self._reserves(entry):
            return replace(plain, cause="kubernetes", rules=in_vain)
        state = self._snapshot.state
        groups = [
            HoldingGroup(
                group.name, group.priority, group.vc, group.virtual is None,
                tuple(int(leaf) for leaf in group.physical[group.physical != NO_CELL]),
            )
            for group in state.groups.values()
            if not victims.isdisjoint(group.slots_of)
        ]  # fmt: skip
        holders = holders_of(groups, state.topology, self._facts)
        if not all(may_have(state, entry, one) for one in found):
            plain = replace(plain, cause="in-use", never_preempts=True)
        else:
            plain = replace(plain, cause="lent" if all(one.is_lent for one in groups) else "preempting")
        return with_sentence(replace(plain, holders=holders), self._snapshot.at)

    def _bad_nodes_of(self, found: Sequence[Decision]) -> list[BadNode]:
        """The nodes that cannot be used among those on which a job has its cells. A group keeps its cells there."""
        names = dict.fromkeys(name for one in found for name in _nodes_of(one))
        return [self._facts.of_node(name) for name in names if name in self._snapshot.bad]

    def _asks(self, entry: WaitingEntry, found: Sequence[Decision]) -> str:
        """The request of a job, in the words of the cells that it gets."""
        topology = self._snapshot.state.topology
        node = next(iter(_nodes_of(found[0])), None)
        if node is None:
            return asks_of(entry.requests, entry.requests[0].spec.leaf_cell_type)
        chains = [topology.chain_of(leaf) for leaf in topology.leaves_of(topology.node_index[node]).tolist()]
        name = found[0].bind_info.cell_chain if isinstance(found[0], Bind) else ""
        leaf_type = entry.requests[0].spec.leaf_cell_type
        chain = max(chains, key=lambda each: (each.name == name, each.types[0] == leaf_type))
        return asks_of(entry.requests, chain.types[0], chain.leaf_count(chain.node_level))


def _in_vain(entry: WaitingEntry) -> str:
    """The words of the service if it evicts none, as that would not help; else ""."""
    at = entry.reason.find(NOBODY_HELPS)
    return entry.reason[at:] if at >= 0 else ""


def _nodes_of(decision: Decision) -> Iterator[str]:
    if isinstance(decision, Bind):
        yield decision.bind_info.node
    elif isinstance(decision, Preempt):
        yield from decision.victims_by_node
