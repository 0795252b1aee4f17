"""Microsoft's Philly cluster, 2017: the condensed table that came with AdaptDL, and traces of the same columns (Sia).

Times are those of the cluster, without a zone. `duration` is of all attempts, without waiting. Jobs have no name, and
their shape is not given.
"""

from hived_traces.draft import Draft
from hived_traces.fields import count, duration, instant, packed
from hived_traces.formats.format import Format
from hived_traces.jobs import Job
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, has_columns

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def _recognises(head: str) -> bool:
    return has_columns(head, COLUMNS)


def _read(source: Source, draft: Draft) -> None:
    node = draft.options.node_leaf_cells
    draft.note(f"shapes are not given: nodes of {node} GPUs, the remainder as one pod")
    draft.note(f"times have no zone: read as {draft.options.time_zone}")

    def to_job(fields: Fields) -> Job:
        timestamp, ran, gpus, cluster = fields
        return Job(
            f"job-{draft.line - 1:07d}",
            cluster,
            instant(timestamp, "timestamp", draft.zone),
            duration(ran),
            packed(count(gpus, "num_gpus"), node),
        )

    table = Table(source, draft, COLUMNS)
    draft.take(table.rows("timestamp", "duration", "num_gpus", "cluster"), to_job)


FORMAT = Format("philly-csv", "Philly, condensed table", _recognises, _read)
