"""Published traces: tables as data, and readers where a row is no job yet.

Philly (Microsoft, 2017) is there as a condensed table, and as JSON with attempts: how a job was placed, not its wish.
Helios and Acme are Slurm clusters; in Acme's Kalos `duration` has the waiting in it. Times of Alibaba's traces are
seconds from an unknown moment, and parts of a GPU are rounded up. Gavel's lines tell steps and no seconds. OpenPAI's
times are milliseconds; `launchedTime` is of the latest attempt, and GPUs are those of the whole job.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_simulator.traces.any_table import PROPERTIES, Column, Layout, read_rows
from hived_simulator.traces.draft import Draft
from hived_simulator.traces.fields import (
    NOTHING,
    Unusable,
    bounded,
    count,
    duration,
    instant,
    moment,
    number,
    packed,
    positive_span,
    rounded_up,
)
from hived_simulator.traces.files import (
    Fields,
    Format,
    Source,
    Table,
    columns_of,
    first_line,
    has_columns,
    objects,
    typed,
)
from hived_simulator.traces.jobs import Job, Pods

_SLURM = ("job_id", "user", "gpu_num", "node_num", "state", "submit_time", "start_time", "end_time", "duration")
_SLURM_COLUMNS = {
    "name": "job_id", "user": "user", "gpus": "gpu_num", "nodes": "node_num", "status": "state",
    "submitted": "submit_time", "started": "start_time", "ended": "end_time", "duration": "duration",
}  # fmt: skip

PHILLY_TABLE = Layout(
    "philly-csv", "Philly, condensed table (AdaptDL, Sia)",
    ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"),
    {"submitted": "timestamp", "duration": "duration", "gpus": "num_gpus", "tenant": "cluster"},
    is_zoneless=True,
)  # fmt: skip
HELIOS = Layout(
    "helios", "Helios: Venus, Earth, Saturn, Uranus", _SLURM, {**_SLURM_COLUMNS, "tenant": "vc"}, ("vc",),
    is_zoneless=True, trusts_ends=True,
)  # fmt: skip
ACME = Layout(
    "acme", "Acme: Seren, Kalos", _SLURM, _SLURM_COLUMNS, ("type",), trusts_ends=True,
    no_tenants="tenants are not given: user or type can stand for them",
)  # fmt: skip
ALIBABA_2023 = Layout(
    "alibaba-2023", "Alibaba gpu-v2023, pods",
    ("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time"),
    {
        "name": "name", "gpus": "num_gpu", "milli": "gpu_milli", "leaf_type": "gpu_spec", "priority": "qos",
        "status": "pod_phase", "submitted": "creation_time", "started": "scheduled_time", "ended": "deletion_time",
    },
    notes=("pods stand alone: gangs and tenants are not given; QoS class BE counts as opportunistic",),
    priorities={"be": -1, "*": 0}, is_one_pod=True, tells_last_end=True,
)  # fmt: skip
ALIBABA_2026 = Layout(
    "alibaba-2026", "Alibaba v2026, spot jobs",
    ("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration"),
    {
        "name": "job_name", "tenant": "organization", "leaf_type": "gpu_model", "gpus": "gpu_request",
        "workers": "worker_num", "submitted": "submit_time", "duration": "duration", "priority": ("job_type", "type"),
    },
    notes=("gpu_request is read as GPUs of each worker; type Spot is opportunistic, HP guaranteed",),
    priorities={"spot": -1, "hp": 0},
)  # fmt: skip

TASKS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
"""Columns of PAI's table of tasks; the published file has no line that names them."""
JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
"""Columns of PAI's table of jobs."""
INSTANCES = (
    "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine",
)  # fmt: skip
"""Columns of PAI's table of instances."""
STATUSES = frozenset(("Terminated", "Failed", "Running", "Waiting", "Interrupted", "Cancelled"))


class _Task:
    """A job of PAI as far as it is known: its tasks with GPUs, one after the other."""

    __slots__ = ("end", "leaf_type", "line", "pods", "start", "status")

    def __init__(self, line: int) -> None:
        self.line = line
        self.start, self.end = float("inf"), 0.0
        self.pods: dict[int, int] = {}
        self.leaf_type = self.status = ""


def _is_tasks(head: str) -> bool:
    if has_columns(head, ("job_name", "inst_num", "plan_gpu", "start_time", "end_time")):
        return True
    first = first_line(head).split(",")
    return len(first) == len(TASKS) and first[3] in STATUSES


