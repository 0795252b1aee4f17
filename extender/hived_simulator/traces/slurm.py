"""The output of `sacct --parsable2`: a row for each job and, below it, for each of its steps.

Times are local to the cluster and name no zone, so that seconds come from `Elapsed`, which no change of clocks bends.
A job that waits for others by its own wish is counted from `Eligible`, if that column is there.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from hived.values.errors import UserError
from hived_simulator.traces.draft import Draft
from hived_simulator.traces.fields import (
    NOTHING,
    Unusable,
    bounded,
    count,
    instant,
    moment,
    number,
    positive_span,
    spread,
)
from hived_simulator.traces.files import Fields, Format, Source, Table, columns_of, first_line
from hived_simulator.traces.jobs import Job, Pods

DELIMITERS = "|;,\t"
COLUMNS = (
    "jobid", "jobidraw", "submit", "eligible", "start", "end", "elapsed", "elapsedraw", "state", "user", "nnodes",
    "allocnodes", "alloctres", "reqtres", "allocgres", "reqgres",
)  # fmt: skip
RESOURCES = COLUMNS[-4:]
FORM = "sacct -a --parsable2 -o JobID,Submit,Eligible,Start,End,ElapsedRaw,State,User,Account,NNodes,AllocTRES,ReqTRES"

_ELAPSED = re.compile(r"(?:(?:(?P<d>\d+)-)?(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+(?:\.\d+)?)")
_GRES = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[^:=,()]+))?[:=](?P<count>\d+)(?:\(.*)?")


def _delimiter(head: str) -> str:
    """The separator of the columns; "" if this is nothing of sacct."""
    for each in DELIMITERS:
        columns = set(columns_of(head, each))
        if columns & {"jobid", "jobidraw"} and "submit" in columns and columns & {"elapsed", "elapsedraw", "end"}:
            return each
    return ""


def _recognises(head: str) -> bool:
    return bool(_delimiter(head)) or _is_for_people(head)


def _is_for_people(head: str) -> bool:
    """True for output with columns of fixed width, a line of dashes below their names."""
    lines = head.split("\n", 2)
    return "JobID" in lines[0].split() and len(lines) > 1 and re.fullmatch(r"[- ]+\r?", lines[1]) is not None


def _read(source: Source, draft: Draft) -> None:
    delimiter = _delimiter(source.head)
    if not delimiter:
        raise UserError(f"{source.name}:1: found {first_line(source.head)[:60]!r}; print it with {FORM}")
    draft.note_zone()
    table = Table(source, draft, (), delimiter)
    for names in (RESOURCES, ("elapsedraw", "elapsed", "end")):
        if not any(name in table.columns for name in names):
            raise UserError(f"{source.name}:1: expected one of the columns {', '.join(names)}; print it with {FORM}")
    account = table.tenant_column("account")
    components: dict[str, list[Job]] = {}

    def to_job(fields: Fields) -> Job | None:
        row = dict(zip((*COLUMNS, "account"), fields, strict=True))
        name = row["jobid"] or row["jobidraw"]
        if "." in name:
            draft.remark("steps of jobs, passed over")
            return None
        job = _job(name, row, draft)
        whole, plus, _ = name.partition("+")
        if not plus:
            return job
        if not components.get(whole):
            draft.remark("heterogeneous jobs, whose components are one job")
        components.setdefault(whole, []).append(job)
        return None

    draft.take(table.rows(*COLUMNS, account), to_job)
    draft.take(_whole(components), lambda job: job)


def _job(name: str, row: dict[str, str], draft: Draft) -> Job:
    started = None if row["start"] in NOTHING else moment(row["start"], "Start", draft.zone)
    if started is None:
        raise Unusable("never ran")
    leaves, leaf_type = _gpus(row)
    if not leaves:
        raise Unusable("asks for no GPU")
    submitted = moment(row["submit"], "Submit", draft.zone)
    if row["eligible"] not in NOTHING and (eligible := moment(row["eligible"], "Eligible", draft.zone)) > submitted:
        draft.remark("jobs that waited by their own wish, counted from when they were eligible")
        submitted = eligible
    state = row["state"].split(" ", 1)[0]
    if state == "RUNNING":
        draft.remark("jobs that still ran, counted as far as they had come")
    return Job(
        name,
        row["account"],
        submitted,
        _seconds(row, draft),
        spread(leaves, _nodes(row)),
        user=row["user"],
        started_s=started,
        leaf_type=leaf_type,
        status=state,
    )


def _nodes(row: dict[str, str]) -> int:
    text = row["nnodes"] or row["allocnodes"]
    return count(text, "NNodes") if text not in NOTHING else 1


def _seconds(row: dict[str, str], draft: Draft) -> float:
    if row["elapsedraw"] not in NOTHING:
        return positive_span(number(row["elapsedraw"], "ElapsedRaw"), "ElapsedRaw")
    if row["elapsed"] not in NOTHING:
        return positive_span(elapsed(row["elapsed"]), "Elapsed")
    if row["end"] in NOTHING:
        raise Unusable("has no end: still ran, or was lost", "End", row["end"])
    begin, end = (instant(row[name], name, draft.zone) for name in ("start", "end"))
    return positive_span(end - begin, "End - Start")


def elapsed(text: str) -> float:
    """Seconds of `[days-]hours:minutes:seconds`, with fewer parts or a fraction too. Raises Unusable for other text."""
    match = _ELAPSED.fullmatch(text)
    if match is None:
        raise Unusable("Elapsed is no time such as 1-02:03:04", "Elapsed", text)
    days, hours, minutes, seconds = (float(part or 0) for part in match.group("d", "h", "m", "s"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _gpus(row: dict[str, str]) -> tuple[int, str]:
    """GPUs of the whole job and their model, "" for none or several: as allocated, else as asked for."""
    for name in RESOURCES:
        total, models = gpus_in(row[name])
        if total:
            nodes = _nodes(row) if name.endswith("gres") else 1
            return bounded(total * nodes, name), models[0] if len(models) == 1 else ""
    return 0, ""


def gpus_in(text: str) -> tuple[int, Sequence[str]]:
    """(GPUs, their models) in a list of resources; a total without a model counts all that stand beside it."""
    general, models = 0, Counter[str]()
    for part in text.split(","):
        if match := _GRES.fullmatch(part.strip()):
            if match["type"]:
                models[match["type"]] += int(match["count"][:9])
            else:
                general += int(match["count"][:9])
    return general or sum(models.values()), sorted(models)


def _whole(components: dict[str, list[Job]]) -> Iterator[Job]:
    for name, parts in components.items():
        sizes = Counter[int]()
        for part in parts:
            for pods in part.pods:
                sizes[pods.leaf_count] += pods.count
        yield msgspec.structs.replace(
            parts[0],
            name=name,
            submitted_s=min(part.submitted_s for part in parts),
            duration_s=max(part.duration_s for part in parts),
            pods=tuple(Pods(sizes[size], size) for size in sorted(sizes)),
        )


FORMAT = Format("sacct", "Slurm, sacct --parsable2", _recognises, _read)
