"""Pods with hostile labels, annotations, quantities and rules, as watches tell of them and as the webhook reviews them.

Whatever a pod says, it is read or refused with a UserError: no other exception may reach the watch, which would list
everything again and again, and the core may never stop. Memory is bounded by the pods that exist.
"""

import json
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived_config.access import Access
from hived_config.loader import load_text
from hived_config.rules import PodRules
from hived_extender.api.waiting import WhatIfArgs
from hived_extender.jobs.admission import REVIEW_VERSION, Admission, review
from hived_extender.jobs.asks import Resolver
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.wire import FilterArgs, Pod, decode_args
from hived_extender.kube.client import KubeError
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.machine.devices.table import use_of
from hived_extender.machine.runner import Runner
from tests.attacks.attack import Outcome, Run
from tests.attacks.hostile_values import Hostile, Json
from tests.attacks.target import Target
from tests.benchmarks.process import resident_mb
from tests.e2e.pods import POD_LIST
from tests.extender.machine.small_cluster import CONFIG, NODES, SmallCluster, to_pod

FULL_COUNT = 100_000
THROUGH_API = 2_000
MOST_ALIVE = 200
CHECKED_EVERY = 500
ASKED_EVERY = 50
"""A question of a dry run has a process of its own, and rests after it."""

MOST_GROWTH_MB = 150.0
ACCESS = "access: namespaces\n"


class _Readers:
    """The functions that read pods, each by itself."""

    def __init__(self) -> None:
        configuration = load_text(ACCESS + CONFIG, "attacks.yaml", environ={})
        assert configuration.rules.access.access is Access.NAMESPACES
        self._resolver = Resolver(configuration.cluster, PodRules())  # anybody may use any virtual cluster
        self._demands = DemandsReader()
        self._admission = Admission(configuration.cluster, configuration.rules, labels_of=lambda _: {"a": "b"})

    def of(self, body: Json, pod: Pod) -> dict[str, Callable[[], object]]:
        """By name."""
        request = {"uid": "x", "operation": "CREATE", "namespace": "default", "object": body}
        asked = {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "request": request}
        return {
            "describe": lambda: table.describe(pod, NoObjects()),
            "resolve": lambda: self._resolver.resolve(pod, None),
            "demands": lambda: self._demands.read_pod(pod),
            "devices": lambda: use_of(pod),
            "admit": lambda: review(self._admission, json.dumps(asked).encode()),
        }


def run(run: Run) -> Outcome:
    """All at full count in this process; a part of them through the API server too."""
    outcome = Outcome()
    logging.disable(logging.CRITICAL)  # a line about each pod would say nothing
    try:
        _read(run, outcome)
    finally:
        logging.disable(logging.NOTSET)
    _through_api(run, outcome)
    return outcome


def _read(run: Run, outcome: Outcome) -> None:
    hostile, small, readers = Hostile(run.seed), SmallCluster(run=Runner), _Readers()
    alive: deque[str] = deque()
    before = resident_mb()
    count = run.count(FULL_COUNT)
    for number in range(count):
        body = hostile.pod(f"p{number}")
        body["metadata"]["namespace"] = "ns"
        try:
            pod = to_pod(body)
        except msgspec.ValidationError:
            outcome.refused += 1  # the watch would not take it in either: the API server stores no such pod
            continue
        outcome.tried += 1
        is_read = [_attempt(outcome, name, body, read) for name, read in readers.of(body, pod).items()]
        outcome.refused += not all([*is_read, *_live(outcome, small, body, pod, is_asked=number % ASKED_EVERY == 0)])
        alive.append(body["metadata"]["uid"])
        if len(alive) > MOST_ALIVE:
            gone = alive.popleft()
            small.kube.pods.pop(gone.removeprefix("uid-"), None)
            small.service.pod_gone(gone)
        if number % CHECKED_EVERY == 0:
            with small.service.runner.look():  # a timer may be trying pods at this moment
                check_invariants(small.state)
            for kept in (small.kube.events, small.kube.messages, small.kube.patches, small.kube.leaving):
                kept.clear()  # what the stand-in of the API server remembers is not hived's
        if number % 10_000 == 9_999:
            run.say(f"  {number + 1} of {count} pods, {resident_mb():.0f} MB")
    for uid in alive:
        small.service.pod_gone(uid)
    growth = resident_mb() - before
    outcome.notes.append(f"{growth:+.0f} MB in the process that reads them")
    if run.is_timed:
        outcome.expect(growth < MOST_GROWTH_MB, f"memory grew by {growth:.0f} MB, at most {MOST_GROWTH_MB:.0f}")
    if any(small.pod_counts().values()):
        outcome.fault(f"pods are gone, and still counted: {small.pod_counts()}")
    small.service.close()


def _live(outcome: Outcome, small: SmallCluster, body: Json, pod: Pod, *, is_asked: bool) -> Iterator[bool]:
    """A pod is seen, filtered, asked about in a dry run perhaps, and seen again; returns whether each went well."""
    small.kube.add(body)
    yield _attempt(outcome, "pod_seen", body, lambda: small.service.pod_seen(pod))
    asked = json.dumps({"Pod": body, "Nodes": None, "NodeNames": NODES}).encode()
    yield _attempt(outcome, "filter", body, lambda: small.service.filter_nodes(decode_args(asked, FilterArgs)))
    if is_asked:
        looked = json.dumps({"pods": [body]}).encode()
        yield _attempt(outcome, "what-if", body, lambda: small.service.what_if(decode_args(looked, WhatIfArgs).pods))
    yield _attempt(outcome, "pod_seen again", body, lambda: small.service.pod_seen(pod))
    if small.service.fault:
        raise RuntimeError(f"the service has stopped: {small.service.fault}\n{json.dumps(body)[:3000]}")


def _attempt(outcome: Outcome, name: str, body: Json, act: Callable[[], object]) -> bool:
    """Whether it went well; a fault is noted once for each place in the code."""
    try:
        act()
    except UserError:
        return False
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{name}: {type(error).__name__} at {where.filename.rpartition('/')[2]}:{where.lineno}"
        if not any(fault.startswith(place) for fault in outcome.faults):
            outcome.fault(f"{place}: {str(error)[:200]}: {json.dumps(body)[:1500]}")
        return False
    return True


def _through_api(run: Run, outcome: Outcome) -> None:
    hostile = Hostile(run.seed + 1, is_stored=True)
    count, stored = run.count(THROUGH_API, least=20), 0
    with Target(run, "annotations") as target:
        for number in range(count):
            body = hostile.pod(f"p{number}")
            outcome.tried += 1
            with suppress(KubeError):
                target.kube.create(POD_LIST, body)
                stored += 1
        outcome.notes.append(f"{stored} of {count} stored by the embedded API server")
        target.await_status("/readyz")
        target.honest_bodies(4)  # the watch has got as far as here
        if why := target.fault():
            outcome.fault(why)
        log = target.service.log.read_text(errors="replace")
        if "an event was not taken in" in log or "internal error" in log:
            outcome.fault(f"the log of hived has a traceback: {target.service.log}")
        target.restart(outcome)