def _read_tasks(source: Source, draft: Draft) -> None:
    """Jobs are put together from their tasks; submission and user come from the table of jobs beside the file."""
    has_names = has_columns(source.head, TASKS[:3])
    table = Table(source, draft, TASKS if has_names else (), names=() if has_names else TASKS)
    tasks: dict[str, _Task] = {}
    for fields in table.rows("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu", "gpu_type"):
        try:
            _add_task(tasks, fields, draft)
        except Unusable as why:
            draft.leave_out(why)
    submissions = _submissions(source, draft)
    wants_user = draft.tenant_key("", ("", "user")) == "user"
    if not wants_user:
        draft.note("tenants are not given: user can stand for them, which the job table has")

    def to_job(row: tuple[str, _Task]) -> Job:
        name, task = row
        draft.line = task.line
        if not task.pods:
            raise Unusable("asks for no GPU")
        submitted, user = submissions.get(name, (task.start, ""))
        return Job(
            name,
            user if wants_user else "",
            min(submitted, task.start),
            positive_span(task.end - task.start, "end_time - start_time"),
            tuple(Pods(task.pods[size], size) for size in sorted(task.pods)),
            user=user,
            started_s=task.start,
            leaf_type="" if task.leaf_type == "MISC" else task.leaf_type,
            status=task.status,
        )

    draft.take(tasks.items(), to_job)


def _add_task(tasks: dict[str, _Task], fields: Fields, draft: Draft) -> None:
    name, instances, status, start, end, gpus, leaf_type = fields
    if gpus in NOTHING or not number(gpus, "plan_gpu"):
        tasks.setdefault(name, _Task(draft.line))
        return
    size = rounded_up(gpus, "plan_gpu", 100.0)
    times = [0.0 if each in NOTHING else number(each, "time") for each in (start, end)]
    if not times[0]:
        raise Unusable("never ran")
    if not times[1]:
        raise Unusable("has no end: still ran, or was lost", "end_time", end)
    pods = bounded(count(instances, "inst_num"), "inst_num")
    if not pods:
        raise Unusable("has no instance")
    if size * 100.0 != number(gpus, "plan_gpu"):
        draft.remark("tasks that ask for a part of a GPU, rounded up to whole ones")
    task = tasks.setdefault(name, _Task(draft.line))
    task.start, task.end = min(task.start, times[0]), max(task.end, times[1])
    task.pods[size] = task.pods.get(size, 0) + pods
    task.leaf_type, task.status = leaf_type if leaf_type not in NOTHING else "", status


def _submissions(source: Source, draft: Draft) -> dict[str, tuple[float, str]]:
    """Submission and user by job, from `pai_job_table.csv` beside a `pai_task_table.csv`."""
    beside = _job_table(source.path)
    if beside is None:
        draft.note("there is no table of jobs beside the file: a job is submitted when its first task starts")
        return {}
    other = Source(beside)
    unread = Draft(other.name, draft.options)
    try:
        table = Table(other, unread, (), names=() if has_columns(other.head, JOBS[:3]) else JOBS)
        found: dict[str, tuple[float, str]] = {}
        for name, user, start in table.rows("job_name", "user", "start_time"):
            try:
                found[name] = (number(start, "start_time"), user)
            except Unusable:
                continue
    finally:
        other.close()
    return found


def _job_table(path: Path | None) -> Path | None:
    if path is None:
        return None
    names = (path.name.replace("task", "job"),)
    return next((path.with_name(name) for name in names if name != path.name and path.with_name(name).is_file()), None)


def other_table(head: str) -> str:
    """The file to read instead of a table of these traces that tells no jobs; "" if this is none."""
    first = first_line(head).split(",")
    if "inst_name" in columns_of(head) or (len(first) == len(INSTANCES) and first[5] in STATUSES):
        return "is PAI's table of instances, which tells no GPUs; read pai_task_table.csv"
    if set(JOBS) <= set(columns_of(head)) or (len(first) == len(JOBS) and first[3] in STATUSES):
        return "is PAI's table of jobs, which tells no GPUs; read pai_task_table.csv, with this file beside it"
    if has_columns(head, ("sn", "gpu", "model")) or has_columns(head, ("node_name", "gpu_capacity_num")):
        return "is a list of nodes; read the list of pods or jobs"
    return ""


class _Machine(msgspec.Struct):
    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] | None = None


class _Logged(msgspec.Struct):
    jobid: str
    submitted_time: str
    vc: str | None = None
    user: str | None = None
    status: str | None = None
    attempts: list[_Attempt] | None = None


def _is_log(head: str) -> bool:
    return head.lstrip()[:1] in ("[", "{") and '"attempts"' in head and '"jobid"' in head


