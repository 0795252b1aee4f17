"""Changes that could let a waiting job start, their words, and trials of them by the core in a scenario of a snapshot.

The words are the same in `Unblock.change` and in `hived why --if`: `priority=200`, `pods=16x1`, `ends=ns/train`. Names
of jobs and nodes are separated by commas; a name that has a comma itself is understood where it stands alone.

A job starts at once if all its parts are bound, or if they are once the groups that they preempt have left. Offers
follow the rules of Kubernetes: nodes that groups leave are offered to the pods that could take them. Of nodes
that heal, the taints of Kubernetes itself are taken to be gone.

Another configuration of virtual clusters is tried for small clusters only: all cells are laid out anew, and every group
is told again.
"""

import difflib
import heapq
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as with_fields
from functools import cached_property
from itertools import chain, takewhile

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.safety import spare_of
from hived.cells.state import State
from hived.cells.topology import NO_CELL, BoolArray
from hived.life.checks import check_request
from hived.life.groups import bind_info_of_slot
from hived.scenario import Asked, Scenario, nodes_of, pods_of
from hived.scheduler import Fact, idle_state, new_state
from hived.values.decisions import Bind, Decision, Wait
from hived.values.errors import UserError
from hived.values.events import (
    GroupReserved,
    LeavesLost,
    Limit,
    NodeHealthChanged,
    Offer,
    PodAllocated,
    PodDeleted,
    Spread,
    Together,
)
from hived.values.specs import (
    MAX_GUARANTEED_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
    WorkTimes,
    count_pods,
)
from hived_config.words import counted, listed_with
from hived_extender.api.names import names_of, parts_of, short_name
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, own_pods, wholes_of
from hived_extender.jobs.job import JobName
from hived_extender.kube_rules.nodes import Gate, static_refusal
from hived_extender.machine.certificates import NEVER_PREEMPTS
from hived_extender.machine.core import Placed, in_replay_order, reservations
from hived_extender.machine.offers import Asking

MOST_PODS = 2**14
"""Pods of a job that is tried with other pods."""

MOST_CELLS = 2**14
"""Cells by which a virtual cluster is tried with another size."""

MOST_NAMES = 32
"""Jobs or nodes of one change."""

MOST_TOLD = 4
"""Parts of one job that are named in a sentence."""

MOST_COMPARED = 1000
"""Names with which a name is compared that is not known: those that begin and end like it."""

LONGEST_COMPARED = 512
"""Characters of a name that is compared with others; each costs time with each of theirs."""

ACCEPTED = (
    "priority=NUMBER",
    "pods=PODSxCELLS[+PODSxCELLS]",
    "leafType=TYPE",
    "vc=NAME",
    "opportunistic",
    "ends=JOB[,JOB]",
    "heal=NODE[,NODE]",
    "move=JOB[,JOB]",
    "cells=VC:+NUMBERxTYPE[,VC:-NUMBERxTYPE]",
    "combine=VC",
)

_MEMBER = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")
_CELLS = re.compile(r"(?s)(.+):([+-])([1-9][0-9]{0,5})x(\S+)")
_PRIORITY = re.compile(r"-?[0-9]{1,4}")
_NAMED = 8


class Priority(msgspec.Struct, frozen=True):
    """The job has another priority; OPPORTUNISTIC_PRIORITY for an opportunistic job."""

    value: int


class Pods(msgspec.Struct, frozen=True):
    """The job has other pods; sizes ascending."""

    members: tuple[MemberSpec, ...]


class LeafType(msgspec.Struct, frozen=True):
    """The job asks for cells of another leaf cell type."""

    name: str


class OtherCluster(msgspec.Struct, frozen=True):
    """The job asks in another virtual cluster."""

    name: str


class Ends(msgspec.Struct, frozen=True):
    """Jobs or groups that hold cells end."""

    names: tuple[str, ...]


class Heal(msgspec.Struct, frozen=True):
    """Nodes become healthy, with all their devices."""

    nodes: tuple[str, ...]


class Move(msgspec.Struct, frozen=True):
    """Jobs or groups leave their cells, and start anew elsewhere once the waiting job has started."""

    names: tuple[str, ...]


class Resize(msgspec.Struct, frozen=True):
    """A virtual cluster is promised so many cells of a type more, or fewer."""

    vc: str
    count: int
    cell_type: str


