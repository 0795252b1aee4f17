"""One line in the log and one count for every answer to kube-scheduler."""

import logging
import time

from hived.decisions import Bind, Preempt, Wait
from hived.errors import UserError
from hived.events import Phase
from hived.specs import PodRequest
from hived_extender.kube.metrics import Metrics

log = logging.getLogger(__name__)

_VERBS = {Phase.FILTERING: "filter", Phase.PREEMPTING: "preempt"}


def tell_decision(
    metrics: Metrics,
    pod: str,
    request: PodRequest | None,
    phase: Phase,
    outcome: Bind | Preempt | Wait | UserError,
    started: float,
) -> None:
    """Tell what became of a request; `pod` is `namespace/name`, `started` a reading of `time.perf_counter`."""
    seconds = time.perf_counter() - started
    verb = _VERBS[phase]
    name = "error" if isinstance(outcome, UserError) else type(outcome).__name__.lower()
    metrics.decisions.labels(verb, name).inc()
    metrics.filter_seconds.observe(seconds)
    fields = {
        "pod": pod,
        "group": request.spec.group.name if request else "",
        "vc": request.spec.virtual_cluster if request else "",
        "verb": verb,
        "outcome": name,
        "reason": _reason(outcome),
        "us": round(seconds * 1e6),
    }
    if log.isEnabledFor(logging.INFO):
        # Without the look for the calling line: it is always this one.
        record = logging.LogRecord(log.name, logging.INFO, __file__, 0, "decision", None, None, "tell_decision")
        record.fields = fields
        log.handle(record)


def _reason(outcome: Bind | Preempt | Wait | UserError) -> str:
    if isinstance(outcome, Bind):
        return f"node {outcome.bind_info.node}"
    if isinstance(outcome, Preempt):
        return "victims on " + ", ".join(f"{node} ({len(uids)})" for node, uids in outcome.victims_by_node.items())
    return outcome.reason if isinstance(outcome, Wait) else outcome.message