def _read_log(source: Source, draft: Draft) -> None:
    """Two passes: jobs that still ran are counted up to the latest time that the trace tells."""
    draft.note_zone()
    if not draft.options.is_as_placed:
        draft.note_shapes()
    column = draft.tenant_key("vc", ("vc", "user"))
    entries = [(draft.line, entry) for entry in typed(objects(source, draft), draft, _Logged)]
    last = max((time for _, entry in entries for time in _times(entry, draft)), default=0.0)

    def to_job(row: tuple[int, _Logged]) -> Job:
        draft.line, entry = row
        attempts = entry.attempts or []
        shapes = [shape for each in attempts if (shape := _placed(each))]
        if not shapes:
            raise Unusable("never ran")
        ran, started = _ran(attempts, last, draft)
        leaves = sum(pods.count * pods.leaf_count for pods in shapes[-1])
        return Job(
            entry.jobid,
            getattr(entry, column) or "",
            instant(entry.submitted_time, "submitted_time", draft.zone),
            ran,
            shapes[-1] if draft.options.is_as_placed else packed(leaves, draft.options.node_leaf_cells),
            user=entry.user or "",
            started_s=started,
            status=entry.status or "",
        )

    draft.take(entries, to_job)


def _times(entry: _Logged, draft: Draft) -> list[float]:
    found = []
    for text in (entry.submitted_time, *(time for each in entry.attempts or () for time in _span(each))):
        if text not in NOTHING:
            try:
                found.append(instant(text, "", draft.zone))
            except Unusable:
                continue
    return found


def _span(attempt: _Attempt) -> tuple[str, str]:
    return attempt.start_time or "", attempt.end_time or ""


def _ran(attempts: list[_Attempt], last: float, draft: Draft) -> tuple[float, float | None]:
    """Seconds of all attempts together, and when the first one started."""
    ran, started = 0.0, None
    for place, attempt in enumerate(attempts, 1):
        begin, end = _span(attempt)
        if begin in NOTHING:
            draft.remark("attempts without a start, not counted")
            continue
        since = instant(begin, "start_time", draft.zone)
        started = since if started is None else started
        if end not in NOTHING:
            ran += max(0.0, instant(end, "end_time", draft.zone) - since)
        elif place == len(attempts):
            draft.remark("jobs that still ran, counted up to the latest time of the trace")
            ran += max(0.0, last - since)
        else:
            draft.remark("attempts without an end that were not the last, not counted")
    return ran, started


def _placed(attempt: _Attempt) -> tuple[Pods, ...]:
    sizes = Counter(len(each.gpus) for each in attempt.detail or () if each.gpus)
    return tuple(Pods(sizes[size], size) for size in sorted(sizes))


LAYOUTS = {
    6: ("job_type", "command", "num_steps_arg", "total_steps", "arrival_s", "scale_factor"),
    7: ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_s", "scale_factor"),
    9: (
        "job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "priority_weight",
        "slo", "arrival_s",
    ),
    10: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "priority_weight", "slo", "arrival_s",
    ),
    11: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "priority_weight", "slo", "arrival_s",
    ),
    12: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "priority_weight", "slo", "duration", "arrival_s",
    ),
}  # fmt: skip
"""Columns by their number."""
GUESSED_STEPS_PER_S = 10.0
WORKER_TYPE = "v100"
"""The type of GPU whose throughputs are taken, where a file has several."""

_KEY = re.compile(r"\('(?P<type>[^']*)', (?P<scale>\d+)\)")

Rates = dict[tuple[str, int], float]


def _is_gavel(head: str) -> bool:
    first = first_line(head).split("\t")
    layout = LAYOUTS.get(len(first))
    if layout is None:
        return False
    if _has_names(first):
        return True
    row = dict(zip(layout, first, strict=True))
    return all(re.fullmatch(r"\d+(\.\d*)?", row[name]) for name in ("total_steps", "arrival_s", "scale_factor"))


def _has_names(first: Fields) -> bool:
    return first[0].lower() == "job_type"


def _read_gavel(source: Source, draft: Draft) -> None:
    first = first_line(source.head).split("\t")
    layout = LAYOUTS.get(len(first))
    if layout is None:
        known = ", ".join(map(str, LAYOUTS))
        raise UserError(f"{source.name}:1: found {len(first)} fields between tabs; a trace of gavel has {known}")
    rate_of = _rates(draft) if "duration" not in layout else None
    draft.note_shapes()
    draft.note("tenants are not given")

    def to_job(fields: Fields) -> Job:
        kind, steps, scale, arrival, said, tenant = fields
        leaves = count(scale, "scale_factor")
        if rate_of is None:
            ran = duration(said)
        else:
            ran = positive_span(number(steps, "total_steps") / rate_of(kind, leaves), "total_steps")
        return Job(
            f"job-{draft.line:07d}",
            tenant,
            moment(arrival, "arrival_s", draft.zone),
            ran,
            packed(leaves, draft.options.node_leaf_cells),
        )

    table = Table(source, draft, (), "\t", () if _has_names(first) else layout)
    if "arrival_time" in table.columns:
        table.columns["arrival_s"] = table.columns["arrival_time"]
    draft.take(
        table.rows("job_type", "total_steps", "scale_factor", "arrival_s", "duration", table.tenant_column("")), to_job
    )


