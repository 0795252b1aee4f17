"""Virtual clusters: their promise, and what they use, lend out, borrow and could start at once, level by level."""

import msgspec
from flask import Response

from hived.values.errors import UserError
from hived_extender.api.waiting import FreeCells
from hived_extender.http.pages.cluster_pages import Part
from hived_extender.http.pages.frames import Frame
from hived_extender.http.pages.site import PREFIX, Site


class Share(msgspec.Struct, frozen=True):
    """A row of free cells, with bars of its promise; `is_node` marks the level of nodes."""

    row: FreeCells
    is_node: bool
    bar: tuple[Part, ...]


class Summary(msgspec.Struct, frozen=True):
    """A virtual cluster in leaf cells; `whole` has its nodes, as (type, free, promised), chain by chain."""

    name: str
    number: int
    promised: int
    in_use: int
    lent: int
    bad: int
    free: int
    borrowed: int
    whole: tuple[tuple[str, int, int], ...]
    bar: tuple[Part, ...]


def add_pages(site: Site) -> None:
    """The list, and one page for each virtual cluster."""

    def vcs() -> Response:
        frame = site.frames.latest()
        shown = [_summary(frame, number, name) for number, name in enumerate(frame.cells.topology.vc_names)]
        return site.page("vcs.html", "Virtual clusters", vcs=shown)

    def vc(name: str) -> Response:
        return vc_page(site, name)

    site.blueprint.add_url_rule(f"{PREFIX}/vcs", "vcs", vcs)
    site.blueprint.add_url_rule(f"{PREFIX}/vcs/<rest:name>", "vc", vc)


def vc_page(site: Site, name: str) -> Response:
    """One virtual cluster. Raises UserError (404) if it is not known."""
    frame = site.frames.latest()
    number = frame.cells.topology.vc_index.get(name)
    if number is None:
        known = ", ".join(frame.cells.topology.vc_names)
        raise UserError(f"there is no virtual cluster {name!r}; there are: {known}", 404)
    return site.page(
        "vc.html",
        "Virtual clusters",
        f"Virtual cluster {name}",
        vc=_summary(frame, number, name),
        shares=shares(frame, number, name),
    )


def shares(frame: Frame, number: int, name: str) -> list[Share]:
    """The rows of a virtual cluster, chain by chain, top level first."""
    nodes = {(chain.name, chain.types[chain.node]) for chain in frame.layout.chains}
    return [
        Share(row, (row.chain, row.level) in nodes, _bar(name, number, row))
        for row in frame.free_cells()
        if row.vc == name
    ]


def _summary(frame: Frame, number: int, name: str) -> Summary:
    rows = shares(frame, number, name)
    leaves = [share.row for share in rows if share.row.leaves == 1]
    total = FreeCells(
        vc=name, chain="", level="", leaves=1,
        promised=sum(row.promised for row in leaves), in_use=sum(row.in_use for row in leaves),
        lent=sum(row.lent for row in leaves), bad=sum(row.bad for row in leaves),
        free=sum(row.free for row in leaves), borrowed=sum(row.borrowed for row in leaves),
    )  # fmt: skip
    whole: dict[str, tuple[int, int]] = {}
    for share in rows:
        if share.is_node:
            free, promised = whole.get(share.row.level, (0, 0))
            whole[share.row.level] = free + share.row.free, promised + share.row.promised
    return Summary(
        name, number, total.promised, total.in_use, total.lent, total.bad, total.free, total.borrowed,
        tuple((level, *counts) for level, counts in whole.items()), _bar(name, number, total),
    )  # fmt: skip


def _bar(name: str, number: int, row: FreeCells) -> tuple[Part, ...]:
    """The promise: in use, lent out, free, bad."""
    parts = (
        Part(name, number, "used", False, row.in_use),
        Part("", -1, "lent", False, row.lent),
        Part("", -1, "free", False, row.free - row.lent),
        Part("", -1, "free", True, row.bad),
    )
    return tuple(part for part in parts if part.count)