class Cells(msgspec.Struct, frozen=True):
    """The configuration promises cells to other virtual clusters."""

    resizes: tuple[Resize, ...]


class Combine(msgspec.Struct, frozen=True):
    """The configuration lets a virtual cluster combine its cells (rule 18.3)."""

    vc: str


Change = Priority | Pods | LeafType | OtherCluster | Ends | Heal | Move | Cells | Combine

ConfigurationChange = Cells | Combine
"""Changes that are tried on a state of their own."""


def words(change: Change) -> str:
    """The change as `Unblock.change` has it."""
    match change:
        case Priority(value):
            return "opportunistic" if value == OPPORTUNISTIC_PRIORITY else f"priority={value}"
        case Pods(members):
            return "pods=" + "+".join(f"{one.pod_count}x{one.leaf_cell_count}" for one in members)
        case LeafType(name):
            return f"leafType={name}"
        case OtherCluster(name):
            return f"vc={name}"
        case Ends(names):
            return "ends=" + ",".join(names)
        case Heal(nodes):
            return "heal=" + ",".join(nodes)
        case Move(names):
            return "move=" + ",".join(names)
        case Cells(resizes):
            return "cells=" + ",".join(f"{one.vc}:{one.count:+}x{one.cell_type}" for one in resizes)
        case Combine(vc):
            return f"combine={vc}"


class Known(msgspec.Struct, frozen=True):
    """Names that exist: of jobs that have cells, with their groups, nodes, virtual clusters, leaf types, cell types.

    `wholes` are job objects, whose parts are `holders`.
    """

    holders: Mapping[str, Sequence[str]]
    nodes: Collection[str]
    virtual_clusters: Collection[str]
    leaf_types: Collection[str]
    cell_types: Collection[str]
    wholes: Mapping[str, Sequence[str]] = {}


def read_change(text: str, known: Known) -> Change:
    """The change of these words. Raises UserError, with the words that would do."""
    name, sign, value = text.partition("=")
    if text == "opportunistic":
        return Priority(OPPORTUNISTIC_PRIORITY)
    if not sign or not value:
        raise UserError(f"{_shown(text)} is no change that can be tried; expected {_listed(ACCEPTED)}")
    match name:
        case "priority":
            return _read_priority(text, value)
        case "pods":
            return _read_pods(text, value)
        case "leafType":
            return LeafType(_one_of(text, value, known.leaf_types, "leaf cell type"))
        case "vc":
            return OtherCluster(_one_of(text, value, known.virtual_clusters, "virtual cluster"))
        case "ends":
            return Ends(_holders(text, value, known))
        case "heal":
            return Heal(tuple(_one_of(text, one, known.nodes, "node") for one in _split(text, value, known.nodes)))
        case "move":
            return Move(_holders(text, value, known))
        case "cells":
            return Cells(tuple(_read_resize(text, one, known) for one in _split(text, value, ())))
        case "combine":
            return Combine(_one_of(text, value, known.virtual_clusters, "virtual cluster"))
    raise UserError(f"{_shown(text)} is no change that can be tried; expected {_listed(ACCEPTED)}")


def _read_priority(text: str, value: str) -> Priority:
    if not _PRIORITY.fullmatch(value) or not OPPORTUNISTIC_PRIORITY <= int(value) <= MAX_GUARANTEED_PRIORITY:
        raise UserError(
            f"{_shown(text)}: expected a priority from {OPPORTUNISTIC_PRIORITY} (opportunistic) to "
            f"{MAX_GUARANTEED_PRIORITY}"
        )
    return Priority(int(value))


def _read_pods(text: str, value: str) -> Pods:
    counts: dict[int, int] = {}
    for one in value.split("+"):
        found = _MEMBER.fullmatch(one)
        if found is None:
            raise UserError(f"{_shown(text)}: expected PODSxCELLS, such as pods=16x1, or several of them: pods=1x8+4x1")
        counts[int(found[2])] = counts.get(int(found[2]), 0) + int(found[1])
    if sum(counts.values()) > MOST_PODS:
        raise UserError(f"{_shown(text)}: at most {MOST_PODS} pods can be tried")
    return Pods(tuple(MemberSpec(counts[size], size) for size in sorted(counts)))