def _rates(draft: Draft) -> Callable[[str, int], float]:
    """A function from type and GPUs of a job to its steps in a second."""
    options = draft.options
    known = read_throughputs(options.throughputs) if options.throughputs else {}
    general = options.steps_per_s

    def rate_of(kind: str, leaves: int) -> float:
        if rate := known.get((kind, leaves)) or known.get((kind, 1), 0.0) * leaves:
            return rate
        if known:
            raise Unusable("no throughput is known of the job's type", "job_type", kind)
        return general or GUESSED_STEPS_PER_S

    if known:
        draft.note(f"durations: steps by the throughputs of {options.throughputs}, alone on a {WORKER_TYPE}")
    elif general:
        draft.note(f"durations: steps by {general:g} in a second for all jobs")
    else:
        draft.note(
            f"durations are GUESSED: steps by {GUESSED_STEPS_PER_S:g} in a second for all jobs; give gavel's file of "
            "throughputs, or a number"
        )
    return rate_of


def read_throughputs(path: str) -> Rates:
    """Steps in a second by type of job and number of GPUs, from gavel's file. Raises UserError if it is none."""
    source = Source(path)
    try:
        found = msgspec.json.decode(source.whole(), type=dict[str, dict[str, dict[str, Any]]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{path}: expected gavel's throughputs, by GPU and type of job: {error}") from None
    finally:
        source.close()
    rates: Rates = {}
    for key, row in (found.get(WORKER_TYPE) or next(iter(found.values()), {})).items():
        alone = row.get("null")
        if (match := _KEY.fullmatch(key)) and isinstance(alone, int | float) and alone > 0:
            rates[match["type"], int(match["scale"])] = float(alone)
    if not rates:
        raise UserError(f"{path}: has no throughput of a job that is alone; expected keys such as \"('A3C', 1)\"")
    return rates


_OPENPAI = Layout(
    "openpai", "OpenPAI, list of jobs", (), {},
    notes=("GPUs are given for whole jobs: divided among the tasks as evenly as they go",),
)  # fmt: skip
_OPENPAI_KEYS = {
    "name": "name", "user": "username", "status": "state", "started": "launchedTime", "ended": "completedTime",
    "gpus": "totalGpuNumber", "nodes": "totalTaskNumber",
}  # fmt: skip


def _is_openpai(head: str) -> bool:
    return head.lstrip()[:1] in ("[", "{") and '"virtualCluster"' in head and '"totalTaskNumber"' in head


def _read_openpai(source: Source, draft: Draft) -> None:
    key = draft.tenant_key("virtualCluster", ("virtualCluster", "username", "user"))
    keys = _OPENPAI_KEYS | {"tenant": "username" if key == "user" else key, "submitted": "submissionTime"}
    entries = [(draft.line, entry) for entry in typed(objects(source, draft, ("data",)), draft, dict[str, Any])]
    columns = {what: Column(name) for what, name in keys.items()}
    read_rows(_openpai_rows(entries, keys, draft), columns, _OPENPAI, draft)


def _openpai_rows(entries: list[tuple[int, dict[str, Any]]], keys: dict[str, str], draft: Draft) -> Iterator[Fields]:
    """The rows as texts. A job that still ran is counted up to the latest time of the trace."""
    times = ("submissionTime", "createdTime", "launchedTime", "completedTime")
    last = max((t for _, each in entries for name in times if isinstance(t := each.get(name), int | float)), default=0)
    for draft.line, entry in entries:
        row = {what: str(entry.get(name) or "") for what, name in keys.items()}
        row["submitted"] = row["submitted"] or str(entry.get("createdTime") or "")
        row["gpus"] = row["gpus"] or "0"
        row["name"] = f"{row['user']}~{row['name']}" if row["user"] else row["name"]
        if row["started"] and not row["ended"]:
            draft.remark("jobs that still ran, counted up to the latest time of the trace")
            row["ended"] = str(last)
        if row["started"] and entry.get("retries"):
            draft.remark("jobs that were tried again, whose earlier attempts count as waiting")
        yield [row.get(what, "") for what in PROPERTIES]


FORMATS = (
    PHILLY_TABLE.format,
    Format("philly-json", "Philly, job log as published", _is_log, _read_log),
    HELIOS.format,
    ACME.format,
    Format("alibaba-2020", "Alibaba PAI 2020, table of tasks", _is_tasks, _read_tasks),
    ALIBABA_2023.format,
    ALIBABA_2026.format,
    Format("gavel", "Gavel and Shockwave, tab-separated", _is_gavel, _read_gavel),
)
"""In the order in which a file is tried."""
OPENPAI = Format(_OPENPAI.name, _OPENPAI.title, _is_openpai, _read_openpai)
