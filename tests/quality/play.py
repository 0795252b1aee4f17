"""Let the core decide about groups, and note as plain facts what came of it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hived.life.groups import bind_info_for
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.events import NodeHealthChanged, Phase, PodAllocated, PodDeleted, PodProgressed, ScheduleRequested
from hived.values.specs import ClusterSpec, GroupSpec, MemberSpec, PodRequest, PodSpec, WorkTimes
from tests.quality.exhaustive import Wanted
from tests.quality.plain import Facts, Plain, Running


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a group that asked: it runs now, after the victims left, or it waits for a reason."""

    kind: Literal["bind", "preempt", "wait"]
    running: Running | None = None
    victims: tuple[Running, ...] = ()
    reason: str = ""


class Play:
    """A scheduler of which every node is healthy, and the facts beside it."""

    def __init__(self, spec: ClusterSpec, plain: Plain | None = None) -> None:
        self.spec = spec
        self.state = new_state(spec)
        self.facts = Facts(plain or Plain(spec))
        self._pods: dict[str, list[PodRequest]] = {}
        self._group_of: dict[str, str] = {}
        for node in self.state.topology.node_names:
            handle(self.state, NodeHealthChanged(node, True))

    def set_node(self, node: str, *, is_healthy: bool) -> None:
        """A node fails or heals; groups on it run on."""
        if is_healthy:
            self.facts.bad.discard(node)
        else:
            self.facts.bad.add(node)
        handle(self.state, NodeHealthChanged(node, is_healthy))

    def ask(self, wanted: Wanted, now: float = 0.0) -> Answer:
        """Ask about a group as the service does, let its victims leave, and start it.

        `now`, in seconds, is when its work begins, and when that of others is lost.
        """
        pods = _requests(wanted)
        first = self._decide(wanted, pods[0], Phase.FILTERING, now)
        if isinstance(first, Wait):
            return Answer("wait", reason=first.reason)
        if isinstance(first, Bind):
            return Answer("bind", self._start(wanted, pods, first, now))
        assert isinstance(first, Preempt)
        victims = self._victims(first)
        reserved = self._decide(wanted, pods[0], Phase.PREEMPTING, now)
        assert isinstance(reserved, Preempt), reserved
        assert self._victims(reserved) == victims, "victims differ between the phases"
        for name in reserved.lazily_preempted:
            self.facts.leave_vc(name)
        for victim in victims:
            self.end(victim.name)
        last = self._decide(wanted, pods[0], Phase.FILTERING, now)
        assert isinstance(last, Bind), last
        return Answer("preempt", self._start(wanted, pods, last, now), victims)

    def end(self, name: str) -> Running:
        """All pods of a group are gone."""
        for pod in self._pods.pop(name):
            handle(self.state, PodDeleted(pod))
            del self._group_of[pod.uid]
        return self.facts.remove(name)

    def save(self, name: str, now: float) -> None:
        """A group that runs has saved its work; an eviction loses only later work."""
        times = WorkTimes(self.facts.groups[name].started, now)
        handle(self.state, PodProgressed(self._pods[name][0], times))

    def _decide(self, wanted: Wanted, pod: PodRequest, phase: Phase, now: float) -> Decision:
        suggested = None
        if wanted.nodes is not None:
            suggested = np.array([name in wanted.nodes for name in self.state.topology.node_names])
        return handle(self.state, ScheduleRequested(pod, phase, suggested, now_s=now))

    def _victims(self, decision: Preempt) -> tuple[Running, ...]:
        names = {self._group_of[uid] for uids in decision.victims_by_node.values() for uid in uids}
        return tuple(self.facts.groups[name] for name in sorted(names))

    def _start(self, wanted: Wanted, pods: list[PodRequest], bind: Bind, now: float) -> Running:
        placements, chain = bind.bind_info.members, bind.bind_info.cell_chain
        lazily = bind.lazily_preempted
        for slot, pod in enumerate(pods):
            handle(self.state, PodAllocated(pod, bind_info_for(placements, slot, chain), lazily, WorkTimes(now)))
            self._group_of[pod.uid] = wanted.name
            lazily = ()
        for name in bind.lazily_preempted:
            self.facts.leave_vc(name)
        self._pods[wanted.name] = pods
        running = self.facts.running(wanted.name, wanted.vc, wanted.priority, placements, chain, now)
        self.facts.add(running)
        return running


def _requests(wanted: Wanted) -> list[PodRequest]:
    sizes = sorted(set(wanted.sizes))
    members = tuple(MemberSpec(wanted.sizes.count(size), size) for size in sizes)
    group = GroupSpec(wanted.name, members)
    pods: list[PodRequest] = []
    for member in members:
        spec = PodSpec(
            wanted.vc, wanted.priority, member.leaf_cell_count, group, pinned_cell_id=wanted.pinned,
            ignore_suggested_nodes=wanted.nodes is None, within_cell=wanted.within,
        )  # fmt: skip
        for _ in range(member.pod_count):
            uid = f"{wanted.name}-{len(pods)}"
            pods.append(PodRequest(uid, uid, "quality", spec))
    return pods
