"""A small cluster for tests of queues: four nodes of four GPUs; A and B are promised one node each, C two."""

from hived.values.specs import (
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.policies import Policy, QueueRules
from hived_extender.queues.policies import Rules as QueuesRules
from hived_extender.queues.queues import Queues
from hived_extender.queues.units import Order, Start, Stop, Unit
from tests.extender.queues.live import Live

SPEC = ClusterSpec(
    {"NODE": CellTypeSpec("NODE", "GPU", 4, is_node_level=True)},
    tuple(PhysicalCellSpec("NODE", address=f"n{i}") for i in range(4)),
    {
        name: VirtualClusterSpec(name, (VirtualCellSpec("NODE", count),))
        for name, count in (("A", 1), ("B", 1), ("C", 2))
    },
    rules=Rules.BETTER,
)


def unit(
    key: str,
    vc: str = "A",
    gpus: int = 4,
    *,
    pods: int = 1,
    priority: int = 0,
    at: float = 0.0,
    limit_s: float | None = None,
    user: str = "",
    namespace: str = "",
    is_preemptible: bool = True,
    preempts: bool = True,
) -> Unit:
    """A job of a virtual cluster that is its own queue."""
    spec = PodSpec(vc, priority, gpus, GroupSpec(key, (MemberSpec(pods, gpus),)))
    return Unit(
        key, vc, spec, at, user=user, namespace=namespace, is_preemptible=is_preemptible, limit_s=limit_s,
        preempts=preempts,
    )  # fmt: skip


class Desk:
    """Queues and a live cluster; victims leave `grace_s` later, when `pass_time` says so."""

    def __init__(
        self,
        policy: Policy = Policy.HIVED,
        *,
        borrows: bool = False,
        learned: Learned | None = None,
        spec: ClusterSpec = SPEC,
        **rules: int,
    ) -> None:
        self.live, self.queues, self.now = Live(spec), Queues(spec, learned), 0.0
        self.queues.told_rules(QueuesRules(default=QueueRules(policy=policy, borrows=borrows, **rules)))
        self.leaving: list[str] = []

    def come(self, *units: Unit) -> list[str]:
        """Units arrive, and there is a turn; returns those that start."""
        for each in units:
            self.queues.arrived(each)
        return self.turn()

    def turn(self) -> list[str]:
        """Those that start; units that have to leave are in `leaving`."""
        orders: list[Order] = self.queues.turn(self.now, self.live)
        while self.queues.is_cut:
            orders += self.queues.turn(self.now, self.live)
        self.leaving += [order.key for order in orders if isinstance(order, Stop)]
        return [order.key for order in orders if isinstance(order, Start)]

    def leave(self) -> list[str]:
        """All that were told to have left; returns those that start."""
        for key in self.leaving:
            self.live.release(key)
            self.queues.evicted(key, self.now)
        self.leaving = []
        return self.turn()

    def end(self, key: str, now: float) -> list[str]:
        """A unit is over; returns those that start."""
        self.now = now
        self.live.release(key)
        self.queues.ended(key, now)
        return self.turn()
