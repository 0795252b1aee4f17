"""Wishes of a reader's user, for files that leave something open."""

import msgspec


class Options(msgspec.Struct, frozen=True):
    """How to read what a file does not say.

    node_leaf_cells : leaf cells of a node, which shape gangs where a format gives only a number of GPUs
    time_zone : IANA name of the zone of times that name none
    tenant_column : the column or key that names the tenant, such as user; "" for the one that is usual in the format
    is_as_placed : shape gangs as the trace has placed them, where it tells that, and not as densely as they go
    steps_per_s : steps that a job makes in a second, where a trace tells steps and no times; 0 for a guess
    throughputs : a file of such rates by type of job, as gavel has them
    columns : PROPERTY=COLUMN texts, which say what is in which column of any table
    devices : resources of Kubernetes that are leaf cells
    """

    node_leaf_cells: int = 8
    time_zone: str = "UTC"
    tenant_column: str = ""
    is_as_placed: bool = False
    steps_per_s: float = 0.0
    throughputs: str = ""
    columns: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
