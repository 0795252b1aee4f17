"""The certificate of an explanation: cells counted by the core, with names and moments for users, and its sentence.

The sentence (docs/waiting.md) follows from the certificate alone and changes only when a fact does: it has moments,
never ages.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil
from typing import Protocol

import msgspec
import numpy as np

from hived.cells.state import State
from hived.cells.topology import BoolArray, Topology
from hived.values.decisions import Cause, Explanation, HoldingGroup
from hived.values.events import Offer
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest, count_leaves
from hived.why.relaxing import Emptied
from hived_config.words import counted, listed_with
from hived_extender.api.names import short_name
from hived_extender.api.waiting import (
    LOST,
    MASKED,
    NEVER_RAN,
    NOT_AGAIN,
    NOT_BY_EXIT,
    RECLAIMING,
    UNSEEN,
    BadNode,
    CauseName,
    Certificate,
    Ended,
    Holder,
    Preempted,
    attempt_words,
    exit_words,
    preempted_words,
    rank_in_words,
)
from hived_extender.jobs.progress import write_time
from hived_extender.kube_rules.demands import Demands

NAMED = 3
"""Jobs and nodes that a sentence names; it counts the others."""

ANOTHERS = "another tenant's job"

NEVER_PREEMPTS = "others use its cells, and its preemptionPolicy is Never: it waits until they end"

NOBODY_HELPS = "others use its cells, and kube-scheduler would refuse it even without them"

OTHERS_LEAVE = "others are leaving for other reasons, and it starts without more victims once they have left"

NO_NODE = "no node has the labels that it selects"
"""The words for a pod that selects nodes by labels that none has, whoever else is there and however healthy."""

_COUNTED = frozenset({"in-use", "in-pieces", "bad", "kubernetes", "never"})

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def is_derived(found: Certificate) -> bool:
    """True if the sentence follows from the certificate; other sentences are messages of the service."""
    return found.cause in _COUNTED or (found.cause in RECLAIMING and bool(found.holders))


def sentence_of(found: Certificate, today: str, namespace: str = "") -> str:
    """The sentence of a derived certificate, for a job of `namespace`; `today` is a date such as 2026-11-23.

    Jobs of the same namespace have bare names.
    """
    if found.cause == "never":
        return f"needs {found.asks}; it can never run: {_bound(found)}"
    if found.never_preempts:
        return f"needs {found.asks}; {NEVER_PREEMPTS}"
    if found.cause in RECLAIMING:
        return f"needs {found.asks}; its cells are being reclaimed from {_holders(found, today, namespace)}"
    if found.cause == "kubernetes" and found.rules.startswith((NO_NODE, NOBODY_HELPS)):
        return f"needs {found.asks}; {found.rules}"
    parts = list(_parts(found, today, namespace))
    text = parts[0] if parts else f"{_place(found)} has no room of this shape"
    own = f"; {found.own_pods} of its own pods {'runs' if found.own_pods == 1 else 'run'}" if found.own_pods else ""
    return f"needs {found.asks}; {text}" + "".join(f" and {part}" for part in parts[1:]) + own


def preempted_sentence(found: Preempted, today: str, namespace: str = "") -> str:
    """The moment, the winner and the kind of a preemption or eviction, for a job of `namespace`."""
    by = ANOTHERS if found.by == MASKED else short_name(found.by, found.namespace, namespace)
    return preempted_words(found, moment(found.at, today), by)


def ended_sentence(state: str, ended: Ended, today: str, namespace: str = "") -> str:
    """Return how a job of `namespace` ended, and when it was preempted, without its state."""
    parts = [exit_words(ended)] if state not in NOT_BY_EXIT else []
    if ended.attempts:
        parts.append(attempt_words(ended.attempts))
    if not ended.started and state == "Deleted":
        parts.append(NEVER_RAN)
    if state == "Unknown":
        parts.append(UNSEEN)
    shown = ended.evictions[-NAMED:]
    parts += [preempted_sentence(one, today, namespace) for one in shown]
    more = ended.eviction_count - len(shown)
    if more > 0:
        parts.append("once before" if more == 1 else f"{more} times before")
    if ended.is_bare and state in LOST:
        parts.append(NOT_AGAIN)
    return "; ".join(part for part in parts if part)


def moment(at: str, today: str) -> str:
    """Format a moment in RFC 3339: `14:02`, of another day `Nov 22 14:02`."""
    if len(at) < len("2026-11-23T14:02"):
        return at
    clock = at[11:16]
    return clock if at.startswith(today) else f"{_MONTHS[int(at[5:7]) - 1]} {int(at[8:10])} {clock}"


def limit(at: str, today: str) -> str:
    """Format a deadline, with its seconds unless they are zero."""
    seconds = at[16:19]
    return moment(at, today) + (seconds if seconds != ":00" else "")


def _bound(found: Certificate) -> str:
    """Explain a wait that no end of another job would help."""
    place = _place(found)
    if found.largest_ever <= 0:
        return f"{place} has no cells for it"
    if found.largest_asked > found.largest_ever:
        return f"a pod can have at most {counted(found.largest_ever, found.leaf_type)} in {place}"
    if found.asked > found.total:
        return f"{place} has {found.total}{_unit(found)} in all"
    return f"{place} has no place of this shape"


def _parts(found: Certificate, today: str, namespace: str) -> Iterator[str]:
    """A clause for each cause; the first names the place."""
    place, of_all = _place(found), f"of {found.total}{_unit(found)}"
    is_first = True
    for cause in (found.cause, *found.also):
        if cause == "in-use":
            who = _holders(found, today, namespace) if found.holders else ""
            if found.in_use:
                is_told = "in-pieces" in found.also
                broken = f" and {found.in_pieces} in part" if found.in_pieces and found.unit and not is_told else ""
                yield f"{place} has {found.in_use} {of_all} in use{broken}{who and f' by {who}'}"
            else:
                yield f"cells of {place} that it needs are in use{who and f' by {who}'}"
        elif cause == "in-pieces":
            whose = f"{place} has {counted(found.free_leaves, found.leaf_type)} free"
            yield f"{whose}, in pieces of at most {found.largest_fit}" if is_first else "the free ones are in pieces"
        elif cause == "bad":
            where = f"{place} has {found.bad} {of_all} on bad nodes: " if is_first and found.bad else ""
            yield where + bad_nodes_told(found.bad_nodes, today) if found.bad_nodes else where + _uncounted(found)
        elif cause == "kubernetes":
            nodes = f"{found.refused} of {counted(found.total, found.unit)}" if found.refused else "the nodes with room"
            yield f"Kubernetes rules out {nodes} of {place}" + (f": {found.rules}" if found.rules else "")
        is_first = False


def _place(found: Certificate) -> str:
    if found.is_opportunistic:
        return "the cluster"
    return f"pinned cell {found.pinned}" if found.pinned else found.vc or "the cluster"


def _unit(found: Certificate) -> str:
    """The counted unit, unless the sentence has it already."""
    is_said = found.asks.split(" ")[1:2] in ([found.unit], [f"{found.unit}s"])
    return "" if not found.unit or is_said else " " + counted(found.total, found.unit).partition(" ")[2]


def _holders(found: Certificate, today: str, namespace: str) -> str:
    named = [one for one in found.holders if one.group != MASKED]
    parts = [_holder(one, today, namespace) for one in named[:NAMED]]
    others = len(found.holders) - len(named)
    more = max(0, len(named) - NAMED) + found.more_holders
    if others and not more:
        return listed_with(parts, ANOTHERS if others == 1 else f"{others} jobs of other tenants")
    if others:
        return listed_with(parts, f"{others + more} more, jobs of other tenants among them")
    return listed_with(parts, f"{more} more" if more else "")


def _holder(holder: Holder, today: str, namespace: str) -> str:
    facts = [rank_in_words(holder.priority)]
    facts += [f"since {moment(holder.since, today)}"] if holder.since else []
    if holder.is_waiting:
        facts += ["has reserved them"]
    if holder.is_leaving:
        facts += [f"gone by {limit(holder.until, today)}" if holder.until else "leaving"]
    elif holder.until:
        facts += [f"ends by {limit(holder.until, today)}"]
    return f"{short_name(holder.group, holder.namespace, namespace)} ({', '.join(facts)})"


def _uncounted(found: Certificate) -> str:
    return f"{counted(found.bad, found.unit)} cannot be used"


def running_sentence(bad: Sequence[BadNode], demoted: str, today: str) -> str:
    """Troubles of a running job: unusable nodes, and since when it has no guarantee; "" for none."""
    parts = [bad_nodes_told(bad, today)] if bad else []
    words, _, at = demoted.rpartition(" ")
    told = f"{words} {moment(at, today)}" if at[:4].isdigit() and "T" in at else demoted
    return "; ".join([*parts, *([f"opportunistic {told}"] if demoted else [])])


def bad_nodes_told(bad: Sequence[BadNode], today: str) -> str:
    """Describe one or more unusable nodes; nodes with the same trouble are joined."""
    alike: dict[str, list[str]] = {}
    for node in bad:
        since = f" (since {moment(node.since, today)})" if node.since else ""
        alike.setdefault(f"{node.reason or 'bad'}{since}", []).append(node.node)
    parts: list[str] = []
    left, others = NAMED, 0
    for why, nodes in alike.items():
        named = nodes[:left]
        left -= len(named)
        if named:
            more = f"{len(nodes) - len(named)} more" if len(nodes) > len(named) else ""
            noun, verb = ("node", "is") if len(nodes) == 1 else ("nodes", "are")
            parts.append(f"{noun} {listed_with(named, more)} {verb} {why}")
        else:
            others += len(nodes)
    return listed_with(parts, f"{counted(others, 'node')} more cannot be used" if others else "")


NODES_OF_HOLDER = 16
"""Nodes that are listed of one holder."""

_NO_CAUSE: CauseName = "unknown"

_NOT_DEVICES = frozenset({"cpu", "memory", "ephemeral-storage"})


class GroupFacts(msgspec.Struct, frozen=True):
    """A group with cells, as its owner knows it; moments in seconds since 1970.

    `job` is its name in lists. A leaving job is gone at `ends_s`; others end there by their own declaration. A waiting
    job has reserved cells that are still in use.
    """

    job: str
    namespace: str = ""
    started_s: float | None = None
    ends_s: float | None = None
    is_leaving: bool = False
    is_waiting: bool = False
    user: str = ""


class FactsOfGroups(Protocol):
    """Names and moments of groups unknown to the core."""

    def of_group(self, name: str) -> GroupFacts | None:
        """A group with cells; None if unknown."""


class Facts(FactsOfGroups, Protocol):
    """The same, and those of nodes."""

    def of_node(self, name: str) -> BadNode:
        """The trouble of an unusable node."""


def certificate_of(
    explanation: Explanation,
    requests: Sequence[PodRequest],
    topology: Topology,
    facts: Facts,
    now_s: float,
    *,
    reason: str,
    rules: str = "",
    sized_by: str = "",
) -> Certificate:
    """The certificate of a job that asks for `requests` and was refused for `reason`, at `now_s` since 1970.

    `rules` names the Kubernetes rules that refuse nodes, "" for none; if no node has the selected labels, nothing else
    counts. `sized_by` is for `asks_of`.
    """
    spec = requests[0].spec
    chain = topology.chains[topology.chain_index[explanation.chain]] if explanation.chain else None
    level = chain.type_levels.get(explanation.level, 0) if chain is not None else 0
    is_node = chain is not None and level == chain.node_level
    node_leaves = chain.leaf_count(level) if chain is not None and is_node else 0
    no_node = rules.startswith(NO_NODE)
    causes: list[CauseName] = ["kubernetes"] if no_node else [cause.value for cause in explanation.causes]
    never = Cause.NEVER in explanation.causes
    is_named = explanation.refused > 0 and not rules.startswith(NOBODY_HELPS)
    found = Certificate(
        sentence="",
        cause="never" if never else causes[0] if causes else _NO_CAUSE,
        also=[] if never else causes[1:],
        vc=spec.virtual_cluster,
        is_opportunistic=spec.priority <= OPPORTUNISTIC_PRIORITY,
        pinned=spec.pinned_cell_id,
        chain=explanation.chain,
        level=explanation.level,
        unit="node" if is_node else explanation.level,
        leaf_type=explanation.leaf_type,
        asks=asks_of(requests, explanation.leaf_type, node_leaves, sized_by),
        asked=explanation.asked,
        total=explanation.total,
        free=explanation.free,
        in_use=explanation.in_use,
        in_pieces=explanation.in_pieces,
        bad=explanation.bad,
        refused=explanation.refused,
        free_leaves=explanation.free_leaves,
        largest_fit=explanation.largest_fit,
        largest_ever=explanation.largest_ever,
        largest_asked=max(one.leaf_cell_count for request in requests for one in request.spec.group.members),
        holders=[] if no_node else holders_of(explanation.holders, topology, facts),
        more_holders=0 if no_node else explanation.more_holders,
        bad_nodes=[facts.of_node(name) for name in explanation.bad_nodes if not no_node],
        rules=rules if "kubernetes" in causes or never or is_named else "",
        never=never,
        reason=reason,
    )
    return with_sentence(found, now_s, requests[0].namespace)


def first_never(
    emptied: Emptied, state: State, requests: Sequence[PodRequest], offers: Sequence[Offer | None]
) -> int | None:
    """The index of the first request that could never run, even alone; None if each could."""
    for at, (request, offer) in enumerate(zip(requests, offers, strict=True)):
        if not emptied.could_ever_run(state, request, is_offered=offer is not None):
            return at
    return None


def of_all_parts(
    emptied: Emptied, state: State, requests: Sequence[PodRequest], explanation: Explanation
) -> Explanation:
    """Explain one of several requests that start together, or that all of them ask for more leaf cells than exist."""
    if len(requests) < 2 or Cause.NEVER in explanation.causes:
        return explanation
    wanted = sum(count_leaves(each.spec.group.members) for each in requests)
    most = emptied.leaves_for(state, requests)
    if wanted <= most:
        return explanation
    return dataclasses.replace(
        explanation, causes=(Cause.NEVER,), chain="", level="GPU", asked=wanted, total=most, largest_ever=most
    )


def once_others_left(request: PodRequest, offer: Offer, fit: BoolArray) -> Offer:
    """The offer to an opportunistic request as if others had left, to explain its wait.

    kube-scheduler offers no node whose devices or CPU are in use, and no pod is evicted for opportunistic work. So the
    offer alone does not tell these nodes apart.

    fit : nodes that could take each of its pods once others leave, shape (slots, nodes), or one row for all
    """
    if request.spec.priority > OPPORTUNISTIC_PRIORITY:
        return offer
    fit = fit if len(fit) == len(offer.nodes) else fit[:1]
    is_one_row = offer.nodes.strides[0] == 0 and (len(fit) == 1 or fit.strides[0] == 0)
    nodes, fit = (offer.nodes[:1], fit[:1]) if is_one_row else (offer.nodes, fit)
    return dataclasses.replace(offer, after=np.broadcast_to(fit & ~nodes, offer.nodes.shape))


def with_sentence(found: Certificate, now_s: float, namespace: str = "") -> Certificate:
    """Add the sentence for readers of a namespace."""
    return msgspec.structs.replace(found, sentence=sentence_of(found, today(now_s), namespace))


def asks_of(
    requests: Sequence[PodRequest], leaf_type: str, node_leaves: int = 0, sized_by: str = "", *, is_gang: bool = True
) -> str:
    """Describe a job's request: `2 nodes of 8 H100 each at once`, `1 pod of 3 GPUs`.

    Several leaf cell types are listed apart: `1 pod of 4 A10 and 2 pods of 8 H100 each at once`. Pods of a whole node
    are called nodes, if nodes have `node_leaves` leaf cells. `sized_by` names the resource that sets their size. Pods
    that are no gang start one by one.
    """
    counts: dict[tuple[str, int], int] = {}
    is_one_type = len({request.spec.leaf_cell_type for request in requests}) == 1
    for request in requests:
        leaves = leaf_type if is_one_type else request.spec.leaf_cell_type
        for member in request.spec.group.members:
            key = leaves or "GPU", member.leaf_cell_count
            counts[key] = counts.get(key, 0) + member.pod_count
    spec = requests[0].spec
    within = spec.within_cell if spec.within_is_required else ""
    return _asks(tuple(sorted(counts.items())), node_leaves, within, sized_by, is_gang)


def with_minimum(asks: str, least: int, total: int) -> str:
    """The request of a gang that may start with fewer of its pods: `5 pods of 1 GPU, 3 of them at once`."""
    alone = asks if least >= total else asks.replace(" at once", "", 1)
    return f"{alone}, {least} of them at once" if 1 < least < total else alone


def node_leaves_of(topology: Topology, leaf_type: str) -> int:
    """The leaf cells of a node of this type, of all types for "", as `asks_of` takes them; 0 if nodes differ."""
    chains = [one for one in topology.chains if leaf_type in ("", one.types[0])]
    found = {one.leaf_count(one.node_level) for one in chains}
    return found.pop() if len(found) == 1 else 0


@lru_cache(maxsize=1024)
def _asks(
    counts: tuple[tuple[tuple[str, int], int], ...], node_leaves: int, within: str, sized_by: str, is_gang: bool
) -> str:
    """The cached words of `asks_of`: most jobs ask for the same."""
    word = "node" if [size for (_, size), _ in counts] == [node_leaves] and node_leaves > 1 else "pod"
    types = dict.fromkeys(leaves for (leaves, _), _ in counts)
    parts = [
        pods_told([(size, count) for (own, size), count in counts if own == leaves], leaves, word) for leaves in types
    ]
    together = " at once" if is_gang and sum(count for _, count in counts) > 1 else ""
    where = f" in one {within}" if within else ""
    return f"{listed_with(parts)}{together}{where}" + (f" for {sized_by}" if sized_by else "")


def pods_told(counts: Sequence[tuple[int, int]], leaf_type: str, word: str = "pod") -> str:
    """Pods by (leaf cells, count): `2 pods of 4 GPUs each`, `1 pod of 2 and 1 pod of 8 H100`."""
    *others, (size, count) = counts
    parts = [f"{counted(count, word)} of {size}" for size, count in others]
    each = " each" if size > 1 and count > 1 and not others else ""
    return listed_with([*parts, f"{counted(count, word)} of {counted(size, leaf_type)}{each}"])


def sized_by(request: PodRequest, demands: Demands, spec: ClusterSpec) -> str:
    """The resource that makes a pod larger than its devices: `its 300 CPU (28 a cell)`; "" if none."""
    return size_from(request.spec.leaf_cell_type, request.spec.leaf_cell_count, demands, spec)


def size_from(leaf_type: str, size: int, demands: Demands, spec: ClusterSpec) -> str:
    """As `sized_by`, for a number of leaf cells of a type."""
    sku, asked = spec.sku_types.get(leaf_type), dict(demands.requests)
    if sku is None or size <= 1 or not asked.keys() & {"cpu", "memory"}:
        return ""
    for unit, wanted, noun in (
        (sku.cpu, asked.get("cpu", 0) / 1000, "CPU"),
        (sku.memory_mib / 1024, asked.get("memory", 0) / 2**30, "GiB of memory"),
    ):
        if (
            unit
            and ceil(round(wanted / unit, 9)) == size
            and not any(
                ceil(count / max(sku.gpu, 1)) == size for name, count in asked.items() if name not in _NOT_DEVICES
            )
        ):
            return f"its {wanted:g} {noun} ({unit:g} a cell)"
    return ""


def holders_of(groups: Sequence[HoldingGroup], topology: Topology, facts: FactsOfGroups) -> list[Holder]:
    """The jobs of these groups in order; groups of one job are one holder."""
    found: dict[str, Holder] = {}
    for group in groups:
        known = facts.of_group(group.name) or GroupFacts(group.name)
        nodes = [topology.node_names[node] for node in dict.fromkeys(topology.arrays.node[list(group.leaves)].tolist())]
        before = found.get(known.job)
        found[known.job] = Holder(
            group=known.job,
            namespace=known.namespace,
            vc=topology.vc_names[group.vc] if 0 <= group.vc < len(topology.vc_names) else "",
            priority=group.priority,
            cells=len(group.leaves) + (before.cells if before else 0),
            nodes=list(dict.fromkeys([*(before.nodes if before else ()), *nodes]))[:NODES_OF_HOLDER],
            since=min(filter(None, (rfc3339(known.started_s), before.since if before else "")), default=""),
            until=_later(rfc3339(known.ends_s), before.until) if before else rfc3339(known.ends_s),
            is_lent=group.is_lent or bool(before and before.is_lent),
            is_leaving=known.is_leaving,
            is_waiting=known.is_waiting,
            user=known.user or (before.user if before else ""),
        )
    return list(found.values())


def _later(one: str, other: str) -> str:
    """The later of two moments; "" if either is unknown."""
    return max(one, other) if one and other else ""


def today(now_s: float) -> str:
    """The date in UTC."""
    return rfc3339(now_s)[:10]


def rfc3339(at_s: float | None) -> str:
    """A moment in UTC, in whole seconds; "" for none, and for one that has no text."""
    return "" if at_s is None else write_time(at_s)
