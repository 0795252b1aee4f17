"""Any table with names of columns that say when a job was submitted, how long it ran, and how many GPUs it had.

The first column of each list of names counts. Venus excerpts (`job_id, arrival_s, service_sec, gpu_count`) are such
tables, and those that `hived trace convert --to csv` writes.
"""

from hived.errors import UserError
from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_traces.draft import Draft
from hived_traces.fields import (
    NOTHING,
    Unusable,
    count,
    duration,
    moment,
    number,
    packed,
    positive_span,
    rounded_up,
    spread,
)  # fmt: skip
from hived_traces.formats.format import Format
from hived_traces.jobs import Job, Pods
from hived_traces.shapes import from_text
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, columns_of

DELIMITERS = ",\t;|"
SYNONYMS = {
    "submitted": (
        "submitted_s", "submit_time", "submitted_time", "submission_time", "arrival_s", "arrival_time", "submit",
        "submitted", "timestamp", "creation_time", "created", "arrival", "time",
    ),
    "duration": (
        "duration_s", "duration", "service_sec", "service_time", "runtime_s", "run_time", "runtime", "elapsed_s",
        "elapsed", "duration_sec",
    ),
    "gpus": (
        "gpus", "num_gpus", "gpu_num", "gpu_count", "num_gpu", "n_gpus", "ngpus", "gpu_request", "gpu", "leaf_cells",
    ),
    "name": ("name", "job_id", "jobid", "job_name", "job", "id"),
    "tenant": (
        "tenant", "vc", "virtual_cluster", "cluster", "organization", "account", "project", "team", "group",
        "namespace",
    ),
    "user": ("user", "username", "user_id", "owner"),
    "started": ("started_s", "start_time", "started", "start", "scheduled_time"),
    "ended": ("ended_s", "end_time", "ended", "end", "finish_time", "deletion_time", "completed"),
    "leaf_type": ("leaf_type", "gpu_type", "gpu_model"),
    "status": ("status", "state"),
    "priority": ("priority",),
    "pods": ("pods",),
    "nodes": ("nodes", "node_num", "num_nodes", "n_nodes", "nnodes", "node_count"),
}  # fmt: skip
"""Names of columns in lower case, for each property of a job."""


def _names(head: str, delimiter: str) -> dict[str, str]:
    """The column for each property that a table has."""
    columns = set(columns_of(head, delimiter))
    return {what: next(name for name in names if name in columns)
            for what, names in SYNONYMS.items() if columns & set(names)}  # fmt: skip


def _delimiter(head: str) -> str:
    """The separator by which the first line names all that is needed; "" if there is none."""
    return next((each for each in DELIMITERS if _is_enough(_names(head, each))), "")


def _is_enough(names: dict[str, str]) -> bool:
    has_time = "duration" in names or {"started", "ended"} <= names.keys()
    return "submitted" in names and has_time and ("gpus" in names or "pods" in names)


def _recognises(head: str) -> bool:
    return bool(_delimiter(head))


def _read(source: Source, draft: Draft) -> None:
    delimiter = _delimiter(source.head)
    if not delimiter:
        raise UserError(
            f"{source.name}:1: found the columns {', '.join(columns_of(source.head)[:12])}; expected one for each of "
            "submission, duration (or start and end) and GPUs, such as submit_time, duration, gpus"
        )
    names = _names(source.head, delimiter)
    draft.note("columns: " + ", ".join(f"{what} from {name}" for what, name in names.items()))
    if not {"pods", "nodes"} & names.keys():
        draft.note_shapes()

    def to_job(fields: Fields) -> Job:
        submitted, ran, gpus, name, tenant, user, start, end, leaf_type, status, priority, pods, nodes = fields
        started = None if start in NOTHING else moment(start, names["started"], draft.zone)
        return Job(
            name or f"job-{draft.line - 1:07d}",
            tenant,
            moment(submitted, names["submitted"], draft.zone),
            _seconds(ran, started, end, names, draft),
            _shape(gpus, pods, nodes, draft),
            user=user,
            started_s=started,
            leaf_type="" if leaf_type in NOTHING else leaf_type,
            priority=_priority(priority, draft),
            status=status,
        )

    table = Table(source, draft, (), delimiter)
    names["tenant"] = table.tenant_column(names.get("tenant", ""))
    draft.take(table.rows(*(names.get(what, "") for what in SYNONYMS)), to_job)


def _seconds(ran: str, started: float | None, end: str, names: dict[str, str], draft: Draft) -> float:
    if ran not in NOTHING:
        return duration(ran, names["duration"])
    if started is None or end in NOTHING:
        raise Unusable("never ran")
    return positive_span(moment(end, names["ended"], draft.zone) - started, "end - start")


def _priority(text: str, draft: Draft) -> int | None:
    """A priority of hived: other schedulers' numbers mean something else."""
    if text in NOTHING:
        return None
    value = number(text, "priority")
    if value in range(OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY + 1):
        return int(value)
    draft.remark("jobs whose priority is none of -1 to 1000, not kept")
    return None


def _shape(gpus: str, pods: str, nodes: str, draft: Draft) -> tuple[Pods, ...]:
    if pods:
        return from_text(pods)
    leaves = rounded_up(gpus, "GPUs", 1.0)
    if leaves != number(gpus, "GPUs"):
        draft.remark("jobs that ask for a part of a GPU, rounded up to a whole one")
    if nodes not in NOTHING:
        return spread(leaves, count(nodes, "nodes"))
    return packed(leaves, draft.options.node_leaf_cells)


FORMAT = Format("table", "any table with columns for submission, duration and GPUs", _recognises, _read)
