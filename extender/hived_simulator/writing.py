"""Results as files: CSV for tables, JSON for programs. The same results give the same bytes."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from hived_simulator.clusters import SimulatedCluster
from hived_simulator.loop import Row
from hived_simulator.results import HOUR_S, Excess, Outcome, Summary
from hived_simulator.tasks import CAUSE_NAMES, Cause
from hived_simulator.traces.jobs import Trace

JOB_COLUMNS = (
    "job", "tenant", "vc", "leaf_cells", "pods", "kind", "priority", "submitted_s", "started_s", "ended_s", "delay_s",
    "stretch_s", "excess_start_s", "excess_end_s", "started_as", "evictions", "lost_leaf_hours", "level", "best_level",
    "waited_s", "cause", "reason",
)  # fmt: skip
WAIT_NAMES = CAUSE_NAMES[: Cause.REFUSED]


def number(value: float | None) -> str:
    """A number as text, rounded to a thousandth; "" for None."""
    if value is None:
        return ""
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a line of column names."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def as_json(value: Any) -> bytes:
    """JSON for people and programs, the same for equal values."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2) + b"\n"


def jobs_table(
    trace: Trace, found: Sequence[Outcome], excesses: Sequence[Excess] | None, cluster: SimulatedCluster
) -> str:
    """`jobs.csv`: one line for each job, in the order of the trace."""
    rows = []
    for one in found:
        job = trace.jobs[one.job]
        excess = Excess(None, None) if excesses is None else excesses[one.job]
        rows.append(
            (
                job.name, job.tenant, one.vc, str(one.leaf_count), str(one.pod_count), one.kind, str(one.priority),
                number(one.submitted_s), number(one.started_s), number(one.ended_s), number(one.delay_s),
                number(one.stretch_s), number(excess.start_s), number(excess.end_s),
                "" if one.started_s is None else "guaranteed" if one.is_guaranteed_start else "opportunistic",
                str(one.eviction_count), number(one.lost_leaf_s / HOUR_S), _level(one.level, cluster),
                _level(one.best_level, cluster), number(one.waited_s), one.cause, one.reason,
            )
        )  # fmt: skip
    return as_csv(JOB_COLUMNS, rows)


def _level(level: int, cluster: SimulatedCluster) -> str:
    return cluster.level_name(level) if level else ""


def series_table(rows: Sequence[Row]) -> str:
    """`series.csv`: one line for each moment."""
    types = list(dict.fromkeys(name for row in rows for name, _ in row.free_cells))
    columns = ["at_s", "leaf_cells", "used", "lent", "idle", "bad"]
    columns += [f"free_{name}" for name in types] + [f"waiting_{name}" for name in WAIT_NAMES]
    lines = []
    for row in rows:
        free = dict(row.free_cells)
        counts = [row.leaf_count, row.used_count, row.lent_count, row.idle_count, row.bad_count]
        counts += [free.get(name, 0) for name in types] + list(row.waiting[: Cause.REFUSED])
        lines.append([number(row.at_s), *map(str, counts)])
    return as_csv(columns, lines)


def vcs_table(runs: Mapping[str, Sequence[Summary]]) -> str:
    """`vcs.csv`: one line for each policy and virtual cluster, `all` first. Columns are those of `vcs.json`, joined."""
    rows = [{"policy": policy, **_flat(msgspec.to_builtins(one))} for policy, all_of in runs.items() for one in all_of]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return as_csv(columns, [[_text(row.get(name)) for name in columns] for row in rows])


def differences_table(found: Sequence[Any]) -> str:
    """`differences.csv`: one line for each pair of policies and figure."""
    rows = [msgspec.to_builtins(one) for one in found]
    columns = list(rows[0]) if rows else ["figure"]
    return as_csv(columns, [[_text(row[name]) for name in columns] for row in rows])


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in value.items():
        if isinstance(one, dict):
            found |= {f"{key}_{name}": inner for name, inner in one.items()}
        elif one is not None:
            found[key] = one
    return found


def _text(value: Any) -> str:
    return number(value) if isinstance(value, float) or value is None else str(value)


def write(path: Path, content: str | bytes) -> None:
    """Write a file as a whole: it has the old content or the new one, whatever happens meanwhile."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(data)
    draft.replace(path)
