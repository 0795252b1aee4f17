"""The paths: one short function per path, from a service and a body to an answer.

Flask (`app.py`) and the ASGI shim (`shim.py`) call these same functions. Exceptions end here: filter and bind report
every error inside a 200 answer, as kube-scheduler expects of the reference; all other paths answer the status code with
a JSON string.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from hived import __version__
from hived.values.errors import HivedError, UserError
from hived_config.settings import value_of
from hived_extender.api import paths
from hived_extender.api.cell_texts import CellTexts
from hived_extender.api.cells import (
    AffinityGroup,
    AffinityGroups,
    Cell,
    Cluster,
    LostDevices,
    RulesInForce,
    Shortage,
)
from hived_extender.api.configuration import (
    Config,
    ConfigPlanArgs,
    ConfigPushArgs,
    ConfigPushResult,
    ConfigReport,
    ConfigVersion,
    VersionList,
)
from hived_extender.api.defrag import DefragArgs, Inputs, MovingReport
from hived_extender.api.past import History
from hived_extender.api.paths import Health, Paths, Readiness
from hived_extender.api.queues import QueueArgs, QueuedJob, QueuedJobs, QueueList
from hived_extender.api.status import Status
from hived_extender.api.waiting import FreeCells, IfArgs, IfResult, Jobs, NodeView, WhatIfArgs, WhatIfResult, Why
from hived_extender.http import change_routes as changing
from hived_extender.http import insight_routes as insight
from hived_extender.http import queue_routes as queueing
from hived_extender.http.answers import JSON, Answer, Question
from hived_extender.http.bodies import BODY_LIMIT
from hived_extender.http.dumps import dump, stream, unchanged
from hived_extender.http.past_routes import history, record
from hived_extender.http.routing import Backend, Handler, Names, Rights, Role, Route, openapi_document
from hived_extender.jobs.wire import (
    WAITING_KEY,
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    decode_args,
    encode,
)
from hived_extender.kube import metrics
from hived_extender.kube.clocks import wall_s
from hived_extender.machine.gangs.gang import GrowingError
from hived_extender.machine.pods import UnknownPodError
from hived_extender.machine.runner import BusyError

log = logging.getLogger(__name__)

UNAVAILABLE = 503
BUSY = Answer(encode("others are served: ask again"), UNAVAILABLE, is_busy=True)

KIB = 1024
MIB = 1024 * KIB

VERBS = frozenset((paths.FILTER_PATH, paths.PREEMPT_PATH, paths.BIND_PATH))
HEALTH_PATHS = frozenset((paths.HEALTH_PATH, paths.READINESS_PATH))
CONFIG_PATHS = frozenset(
    (paths.CONFIG_PATH, paths.CONFIG_PLAN_PATH, paths.PAGE_CONFIG_PLAN_PATH, paths.PAGE_CONFIG_PUSH_PATH)
)
"""Calls of these are long, and have long bodies."""

SMALL_VERB = 4 * KIB
SMALL_LIMIT = 64 * KIB
"""For paths that need no body."""

WHAT_IF_LIMIT = 3 * MIB


def limit_of(path: str) -> int:
    """The bytes that a body may have. `path` has no slash at its end."""
    if path in VERBS:
        return BODY_LIMIT
    if path in HEALTH_PATHS:
        return SMALL_VERB
    if path in CONFIG_PATHS or path == paths.DEFRAG_PATH:
        return changing.CONFIG_BODY_LIMIT
    return WHAT_IF_LIMIT if path == paths.WHAT_IF_PATH else SMALL_LIMIT


INTERNAL_ERROR = "internal error; the log of the scheduler has the details"


def filter_call(backend: Backend, question: Question) -> Answer:
    """Return the one node where a pod can run, or the reason why it has to wait."""
    try:
        result = backend.service.filter_nodes(decode_args(question.body, FilterArgs), wait_s=question.wait_s)
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
    return Answer(encode(result), delay_s=backend.service.verb_settings.waiting_block_s if is_waiting else 0.0)


def preempt_call(backend: Backend, question: Question) -> Answer:
    """Return which pods on which candidate node must leave for a pod."""
    args = decode_args(question.body, PreemptArgs)
    try:
        return Answer(encode(backend.service.preempt_victims(args, wait_s=question.wait_s)))
    except BusyError:
        return BUSY


def bind_call(backend: Backend, question: Question) -> Answer:
    """Bind a pod to the node that filter has answered. Repeating it is harmless."""
    try:
        backend.service.bind_pod(decode_args(question.body, BindArgs))
    except Exception as error:
        message, status = explain(error)
        return Answer(encode(BindResult(error=message)), is_elsewhere=status == UNAVAILABLE)
    return Answer(encode(BindResult()))


def all_paths(backend: Backend, question: Question) -> Answer:
    """The list of all paths, each once, however many methods it has."""
    return Answer(encode(Paths(list(dict.fromkeys(route.path for route in ROUTES)))))


def _seen(backend: Backend, question: Question) -> frozenset[str] | None:
    """The namespaces of groups whose names the caller may see; None, without a look at them, if all are shown."""
    mask = backend.mask(question)
    return None if mask.shows_all else mask.seen(backend.service.reader.namespaces())


def affinity_groups(backend: Backend, question: Question) -> Answer:
    """All affinity groups that hold or reserve cells."""
    reader = backend.service.reader
    seen = _seen(backend, question)
    if seen is not None:  # the rights of a caller change, and the version does not
        return stream(question, _group_list(reader.sliced_affinity_groups(seen)), JSON)
    version = reader.version()
    if (same := unchanged(question, version)) is not None:
        return same
    return dump(question, version, _group_list(reader.sliced_affinity_groups()))


def affinity_group(backend: Backend, question: Question) -> Answer:
    """One affinity group; the name may contain slashes."""
    reader = backend.service.reader
    seen = _seen(backend, question)
    return Answer(encode(reader.affinity_group(question.name, seen)))


def cluster_status(backend: Backend, question: Question) -> Answer:
    """The physical cluster and every virtual cluster."""
    return _cells(
        backend,
        question,
        lambda cells: chain(
            [b'{"physicalCluster":'],
            cells.physical_cluster(),
            [b',"virtualClusters":'],
            _all_vcs(cells),
            [b"}"],
        ),
    )


def physical_cluster(backend: Backend, question: Question) -> Answer:
    """The trees of physical cells."""
    return _cells(backend, question, lambda cells: cells.physical_cluster())


def virtual_clusters(backend: Backend, question: Question) -> Answer:
    """The trees of virtual cells of every virtual cluster."""
    return _cells(backend, question, _all_vcs)


def virtual_cluster(backend: Backend, question: Question) -> Answer:
    """The trees of virtual cells of one virtual cluster."""
    return _cells(backend, question, lambda cells: cells.virtual_cluster(question.name), question.name)


def devices(backend: Backend, question: Question) -> Answer:
    """The devices of nodes that cannot be had, and why."""
    mask = backend.mask(question)
    return Answer(encode([mask.devices(one) for one in backend.service.lost_devices()]))


def shortages(backend: Backend, question: Question) -> Answer:
    """The promises to virtual clusters that can each be kept, but not all together."""
    return Answer(encode(backend.service.shortages()))


def rules(backend: Backend, question: Question) -> Answer:
    """The rules of decisions in force."""
    return Answer(encode(RulesInForce(value_of(backend.service.reader.rules()))))


def status(backend: Backend, question: Question) -> Answer:
    """The state of this replica: leadership, versions, what it recovered, promises, certificates, jobs, warnings."""
    return Answer(encode(backend.mask(question).status(backend.overview.look())))


def what_if(backend: Backend, question: Question) -> Answer:
    """The outcome for these pods if they were created now. Nothing is changed.

    A manifest may name any namespace, so the answer names only jobs that the caller may see.
    """
    caller = question.caller.name if question.caller is not None else ""
    with backend.service.questions.place(caller):
        found = backend.service.what_if(decode_args(question.body, WhatIfArgs).pods)
    mask = backend.mask(question)
    return Answer(encode(WhatIfResult([mask.forecast(one, wall_s()) for one in found])))


def health(backend: Backend, question: Question) -> Answer:
    """200 while the process can go on; 500 after an internal error, when it should be restarted."""
    if backend.service.fault:
        return Answer(encode(Health("stopped", backend.service.fault)), status=500)
    return Answer(encode(Health("ok")))


def readiness(backend: Backend, question: Question) -> Answer:
    """200 while this replica leads; 503 with the reason while it does not, and after an internal error."""
    service = backend.service
    kernels = service.kernels()
    if service.is_ready:
        return Answer(encode(Readiness("ready", kernels=kernels)))
    status, reason = ("stopped", "") if service.fault else ("not ready", service.standing)
    return Answer(encode(Readiness(status, reason, kernels)), status=503)


def metrics_text(backend: Backend, question: Question) -> Answer:
    """Numbers for Prometheus."""
    return Answer(backend.service.metrics.text(), content_type=metrics.CONTENT_TYPE)


def openapi(backend: Backend, question: Question) -> Answer:
    """This document."""
    return Answer(encode(openapi_document(__version__, ROUTES)))


MASKED = Names.MASKED
VERB: Rights = {"role": Role.SCHEDULER, "names": Names.SHOWN}
PUSH: Rights = {"role": Role.PUSHER, "names": Names.SHOWN}
QUEUED: Any = {"errors": (400, 404, 503), "query": queueing.LIST_KEYS, "names": MASKED}

ROUTES = (
    Route("GET", "/", all_paths, Paths),
    Route("POST", paths.FILTER_PATH, filter_call, FilterResult, FilterArgs, **VERB),
    Route("POST", paths.PREEMPT_PATH, preempt_call, PreemptResult, PreemptArgs, (400, 500, 503), **VERB),
    Route("POST", paths.BIND_PATH, bind_call, BindResult, BindArgs, **VERB),
    Route("GET", paths.GROUPS_PATH, affinity_groups, AffinityGroups, errors=(503,), names=MASKED),
    Route("GET", f"{paths.GROUPS_PATH}{{name}}", affinity_group, AffinityGroup, errors=(400, 503), names=MASKED),
    Route("GET", paths.CLUSTER_PATH, cluster_status, Cluster, errors=(503,)),
    Route("GET", paths.PHYSICAL_CLUSTER_PATH, physical_cluster, list[Cell], errors=(503,)),
    Route("GET", paths.VIRTUAL_CLUSTERS_PATH, virtual_clusters, dict[str, list[Cell]], errors=(503,)),
    Route("GET", f"{paths.VIRTUAL_CLUSTERS_PATH}{{name}}", virtual_cluster, list[Cell], errors=(400, 503)),
    Route("GET", paths.DEVICES_PATH, devices, list[LostDevices], errors=(503,), names=MASKED),
    Route("GET", paths.SHORTAGES_PATH, shortages, list[Shortage], errors=(503,)),
    Route("GET", paths.RULES_PATH, rules, RulesInForce, errors=(503,)),
    Route("GET", paths.STATUS_PATH, status, Status, names=MASKED),
    Route("GET", paths.RECORD_PATH, record, errors=(400, 404, 413, 503), names=Names.REFUSED),
    Route("GET", paths.HISTORY_PATH, history, History, errors=(400, 404)),
    Route("POST", paths.WHAT_IF_PATH, what_if, WhatIfResult, WhatIfArgs, (400, 429, 500, 503), names=MASKED),
    Route("GET", paths.JOBS_PATH, insight.jobs, Jobs, errors=(400, 503), query=insight.JOB_KEYS, names=MASKED),
    Route("GET", f"{paths.WHY_PATH}{{name}}", insight.why, Why, errors=(404, 503), names=MASKED),
    Route("POST", paths.IF_PATH, insight.try_changes, IfResult, IfArgs, (400, 404, 500, 503), names=MASKED),
    Route(
        "GET",
        paths.NODES_PATH,
        insight.nodes,
        list[NodeView],
        errors=(400, 404, 503),
        query=insight.NODE_KEYS,
        names=MASKED,
    ),
    Route("GET", paths.FREE_CELLS_PATH, insight.free_cells, list[FreeCells], errors=(503,)),
    Route("GET", paths.INPUTS_PATH, changing.inputs, Inputs, errors=(503,), names=Names.REFUSED),
    Route("GET", paths.MOVES_PATH, changing.moves, MovingReport, errors=(503,), names=MASKED),
    Route("POST", paths.DEFRAG_PATH, changing.apply, MovingReport, DefragArgs, (400, 401, 403, 409, 500, 503), **PUSH),
    Route("POST", paths.DEFRAG_STOP_PATH, changing.stop, MovingReport, errors=(401, 403, 503), **PUSH),
    Route("GET", paths.QUEUES_PATH, queueing.queues, QueueList, errors=(404, 503)),
    Route("GET", paths.QUEUE_JOBS_PATH, queueing.jobs, QueuedJobs, **QUEUED),
    Route("GET", f"{paths.QUEUE_JOBS_PATH}/{{name}}", queueing.jobs, QueuedJobs, **QUEUED),
    Route("GET", f"{paths.QUEUED_JOB_PATH}{{name}}", queueing.job, QueuedJob, errors=(404,), names=MASKED),
    Route(
        "POST",
        paths.QUEUE_CHANGES_PATH,
        queueing.act,
        QueuedJob,
        QueueArgs,
        (400, 401, 403, 404, 409, 503),
        role=Role.OWNER,
        names=MASKED,
    ),
    Route("GET", paths.HEALTH_PATH, health, Health, fails_alike=(500,), role=Role.ALL),
    Route("GET", paths.READINESS_PATH, readiness, Readiness, fails_alike=(503,), role=Role.ALL),
    Route("GET", paths.METRICS_PATH, metrics_text),
    Route("GET", paths.OPENAPI_PATH, openapi, dict),
    Route("GET", paths.CONFIG_PATH, changing.config, Config),
    Route(
        "POST",
        paths.CONFIG_PATH,
        changing.push,
        ConfigPushResult,
        ConfigPushArgs,
        (400, 401, 403, 500, 503),
        refusals=(409, 422),
        **PUSH,
    ),
    Route(
        "POST", paths.CONFIG_PLAN_PATH, changing.plan, ConfigReport, ConfigPlanArgs, (400, 500, 503), names=Names.REPORT
    ),
    Route("GET", paths.CONFIG_VERSIONS_PATH, changing.versions, VersionList, errors=(503,)),
    Route("GET", f"{paths.CONFIG_VERSIONS_PATH}/{{name}}", changing.version, ConfigVersion, errors=(404, 503)),
)


def answer(handler: Handler, backend: Backend, question: Question) -> Answer:
    """Call a handler; an error becomes an answer, `BUSY` if the handler would have to wait and may not."""
    try:
        return handler(backend, question)
    except Exception as error:
        message, status = explain(error)
        is_premature = isinstance(error, UnknownPodError)
        return Answer(encode(message), status, is_premature=is_premature, is_elsewhere=status == UNAVAILABLE)


def explain(error: Exception) -> tuple[str, int]:
    """The message and the status code of an error; an unexpected one goes to the log instead of the caller."""
    if isinstance(error, UserError):
        return error.message, error.code
    if isinstance(error, HivedError):
        return str(error), 500
    log.error("internal error", exc_info=error)
    return INTERNAL_ERROR, 500


def _cells(
    backend: Backend, question: Question, describe: Callable[[CellTexts], Iterable[bytes]], vc: str | None = None
) -> Answer:
    """Cells as they are now, of one VC or of all, unless the caller has them already."""
    reader = backend.service.reader
    if question.if_none_match and (same := unchanged(question, reader.version(vc))) is not None:
        return same
    version, cells = reader.versioned_cells()
    return dump(question, version, describe(CellTexts(cells)))


def _group_list(groups: Iterable[Mapping[str, Any] | None]) -> Iterator[bytes]:
    """`{"items":[group,...]}`, null without any; an empty part where others have to be served first."""
    separator = b'{"items":['
    for group in groups:
        if group is None:
            yield b""
        else:
            yield separator + encode(group)
            separator = b","
    yield b"]}" if separator == b"," else b'{"items":null}'


def _all_vcs(cells: CellTexts) -> Iterator[bytes]:
    """`{name:[cell,...],...}`."""
    separator = b"{"
    for vc in cells.vc_names:
        yield separator + encode(vc) + b":"
        yield from cells.virtual_cluster(vc)
        separator = b","
    yield b"}" if separator == b"," else b"{}"
