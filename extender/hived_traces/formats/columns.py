"""Which column of any table says what: names as people write them, and units that a name ends with.

`Submit Time`, `submitTime` and `submit_time` are one name. A last word that is a unit, as in `arrival_ms` or `duration
(hours)`, says the unit of a time.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hived.errors import UserError
from hived_traces.tables import Fields, first_line

DELIMITERS = ",\t;|"
SYNONYMS = {
    "submitted": (
        "submitted", "submit_time", "submitted_time", "submission_time", "arrival", "arrival_time", "submit",
        "submitted_at", "submit_ts", "submit_timestamp", "submission", "arrival_ts", "arrive_time", "timestamp",
        "creation_time", "create_time", "created", "created_at", "time",
    ),
    "duration": (
        "duration", "service", "service_time", "runtime", "run_time", "elapsed", "elapsed_time", "job_duration",
        "execution_time", "exec_time", "processing_time",
    ),
    "gpus": (
        "gpus", "num_gpus", "gpu_num", "gpu_count", "num_gpu", "n_gpus", "n_gpu", "gpu_request", "gpus_requested",
        "requested_gpus", "req_gpus", "gpu_req", "gpu_demand", "number_of_gpus", "total_gpus", "allocated_gpus",
        "gpus_allocated", "alloc_gpus", "gpu", "leaf_cells", "num_replicas",
    ),
    "name": ("name", "job_id", "job_name", "job", "id", "instance_sn"),
    "tenant": (
        "tenant", "vc", "virtual_cluster", "cluster", "organization", "account", "project", "team", "group",
        "namespace", "tenant_id", "vc_id", "vc_name", "team_id", "project_id", "department", "queue_name", "app_name",
    ),
    "user": ("user", "user_name", "user_id", "owner"),
    "started": ("started", "start_time", "start", "started_at", "scheduled_time", "begin_time"),
    "ended": (
        "ended", "end_time", "end", "ended_at", "finish_time", "finished_at", "deletion_time", "completed",
        "completed_at", "completion_time",
    ),
    "leaf_type": ("leaf_type", "gpu_type", "gpu_model"),
    "status": ("status", "state"),
    "priority": ("priority",),
    "pods": ("pods",),
    "nodes": ("nodes", "node_num", "num_nodes", "n_nodes", "node_count"),
}  # fmt: skip
"""Names of columns for each property of a job; the first one that a table has counts."""
UNITS_S = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0,
    "secs": 1.0, "seconds": 1.0, "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0,
    "hours": 3600.0, "d": 86_400.0, "days": 86_400.0,
}  # fmt: skip
"""Seconds of units that a column's name may end with."""
TIMES = frozenset(("submitted", "duration", "started", "ended"))
NEEDED = "one for each of submission, duration (or start and end) and GPUs, such as submit_time, duration, gpus"

_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+|\d+")


class Column(NamedTuple):
    """A column by its name in lower case; `unit_s` are seconds of its unit, None if its name tells none."""

    name: str
    unit_s: float | None = None


Columns = Mapping[str, Column]
"""The column for each property that a table has."""


def columns_found(head: str, delimiter: str, chosen: Sequence[str] = ()) -> Columns:
    """The columns of a text's first line.

    chosen : PROPERTY=COLUMN texts of a user, which go before names that are known

    Raises UserError for a choice that names no property, or names one twice; of a column that is missing, nothing is
    said yet.
    """
    written = _names(head, delimiter)
    wishes = _wishes(chosen)
    found: dict[str, Column] = {}
    for what, names in SYNONYMS.items():
        if what in wishes:
            name = next((name for name in written if name.lower() == wishes[what].lower()), None)
            if name is not None:
                found[what] = Column(name.lower(), _unit(name) if what in TIMES else None)
        elif (column := _known(what, names, written)) is not None:
            found[what] = column
    return found


def delimiter_of(head: str, chosen: Sequence[str] = ()) -> str:
    """The separator by which the first line names all that is needed; "" if there is none."""
    return next((each for each in DELIMITERS if not lacking(columns_found(head, each, chosen))), "")


def lacking(found: Iterable[str]) -> list[str]:
    """The properties for which a table needs a column that it has not."""
    has = set(found)
    checks = {
        "submitted": "submitted" in has,
        "duration": "duration" in has or {"started", "ended"} <= has,
        "gpus": bool(has & {"gpus", "pods"}),
    }
    return [what for what, is_there in checks.items() if not is_there]


def explained(head: str, chosen: Sequence[str] = ()) -> str:
    """The columns that a table lacks, and how to name them; "" if the first line hardly names a known column."""
    delimiter = max(DELIMITERS, key=lambda each: len(columns_found(head, each, chosen)))
    found = columns_found(head, delimiter, chosen)
    if len(found) < 2:
        return ""
    written, missing = _names(head, delimiter), lacking(found)
    names = ", ".join(written[:20])
    has = {name.lower() for name in written}
    for what, name in _wishes(chosen).items():
        if name.lower() not in has:
            return f"--column {what}={name}: there is no column {name!r}, only {names[:500]}"
    return (
        f"a table with the columns {names[:500]} lacks one for {' and '.join(missing)}; name it with "
        f"{' '.join(f'--column {what}=COLUMN' for what in missing)} of `hived trace convert`"
    )


def _names(head: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"').strip() for name in first_line(head).split(delimiter)]


def _wishes(chosen: Sequence[str]) -> dict[str, str]:
    wishes: dict[str, str] = {}
    for what, name in map(_wish, chosen):
        if what in wishes:
            raise UserError(f"--column {what}={name}: {what} is {wishes[what]} already; expected one column for each")
        wishes[what] = name
    return wishes


def _wish(text: str) -> tuple[str, str]:
    what, is_given, name = text.partition("=")
    if not is_given or what not in SYNONYMS:
        raise UserError(f"--column {text!r}: expected PROPERTY=COLUMN, where PROPERTY is one of {', '.join(SYNONYMS)}")
    return what, name.strip()


def _known(what: str, names: Sequence[str], written: Fields) -> Column | None:
    """The column of which the property is known by name, the first in the order of `names`."""
    for known in names:
        key = known.replace("_", "")
        for name in written:
            words = _words(name)
            if "".join(words) == key:
                return Column(name.lower())
            if what in TIMES and len(words) > 1 and words[-1] in UNITS_S and "".join(words[:-1]) == key:
                return Column(name.lower(), UNITS_S[words[-1]])
    return None


def _unit(name: str) -> float | None:
    words = _words(name)
    return UNITS_S.get(words[-1]) if len(words) > 1 else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
