"""Pods that wait beside a place that both kube-scheduler and their virtual cluster's share allow.

Only plain cases are judged, so that whatever is found is a mistake: a single pod without volumes, and a whole node.
That node is empty, offers all its devices, is Ready and has no taint that the pod does not tolerate. A guaranteed pod
has a claim to it if its VC has a cell that none of its pods uses. All missing nodes count as missing from its share.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.e2e.mixed.checks import Replay, nodes_of
from tests.e2e.mixed.facts import PodSeen, Seen

LONGEST_S = 10.0

Pause = tuple[float, float]
"""From when to when something was broken: waits count before it or after it."""


def waits(
    notes: Iterable[Seen], shares: Mapping[str, int], pauses: Sequence[Pause], longest_s: float = LONGEST_S
) -> list[str]:
    """Each pod that waited for longer than that beside one place, once, in words."""
    replay, since, found = Replay(), dict[tuple[str, str], float](), dict[str, str]()
    for seen in notes:
        for (uid, node), began in since.items():
            lasted_s = longest_unpaused_s(began, seen.at, pauses)
            if lasted_s > longest_s and uid not in found and uid in replay.pods:
                pod = replay.pods[uid]
                found[uid] = f"{pod.name} ({_asks(pod)}) waited beside {node} from {began:.1f} to {seen.at:.1f}"
        replay.apply(seen)
        since = {pair: since.get(pair, seen.at) for pair in _places(replay, shares)}
    return list(found.values())


def longest_unpaused_s(began: float, ended: float, pauses: Sequence[Pause]) -> float:
    """The longest piece of an interval that no pause touches."""
    longest, start = 0.0, began
    for broke, well in sorted(pauses):
        if well > start and broke < ended:
            longest, start = max(longest, broke - start), max(start, well)
    return max(longest, ended - start)


def _places(replay: Replay, shares: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(pod, node) for each pod that could run on an empty node now."""
    waiting = [pod for pod in replay.pods.values() if pod.is_ours and pod.is_waiting and _is_plain(pod)]
    if not waiting:
        return
    taken = {pod.node for pod in replay.running() if pod.devices}
    claims = _claims(replay, shares)
    for name, versions in replay.nodes.items():
        node = versions[-1]
        if name in taken or not _is_whole(replay, name):
            continue
        for pod in waiting:
            if pod.devices <= node.devices and node.admits(pod) and (not pod.is_guaranteed or claims[pod.vc] > 0):
                yield pod.uid, name


def _is_plain(pod: PodSeen) -> bool:
    return pod.mates == 1 and not pod.has_volumes and not pod.is_apart


def _is_whole(replay: Replay, name: str) -> bool:
    """Whether all devices of a node can be had, but for those that pods of ours use."""
    node = replay.nodes[name][-1]
    foreign = any(pod.node == name and pod.devices and not pod.is_ours for pod in replay.running())
    is_cordoned = any(taint.key.startswith("node.kubernetes.io/") for taint in node.taints)
    return node.is_ready and not node.is_gone and not is_cordoned and not foreign and node.devices == node.capacity


def _claims(replay: Replay, shares: Mapping[str, int]) -> dict[str, int]:
    """How many nodes each VC can have at least, beside those on which its guaranteed pods run."""
    used = {vc: nodes_of(replay, vc) for vc in shares}
    unused = {vc: count - len(used[vc]) for vc, count in shares.items()}
    everybodys = set[str]().union(*used.values())
    to_be_had = sum(1 for name in replay.nodes if name not in everybodys and _is_whole(replay, name))
    missing = max(0, sum(unused.values()) - to_be_had)
    return {vc: count - missing for vc, count in unused.items()}


def _asks(pod: PodSeen) -> str:
    kind = "guaranteed" if pod.is_guaranteed else "opportunistic"
    return f"{pod.devices} devices, {kind} in {pod.vc}"
