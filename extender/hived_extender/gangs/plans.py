"""Which waiting pods of gangs that start together do so now, or what is missing for that.

A plan follows from the pods that exist alone, in whatever order they came; a restart finds the same.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hived.errors import UserError
from hived.specs import GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_extender.dialects.description import GangKey, MatchPolicy
from hived_extender.gangs.gang import Gang, Terms, age, is_placed, is_ready, task_of
from hived_extender.pods import PodRecord
from hived_extender.requests import Ask

NAMED = 8
"""Pods that a message names; of the others it says how many there are."""

_NUMBERED = re.compile(r"(.*[-._]|)(0|[1-9][0-9]{0,9})")
"""The name of a pod that has a number at its end. Names that Kubernetes makes up may end in digits as well."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of a round that ask for the same kind of cells: one request of the core, whose slots are `members`."""

    request: PodRequest
    members: tuple[PodRecord, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Pods that start together: `members`, in order, those without devices among them; `parts`, of those with.

    `is_strict`: kube-scheduler is to be asked about all of them again after they were told to wait.
    """

    key: GangKey
    name: str
    members: tuple[PodRecord, ...]
    parts: tuple[Part, ...]
    is_strict: bool
    uids: frozenset[str]

    @property
    def unasked(self) -> list[PodRecord]:
        """Members that kube-scheduler has not found a node for yet."""
        return [record for record in self.members if not record.was_asked]


@dataclass(slots=True, eq=False)
class Plan:
    """What becomes of the waiting pods of gangs that start together.

    At most one is set of `refusal`, a mistake in the pods; `forming`, what is missing before any of them may start; and
    `round`. Pods that are not in the round wait for it; without one, every pod may start alone. `is_told` is for who
    tells the pods of it.
    """

    keys: tuple[GangKey, ...]
    refusal: str = ""
    forming: str = ""
    round: Round | None = None
    is_told: bool = False


def make_plan(keys: tuple[GangKey, ...], gangs: Mapping[GangKey, Gang]) -> Plan:
    """The plan for these gangs, which start together; of some there may be no pods. Cost O(pods x log)."""
    chosen: list[PodRecord] = []
    missing: list[str] = []
    is_strict = False
    try:
        for key in keys:
            gang = gangs.get(key)
            if gang is None:
                others = ", ".join(str(other) for other in keys if other != key)
                missing.append(f"rejected by podgroup {key}, which starts together with {others}: no pods created")
                continue
            missing += [
                f"rejected by podgroup {other} of another namespace: none of its pods has {key} among its groups"
                for other in sorted(gang.lists.keys() - set(keys))
            ]
            terms = gang.terms()
            is_strict = is_strict or terms.is_strict
            members, lack = _starters(gang, terms)
            if lack:
                _check_namespaces(gang, terms)
                missing.append(lack)
            chosen.extend(members)
        asks = [(record, record.ask) for key in keys if key in gangs for record in gangs[key].in_order()]
        _check_agreement(keys[0], [(record, ask) for record, ask in asks if ask and ask.leaf_cell_count])
    except UserError as error:
        return Plan(keys, refusal=error.message)
    if missing:
        return Plan(keys, forming="; ".join(missing))
    if not chosen:
        return Plan(keys)
    first = next(record.gang for record in chosen if record.gang is not None)
    name = f"podgroup/{first}"
    uids = frozenset(record.uid for record in chosen)
    return Plan(keys, round=Round(first, name, tuple(chosen), tuple(_parts(name, first, chosen)), is_strict, uids))


def _check_namespaces(gang: Gang, terms: Terms) -> None:
    """Pods of one gang in two namespaces are two gangs, neither of which is ever complete."""
    count = len(gang.members)
    for other in [other for key, other in sorted(gang.namesakes.items()) if key != gang.key]:
        try:
            is_same = other.terms().minimum == terms.minimum
        except UserError:
            continue
        if is_same and len(other.members) < terms.minimum <= count + len(other.members):
            raise UserError(
                f"podgroup {gang.key} has {count} of {terms.minimum} pods, and {len(other.members)} pods in "
                f"namespace {other.key.namespace} name a podgroup {gang.key.name} too: a gang is of one namespace; "
                "create all its pods in one, or give the two different names"
            )


def _starters(gang: Gang, terms: Terms) -> tuple[list[PodRecord], str]:
    """The waiting pods that have to start together, in order; or what is missing for that."""
    members = gang.in_order()
    ready = [record for record in members if is_ready(record)]
    if terms.is_missing:
        return [], f"rejected by podgroup {gang.key}: there is no {terms.source}"
    placed = [record for record in members if is_placed(record)]
    succeeded = [ended for ended in gang.ended.values() if ended.has_succeeded]
    policy = terms.match_policy
    if policy is MatchPolicy.ONCE_SATISFIED and (placed or succeeded):
        return [], ""
    if policy is MatchPolicy.ONLY_WAITING:
        placed = [record for record in placed if not record.is_running]
    tasks = Counter(task_of(record) for record in placed)
    counted = len(placed)
    if policy is MatchPolicy.WAITING_RUNNING_SUCCEED:
        tasks.update(ended.description.task for ended in succeeded)
        counted += len(succeeded)
    chosen: dict[str, PodRecord] = {}
    for task, minimum in sorted(terms.task_minimums.items()):
        of_task = [record for record in ready if task_of(record) == task]
        needed = max(0, minimum - tasks[task])
        if needed > len(of_task):
            have = tasks[task] + sum(task_of(record) == task and not is_placed(record) for record in members)
            return [], _lacking(gang, terms, have, minimum, f"pods of task {task}")
        chosen |= {record.uid: record for record in of_task[:needed]}
    needed = terms.minimum - counted
    if needed > len(ready):
        have = counted + sum(not is_placed(record) for record in members)
        return [], _lacking(gang, terms, have, terms.minimum, "pods")
    for record in ready:
        if len(chosen) >= needed:
            break
        chosen[record.uid] = record
    return sorted(chosen.values(), key=age), ""


def _lacking(gang: Gang, terms: Terms, have: int, minimum: int, what: str) -> str:
    """Why a gang cannot start: what is not created yet, and what stands in the way of those that are."""
    notes = []
    absent = _absent([record.name for record in gang.members.values()], terms.total or terms.minimum)
    if absent and have < minimum:
        notes.append(f"missing {absent}")
    members = gang.in_order()
    gated = [record.name for record in members if record.is_held]
    if gated:
        notes.append(f"{listed(gated)} held by a scheduling gate")
    wrong = [record.name for record in members if record.ask is None and not is_placed(record)]
    if wrong:
        notes.append(f"{listed(wrong)} refused (see the events there)")
    if terms.match_policy is MatchPolicy.ONLY_WAITING and any(record.is_running for record in members):
        notes.append(f"pods that run do not count by match policy {terms.match_policy.value}")
    text = f"rejected by podgroup {gang.key}: {have} of {minimum} {what} created"
    return f"{text} ({', '.join(notes)})" if notes else text


def _absent(names: Sequence[str], total: int) -> str:
    """Which names numbered pods of one prefix leave out, "" if the pods are not so named: x-0, x-2 of 3 lack x-1."""
    found = [_NUMBERED.fullmatch(name) for name in names]
    prefixes = {match[1] for match in found if match is not None}
    numbers = {int(match[2]) for match in found if match is not None}
    first = 1 if total in numbers else 0
    if None in found or len(prefixes) != 1 or not all(first <= number < first + total for number in numbers):
        return ""
    prefix = prefixes.pop()
    absent = (f"{prefix}{number}" for number in range(first, first + total) if number not in numbers)
    return _in_short(list(islice(absent, NAMED)), total - len(numbers))


def listed(names: Sequence[str]) -> str:
    """Names in a message, the first few of them."""
    return _in_short(names[:NAMED], len(names))


def _in_short(shown: Sequence[str], count: int) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


def _check_agreement(key: GangKey, asks: Sequence[tuple[PodRecord, Ask]]) -> None:
    """Raise UserError unless all pods that take cells are of one VC and priority."""
    for name, what in (("virtual_cluster", "virtual cluster"), ("priority", "priority")):
        for record, ask in asks[1:]:
            first, value = getattr(asks[0][1], name), getattr(ask, name)
            if value != first:
                raise UserError(
                    f"the pods of podgroup {key} disagree: the {what} of {asks[0][0].name} is {first}, of "
                    f"{record.name} {value}; a gang has one {what}: make them equal"
                )


def _parts(name: str, key: GangKey, members: Sequence[PodRecord]) -> list[Part]:
    """One request for each kind of cells that the pods ask for.

    Pods that choose different nodes are of different kinds, unless all shall be in one cell: that needs one request.
    """
    kinds: dict[tuple[str, str, str, bool, str], list[tuple[Ask, PodRecord]]] = {}
    for record in members:
        ask = record.ask
        if ask is not None and ask.leaf_cell_count:
            is_free = not ask.within_cell and ask.within_is_required
            nodes = ask.node_choice if is_free else ""
            kind = (ask.leaf_cell_type, ask.pinned_cell_id, ask.within_cell, ask.within_is_required, nodes)
            kinds.setdefault(kind, []).append((ask, record))
    parts = []
    choosers_first = sorted(kinds, key=lambda kind: (kind[:-1], not kind[-1], kind[-1]))
    for number, kind in enumerate(choosers_first):
        pods = sorted(kinds[kind], key=lambda one: one[0].leaf_cell_count)  # stable: by age within a size
        sizes = Counter(ask.leaf_cell_count for ask, _ in pods)
        part_name = f"{name}#{number}" if number else name
        group = GroupSpec(part_name, tuple(MemberSpec(count, size) for size, count in sorted(sizes.items())))
        spec = replace(
            spec_of(pods[0][0], group),
            lazy_preemption=all(ask.lazy_preemption for ask, _ in pods),
            ignore_suggested_nodes=all(ask.ignore_suggested_nodes for ask, _ in pods),
        )
        request = PodRequest(uid=part_name, name=key.name, namespace=key.namespace, spec=spec)
        parts.append(Part(request, tuple(record for _, record in pods)))
    return parts


def spec_of(ask: Ask, group: GroupSpec) -> PodSpec:
    """What a pod asks the core for, as a member of this group."""
    return PodSpec(
        virtual_cluster=ask.virtual_cluster,
        priority=ask.priority,
        leaf_cell_count=ask.leaf_cell_count,
        group=group,
        pinned_cell_id=ask.pinned_cell_id,
        leaf_cell_type=ask.leaf_cell_type,
        lazy_preemption=ask.lazy_preemption,
        ignore_suggested_nodes=ask.ignore_suggested_nodes,
        within_cell=ask.within_cell,
        within_is_required=ask.within_is_required,
    )
