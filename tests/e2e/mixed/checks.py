"""Plays again what the observer noted, and finds what may never be: pure functions of notes in the order of versions.

Each binding of ours is judged against what was stored when it was. kube-scheduler and the service may be a moment late
with what others did: `GRACE_S`, or more for pods whose bindings are held for mates or volumes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.e2e.mixed.facts import NodeSeen, PodSeen, Seen

GRACE_S = 2.0
HELD_S = 7.0
"""For pods that start together or have volumes: a call to the service holds a binding for seconds."""


@dataclass
class Replay:
    """The cluster as it was at one note. `apply` moves on.

    Attributes
    ----------
    nodes : each node's versions, the present one last
    pods : the present version of every pod that is not gone, by uid
    bound_at : by uid, when it was seen to get its node
    """

    nodes: dict[str, list[NodeSeen]] = field(default_factory=lambda: defaultdict(list))
    pods: dict[str, PodSeen] = field(default_factory=dict)
    bound_at: dict[str, float] = field(default_factory=dict)

    def apply(self, seen: Seen) -> bool:
        """Take the next note; true if it is that a pod got its node."""
        if isinstance(seen, NodeSeen):
            self.nodes[seen.name].append(seen)
            return False
        before = self.pods.pop(seen.uid, None)
        if not seen.is_gone:
            self.pods[seen.uid] = seen
        is_binding = bool(seen.node) and not seen.is_gone and not (before and before.node)
        if is_binding:
            self.bound_at[seen.uid] = seen.at
        return is_binding

    def running(self) -> Iterator[PodSeen]:
        """The pods that have their devices."""
        return (pod for pod in self.pods.values() if pod.is_running)

    def beside(self, pod: PodSeen) -> Iterator[PodSeen]:
        """The others that run on its node."""
        return (one for one in self.running() if one.node == pod.node and one.uid != pod.uid)

    def node_since(self, name: str, at: float) -> list[NodeSeen]:
        """The versions of a node that were in force since then."""
        versions = self.nodes[name]
        first = max((index for index, one in enumerate(versions) if one.at <= at), default=0)
        return versions[first:]


def violations(notes: Iterable[Seen], shares: Mapping[str, int]) -> list[str]:
    """Violations, in words; `shares` is how many nodes are promised to each virtual cluster."""
    replay = Replay()
    found: list[str] = []
    for seen in notes:
        if replay.apply(seen) and isinstance(seen, PodSeen) and seen.is_ours:
            found += _misplaced(replay, seen, shares)
    return found


def _misplaced(replay: Replay, pod: PodSeen, shares: Mapping[str, int]) -> Iterator[str]:
    if not pod.is_running:  # it ended before the list in which it was seen
        return
    where = f"{pod.name} was bound to {pod.node} at {pod.at:.1f}"
    if len(pod.leaves) != pod.devices:
        yield f"{where} with devices {', '.join(pod.leaves) or 'none'}, and asks for {pod.devices}"
    for other in replay.beside(pod):
        if shared := set(pod.leaves) & set(other.leaves):
            yield f"{where} with devices {', '.join(sorted(shared))} that {other.name} holds"
        if pod.is_apart and other.is_apart and pod.job == other.job:
            yield f"{where} beside {other.name}, from which it has to be apart"
    if pod.is_guaranteed:
        used = nodes_of(replay, pod.vc)
        if len(used) > shares[pod.vc]:
            yield f"{where}: {pod.vc} has {shares[pod.vc]} nodes and uses {', '.join(sorted(used))}"
    if not pod.is_listed:  # else nobody knows when it was bound
        yield from _refused(replay, pod, where)


def _refused(replay: Replay, pod: PodSeen, where: str) -> Iterator[str]:
    """Is it on a node where kube-scheduler would not have it?"""
    since = pod.at - (HELD_S if pod.mates > 1 or pod.has_volumes else GRACE_S)
    versions = replay.node_since(pod.node, since)
    if not any(one.admits(pod) for one in versions):
        taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in versions[-1].taints) if versions else "no node"
        yield f"{where} with untolerated taints ({taints})"
    offered = max((one.devices for one in versions), default=0)
    known = [one for one in replay.beside(pod) if one.is_ours or replay.bound_at[one.uid] <= since]
    used = sum(one.devices for one in known) + pod.devices
    if used > offered:
        names = ", ".join(f"{one.name} ({one.devices})" for one in known if one.devices)
        yield f"{where}: {used} of {offered} devices are in use there, by {names or 'nobody else'} and it"


def nodes_of(replay: Replay, vc: str) -> set[str]:
    """The nodes on which guaranteed pods of a virtual cluster run: as many of its cells are in use."""
    return {pod.node for pod in replay.running() if pod.is_guaranteed and pod.vc == vc}


def happened(notes: Iterable[Seen]) -> Counter[str]:
    """How often there was anything to judge, so that a run that saw nothing is noticed."""
    replay, counts = Replay(), Counter[str]()
    for seen in notes:
        if isinstance(seen, NodeSeen):
            before = replay.nodes[seen.name][-1:]
            counts["taints"] += bool(seen.taints) and not (before and before[0].taints)
            counts["devices lost"] += bool(before) and seen.devices < before[0].devices
        elif (
            (before_pod := replay.pods.get(seen.uid)) and before_pod.is_ours and before_pod.is_running and seen.is_gone
        ):
            counts["pods evicted or deleted"] += 1
        if replay.apply(seen) and isinstance(seen, PodSeen):
            counts.update(_kinds(seen))
    return counts


def _kinds(pod: PodSeen) -> Iterator[str]:
    if not pod.is_ours:
        if pod.devices:
            yield "bound of others"
        return
    yield "bound"
    yield f"bound in {pod.vc}, {'guaranteed' if pod.is_guaranteed else 'opportunistic'}"
    if pod.is_apart:
        yield "bound apart"
    elif pod.mates > 1:
        yield "bound in gangs"
    if pod.has_volumes:
        yield "bound with volumes"
