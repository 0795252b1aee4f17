"""The use of each quota of a tree, jobs that it refuses, and jobs that leave since their quota was lowered.

Kept for each quota and resource: the use of all its jobs, and of jobs that may not be preempted. A parent's use is the
sum of its children's. A change or a question costs O(depth x resources). Refusals have Kube Queue's words.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hived_extender.jobs.quotas.tree import Quota, QuotaTree, is_unlimited

EPSILON = 1e-9
"""Of an amount: sums of fractions of cores are not exact."""

WAIT = "Wait for running jobs to complete"
"""The end of a refusal of Kube Queue."""

STOPPED = "It is stopped: its jobs run on, and none starts until its max-jobs is above 0"
"""The end of a refusal by a quota whose `max_jobs` is 0."""

TOO_LARGE = "It can never run: ask for less, or raise the quota"
"""The end of a refusal in place of `WAIT`, where no running job is in the way."""


class Refusal(msgspec.Struct, frozen=True):
    """The reason why a job may not run now: a quota, and the resource that it lacks; "" for the number of jobs."""

    quota: str
    resource: str
    text: str


class _Use(msgspec.Struct):
    """Of one quota."""

    used: dict[str, float]
    fixed: dict[str, float]  # of jobs that may not be preempted
    kept: dict[str, float]  # the part of its min that it does not lend
    below: dict[str, float]  # the use of its children as it sees them; of a leaf its own
    jobs: int = 0


class Usage:
    """The use of a tree. A job is given by the full name of its leaf, its request, and whether it may be preempted."""

    def __init__(self, tree: QuotaTree) -> None:
        """Cost O(quotas x resources)."""
        self.tree = tree
        self._counted = tree.guaranteed_resources
        self._uses = {name: _Use({}, {}, _kept(quota), {}) for name, quota in tree.quotas.items()}
        for name, quota in reversed(list(tree.quotas.items())):  # children before parents
            if quota.parent:
                above = self._uses[quota.parent].below
                for resource in self._uses[name].kept.keys() | self._uses[name].below.keys():
                    above[resource] = above.get(resource, 0.0) + self.with_lend_limit(name, resource)

    def take(self, queue: str, request: Mapping[str, float], *, is_preemptible: bool = True, jobs: int = 1) -> None:
        """Counts jobs that start, or with `jobs` 0 more pods of a counted job, in their leaf and above (rule 25.3)."""
        self._count(queue, request, 1, is_preemptible=is_preemptible, jobs=jobs)

    def give_back(
        self, queue: str, request: Mapping[str, float], *, is_preemptible: bool = True, jobs: int = 1
    ) -> None:
        """Counts off jobs that have ended."""
        self._count(queue, request, -1, is_preemptible=is_preemptible, jobs=jobs)

    def refusal(
        self, queue: str, request: Mapping[str, float], *, is_preemptible: bool = True, jobs: int = 1
    ) -> Refusal | None:
        """Return why jobs may not run beside all that runs (rules 25.4, 25.5), None if they may.

        `jobs` is how many they are; 0 for more pods of a counted job.
        """
        path = self.tree.path(queue)
        for quota in path if jobs else ():
            most = quota.max_jobs
            if most is not None and self._uses[quota.name].jobs + jobs > most * self.tree.oversell:
                return self._too_many_jobs(quota, jobs)
        if not is_preemptible:
            return self._beyond(path, request, is_min=True)
        return self._beyond(path, request, is_min=False)

    def is_within_min(self, queue: str, request: Mapping[str, float]) -> bool:
        """Is a job part of the guaranteed use, beside all that runs, at its leaf and above?

        Resources that no min of the tree names do not count.
        """
        if not self._counted:
            return False
        wanted = {name: amount for name, amount in request.items() if name in self._counted}
        return not any(
            self._uses[quota.name].used.get(name, 0.0) + amount > self._limit(name, quota.min.get(name, 0.0)) + EPSILON
            for quota in self.tree.path(queue)
            for name, amount in wanted.items()
        )

    def dominant_share(self, queue: str) -> float:
        """The largest used / min of a leaf, over resources of its min; without a min, its use counts as infinite."""
        quota, used = self.tree.quotas[queue], self._uses[queue].used
        shares = [used.get(name, 0.0) / amount for name, amount in quota.min.items() if amount]
        if shares:
            return max(shares)
        return float("inf") if any(used.values()) else 0.0

    def over(self) -> dict[str, dict[str, float]]:
        """By quota, the resources of which it uses more than its max, and how much more. Never negative."""
        found: dict[str, dict[str, float]] = {}
        for quota in self.tree.quotas.values():
            used = self._uses[quota.name].used
            excess = {
                name: used.get(name, 0.0) - self._limit(name, most)
                for name, most in quota.max.items()
                if used.get(name, 0.0) > self._limit(name, most) + EPSILON
            }
            if excess:
                found[quota.name] = excess
        return found

    def with_lend_limit(self, name: str, resource: str) -> float:
        """The use of a quota as its parent sees it: the part of its min that it does not lend counts as used."""
        use = self._uses[name]
        return max(use.below.get(resource, 0.0), use.kept.get(resource, 0.0))

    # Inside

    def _count(self, queue: str, request: Mapping[str, float], sign: int, *, is_preemptible: bool, jobs: int) -> None:
        change = {name: sign * amount for name, amount in request.items()}
        above = change  # as the quota sees the change, which a reserve below it may hide
        for quota in self.tree.path(queue):
            use = self._uses[quota.name]
            use.jobs += sign * jobs
            _add(use.used, change)
            if not is_preemptible:
                _add(use.fixed, change)
            before = {name: self.with_lend_limit(quota.name, name) for name in above}
            _add(use.below, above)
            above = {name: self.with_lend_limit(quota.name, name) - amount for name, amount in before.items()}

    def _limit(self, resource: str, amount: float) -> float:
        return float("inf") if is_unlimited(resource, amount) else amount * self.tree.oversell

    def _beyond(self, path: list[Quota], request: Mapping[str, float], *, is_min: bool) -> Refusal | None:
        """The first quota of a path with too little left of a resource."""
        for place, quota in enumerate(path):
            limits = quota.min if is_min else quota.max
            for name, amount in request.items():
                if not amount or name not in (self._counted if is_min else limits):
                    continue
                if is_min:
                    used = self._uses[quota.name].fixed.get(name, 0.0)
                else:
                    used = self._used_below(path[place - 1] if place else None, quota, name)
                limit = self._limit(name, limits.get(name, 0.0))
                if used + amount > limit + EPSILON:
                    return self._insufficient(quota, name, amount, limit, used, is_min=is_min)
        return None

    def _used_below(self, child: Quota | None, quota: Quota, resource: str) -> float:
        """The use of a quota for a job below `child`: neither the child's reserve nor the quota's counts against it."""
        use = self._uses[quota.name]
        if child is None:
            return use.used.get(resource, 0.0)
        own = self._uses[child.name].used.get(resource, 0.0)
        return use.below.get(resource, 0.0) - self.with_lend_limit(child.name, resource) + own

    def _too_many_jobs(self, quota: Quota, wanted: int) -> Refusal:
        jobs, most = self._uses[quota.name].jobs, quota.max_jobs
        text = (
            f"Insufficient quota(kube-queue/max-jobs) in quota {quota.name}: request {wanted}, max {most}, "
            f"used {jobs}, oversellreate {self.tree.oversell:g}. {WAIT if most else STOPPED}"
        )
        return Refusal(quota.name, "", text)

    def _insufficient(
        self, quota: Quota, resource: str, amount: float, limit: float, used: float, *, is_min: bool
    ) -> Refusal:
        word = "min" if is_min else "max"
        most = limit / self.tree.oversell
        why = "Only jobs that may be preempted use more than min. " if is_min else ""
        text = (
            f"Insufficient quota({resource}) in quota {quota.name}: request {amount:g}, {word} {most:g}, "
            f"used {used:g}, oversellreate {self.tree.oversell:g}. {why}{WAIT}"
        )
        return Refusal(quota.name, resource, text)


def _kept(quota: Quota) -> dict[str, float]:
    """The part of a min that is not lent, by resource."""
    return {
        name: quota.min[name] - lent
        for name, lent in quota.lend_limit.items()
        if name in quota.min and not is_unlimited(name, quota.min[name])
    }


def _add(amounts: dict[str, float], change: Mapping[str, float]) -> None:
    """Adds amounts; what sums of fractions leave over becomes 0."""
    for name, amount in change.items():
        found = amounts.get(name, 0.0) + amount
        amounts[name] = 0.0 if abs(found) < EPSILON else found


WAIT_POLICY = "wait"
"""The policy by which jobs end by themselves."""


class Running(msgspec.Struct, frozen=True):
    """A job that runs. `lost_work` are the device-seconds that it loses if it has to leave now.

    `is_borrowed`: on cells that are reclaimed, and so before jobs on cells of their own virtual cluster.
    """

    key: str
    queue: str
    request: Mapping[str, float]
    started_s: float
    lost_work: float = 0.0
    is_preemptible: bool = True
    is_borrowed: bool = False


def drained(usage: Usage, running: Sequence[Running]) -> dict[str, str]:
    """The keys of jobs that have to leave (rule 25.6), each with the quota that is over.

    Cost O(quotas), and of each that is over O(jobs x (log jobs + depth)).
    """
    return _chosen(usage, [job for job in running if job.is_preemptible], waits=False)


def going_over(usage: Usage, running: Sequence[Running]) -> dict[str, str]:
    """The keys of jobs that are above a quota, none needlessly, each with the quota, whether they leave or not.

    The policy of the quota chooses them; of policy "wait" these are the newest. Cost as of `drained`.
    """
    return _chosen(usage, running, waits=True)


def _chosen(usage: Usage, running: Sequence[Running], *, waits: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    tree = usage.tree
    for name, excess in usage.over().items():
        policy = tree.quotas[name].drain
        if policy == WAIT_POLICY and not waits:
            continue
        below = [job for job in running if _is_below(tree, job.queue, name)]
        gone = [job for job in below if job.key in found]
        order = _ORDERS[policy]
        for job in sorted(below, key=lambda job: (not job.is_preemptible, not job.is_borrowed, order(job))):
            if job.key not in found and _helps(job, excess, gone):
                gone.append(job)
        for job in list(gone):
            rest = [each for each in gone if each is not job]
            if job.key not in found and not _is_missing(excess, rest):
                gone = rest
        found |= {job.key: name for job in gone if job.key not in found}
    return found


def _left(excess: Mapping[str, float], gone: Sequence[Running]) -> dict[str, float]:
    """The part of an excess that stays when these jobs are gone."""
    return {name: amount - sum(job.request.get(name, 0.0) for job in gone) for name, amount in excess.items()}


def _is_missing(excess: Mapping[str, float], gone: Sequence[Running]) -> bool:
    return any(amount > EPSILON for amount in _left(excess, gone).values())


def _helps(job: Running, excess: Mapping[str, float], gone: Sequence[Running]) -> bool:
    left = _left(excess, gone)
    return any(amount > EPSILON and job.request.get(name, 0.0) for name, amount in left.items())


def _newest(job: Running) -> tuple[float, float, str]:
    return 0.0, -job.started_s, job.key


def _least_work(job: Running) -> tuple[float, float, str]:
    return job.lost_work, -job.started_s, job.key


_ORDERS = {WAIT_POLICY: _newest, "preempt-newest": _newest, "preempt-least-work": _least_work}


def _is_below(tree: QuotaTree, queue: str, name: str) -> bool:
    return any(quota.name == name for quota in tree.path(queue))
