"""Alibaba's traces of GPU clusters: PAI 2020 (tasks), pods of 2023, and jobs with spot instances of 2026.

Times of all three are seconds from an unknown moment. Parts of a GPU are rounded up to a whole one.
"""

from collections.abc import Iterator
from pathlib import Path

from hived_traces.draft import Draft
from hived_traces.fields import NOTHING, Unusable, bounded, count, duration, number, positive_span, rounded_up
from hived_traces.formats.format import Format
from hived_traces.jobs import Job, Pods
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, columns_of, first_line, has_columns

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
PODS = ("name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time")
SPOT = ("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration")

PART = "jobs that ask for a part of a GPU, rounded up to a whole one"


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


def _is_pods(head: str) -> bool:
    return has_columns(head, PODS)


def _read_pods(source: Source, draft: Draft) -> None:
    """Pods alone; the latest deletion is the end of the trace, where pods that still ran are cut."""
    draft.note("pods stand alone: gangs and tenants are not given; QoS class BE counts as opportunistic")
    rows = list(_numbered(Table(source, draft, PODS), draft))
    last = max((row[1][7] for row in rows), key=_or_zero, default="")

    def to_job(row: tuple[int, Fields]) -> Job:
        draft.line, (name, gpus, milli, spec, qos, phase, created, deleted, scheduled, tenant) = row
        leaves = count(gpus, "num_gpu")
        if not leaves:
            raise Unusable("asks for no GPU")
        if scheduled in NOTHING:
            raise Unusable("never ran")
        started = number(scheduled, "scheduled_time")
        ran = positive_span(number(deleted, "deletion_time") - started, "deletion_time - scheduled_time")
        if leaves == 1 and milli not in NOTHING and number(milli, "gpu_milli") < 1000:
            draft.remark(PART)
        if deleted == last:
            draft.remark("jobs that end with the trace; some of them ran on")
        types = [] if spec in NOTHING else spec.split("|")
        if len(types) > 1:
            draft.remark("jobs that allow several models of GPU, read as any")
        return Job(
            name,
            tenant,
            number(created, "creation_time"),
            ran,
            (Pods(1, leaves),),
            started_s=started,
            leaf_type=types[0] if len(types) == 1 else "",
            priority=-1 if qos == "BE" else 0,
            status=phase,
        )

    draft.take(rows, to_job)


def _numbered(table: Table, draft: Draft) -> Iterator[tuple[int, Fields]]:
    for fields in table.rows(*PODS, "scheduled_time", table.tenant_column("")):
        yield draft.line, fields


def _or_zero(text: str) -> float:
    try:
        return number(text, "")
    except Unusable:
        return 0.0


def _is_spot(head: str) -> bool:
    return has_columns(head, SPOT)


def _read_spot(source: Source, draft: Draft) -> None:
    """`gpu_request` is of one worker, and `job_type` HP or Spot."""
    draft.note("gpu_request is read as GPUs of each worker; type Spot is opportunistic, HP guaranteed")

    def to_job(fields: Fields) -> Job:
        name, tenant, model, gpus, workers, submit, ran, kind, other = fields
        size = rounded_up(gpus, "gpu_request", 1.0)
        if not size:
            raise Unusable("asks for no GPU")
        if size != number(gpus, "gpu_request"):
            draft.remark(PART)
        pods = count(workers, "worker_num")
        if not pods:
            raise Unusable("has no worker", "worker_num", workers)
        said = (kind or other).lower()
        return Job(
            name,
            tenant,
            number(submit, "submit_time"),
            duration(ran),
            (Pods(pods, size),),
            leaf_type="" if model in NOTHING else model,
            priority={"spot": -1, "hp": 0}.get(said),
        )

    table = Table(source, draft, SPOT)
    columns = ("job_name", table.tenant_column("organization"), *SPOT[2:], "job_type", "type")
    draft.take(table.rows(*columns), to_job)


PAI = Format("alibaba-2020", "Alibaba PAI 2020, table of tasks", _is_tasks, _read_tasks)
GPU_2023 = Format("alibaba-2023", "Alibaba gpu-v2023, pods", _is_pods, _read_pods)
SPOT_2026 = Format("alibaba-2026", "Alibaba v2026, spot jobs", _is_spot, _read_spot)
