"""The HTTP paths, as the service serves them and clients call them.

The service itself: its paths, whether it works, and whether it leads.
"""

import re
from urllib.parse import quote

import msgspec

_LEADING_DOT = re.compile(r"(?<![^/])\.")

FILTER_PATH = "/v1/extender/filter"
PREEMPT_PATH = "/v1/extender/preempt"
BIND_PATH = "/v1/extender/bind"

GROUPS_PATH = "/v1/inspect/affinitygroups/"
CLUSTER_PATH = "/v1/inspect/clusterstatus"
PHYSICAL_CLUSTER_PATH = f"{CLUSTER_PATH}/physicalcluster"
VIRTUAL_CLUSTERS_PATH = f"{CLUSTER_PATH}/virtualclusters/"
DEVICES_PATH = "/v1/inspect/devices"
SHORTAGES_PATH = "/v1/inspect/shortages"
RULES_PATH = "/v1/inspect/rules"
STATUS_PATH = "/v1/inspect/status"
RECORD_PATH = "/v1/inspect/record"
WHAT_IF_PATH = "/v1/inspect/what-if"
JOBS_PATH = "/v1/inspect/jobs"
WHY_PATH = "/v1/inspect/why/"
IF_PATH = "/v1/inspect/if"
NODES_PATH = "/v1/inspect/nodes"
FREE_CELLS_PATH = "/v1/inspect/free-cells"
HISTORY_PATH = "/v1/inspect/history"
INPUTS_PATH = "/v1/inspect/inputs"
QUEUES_PATH = "/v1/inspect/queues"
QUEUE_JOBS_PATH = f"{QUEUES_PATH}/jobs"
QUEUED_JOB_PATH = f"{QUEUES_PATH}/job/"
MOVES_PATH = "/v1/inspect/defrag"

DEFRAG_PATH = "/v1/defrag"
QUEUE_CHANGES_PATH = "/v1/queues"
QUEUE_PATHS = (QUEUES_PATH, QUEUE_CHANGES_PATH)
DEFRAG_STOP_PATH = f"{DEFRAG_PATH}/stop"

CONFIG_PATH = "/v1/config"
CONFIG_PLAN_PATH = f"{CONFIG_PATH}/plan"
CONFIG_VERSIONS_PATH = f"{CONFIG_PATH}/versions"

PAGE_PATH = "/page"
PAGE_JOBS_PATH = f"{PAGE_PATH}/jobs"
PAGE_NODES_PATH = f"{PAGE_PATH}/nodes"
PAGE_QUEUES_PATH = f"{PAGE_PATH}/queues"
PAGE_QUEUED_PATH = f"{PAGE_PATH}/queued"
PAGE_QUEUE_CHANGES_PATH = f"{PAGE_PATH}/queue-changes"
PAGE_CANCEL_PATH = f"{PAGE_PATH}/cancel"
PAGE_LOG_PATH = f"{PAGE_PATH}/log"
PAGE_SUBMIT_PATH = f"{PAGE_PATH}/submit"
PAGE_CONFIG_PATH = f"{PAGE_PATH}/configuration"
PAGE_CONFIG_PLAN_PATH = f"{PAGE_CONFIG_PATH}/plan"
PAGE_CONFIG_PUSH_PATH = f"{PAGE_CONFIG_PATH}/push"
"""Pages for people; all of them begin alike, so that one rule of a role allows them."""

HEALTH_PATH = "/healthz"
READINESS_PATH = "/readyz"
METRICS_PATH = "/metrics"
OPENAPI_PATH = "/openapi.json"


def virtual_cluster_path(vc: str) -> str:
    """The path of one virtual cluster."""
    return VIRTUAL_CLUSTERS_PATH + _quoted(vc, safe="")


def group_path(name: str) -> str:
    """The path of one group; its name may hold slashes."""
    return GROUPS_PATH + _quoted(name, safe="/")


def why_path(job: str) -> str:
    """The path of the answer why a job waits; its name may hold slashes."""
    return WHY_PATH + _quoted(job, safe="/")


def queue_jobs_path(queue: str = "") -> str:
    """The path of the jobs of a queue, or of all; the name of a queue may hold slashes."""
    return f"{QUEUE_JOBS_PATH}/{_quoted(queue, safe='/')}" if queue else QUEUE_JOBS_PATH


def queued_job_path(job: str) -> str:
    """The path of one job in its queue; its name has slashes."""
    return QUEUED_JOB_PATH + _quoted(job, safe="/")


def page_queue_path(queue: str) -> str:
    """The path of the page of a queue; its name may hold slashes."""
    return f"{PAGE_QUEUES_PATH}/{_quoted(queue, safe='/')}"


def page_node_path(node: str) -> str:
    """The path of the page of a node."""
    return f"{PAGE_NODES_PATH}/{_quoted(node, safe='/')}"


def page_job_path(job: str) -> str:
    """The path of the page of a job; its name may hold slashes."""
    return f"{PAGE_JOBS_PATH}/{_quoted(job, safe='/')}"


def _quoted(name: str, safe: str) -> str:
    """The name in a URL. A dot that begins a segment is escaped: clients drop segments that are "." or ".."."""
    return _LEADING_DOT.sub("%2E", quote(name, safe=safe))


class Paths(msgspec.Struct):
    """The list of all paths."""

    paths: list[str]


class Health(msgspec.Struct, omit_defaults=True):
    """`status` is "ok", or "stopped" with the fault after an internal error."""

    status: str
    fault: str = ""


class Readiness(msgspec.Struct, omit_defaults=True):
    """`status` is "ready", "not ready" with the reason, or "stopped". `kernels` says in which way they run."""

    status: str
    reason: str = ""
    kernels: str = ""
