"""ClusterQueues that may borrow quota of a cohort: Kueue then gives quota where the virtual cluster has no cells.

Kueue takes such quota back by evicting Workloads, also where those that want it find no cells. So cells idle.
"""

from collections.abc import Collection, Iterable

import msgspec

from hived_extender.kueue.workloads import Object, converted

MOST_NAMED = 5
"""ClusterQueues that are named in a warning."""


class ClusterQueue(msgspec.Struct, frozen=True):
    """A ClusterQueue: its `checks`, and the resources of which it `may_borrow` quota."""

    name: str
    checks: tuple[str, ...] = ()
    may_borrow: frozenset[str] = frozenset()


def cluster_queue_of(item: Object) -> ClusterQueue:
    """A ClusterQueue as JSON has it, of either version. Raises UserError."""
    found = converted(item, QueueObject, "ClusterQueue")
    spec = found.spec
    rules = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy is not None else None
    borrowed: frozenset[str] = frozenset()
    if spec.cohort_name or spec.cohort:
        flavors = [flavor for group in spec.resource_groups or () for flavor in group.flavors]
        quotas = [quota for flavor in flavors for quota in flavor.resources]
        borrowed = frozenset(quota.name for quota in quotas if str(quota.borrowing_limit) != "0")
    checks = (*(each.name for each in rules or ()), *(spec.admission_checks or ()))
    return ClusterQueue(found.metadata.name, checks, borrowed)


def warning(check: str, queues: Iterable[ClusterQueue], devices: Collection[str]) -> str:
    """Which ClusterQueues with a check may borrow quota of devices, and what to do; "" if none may."""
    found = sorted(one.name for one in queues if check in one.checks and one.may_borrow & frozenset(devices))
    if not found:
        return ""
    rest = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return (
        f"ClusterQueues {', '.join(found[:MOST_NAMED])}{rest} may borrow quota of their cohort, and no cells: "
        "Kueue may evict running jobs for Workloads that then wait. Set borrowingLimit: 0 for their devices"
    )


class _Quota(msgspec.Struct, rename="camel"):
    name: str
    borrowing_limit: str | int | None = None


class _Flavor(msgspec.Struct):
    resources: list[_Quota]


class _Group(msgspec.Struct):
    flavors: list[_Flavor]


class _Rule(msgspec.Struct):
    name: str


class _Strategy(msgspec.Struct, rename="camel"):
    admission_checks: list[_Rule] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    cohort_name: str = ""
    cohort: str = ""  # of v1beta1
    resource_groups: list[_Group] | None = None
    admission_checks_strategy: _Strategy | None = None
    admission_checks: list[str] | None = None  # of v1beta1


class _Named(msgspec.Struct):
    name: str = ""


class QueueObject(msgspec.Struct):
    """A ClusterQueue, as far as it is read."""

    metadata: _Named
    spec: _Spec = msgspec.field(default_factory=_Spec)
