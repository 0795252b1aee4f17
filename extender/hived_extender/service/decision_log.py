"""One line in the log and one count for every answer to kube-scheduler.

Every call pays for this, so that a record has the values alone. Its fields are made where the line is: on the log's
thread, where lines are queued.
"""

import logging
import time
from typing import Any

from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Phase
from hived.values.specs import PodRequest
from hived_extender.kube.metrics import Metrics

log = logging.getLogger(__name__)

Outcome = Bind | Preempt | Wait | UserError

_VERBS = {Phase.FILTERING: "filter", Phase.PREEMPTING: "preempt"}
_NAMES: dict[type[Outcome], str] = {Bind: "bind", Preempt: "preempt", Wait: "wait"}
"""Of outcomes; all others are errors."""


class DecisionRecord(logging.LogRecord):
    """The record of one answer. All have the same line, level and message, and no thread."""

    def __init__(
        self, pod: str, request: PodRequest | None, verb: str, name: str, outcome: Outcome, seconds: float
    ) -> None:
        created = time.time()
        relative = _ALIKE["relativeCreated"] + (created - _ALIKE["created"]) * 1000
        self.__dict__ = {**_ALIKE, "created": created, "msecs": created % 1 * 1000 // 1, "relativeCreated": relative}
        self._values = pod, request, verb, name, outcome, seconds

    @property
    def fields(self) -> dict[str, Any]:
        """The facts of the line."""
        pod, request, verb, name, outcome, seconds = self._values
        return {
            "pod": pod,
            "group": request.spec.group.name if request else "",
            "vc": request.spec.virtual_cluster if request else "",
            "verb": verb,
            "outcome": name,
            "reason": _reason(outcome),
            "us": round(seconds * 1e6),
        }


_ALIKE: dict[str, Any] = {
    **vars(logging.LogRecord(log.name, logging.INFO, __file__, 0, "decision", None, None, "tell_decision")),
    "thread": None,
    "threadName": None,
}


def tell_decision(
    metrics: Metrics, pod: str, request: PodRequest | None, phase: Phase, outcome: Outcome, started: float
) -> None:
    """Tell what became of a request; `pod` is `namespace/name`, `started` a reading of `time.perf_counter`."""
    seconds = time.perf_counter() - started
    verb, name = _VERBS[phase], _NAMES.get(type(outcome), "error")
    metrics.count_decision(verb, name, seconds)
    if log.isEnabledFor(logging.INFO):
        log.handle(DecisionRecord(pod, request, verb, name, outcome, seconds))


def _reason(outcome: Outcome) -> str:
    if isinstance(outcome, Bind):
        return f"node {outcome.bind_info.node}"
    if isinstance(outcome, Preempt):
        return "victims on " + ", ".join(f"{node} ({len(uids)})" for node, uids in outcome.victims_by_node.items())
    return outcome.reason if isinstance(outcome, Wait) else outcome.message
