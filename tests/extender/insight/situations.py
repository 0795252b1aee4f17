"""Small clusters in which jobs run and wait, as a snapshot has them, told in a line each."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hived.cells.state import State
from hived.scenario import Asked
from hived.scheduler import handle
from hived.values.decisions import Bind, Preempt
from hived.values.events import Offer, Phase, PodAllocated, ScheduleRequested
from hived.values.specs import ClusterSpec, PodRequest, Rules
from hived_config.access import AccessRules
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry, jobs_of
from hived_extender.machine.counts import PodEnd
from hived_extender.machine.offers import Asking
from tests.core.builders import healthy_state, pod, rack_cluster

AT = 1_800_000_000.0
HOUR = 3600.0


class Situation:
    """By default two racks of two nodes of two GPUs; A and B are promised two nodes each. It is AT."""

    def __init__(self, spec: ClusterSpec | None = None, rules: Rules = Rules.BETTER) -> None:
        self.state: State = healthy_state(replace(spec or rack_cluster(), rules=rules))
        self.running: dict[str, RunningFacts] = {}
        self.waiting: list[WaitingEntry] = []
        self.lost: list[tuple[int, str]] = []
        self.ends: list[PodEnd] = []

    def runs(
        self,
        name: str,
        members: tuple[tuple[int, int], ...] = ((1, 2),),
        *,
        vc: str = "A",
        priority: int = 0,
        age_s: float = HOUR,
        left_s: float | None = None,
        job: str = "",
        gone_in_s: float = 30.0,
    ) -> None:
        """A group has its cells; all of it is one pod, as to the core. Evicted now, it is gone in `gone_in_s`."""
        request = pod(name, vc=vc, priority=priority, members=members)
        decision = handle(self.state, ScheduleRequested(request))
        assert isinstance(decision, Bind), decision
        handle(self.state, PodAllocated(request, decision.bind_info, decision.lazily_preempted))
        ends_s = None if left_s is None else AT + left_s
        self.running[name] = RunningFacts(
            job=job or name, namespace="ns", started_s=AT - age_s, ends_s=ends_s, gone_s=AT + gone_in_s
        )

    def ended(
        self, name: str, ran_s: float, at: float, *, pod: str = "", is_preempted: bool = False, by: str = ""
    ) -> None:
        """A pod of A with two leaf cells is gone at a moment; by default it is the whole job."""
        self.ends.append(
            PodEnd(
                len(self.ends) + 1, pod or name, name, "ns", name, "A", 0, 2, at - ran_s, at, is_preempted, by,
                "ns" if by else "",
            )
        )  # fmt: skip

    def reserves(self, name: str, members: tuple[tuple[int, int], ...] = ((1, 2),), *, vc: str = "A") -> None:
        """A group reserves cells that others still use; it waits as well."""
        self.waits(name, members, vc=vc)
        decision = handle(self.state, ScheduleRequested(self.waiting[-1].requests[0], Phase.PREEMPTING))
        assert isinstance(decision, Preempt), decision

    def waits(
        self,
        name: str,
        members: tuple[tuple[int, int], ...] = ((1, 2),),
        *,
        vc: str = "A",
        priority: int = 0,
        limit_s: float | None = None,
        offer: Offer | None = None,
        fit: Mapping[str, bool] | None = None,
    ) -> WaitingEntry:
        """A job waits, behind those that were told before."""
        request: PodRequest = pod(name, vc=vc, priority=priority, members=members)
        nodes = self.state.topology.node_names
        fits = np.array([[True if fit is None else fit.get(node, False) for node in nodes]])
        entry = WaitingEntry(
            name, "ns", vc, priority, (f"ns/{name}",), (Asking(Asked(request, offer=offer), fits),),
            created_s=AT - 60.0 + len(self.waiting), limit_s=limit_s,
        )  # fmt: skip
        self.waiting.append(entry)
        return entry

    def snapshot(self, at: float = AT) -> Snapshot:
        """All of it; jobs that wait are served in the order of priority and age."""
        waiting = tuple(sorted(self.waiting, key=lambda entry: (-entry.priority, entry.created_s)))
        running = dict(self.running)
        jobs = jobs_of(self.state, running)
        return Snapshot(self.state, (0, 0), at, waiting, running, {}, {}, AccessRules(), {}, jobs, self.lost, self.ends)
