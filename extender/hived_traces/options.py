"""Wishes of a reader's user, for files that leave something open."""

import msgspec


class Options(msgspec.Struct, frozen=True):
    """How to read what a file does not say.

    node_leaf_cells : leaf cells of a node, which shape gangs where a format gives only a number of GPUs
    time_zone : IANA name of the zone of times that name none
    is_tenant_user : take each job's user as its tenant
    cluster : of a file with several clusters, read only the one of this name
    """

    node_leaf_cells: int = 8
    time_zone: str = "UTC"
    is_tenant_user: bool = False
    cluster: str = ""
