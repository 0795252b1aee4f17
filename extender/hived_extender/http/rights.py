"""The rights of callers, path by path: the role that a path takes, and the names of other tenants' jobs that it shows.

One table, from which the documentation is written. A test fails for a path without a row.
"""

from collections.abc import Iterable
from enum import Enum

from hived_extender.api import paths


class Role(Enum):
    """The callers of a path."""

    ALL = "anybody"
    SCHEDULER = "kube-scheduler, by its certificate"
    VIEWER = "`hived-viewer`"
    OWNER = "`hived-viewer`, and `update` on the configuration; to hold and release, `update` on the job"
    PUSHER = "`hived-viewer`, and `update` on the configuration"


class Names(Enum):
    """What becomes of the names of jobs whose pods a caller may not get."""

    NONE = "has no names of jobs"
    MASKED = "masked"
    REFUSED = "403 without `get` on all pods"
    REPORT = "masked, unless the caller may push"
    SCHEDULER = "shown"


class Row:
    """The rights on a path."""

    def __init__(self, role: Role, names: Names) -> None:
        self.role, self.names = role, names


def _rows(role: Role, names: Names, *routes: tuple[str, str]) -> dict[tuple[str, str], Row]:
    return {route: Row(role, names) for route in routes}


RIGHTS: dict[tuple[str, str], Row] = {
    **_rows(Role.ALL, Names.NONE, ("GET", paths.HEALTH_PATH), ("GET", paths.READINESS_PATH)),
    **_rows(
        Role.SCHEDULER, Names.SCHEDULER,
        ("POST", paths.FILTER_PATH), ("POST", paths.PREEMPT_PATH), ("POST", paths.BIND_PATH),
    ),
    **_rows(
        Role.VIEWER, Names.NONE,
        ("GET", "/"), ("GET", paths.CLUSTER_PATH), ("GET", paths.PHYSICAL_CLUSTER_PATH),
        ("GET", paths.VIRTUAL_CLUSTERS_PATH), ("GET", f"{paths.VIRTUAL_CLUSTERS_PATH}{{name}}"),
        ("GET", paths.SHORTAGES_PATH), ("GET", paths.RULES_PATH), ("GET", paths.HISTORY_PATH),
        ("GET", paths.FREE_CELLS_PATH), ("GET", paths.QUEUES_PATH), ("GET", paths.METRICS_PATH),
        ("GET", paths.OPENAPI_PATH), ("GET", paths.CONFIG_PATH), ("GET", paths.CONFIG_VERSIONS_PATH),
        ("GET", f"{paths.CONFIG_VERSIONS_PATH}/{{name}}"),
    ),
    **_rows(
        Role.VIEWER, Names.MASKED,
        ("GET", paths.GROUPS_PATH), ("GET", f"{paths.GROUPS_PATH}{{name}}"), ("GET", paths.JOBS_PATH),
        ("GET", f"{paths.WHY_PATH}{{name}}"), ("POST", paths.IF_PATH), ("POST", paths.WHAT_IF_PATH),
        ("GET", paths.NODES_PATH), ("GET", paths.DEVICES_PATH), ("GET", paths.MOVES_PATH),
        ("GET", paths.QUEUE_JOBS_PATH), ("GET", f"{paths.QUEUE_JOBS_PATH}/{{name}}"),
        ("GET", f"{paths.QUEUED_JOB_PATH}{{name}}"),
    ),
    **_rows(Role.VIEWER, Names.REFUSED, ("GET", paths.INPUTS_PATH), ("GET", paths.RECORD_PATH)),
    **_rows(Role.VIEWER, Names.REPORT, ("POST", paths.CONFIG_PLAN_PATH)),
    **_rows(Role.OWNER, Names.MASKED, ("POST", paths.QUEUE_CHANGES_PATH)),
    **_rows(
        Role.PUSHER, Names.SCHEDULER,
        ("POST", paths.CONFIG_PATH), ("POST", paths.DEFRAG_PATH), ("POST", paths.DEFRAG_STOP_PATH),
    ),
}  # fmt: skip


def table(routes: Iterable[tuple[str, str]]) -> str:
    """The table of the documentation. Raises KeyError for a path without rights."""
    rows = [f"| `{method} {path}` | {RIGHTS[method, path].role.value} | {RIGHTS[method, path].names.value} |"
            for method, path in routes]  # fmt: skip
    return "\n".join(["| path | role | names of other tenants' jobs |", "|---|---|---|", *rows])
