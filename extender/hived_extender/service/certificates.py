"""A certificate of an explanation: the cells that the core counted, with the names and moments that people know."""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Protocol

import msgspec
import numpy as np

from hived.cells.state import State
from hived.cells.topology import BoolArray, Topology
from hived.values.decisions import Cause, Explanation, HoldingGroup
from hived.values.events import Offer
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest
from hived.why.relaxing import Emptied
from hived_extender.api.waiting import BadNode, CauseName, Certificate, Holder
from hived_extender.kube_rules.demands import Demands
from hived_extender.pods.progress import write_time
from hived_extender.service.sentences import NO_NODE, counted, listed_with, sentence_of

NODES_OF_HOLDER = 16
"""Nodes that are listed of one holder."""

_NO_CAUSE: CauseName = "unknown"

_NOT_DEVICES = frozenset({"cpu", "memory", "ephemeral-storage"})


class GroupFacts(msgspec.Struct, frozen=True):
    """A group that has cells, as its owner knows it; moments in seconds since 1970.

    `job` is its name as `hived why` takes it. A job that is leaving is gone at `ends_s`, others end there by their own
    declaration. One that is waiting has reserved cells, which others still use.
    """

    job: str
    namespace: str = ""
    started_s: float | None = None
    ends_s: float | None = None
    is_leaving: bool = False
    is_waiting: bool = False


class Facts(Protocol):
    """Names and moments that the core does not know."""

    def of_group(self, name: str) -> GroupFacts | None:
        """A group that has cells; None if nothing is known of it."""

    def of_node(self, name: str) -> BadNode:
        """A node that cannot be used, and why."""


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
    """The certificate of a job, which asks for `requests` and was refused for `reason`, at `now_s` since 1970.

    `rules` says which rules of Kubernetes refuse which nodes, "" if it refuses none; if no node has the labels that it
    selects, nothing else counts. `sized_by` is for `asks_of`.
    """
    spec = requests[0].spec
    chain = topology.chains[topology.chain_index[explanation.chain]] if explanation.chain else None
    level = chain.type_levels.get(explanation.level, 0) if chain is not None else 0
    is_node = chain is not None and level == chain.node_level
    node_leaves = chain.leaf_count(level) if chain is not None and is_node else 0
    no_node = rules.startswith(NO_NODE)
    causes: list[CauseName] = ["kubernetes"] if no_node else [cause.value for cause in explanation.causes]
    never = Cause.NEVER in explanation.causes
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
        rules=rules if "kubernetes" in causes or never else "",
        never=never,
        reason=reason,
    )
    return with_sentence(found, now_s, requests[0].namespace)


def first_never(
    emptied: Emptied, state: State, requests: Sequence[PodRequest], offers: Sequence[Offer | None]
) -> int | None:
    """The place of the first of these requests that could never run, were it alone; None if each of them could."""
    for at, (request, offer) in enumerate(zip(requests, offers, strict=True)):
        if not emptied.could_ever_run(state, request, is_offered=offer is not None):
            return at
    return None


def of_all_parts(
    emptied: Emptied, state: State, requests: Sequence[PodRequest], explanation: Explanation
) -> Explanation:
    """The explanation of one of these requests, which start together; or that all of them ask for more leaf cells than
    there ever are for them.
    """
    if len(requests) < 2 or Cause.NEVER in explanation.causes:
        return explanation
    wanted = sum(one.pod_count * one.leaf_cell_count for each in requests for one in each.spec.group.members)
    most = emptied.leaves_for(state, requests)
    if wanted <= most:
        return explanation
    return dataclasses.replace(
        explanation, causes=(Cause.NEVER,), chain="", level="leaf cell", asked=wanted, total=most, largest_ever=most
    )