def _read_resize(text: str, value: str, known: Known) -> Resize:
    found = _CELLS.fullmatch(value)
    if found is None or int(found[3]) > MOST_CELLS:
        raise UserError(
            f"{_shown(text)}: expected VC:+NUMBERxTYPE or VC:-NUMBERxTYPE with a number up to {MOST_CELLS}, such as "
            "cells=research:+2xNODE"
        )
    vc = _one_of(text, found[1], known.virtual_clusters, "virtual cluster")
    cell_type = _one_of(text, found[4], known.cell_types, "cell type")
    return Resize(vc, int(found[2] + found[3]), cell_type)


def _split(text: str, value: str, known: Collection[str]) -> tuple[str, ...]:
    names = (value,) if value in known else tuple(dict.fromkeys(value.split(",")))
    if len(names) > MOST_NAMES:
        raise UserError(f"{_shown(text)}: {len(names)} names; at most {MOST_NAMES} can be tried together")
    return names


def _holders(text: str, value: str, known: Known) -> tuple[str, ...]:
    """The jobs or groups of these names, which may leave out the namespace: `train` for `podgroup/default/train`."""
    jobs = {**known.wholes, **known.holders}
    names = {*known.wholes, *(name for job, groups in known.holders.items() for name in (job, *groups))}
    wholes = {name: tuple(parts) for name, parts in known.wholes.items()}
    found = [_holder(text, name, names, jobs, wholes) for name in _split(text, value, names)]
    return tuple(dict.fromkeys(part for name in found for part in known.wholes.get(name, (name,))))


def _holder(
    text: str, name: str, known: Collection[str], jobs: Collection[str], wholes: Mapping[str, tuple[str, ...]]
) -> str:
    if name in known:
        return name
    ends = f"/{name}", f":{name}"
    called = [job for job in jobs if job.endswith(ends) or any(name in rank for rank in names_of(job))]
    called = called or [job for job in jobs if name in parts_of(job)]
    if len({wholes.get(job, (job,)) for job in called}) == 1:
        return called[0]
    if len(called) > 1:
        raise UserError(f"{_shown(text)}: {name} is part of {len(called)} names: {_listed(called)}; give one of them")
    near = _near(name, known)
    hint = f"nearest: {_listed(near)}" if near else f"cells are held by {_listed(sorted(jobs)) or 'none'}"
    place = "; move= has a job start anew on other cells, and places in a queue are not tried: hived move gives one"
    raise UserError(f"{_shown(text)}: no job {_shown(name)} has cells; {hint}{place * text.startswith('move=')}")


def _one_of(text: str, name: str, known: Collection[str], kind: str) -> str:
    if name in known:
        return name
    near = _near(name, known) or sorted(known)
    verb = "is" if len(near) == 1 else "are"
    raise UserError(f"{_shown(text)}: there is no {kind} {_shown(name)}; there {verb} {_listed(near) or 'none'}")


def _near(name: str, known: Collection[str]) -> list[str]:
    """The names that look like this one, best first. Cost O(known), and a comparison with MOST_COMPARED of them."""
    if len(name) > LONGEST_COMPARED:
        return []
    like = heapq.nsmallest(MOST_COMPARED, known, key=lambda other: (-_common(name, other), other))
    return difflib.get_close_matches(name, sorted(like), _NAMED)


def _common(one: str, other: str) -> int:
    """Characters that two names have in common at their beginnings and ends."""
    pairs, reverse = zip(one, other, strict=False), zip(one[::-1], other[::-1], strict=False)
    return sum(1 for _ in takewhile(_is_equal, pairs)) + sum(1 for _ in takewhile(_is_equal, reverse))


def _is_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _shown(text: str) -> str:
    return repr(text) if len(text) <= LONGEST_COMPARED else repr(text[:LONGEST_COMPARED]) + "..."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED + 1 else ""
    return ", ".join(names[:_NAMED] if more else names) + more


_OF_KUBERNETES = "node.kubernetes.io/"
"""The prefix of the taints that Kubernetes puts on nodes that are cordoned or not ready."""


