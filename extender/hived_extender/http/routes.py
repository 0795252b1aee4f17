"""What each path does: one short function per path, from a service and a body to an answer.

Flask (`app.py`) and the ASGI shim (`shim.py`) call these same functions. Exceptions end here: filter and bind report
every error inside a 200 answer, as kube-scheduler expects of the reference; all other paths answer the status code with
a JSON string.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from hived import __version__
from hived.errors import HivedError, UserError
from hived.status import CellStatus, iter_physical_cluster, iter_virtual_cluster
from hived_extender.http.answers import Answer, Question
from hived_extender.http.config_routes import CONFIG_ROUTES
from hived_extender.http.openapi import openapi_document
from hived_extender.kube import metrics
from hived_extender.pods.wire import (
    BIND_PATH,
    DEVICES_PATH,
    FILTER_PATH,
    PREEMPT_PATH,
    SHORTAGES_PATH,
    WAITING_KEY,
    WHAT_IF_PATH,
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    PreemptArgs,
    WhatIfArgs,
    WhatIfResult,
    decode_args,
    encode,
)
from hived_extender.service.gangs.growth import GrowingError
from hived_extender.service.pods import UnknownPodError
from hived_extender.service.service import BusyError, Service

log = logging.getLogger(__name__)

UNAVAILABLE = 503
BUSY = Answer(encode("others are served: ask again"), UNAVAILABLE, is_busy=True)
INTERNAL_ERROR = "internal error; the log of the scheduler has the details"


class Handler(Protocol):
    """Answers one request."""

    def __call__(self, service: Service, question: Question) -> Answer:
        """Raises HivedError."""


def filter_call(service: Service, question: Question) -> Answer:
    """Where can this pod run? One node, or the reason why it has to wait."""
    try:
        result = service.filter_nodes(decode_args(question.body, FilterArgs), may_wait=question.may_wait)
    except BusyError:
        return BUSY
    except Exception as error:
        message, status = explain(error)
        is_premature = isinstance(error, UnknownPodError)
        return Answer(
            encode(FilterResult(error=message)),
            is_premature=is_premature,
            is_growing=isinstance(error, GrowingError),
            is_elsewhere=status == UNAVAILABLE,
        )
    is_waiting = WAITING_KEY in (result.failed_nodes or ())
    return Answer(encode(result), delay_s=service.patience.waiting_block_s if is_waiting else 0.0)


def preempt_call(service: Service, question: Question) -> Answer:
    """Which pods on which candidate node must leave for this pod?"""
    args = decode_args(question.body, PreemptArgs)
    try:
        return Answer(encode(service.preempt_victims(args, may_wait=question.may_wait)))
    except BusyError:
        return BUSY


def bind_call(service: Service, question: Question) -> Answer:
    """Bind a pod to the node that filter has answered. Repeating it is harmless."""
    try:
        service.bind_pod(decode_args(question.body, BindArgs))
    except Exception as error:
        message, status = explain(error)
        return Answer(encode(BindResult(error=message)), is_elsewhere=status == UNAVAILABLE)
    return Answer(encode(BindResult()))


def paths(service: Service, question: Question) -> Answer:
    """The list of all paths."""
    return Answer(encode({"paths": [route.path for route in (*ROUTES, *CONFIG_ROUTES)]}))


def affinity_groups(service: Service, question: Question) -> Answer:
    """All affinity groups that hold or reserve cells."""
    groups = service.reader.affinity_groups()
    first = next(groups, None)
    if first is None:
        return Answer(encode({"items": None}))
    return Answer(chain([b'{"items":'], _json_array(chain([first], groups)), [b"}"]))


def affinity_group(service: Service, question: Question) -> Answer:
    """One affinity group; the name may contain slashes."""
    return Answer(encode(service.reader.affinity_group(question.name)))


def cluster_status(service: Service, question: Question) -> Answer:
    """The physical cluster and every virtual cluster."""
    cells = service.reader.cells()
    physical = _json_array(iter_physical_cluster(cells))
    return Answer(chain([b'{"physicalCluster":'], physical, [b',"virtualClusters":'], _all_vcs(cells), [b"}"]))


def physical_cluster(service: Service, question: Question) -> Answer:
    """The trees of physical cells."""
    return Answer(_json_array(iter_physical_cluster(service.reader.cells())))


def virtual_clusters(service: Service, question: Question) -> Answer:
    """The trees of virtual cells of every virtual cluster."""
    return Answer(_all_vcs(service.reader.cells()))


def virtual_cluster(service: Service, question: Question) -> Answer:
    """The trees of virtual cells of one virtual cluster."""
    return Answer(_json_array(iter_virtual_cluster(service.reader.cells(), question.name)))


def devices(service: Service, question: Question) -> Answer:
    """The devices of nodes that cannot be had, and why."""
    return Answer(encode(service.lost_devices()))


def shortages(service: Service, question: Question) -> Answer:
    """The promises to virtual clusters that can each be kept, but not all together."""
    return Answer(encode(service.shortages()))


def what_if(service: Service, question: Question) -> Answer:
    """What would become of these pods if they were created now? Nothing is changed."""
    return Answer(encode(WhatIfResult(service.what_if(decode_args(question.body, WhatIfArgs).pods))))


def health(service: Service, question: Question) -> Answer:
    """200 while the process can go on; 500 after an internal error, when it should be restarted."""
    if service.fault:
        return Answer(encode({"status": "stopped", "fault": service.fault}), status=500)
    return Answer(encode({"status": "ok"}))


def readiness(service: Service, question: Question) -> Answer:
    """200 while this replica leads; 503 with the reason while it does not, and after an internal error."""
    if service.is_ready:
        return Answer(encode({"status": "ready"}))
    status = {"status": "stopped"} if service.fault else {"status": "not ready", "reason": service.standing}
    return Answer(encode(status), status=503)


def metrics_text(service: Service, question: Question) -> Answer:
    """Numbers for Prometheus."""
    return Answer(service.metrics.text(), content_type=metrics.CONTENT_TYPE)


def openapi(service: Service, question: Question) -> Answer:
    """This document."""
    summaries = {
        (route.method, route.path): (route.handler.__doc__ or "").strip() for route in (*ROUTES, *CONFIG_ROUTES)
    }
    return Answer(encode(openapi_document(__version__, summaries)))


@dataclass(frozen=True, slots=True)
class Route:
    """A path as OpenAPI writes it; `{name}` stands for the whole rest of the path, slashes included."""

    method: str
    path: str
    handler: Handler


HEALTH_PATH = "/healthz"
READINESS_PATH = "/readyz"

ROUTES = (
    Route("GET", "/", paths),
    Route("POST", FILTER_PATH, filter_call),
    Route("POST", PREEMPT_PATH, preempt_call),
    Route("POST", BIND_PATH, bind_call),
    Route("GET", "/v1/inspect/affinitygroups/", affinity_groups),
    Route("GET", "/v1/inspect/affinitygroups/{name}", affinity_group),
    Route("GET", "/v1/inspect/clusterstatus", cluster_status),
    Route("GET", "/v1/inspect/clusterstatus/physicalcluster", physical_cluster),
    Route("GET", "/v1/inspect/clusterstatus/virtualclusters/", virtual_clusters),
    Route("GET", "/v1/inspect/clusterstatus/virtualclusters/{name}", virtual_cluster),
    Route("GET", DEVICES_PATH, devices),
    Route("GET", SHORTAGES_PATH, shortages),
    Route("POST", WHAT_IF_PATH, what_if),
    Route("GET", HEALTH_PATH, health),
    Route("GET", READINESS_PATH, readiness),
    Route("GET", "/metrics", metrics_text),
    Route("GET", "/openapi.json", openapi),
)


def answer(handler: Handler, service: Service, body: bytes, name: str = "", *, may_wait: bool = True) -> Answer:
    """Call a handler; whatever goes wrong becomes an answer, `BUSY` one that would have to wait and may not."""
    return attempt(lambda: handler(service, Question(body, name, may_wait=may_wait)))


def attempt(handle: Callable[[], Answer]) -> Answer:
    """Whatever goes wrong becomes an answer."""
    try:
        return handle()
    except Exception as error:
        message, status = explain(error)
        is_premature = isinstance(error, UnknownPodError)
        return Answer(encode(message), status, is_premature=is_premature, is_elsewhere=status == UNAVAILABLE)


def explain(error: Exception) -> tuple[str, int]:
    """The message and the status code of an error; one that nobody foresaw goes to the log instead of the caller."""
    if isinstance(error, UserError):
        return error.message, error.code
    if isinstance(error, HivedError):
        return str(error), 500
    log.error("internal error", exc_info=error)
    return INTERNAL_ERROR, 500


def _json_array(items: Iterator[Any]) -> Iterator[bytes]:
    """`[item,item,...]`, a piece per item. The first item is fetched now, so that an error still has a status code."""
    head = [encode(item) for item in islice(items, 1)]
    rest: Iterator[bytes] = (b"," + encode(item) for item in items)
    return chain([b"[", *head], rest, [b"]"])


def _all_vcs(cells: CellStatus) -> Iterator[bytes]:
    """`{name:[cell,...],...}`."""
    separator = b"{"
    for vc in cells.topology.vc_names:
        yield separator + encode(vc) + b":"
        yield from _json_array(iter_virtual_cluster(cells, vc))
        separator = b","
    yield b"}" if separator == b"," else b"{}"
