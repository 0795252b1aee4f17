"""Viewers who ask all the time about gangs that take long to place: kube-scheduler's calls go on beside them."""

import json
import math
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

from hived_extender.api.paths import WHAT_IF_PATH
from tests.attacks.attack import Outcome, Run
from tests.attacks.target import Target
from tests.e2e.pods import Json, pod

CALLERS = 16
GANG = 512
SECONDS = 20.0
PAUSE_S = 0.05
TIMEOUT_S = 60.0
MOST_P99_MS = 500.0
OK, TOO_MANY, TOO_LONG = 200, 429, 503


def run(run: Run) -> Outcome:
    """Every caller has a token of its own, and the right to ask that viewers have."""
    outcome = Outcome()
    names = [f"viewer-{number}" for number in range(CALLERS)]
    users, rights = {name: {"username": name} for name in names}, {name: [f"post {WHAT_IF_PATH}"] for name in names}
    body = json.dumps({"pods": _gang(run.count(GANG, least=24))}).encode()
    with Target(run, "questions", is_secured=True, users=users, rights=rights) as target:
        bodies = target.honest_bodies(20)
        with target.probing(bodies) as probe:
            outcome.alone = probe.over(run.seconds(8))
            statuses = _flood(target, names, body, run.seconds(SECONDS, least=2.0))
            outcome.beside = probe.since()
        outcome.tried, outcome.refused = statuses.total(), statuses[TOO_MANY]
        outcome.notes.append(f"questions by status: {dict(sorted(statuses.items()))}")
        if not statuses[OK]:
            outcome.fault("no question was answered")
        for status in statuses.keys() - {OK, TOO_MANY, TOO_LONG}:
            outcome.fault(f"{statuses[status]} questions are answered with {status}")
        outcome.judge_latency(run, math.inf)  # the callers' own TLS takes the cores too
        outcome.expect(not run.is_timed or outcome.beside.p99 <= MOST_P99_MS, f"p99 above {MOST_P99_MS:.0f} ms")
        if why := target.fault():
            outcome.fault(why)
    return outcome


def _gang(count: int) -> list[Json]:
    gang = {"name": "ghosts", "members": [{"podNumber": count, "leafCellNumber": 8}]}
    return [pod(f"ghost-{number}", vc="a", gpus=8, affinityGroup=gang) for number in range(count)]


def _flood(target: Target, names: list[str], body: bytes, seconds: float) -> "Counter[int]":
    is_over = threading.Event()

    def ask(name: str) -> "Counter[int]":
        found: Counter[int] = Counter()
        while not is_over.is_set():
            found[_status(target, name, body)] += 1
            is_over.wait(PAUSE_S)
        return found

    with ThreadPoolExecutor(len(names)) as pool:
        asking = [pool.submit(ask, name) for name in names]
        time.sleep(seconds)
        is_over.set()
        return sum((each.result() for each in asking), Counter[int]())


def _status(target: Target, token: str, body: bytes) -> int:
    connection = target.connect("", timeout_s=TIMEOUT_S)
    try:
        connection.request("POST", WHAT_IF_PATH, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