def offered(snapshot: Snapshot, wanted: Asking, opened: BoolArray, healed: set[int]) -> Offer | None:
    """The offer with nodes that groups have left (`opened`) or that are healthy now, where a pod fits at all."""
    if wanted.offer is None or not (opened.any() or healed):
        return wanted.offer
    offer = wanted.once_left(opened)
    assert offer is not None, "there was one before"
    nodes = offer.nodes
    for node in sorted(healed):
        nodes[:, node] |= _would_take(snapshot, wanted, node)
    return with_fields(offer, after=offer.after & ~nodes)


def _would_take(snapshot: Snapshot, wanted: Asking, node: int) -> bool:
    """Could a node take the pods if it were healthy?"""
    name = snapshot.state.topology.node_names[node]
    ruled = snapshot.bad_nodes.get(name)
    if name not in snapshot.bad:  # it has lost devices
        return bool(wanted.fit[:, node].all())
    if ruled is None:  # it is not in Kubernetes, and its labels are unknown
        return not any(one.node_selector or one.node_terms for one in wanted.demands)
    taints = tuple(one for one in ruled.gate.taints if not one.key.startswith(_OF_KUBERNETES))
    healthy = replace(ruled, gate=Gate(False, taints))
    return not any(static_refusal(demands, healthy) for demands in wanted.demands)


def changed(wanted: Asking, change: Change) -> Asking:
    """A part of a job that asks for something else."""
    spec, offer = wanted.request.spec, wanted.offer
    match change:
        case Priority(value):
            pinned = "" if value == OPPORTUNISTIC_PRIORITY else spec.pinned_cell_id
            spec, offer = with_fields(spec, priority=value, pinned_cell_id=pinned), _clearing(wanted, value)
        case Pods(members):
            return _with_pods(wanted, members)
        case LeafType(name):
            spec = with_fields(spec, leaf_cell_type=name, pinned_cell_id="")
        case OtherCluster(name):
            spec = with_fields(spec, virtual_cluster=name, pinned_cell_id="")
        case _:
            return wanted
    return _asking(wanted, spec, offer)


def _asking(wanted: Asking, spec: PodSpec, offer: Offer | None) -> Asking:
    return replace(wanted, asked=Asked(with_fields(wanted.request, spec=spec), offer=offer))


def _clearing(wanted: Asking, priority: int) -> Offer | None:
    """The offer at another priority: only a job with a guarantee may have nodes cleared."""
    offer = wanted.offer
    if offer is None or (priority >= MIN_GUARANTEED_PRIORITY) == (
        wanted.request.spec.priority >= MIN_GUARANTEED_PRIORITY
    ):
        return offer
    if priority < MIN_GUARANTEED_PRIORITY:
        return with_fields(offer, after=np.zeros_like(offer.after))
    return with_fields(offer, after=np.broadcast_to(wanted.fit, offer.nodes.shape) & ~offer.nodes)


def _with_pods(wanted: Asking, members: tuple[MemberSpec, ...]) -> Asking:
    """The same for other pods, each with the offer of all pods so far."""
    spec = wanted.request.spec
    changed_spec = with_fields(
        spec, leaf_cell_count=members[0].leaf_cell_count, group=GroupSpec(spec.group.name, members)
    )
    offer, count = wanted.offer, count_pods(members)
    if offer is not None:
        shape = count, offer.nodes.shape[1]
        nodes = offer.nodes.all(axis=0)
        after = (offer.nodes | offer.after).all(axis=0) & ~nodes
        rules = tuple(_for_pods(rule, count) for rule in offer.rules)
        offer = Offer(np.broadcast_to(nodes, shape), np.broadcast_to(after, shape), rules)
    return replace(_asking(wanted, changed_spec, offer), fit=_by_all(wanted.fit))


def _for_pods(rule: Limit | Spread | Together, count: int) -> Limit | Spread | Together:
    """A rule between pods for so many of them, each of which counts as much as any did."""
    match rule:
        case Limit():
            return with_fields(rule, weight=np.full(count, rule.weight.max(), np.int64))
        case Spread():
            return with_fields(rule, counts=np.full(count, bool(rule.counts.any()), np.bool_))
        case Together():
            return with_fields(rule, slots=np.full(count, bool(rule.slots.any()), np.bool_))


def _by_all(fit: BoolArray) -> BoolArray:
    """One row: the nodes that could take each of the pods."""
    return np.logical_and.reduce(fit, axis=0, keepdims=True)


