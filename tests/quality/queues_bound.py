"""Does a trace keep the bound of queues? `python -m tests.quality.queues_bound --trace FILE --config FILE`.

A policy that borrows runs the whole trace. Then the slow, obvious version of each virtual cluster alone plays its jobs,
each for as long as it really ran in its own schedule: none may have started later than there, plus the grace period.
It takes the options of `tests.quality.queues`. Cost: jobs x jobs that wait, of a virtual cluster.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from hived.values.errors import UserError
from hived_extender.queues.policies import QueueRules, Rules
from hived_extender.queues.units import Unit
from hived_simulator.plan import Plan
from hived_simulator.queued import QueuedLoop, _key
from hived_simulator.results import SLIGHT_S
from hived_simulator.tasks import Task, pod_spec
from tests.extender.queues.naive import Alone, Job
from tests.quality.queues import parse_options, study_of

POLICY = "queue"


class Found(NamedTuple):
    """How many starts were compared, by how much the later ones were late, and how many jobs never start alone."""

    compared: int
    late_s: list[float]
    never: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare and print; returns the exit code."""
    given = parse_options(arguments)
    try:
        plan = study_of(given.config, given.trace, given.options)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    found = compare(plan, given.options.grace_s)
    over = [late_s for late_s in found.late_s if late_s > given.options.grace_s + SLIGHT_S]
    print(
        f"{POLICY}: {found.compared} starts, {len(found.late_s)} later than alone, {len(over)} by more than the grace"
        f" period, at most {max(found.late_s, default=0.0):.0f} s; {found.never} jobs never start alone"
    )
    return int(bool(over))


def compare(plan: Plan, grace_s: float) -> Found:
    """Run the policy, and play each virtual cluster alone."""
    loop, entitled_s = _played(plan)
    print(f"{POLICY}: run", file=sys.stderr, flush=True)
    late_s, compared, never = list[float](), 0, 0
    spec, queueing = loop.cluster.spec, loop._queueing
    for vc in spec.virtual_clusters:
        jobs = [_job(loop, task, entitled_s) for task in loop.tasks if task.vc == vc and task.priority >= 0]
        rules = Rules(default=QueueRules(policy=queueing.policy))
        starts = Alone(spec, vc, rules, grace_s).play(jobs)
        for job in jobs:
            task = loop._tasks_of[job.unit.key]
            if job.unit.key not in starts:
                never += 1
                continue
            compared += 1
            later_s = task.first_s - starts[job.unit.key]
            late_s += [later_s] if later_s > SLIGHT_S else []
    return Found(compared, late_s, never)


def _played(plan: Plan) -> tuple[QueuedLoop, dict[str, float]]:
    """The whole run, and when own schedules started jobs, by key."""
    policy = next(policy for policy in plan.policies if policy.name == POLICY)
    loop, entitled_s = plan.loop(policy, plan.trace), dict[str, float]()
    assert isinstance(loop, QueuedLoop)
    while not loop.is_over:
        loop.step()
        for key in loop._in_queue:
            if key not in entitled_s and (due := loop._queues.entitled_since(key)) is not None:
                entitled_s[key] = due
    loop.finish()
    return loop, entitled_s


def _job(loop: QueuedLoop, task: Task, entitled_s: dict[str, float]) -> Job:
    """As its virtual cluster alone would have it: for as long as it runs in its own schedule."""
    key = _key(task)
    unit = Unit(
        key, task.vc, pod_spec(task, task.priority, is_lazy=False), task.submitted_s,
        limit_s=loop._queueing.limit_s(task),
    )  # fmt: skip
    since_s = min(entitled_s.get(key, task.started_s), task.started_s)
    return Job(unit, task.submitted_s, task.ended_s - since_s, task.ended_s)


if __name__ == "__main__":
    sys.exit(main())
