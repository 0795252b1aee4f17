"""Annotations that take long to read: thousands of pods with large YAML, bound pods among them, and one that changes.

The p99 of honest filter calls is at most twice that alone, or twice that beside harmless pods of the same size. Those
cost the machine as much. Health checks are answered at once. A take-over beside poisoned pods ends within 5 s, and each
change of one pod that is patched in a loop costs a bounded time.
"""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC
from hived_extender.kube.client import KubeError, pod_path
from tests.attacks.attack import MOST_RATIO, Outcome, Run
from tests.attacks.target import Target
from tests.e2e.pods import POD_LIST, Json, pod

LARGE = "{" + "a," * 130_500 + "}"
"""261 KB, about the most that the API server stores."""

BELOW_THE_LIMITS = "{" + ", ".join(f"a{number}: [b]" for number in range(1_600)) + "}"
"""Below 32 KB and 5,000 nodes, so that all of it is read."""

HARMLESS = "example.com/large"
LONG_PLACE = "- a\n" * 50_000
PODS, POISONED, BOUND = 1_000, 200, 50
PATCHED_S = 20.0
MOST_TAKE_OVER_S = 5.0
MOST_PATCH_MS = 2.0
"""Of processor time for each change of a pod; how many there are is for the API server to limit."""


def run(run: Run) -> Outcome:
    """Everything on one cluster with two replicas, of which the first one leads."""
    outcome = Outcome()
    with Target(run, "bombs", options=("--leader-elect",), replica_count=2) as target:
        bodies = target.honest_bodies()
        with target.probing(bodies) as probe:
            began, before = time.monotonic(), target.cpu_s()
            outcome.alone = probe.over(run.seconds(8))
            honest = (target.cpu_s() - before) / (time.monotonic() - began)
            run.say("  harmless pods of the same size")
            _create(run, target, outcome, "harmless", run.count(PODS // 2, least=5), LARGE, key=HARMLESS)
            control = probe.since()
            run.say("  pods with bombs")
            _create(run, target, outcome, "large", run.count(PODS, least=10), LARGE)
            _create(run, target, outcome, "fitting", run.count(PODS, least=10), BELOW_THE_LIMITS)
            _create_bound(run, target, outcome)
            time.sleep(run.seconds(10))
            outcome.beside = probe.since()
            run.say("  one pod that changes all the time")
            _patch(run, target, outcome, honest)
            patched = probe.since()
        outcome.notes.append(f"p99 beside harmless pods of the same size {control.p99:.1f} ms")
        outcome.judge_latency(run, max(MOST_RATIO, MOST_RATIO * control.p99 / (outcome.alone.p99 or 1.0)))
        outcome.notes.append(f"p99 beside the pod that changes {patched.p99:.1f} ms")
        outcome.expect(not patched.failed, f"{patched.failed} honest calls failed: {patched.first_failure}")
        if why := target.fault():
            outcome.fault(why)
        _leave(target, run.count(POISONED, least=5))
        _take_over(run, target, outcome)
    return outcome


def _poisoned(name: str, text: str, key: str = SCHEDULING_SPEC) -> Json:
    made = pod(name, vc="evil")
    made["metadata"]["annotations"][key] = text
    return made


def _create(
    run: Run, target: Target, outcome: Outcome, name: str, count: int, text: str, key: str = SCHEDULING_SPEC
) -> None:
    def create_one(number: int) -> bool:
        try:
            target.kube.create(POD_LIST, _poisoned(f"{name}-{number}", text + " " * (number % 50), key))
        except KubeError as error:
            outcome.fault(f"the API server refused a pod: {error}")
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        outcome.tried += sum(pool.map(create_one, range(count)))


def _create_bound(run: Run, target: Target, outcome: Outcome) -> None:
    for number in range(run.count(BOUND, least=2)):
        made = _poisoned(f"bound-{number}", '{"virtualCluster": "evil", "leafCellNumber": 1}')
        made["metadata"]["annotations"][BIND_INFO] = LONG_PLACE + " " * number
        made["spec"]["nodeName"] = "n20"
        target.kube.create(POD_LIST, made)
        outcome.tried += 1


def _patch(run: Run, target: Target, outcome: Outcome, honest: float) -> None:
    """`honest` is the share of a core that honest calls alone take."""
    target.kube.create(POD_LIST, _poisoned("restless", "{}"))
    began, before, count = time.monotonic(), target.cpu_s(), 0
    for number in itertools.count():
        if time.monotonic() - began > run.seconds(PATCHED_S):
            break
        text = (LARGE if number % 2 else BELOW_THE_LIMITS) + " " * (number % 200)
        target.kube.patch(pod_path("default", "restless"), {"metadata": {"annotations": {SCHEDULING_SPEC: text}}})
        count += 1
    spent_s = time.monotonic() - began
    beyond_s = target.cpu_s() - before - honest * spent_s
    outcome.tried += count
    each_ms = beyond_s / count * 1e3
    outcome.notes.append(f"{count} patches of one pod took {beyond_s / spent_s:.0%} of a core, {each_ms:.2f} ms each")
    if run.is_timed:
        outcome.expect(each_ms <= MOST_PATCH_MS, f"a patch took {each_ms:.2f} ms, at most {MOST_PATCH_MS:g}")


def _leave(target: Target, count: int) -> None:
    """Delete poisoned pods but for so many."""
    names = [f"{kind}-{number}" for number in range(PODS) for kind in ("large", "fitting")][count:]
    with ThreadPoolExecutor(4) as pool, suppress(KubeError):
        list(pool.map(lambda name: _delete(target, name), names))


def _delete(target: Target, name: str) -> None:
    with suppress(KubeError):
        target.kube.delete(pod_path("default", name), grace_period_s=0)


def _take_over(run: Run, target: Target, outcome: Outcome) -> None:
    run.say("  the leader is killed; the other one is started again later")
    target.service.kill()
    took_s = target.await_status("/readyz", target.ports[1])
    outcome.notes.append(f"the second replica took over {took_s:.1f} s after kill -9")
    if run.is_timed:
        outcome.expect(took_s <= MOST_TAKE_OVER_S, f"the take-over took {took_s:.1f} s, at most {MOST_TAKE_OVER_S:.0f}")
    ready_s = target.restart(outcome, 1)
    outcome.notes.append(f"ready {ready_s:.1f} s after a restart beside poisoned pods")