def once_others_left(request: PodRequest, offer: Offer, fit: BoolArray) -> Offer:
    """The offer to an opportunistic request as if others had left, for the question why it waits.

    kube-scheduler offers no node whose devices or CPU others have, and nobody leaves for such a request: so its offer
    alone does not say which nodes only others keep it from.

    fit : nodes that could take each of its pods once others leave, shape (slots, nodes), or one row for all
    """
    if request.spec.priority > OPPORTUNISTIC_PRIORITY:
        return offer
    fit = fit if len(fit) == len(offer.nodes) else fit[:1]
    is_one_row = offer.nodes.strides[0] == 0 and (len(fit) == 1 or fit.strides[0] == 0)
    nodes, fit = (offer.nodes[:1], fit[:1]) if is_one_row else (offer.nodes, fit)
    return dataclasses.replace(offer, after=np.broadcast_to(fit & ~nodes, offer.nodes.shape))


def with_sentence(found: Certificate, now_s: float, namespace: str = "") -> Certificate:
    """The same with the sentence that follows from it, for readers of a namespace."""
    return msgspec.structs.replace(found, sentence=sentence_of(found, today(now_s), namespace))


def asks_of(requests: Sequence[PodRequest], leaf_type: str, node_leaves: int = 0, sized_by: str = "") -> str:
    """All that a job asks for: `2 nodes of 8 H100 at once`, `1 pod of 3 H100`, `1 pod of 2 and 1 of 8 H100 at once`.

    Parts of several leaf cell types have their own: `1 pod of 4 A10 and 2 pods of 8 H100 at once`. Pods that take a
    whole node are called nodes, if nodes have `node_leaves` leaf cells. `sized_by` says what their size comes from.
    """
    counts: dict[tuple[str, int], int] = {}
    is_one_type = len({request.spec.leaf_cell_type for request in requests}) == 1
    for request in requests:
        leaves = leaf_type if is_one_type else request.spec.leaf_cell_type
        for member in request.spec.group.members:
            key = leaves or "leaf cells", member.leaf_cell_count
            counts[key] = counts.get(key, 0) + member.pod_count
    spec = requests[0].spec
    within = spec.within_cell if spec.within_is_required else ""
    return _asks(tuple(sorted(counts.items())), node_leaves, within, sized_by)


@lru_cache(maxsize=1024)
def _asks(counts: tuple[tuple[tuple[str, int], int], ...], node_leaves: int, within: str, sized_by: str) -> str:
    """The words of `asks_of`: most of many jobs ask for the same."""
    word = "node" if [size for (_, size), _ in counts] == [node_leaves] and node_leaves > 1 else "pod"
    types = dict.fromkeys(leaves for (leaves, _), _ in counts)
    parts = [f"{counted(count, word)} of {size}" + f" {leaves}" * (len(types) > 1) for (leaves, size), count in counts]
    leaves = f" {next(iter(types))}" if len(types) == 1 else ""
    together = " at once" if sum(count for _, count in counts) > 1 else ""
    where = f" in one {within}" if within else ""
    return f"{listed_with(parts)}{leaves}{together}{where}" + (f" for {sized_by}" if sized_by else "")


def sized_by(request: PodRequest, demands: Demands, spec: ClusterSpec) -> str:
    """What a pod of a dialect has more leaf cells for than its devices: `its 300 CPU (28 a cell)`; "" if nothing."""
    return size_from(request.spec.leaf_cell_type, request.spec.leaf_cell_count, demands, spec)


def size_from(leaf_type: str, size: int, demands: Demands, spec: ClusterSpec) -> str:
    """The same of a pod of so many leaf cells of a type."""
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


def holders_of(groups: Sequence[HoldingGroup], topology: Topology, facts: Facts) -> list[Holder]:
    """The jobs of these groups, in their order; groups of one job are one holder."""
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
        )
    return list(found.values())


def _later(one: str, other: str) -> str:
    """The later of two moments; "" if one is not known."""
    return max(one, other) if one and other else ""


def today(now_s: float) -> str:
    """The date in UTC."""
    return rfc3339(now_s)[:10]


def rfc3339(at_s: float | None) -> str:
    """A moment in UTC, in whole seconds; "" for none, and for one that has no text."""
    return "" if at_s is None else write_time(at_s)