SLOTS_OF_A_TRIAL = 256
"""A trial counts once more for so many pods."""


class Outcome(msgspec.Struct, frozen=True):
    """Would the job start, on which nodes, and which jobs would have to leave? Else why not.

    `pods` would start of those that were asked about, unless it `is_other` pods that the job would have.
    """

    starts: bool
    nodes: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    reason: str = ""
    pods: int = 0
    is_other: bool = False


Outcomes = dict[Hashable, Outcome]
"""By job and changes, of one snapshot: equal questions have equal answers."""


class _World(msgspec.Struct, frozen=True):
    """Parts that are asked for after these facts, with the nodes that are offered then. Groups that `comes_back` names
    start anew after the job, without evictions. Parts of other jobs are asked for `before`, its `mates` after the job.
    """

    wanted: tuple[Asking, ...]
    facts: tuple[Fact, ...]
    comes_back: tuple[str, ...]
    before: tuple[tuple[Asking, ...], ...]
    mates: tuple[tuple[Asking, ...], ...]


MOST_MATES = 63
"""Parts of a job that are tried after its first one, one after the other."""

MATES_OF_A_TRIAL = 8
"""A trial that asks for other parts of the job counts once more for so many."""


class Trials:
    """Trials for one job; `count` says how many were made, where those of large jobs count more.

    Not thread-safe: whoever makes trials holds `Snapshot.lock`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        entry: WaitingEntry,
        before: Sequence[WaitingEntry] = (),
        mates: Sequence[WaitingEntry] = (),
        known: "Outcomes | None" = None,
    ) -> None:
        """Jobs `before` this one are asked for first, at their priority, and keep the cells that they get.

        `mates` are other parts of the job, each of which starts alone. They are asked for after `entry`, up to
        MOST_MATES. Outcomes that are `known` are taken, and new ones noted there.
        """
        self._known = {} if known is None else known
        self._question = entry.name, entry.priority, len(mates), *((one.name, one.priority) for one in before)
        self.snapshot, self.entry, self.count = snapshot, entry, 0
        self.waiting = (entry, *mates)
        self.asked = (entry, *[one for one in mates if one.parts][:MOST_MATES])
        self._mates = [one.parts for one in self.asked[1:]]
        self.state: State = snapshot.state
        self.wanted = entry.parts
        self._before = [tuple(changed(part, Priority(one.priority)) for part in one.parts) for one in before]
        slots = sum(count_pods(spec.group.members) for spec in self.specs)
        self._weight = 1 + slots // SLOTS_OF_A_TRIAL
        self._own = {one.request.spec.group.name for parts in (self.wanted, *self._mates) for one in parts}
        self._own_jobs = {entry.name, entry.gang, *own_pods(snapshot).get(entry.object, ())}
        alike = {tuple(request.spec.of_group("") for request in one.requests) for one in self.asked}
        self.are_alike = len(alike) < 2

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

    def shown(self, part: str) -> str:
        """The name in lists of a job that has cells: that of its object, if this is all of it that has some."""
        owner = self._owner(part)
        return str(owner) if owner is not None and len(self._wholes[owner]) == 1 else part

    def told(self, parts: Iterable[str]) -> tuple[str, int]:
        """Jobs for readers of the waiting job's namespace: `train and lws-0, lws-1 of LeaderWorkerSet lws`; how many.

        An object is named once, and alone if no other part of it has cells.
        """
        jobs: dict[JobName | str, list[str]] = {}
        for part in parts:
            jobs.setdefault(self._owner(part) or part, []).append(part)
        told = [self._told(job, own) for job, own in jobs.items()]
        return listed_with([text for text, _ in told]), sum(count for _, count in told)

    def _told(self, job: JobName | str, parts: Sequence[str]) -> tuple[str, int]:
        names = [short_name(part, self.namespace_of(part), self.entry.namespace) for part in parts]
        if isinstance(job, str):
            return names[0], 1
        whole = short_name(str(job), job.namespace, self.entry.namespace)
        if str(job) in parts or len(parts) == len(self._wholes[job]):  # a queue names a job by its object
            return whole, 1
        more = len(names) - MOST_TOLD
        others = f" and {more} more" if more > 0 else ""
        return f"{', '.join(names[:MOST_TOLD])}{others} of {job.kind} {whole}", len(parts)

    def _owner(self, part: str) -> JobName | None:
        """The object that all groups of a job with cells are of, if it is one."""
        running = [self.snapshot.running.get(name) for name in self.snapshot.jobs.get(part, ())]
        owners = {facts.owner for facts in running if facts is not None}
        return owners.pop() if len(owners) == 1 else None

    @cached_property
    def _wholes(self) -> Mapping[JobName, Collection[str]]:
        return wholes_of(self.snapshot)

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
        changes = list(changes)
        question = self._question, *map(words, changes)
        if (known := self._known.get(question)) is None:
            known = self._known[question] = self._try(changes)
        return known

    def _try(self, changes: Sequence[Change]) -> Outcome:
        found = self._outcome(changes, with_mates=False)
        if any(isinstance(one, Pods) for one in changes):
            return replace(found, is_other=True)  # these are all of the job
        if not self._mates or (self.are_alike and not found.starts):
            return found
        more = self._outcome(changes, with_mates=True)
        return more if more.starts else replace(found, is_other=True)  # how many start is not known then

    def _outcome(self, changes: Sequence[Change], *, with_mates: bool) -> Outcome:
        world, evicted = self._world(changes), list[str]()
        before = [_asked(parts) for parts in world.before]
        own = [_asked(parts) for parts in (world.wanted, *(world.mates if with_mates else ()))]
        back = [[Asked(each) for each in pods_of(self.state, [name])[:1]] for name in world.comes_back]
        self.count += self._weight + (len(own) - 1) // MATES_OF_A_TRIAL
        plans = Scenario(self.state, self.snapshot.at).plan([*before, *own, *back], world.facts, evicted)
        plans = plans[len(before) :]
        plans, others = plans[: len(own)], plans[len(own) :]
        started = [(plan, entry) for plan, entry in zip(plans, self.asked, strict=False) if not _waits(plan)]
        if not started:
            return Outcome(False, reason=_waits(plans[0]))
        if back and (evicted or not all(_binds(one) for one in others)):
            return Outcome(False, reason="others would have to leave, or a group that moves finds no other place")
        if not self.entry.preempts and any(self.state.groups[name].virtual is not None for name in evicted):
            return Outcome(False, reason=NEVER_PREEMPTS)
        victims = tuple(dict.fromkeys(self.job_of(name) for name in evicted))
        if self._own_jobs & set(victims):
            return Outcome(False, reason="its own pods would have to leave")
        pods = _pod_count(entry for _, entry in started)
        nodes = _nodes_in(one for plan, _ in started if not isinstance(plan, UserError) for one in plan)
        return Outcome(True, nodes, victims, pods=pods)

    def counts(self, found: Outcome) -> tuple[int, int, int]:
        """Pods that start, that were asked about, and that wait, of a job whose pods start apart; else 0."""
        if not self._mates or found.pods == 0 or found.is_other:
            return 0, 0, 0
        return found.pods, _pod_count(self.asked), _pod_count(self.waiting)

    def may_start(self, changes: Iterable[Change]) -> bool:
        """Is the job bound after some changes, or would it preempt others? Costs less than `change`, which says whether
        that is enough.
        """
        world = self._world(changes)
        self.count += self._weight
        (found,) = Scenario(self.state, self.snapshot.at).plan([_asked(world.wanted)], world.facts)
        return not isinstance(found, UserError) and not any(isinstance(one, Wait) for one in found)

    def changed(self, changes: Iterable[Change]) -> tuple[Snapshot, WaitingEntry]:
        """The snapshot and the job after the same changes. Cost: a copy of the state."""
        world, after = self._world(changes), Scenario.copied(self.state)
        after.tell(world.facts)
        first = world.wanted[0].request.spec
        entry = replace(
            self.entry,
            vc=first.virtual_cluster,
            priority=first.priority,
            parts=world.wanted,
        )
        return replace(self.snapshot, state=after.state), entry

    def _world(self, changes: Iterable[Change]) -> "_World":
        """The parts and the facts of some changes."""
        wanted, comes_back, opened = self.wanted, list[str](), nodes_of(self.state, ())
        mates = self._mates
        facts: list[Fact] = self.ended(name for name in self._own if name in self.state.groups)
        for one in changes:
            match one:
                case Ends(names) | Move(names):
                    groups = self.groups_of(names)
                    facts += self.ended(groups)
                    opened |= nodes_of(self.state, groups)
                    comes_back += groups if isinstance(one, Move) else ()
                case Heal(nodes):
                    facts += chain.from_iterable(self.healed(node) for node in nodes)
                case _:
                    wanted, *mates = (tuple(changed(part, one) for part in parts) for parts in (wanted, *mates))
        healed = {self.state.topology.node_index[one.node] for one in facts if isinstance(one, NodeHealthChanged)}
        first = 1 + len(mates)
        asked = [
            tuple(_asking(one, one.request.spec, offered(self.snapshot, one, opened, healed)) for one in parts)
            for parts in (wanted, *mates, *self._before)
        ]
        return _World(asked[0], tuple(facts), tuple(comes_back), tuple(asked[first:]), tuple(asked[1:first]))

    def ended(self, groups: Iterable[str]) -> list[Fact]:
        """All pods of these groups are gone."""
        return [PodDeleted(one) for one in pods_of(self.state, groups)]

    def healed(self, node: str) -> list[Fact]:
        """The node is healthy, and so are all its devices."""
        topology = self.state.topology
        leaves = topology.leaves_of(topology.node_index[node])
        lost = leaves[self.state.cells.lost[leaves] > 0].tolist()
        types = dict.fromkeys(topology.cell_type(leaf) for leaf in lost)
        return [NodeHealthChanged(node, True), *(LeavesLost(node, leaf_type, 0) for leaf_type in types)]

    def may_move(self, names: Iterable[str]) -> bool:
        """Do the owners of these jobs, or their virtual clusters, allow that they start anew elsewhere (rule 28.1)?"""
        facts = [self.snapshot.running.get(name) for name in self.groups_of(names)]
        return all(one is not None and one.may_move for one in facts)


def _pod_count(entries: Iterable[WaitingEntry]) -> int:
    return sum(len(one.pods) for one in entries)


def _asked(parts: Iterable[Asking]) -> list[Asked]:
    return [one.asked for one in parts]


def _waits(found: list[Decision] | UserError) -> str:
    """Return why a bundle does not start; "" if it does."""
    if isinstance(found, UserError):
        return found.message
    return next((one.reason or "it waits" for one in found if isinstance(one, Wait)), "")


def _binds(found: list[Decision] | UserError) -> bool:
    return not isinstance(found, UserError) and all(isinstance(one, Bind) for one in found)


def _nodes_in(found: Iterable[Decision]) -> tuple[str, ...]:
    places = (place.node for one in found if isinstance(one, Bind) for size in one.bind_info.members for place in size)
    return tuple(dict.fromkeys(places))


def refusal(snapshot: Snapshot, entry: WaitingEntry, vc: str, priority: int) -> str:
    """Return why the job may not have this priority in this virtual cluster, "" if it may."""
    return snapshot.access.refusal(entry.namespace, snapshot.labels.get(entry.namespace, {}), vc, priority)


MOST_LEAVES = 4096
"""Leaf cells of a cluster for which another configuration is tried."""


def check_size(state: State) -> None:
    """Raise UserError for a cluster that is too large."""
    leaves = len(state.arrays.node_leaf)
    if leaves > MOST_LEAVES:
        raise UserError(
            f"another configuration is tried for {MOST_LEAVES} GPUs at most, here are {leaves}: `hived config "
            "plan` says what a new one would do"
        )


def state_after(state: State, changes: Sequence[ConfigurationChange]) -> State:
    """A state of the changed configuration, in which everything runs where it does now; told of it as a pushed
    configuration's would be.

    Raises UserError if the hardware cannot keep all promises, if a group would lose its guarantee, if the rules of
    decisions do not allow the change, or if the cluster is too large. Cost O(cells + pods); `state` is not changed.
    """
    check_size(state)
    spec = state.spec
    for one in changes:
        clusters = _combining(spec, one) if isinstance(one, Combine) else _resized(spec, one.resizes)
        spec = with_fields(spec, virtual_clusters=clusters)
    _check_promises(spec)
    names = state.topology.node_names
    placed = [
        Placed(pod, bind_info_of_slot(state, group, slot), group.times.get(pod.uid, WorkTimes()))
        for group in state.groups.values()
        for slot, pod in enumerate(group.holders)
        if pod is not None
    ]
    after = Scenario(new_state(spec))
    healthy = sorted(names[number] for number in np.flatnonzero(state.cells.node_bad == 0))
    after.tell(NodeHealthChanged(node, True) for node in healthy)
    after.tell(PodAllocated(request, info, times=times) for request, info, times in in_replay_order(placed))
    after.tell(_losses(state))
    after.tell(GroupReserved(one.pods, one.info) for _, one in sorted(reservations(state).items()))
    for name, group in state.groups.items():
        now = after.state.groups[name]
        if NO_CELL in now.physical or (group.virtual is not None) != (now.virtual is not None):
            raise UserError(f"{name} would lose its cells, or the guarantee of its virtual cluster")
    return after.state


def _check_promises(spec: ClusterSpec) -> None:
    """Raise UserError if not even good hardware could keep all promises."""
    healthy = idle_state(spec)
    chains = range(len(healthy.topology.chains))
    if any(healthy.cells.strained) or any(spare_of(healthy, chain).min() < 0 for chain in chains):
        raise UserError("there is not enough hardware for the promises to all virtual clusters")


def _losses(state: State) -> list[LeavesLost]:
    """The lost leaf cells of each node and type."""
    arrays, found = state.arrays, dict[tuple[str, str], list[int]]()
    for leaf in arrays.node_leaf[state.cells.lost[arrays.node_leaf] > 0].tolist():
        place = state.topology.node_names[arrays.node[leaf]], state.topology.cell_type(leaf)
        found.setdefault(place, []).append(int(arrays.device[leaf]))
    return [LeavesLost(*place, len(devices), tuple(devices)) for place, devices in found.items()]


def _combining(spec: ClusterSpec, change: Combine) -> Mapping[str, VirtualClusterSpec]:
    if spec.rules is Rules.HIVED:
        raise UserError("combine needs rules: 2")
    return {**spec.virtual_clusters, change.vc: with_fields(spec.virtual_clusters[change.vc], combines=True)}


def _resized(spec: ClusterSpec, resizes: Sequence[Resize]) -> Mapping[str, VirtualClusterSpec]:
    clusters = dict(spec.virtual_clusters)
    for one in resizes:
        vc = clusters[one.vc]
        path = _path(spec, vc, one)
        counts = {cell.cell_type: cell.cell_count for cell in vc.virtual_cells}
        count = counts.get(path, 0) + one.count
        if count < 0:
            has = counted(counts.get(path, 0), "cell")
            raise UserError(f"virtual cluster {one.vc} has {has} of {path}, {-one.count} cannot be taken")
        counts[path] = count
        cells = tuple(VirtualCellSpec(name, number) for name, number in counts.items() if number)
        clusters[one.vc] = with_fields(vc, virtual_cells=cells)
    return clusters


def _path(spec: ClusterSpec, vc: VirtualClusterSpec, resize: Resize) -> str:
    """The cell type with its chain, as virtual clusters name it: their own, else another's, else the only one."""
    paths = [cell.cell_type for each in (vc, *spec.virtual_clusters.values()) for cell in each.virtual_cells]
    for path in paths:
        if resize.cell_type in (path, path.rsplit(".", 1)[-1]):
            return path
    found = list(dict.fromkeys(path for cell in spec.physical_cells for path in _paths(spec, cell.cell_type)))
    found = [path for path in found if resize.cell_type in (path, path.rsplit(".", 1)[-1])]
    if len(found) != 1:
        raise UserError(f"cell type {resize.cell_type} is in several chains; name one of {', '.join(found)}")
    return found[0]


def _paths(spec: ClusterSpec, top: str) -> list[str]:
    """All cell types below the top of a chain, with their chain."""
    found, name = [top], top
    while name in spec.cell_types:
        name = spec.cell_types[name].child_type
        found.append(f"{found[-1]}.{name}")
    return found


def type_names(spec: ClusterSpec) -> dict[str, None]:
    """All cell types that a virtual cluster can be promised, with their chain and without."""
    paths = [
        path for top in dict.fromkeys(cell.cell_type for cell in spec.physical_cells) for path in _paths(spec, top)
    ]
    return dict.fromkeys([*paths, *(path.rsplit(".", 1)[-1] for path in paths)])
