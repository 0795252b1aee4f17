"""Floods of bodies that are far too large, or just small enough: reviews, filter calls, configurations to plan.

The process stays within 200 MB of what it has at rest, honest calls go on, and plans hurt no p99 by more than twice.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from hived_extender.api.paths import CONFIG_PLAN_PATH, FILTER_PATH
from hived_extender.http.webhook import MUTATE_PATH
from tests.attacks.attack import Outcome, Run
from tests.attacks.target import Target

MIB = 1 << 20
REVIEWS, FILTERS = 120, 40
MOST_GROWTH_MB = 200.0
TIMEOUT_S = 60.0
SAMPLED_S = 0.02
CALLERS = 30
PLANNER = "planner"
MOST_TEXT = MIB - 1024

HOSTILE_UNITS = (
    "a,", "[", "{a: ", "- ", "- - ", "a: &a [*a]\n",
    "? ", "&a ", "*a ", "!!str ", "'", '"\\u0041"', "|\n", "# \n", "\t",
    "%YAML 1.1\n", "---\n", "<<: {", "a: b\n", "\u00e9", "0x", "physicalCluster: {\n",
)  # fmt: skip
"""22 beginnings of YAML that becomes hostile by being repeated."""


def run(run: Run) -> Outcome:
    """Large bodies first, then plans."""
    outcome = Outcome()
    rights = {PLANNER: [f"post {CONFIG_PLAN_PATH}"]}
    users = {PLANNER: {"username": PLANNER}}
    with Target(run, "floods", is_secured=True, has_webhook=True, users=users, rights=rights) as target:
        bodies = target.honest_bodies(20)
        at_rest = target.resident_mb()
        with target.probing(bodies) as probe, _Peak(target) as peak:
            outcome.alone = probe.over(run.seconds(8))
            run.say("  reviews and filter calls")
            _flood(outcome, _large_calls(run, target))
            floods = probe.since()
            run.say("  plans")
            _flood(outcome, _plans(run, target))
            outcome.beside = probe.since()
        ratio = floods.p99 / outcome.alone.p99 if outcome.alone.p99 else 0.0
        outcome.notes.append(f"p99 beside the large bodies {floods.p99:.1f} ms, {ratio:.1f} times that alone")
        outcome.notes.append(
            f"{at_rest:.0f} MB at rest, {peak.most:.0f} MB at most, {target.resident_mb():.0f} MB after"
        )
        outcome.expect(not floods.failed, f"{floods.failed} honest calls failed beside bodies: {floods.first_failure}")
        outcome.judge_latency(run)
        if run.is_timed:
            growth = peak.most - at_rest
            outcome.expect(growth <= MOST_GROWTH_MB, f"{growth:.0f} MB more than at rest, at most {MOST_GROWTH_MB:.0f}")
        if why := target.fault():
            outcome.fault(why)
    return outcome


class _Peak:
    """The most memory that the service has had since the beginning of the context."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.most = target.resident_mb()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "_Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLED_S):
            with suppress(OSError):
                self.most = max(self.most, self._target.resident_mb())


Call = Callable[[], int]


def _large_calls(run: Run, target: Target) -> list[Call]:
    junk = b'{"a":[' + b"1," * (31 * MIB // 2)
    nested = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","object":{"a":'
    inner = b"[" * 500 + b"]" * 500
    fitting = nested + b"[" + (inner + b",") * (2800 * 1024 // len(inner)) + b"0]}}}"
    reviews = [_posted(target, target.webhook_port, MUTATE_PATH, body) for body in (junk[: 7 * MIB], fitting)]
    filter_call = _posted(target, target.port, FILTER_PATH, junk)
    calls = [reviews[number % 2] for number in range(run.count(REVIEWS, least=4))]
    return calls + [filter_call] * run.count(FILTERS, least=4)


def _plans(run: Run, target: Target) -> list[Call]:
    texts = [unit * (MOST_TEXT // len(unit.encode())) for unit in HOSTILE_UNITS]
    texts = ["[" + "a," * (5_000_000 // 2) + "]", *texts[: run.count(len(texts), least=2)]]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    return [_posted(target, target.port, CONFIG_PLAN_PATH, body) for body in bodies]


def _posted(target: Target, port: int, path: str, body: bytes) -> Call:
    def call() -> int:
        connection: HTTPConnection = HTTPSConnection(
            "127.0.0.1",
            port,
            timeout=TIMEOUT_S,
            context=target.files.context("scheduler" if path == FILTER_PATH else ""),
        )
        try:
            connection.connect()
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", str(len(body)))
            if path == CONFIG_PLAN_PATH:
                connection.putheader("Authorization", f"Bearer {PLANNER}")
            connection.endheaders()
            with suppress(OSError):  # what is too large is refused before it is read
                connection.send(body)
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    return call


def _flood(outcome: Outcome, calls: list[Call]) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        statuses = list(pool.map(lambda call: call(), calls))
    outcome.tried += len(statuses)
    outcome.refused += sum(status != 200 for status in statuses)
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    outcome.notes.append(f"{len(calls)} bodies in {time.monotonic() - began:.0f} s, by status: {counts}")
    for status, count in counts.items():
        if status >= 500 and status != 503:
            outcome.fault(f"{count} bodies are answered with {status}")
