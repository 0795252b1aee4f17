"""The cluster and its virtual clusters: a picture of all cells, which a script draws, and tables of them."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import msgspec
import numpy as np
from flask import Response, request

from hived.cells.topology import NO_CELL
from hived.life.status import HEALTH_NAMES, STATE_NAMES
from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.waiting import BadNode, FreeCells, leaf_rows
from hived_extender.http.masking import Mask
from hived_extender.http.pages.cells import (
    BAD_SHIFT,
    USE_SHIFT,
    CellRange,
    Frame,
    Runs,
    Use,
    is_bad,
    names,
    read_ranges,
    tiles,
    use_of,
    vc_of,
)
from hived_extender.http.pages.site import BYTES, PREFIX, Site, paged
from hived_extender.insight import holding
from hived_extender.insight.holding import Held
from hived_extender.insight.queued import JobCounts

ROWS = 64
"""Rows of one page of the table."""

MOST_BAD = 20
"""Bad nodes that the page of the cluster lists."""

JOBS_OF_ROW, JOBS_OF_CELL = 6, 24
"""Groups that are named of a cell in the table, and of one by itself."""

SOON_S = 0.5
"""The page of the cluster waits for a count of jobs for so long, and has an earlier one then."""

LAYOUT = "X-Layout"
"""The header of tiles that names their layout: a page with another one has to load the new one."""


class Part(msgspec.Struct, frozen=True):
    """Leaf cells of one look: their virtual cluster, "" for none, its number, their use, and their count."""

    vc: str
    number: int
    use: str
    is_bad: bool
    count: int


class Row(msgspec.Struct, frozen=True):
    """One cell in the table, and the jobs on it; `below` is where the table shows the cells in it, "" for a leaf.

    `node` is the node that it is, or is on, "" for larger cells, and `trouble` why that is bad.
    """

    name: str
    place: str
    type: str
    state: str
    health: str
    leaves: int
    parts: tuple[Part, ...]
    below: str
    held: Held = Held()
    node: str = ""
    trouble: BadNode | None = None


class Totals(msgspec.Struct, frozen=True):
    """The cluster in a line: GPUs in all, used, and of these lent; `jobs` are None while they are counted."""

    gpus: int
    used: int
    lent: int
    jobs: JobCounts | None

    @property
    def percent(self) -> str:
        """The part that is used."""
        part = 100 * self.used / max(self.gpus, 1)
        return "under 1" if 0 < part < 1 else f"{part:.0f}"


class ChainSummary(msgspec.Struct, frozen=True):
    """A chain and the looks of all its leaf cells; `kinds` are its levels from the top, as (type, cells)."""

    name: str
    leaves: int
    parts: tuple[Part, ...]
    kinds: tuple[tuple[str, int], ...]


def add_pages(site: Site) -> None:
    """The page, its tiles, its names, and one cell; the virtual clusters, and one of them."""

    def cluster() -> Response:
        return cluster_page(site)

    def layout() -> Response:
        return site.json(site.frames.latest().layout)

    def tile() -> Response:
        frame = site.frames.latest()
        body = tiles(frame, read_ranges(request.args.get("at", "")))
        return site.answer(body, BYTES, headers=((LAYOUT, frame.layout.id),))

    def name() -> Response:
        return site.json(names(site.frames.latest(), read_ranges(request.args.get("at", ""))))

    def one() -> Response:
        return one_cell(site)

    def node(name: str) -> Response:
        return node_page(site, name)

    def vcs() -> Response:
        frame = site.frames.latest()
        shown = [_summary(frame, number, name) for number, name in enumerate(frame.cells.topology.vc_names)]
        return site.page("vcs.html", "Virtual clusters", vcs=shown)

    def vc(name: str) -> Response:
        return vc_page(site, name)

    add = site.blueprint.add_url_rule
    add(f"{PREFIX}/cluster", "cluster", cluster)
    add(f"{PREFIX}/cells/one", "one", one)
    add(f"{PREFIX}/cells/layout", "layout", layout)
    add(f"{PREFIX}/cells/tiles", "tiles", tile)
    add(f"{PREFIX}/cells/names", "names", name)
    add(f"{paths.PAGE_NODES_PATH}/<rest:name>", "node", node)
    add(f"{PREFIX}/vcs", "vcs", vcs)
    add(f"{PREFIX}/vcs/<rest:name>", "vc", vc)


def cluster_page(site: Site) -> Response:
    """The whole cluster."""
    frame = site.frames.latest()
    chain, level, above, page = _place(frame)
    first, end = _cells_below(frame, chain, level, above)
    page = min(page, -(-(end - first) // ROWS))
    start = first + (page - 1) * ROWS
    wanted = CellRange(chain, level, start, min(start + ROWS, end))
    service, topology = site.backend.service, frame.cells.topology
    troubled = holding.troubles(service, topology)
    bad = list(troubled.values())[:MOST_BAD]
    on_bad = holding.on_nodes(service, topology, (one.node for one in bad))
    mask = site.mask()
    return site.page(
        "cluster.html",
        "Cluster",
        totals=_totals(site, frame),
        bad=[(mask.bad_node(one), _shown(mask, each)) for one, each in zip(bad, on_bad, strict=True)],
        bad_count=len(troubled),
        chains=summaries(frame),
        layout=frame.layout,
        rows=told_rows(site, frame, wanted, troubled, mask),
        chain=chain,
        level=level,
        above=above,
        trail=_trail(frame, chain, level, above),
        page=page,
        pages=tuple(paged(end - first, page, ROWS)),
        count=end - first,
    )


def one_cell(site: Site) -> Response:
    """A line about one cell, to stand below the picture."""
    frame = site.frames.latest()
    wanted = read_ranges(request.args.get("at", ""))[0]
    if wanted.end != wanted.first + 1:
        raise UserError("expected one cell")
    troubled = holding.troubles(site.backend.service, frame.cells.topology)
    row = told_rows(site, frame, wanted, troubled, site.mask(), JOBS_OF_CELL)[0]
    below = f"{wanted.chain}.{max(wanted.level, 2)}.{_above(frame, wanted)}"
    priority = int(frame.cells.priority[frame.cell(wanted.chain, wanted.level, wanted.first)])
    return site.page("one_cell.html", "", row=row, below=below, priority=priority)


def node_page(site: Site, name: str) -> Response:
    """One node. Raises UserError (404) if it is not configured."""
    frame = site.frames.latest()
    topology, arrays = frame.cells.topology, frame.cells.topology.arrays
    number = topology.node_index.get(name)
    if number is None:
        near = get_close_matches(name, topology.node_names, 3)
        raise UserError(f"there is no node {name!r}" + (f"; nearest: {', '.join(near)}" if near else ""), 404)
    troubled = holding.troubles(site.backend.service, topology)
    cells: list[tuple[CellRange, CellRange]] = []
    for chain, forest in enumerate(one for one in topology.forests if one.vc == NO_CELL):
        level = topology.chains[chain].node_level
        first = forest.bases[level]
        own = np.flatnonzero(arrays.node[first : first + frame.level_size(chain, level)] == number)
        leaves = topology.chains[chain].leaf_count(level)
        cells += [
            (CellRange(chain, level, at, at + 1), CellRange(chain, 1, at * leaves, (at + 1) * leaves))
            for at in own.tolist()
        ]
    mask = site.mask()
    shown = [
        (told_rows(site, frame, own, troubled, mask, JOBS_OF_CELL)[0], told_rows(site, frame, leaves, {}, mask))
        for own, leaves in cells
    ]
    trouble = mask.bad_node(troubled[name]) if name in troubled else None
    return site.page("node.html", "Cluster", f"Node {name}", node=name, cells=shown, trouble=trouble)


def _totals(site: Site, frame: Frame) -> Totals:
    used = lent = 0
    for keys in frame.keys:
        use = keys >> USE_SHIFT & 3
        lent += int((use == Use.LENT).sum())
        used += int((use == Use.USED).sum())
    jobs = None if site.counts is None else site.counts.get(SOON_S)
    return Totals(sum(map(len, frame.keys)), used + lent, lent, jobs)


def _shown(mask: Mask, found: Held) -> Held:
    """The jobs on some cells, as the caller may see them."""
    return Held(tuple(mask.holder(one) for one in found.holders), found.more)


def _above(frame: Frame, wanted: CellRange) -> int:
    """The place of a cell that the table can show the inside of: the cell, or the one above a leaf."""
    return wanted.first // frame.layout.chains[wanted.chain].children[1] if wanted.level == 1 else wanted.first


def summaries(frame: Frame) -> tuple[ChainSummary, ...]:
    """All chains, in the order of their names."""
    found = []
    for number, chain in enumerate(frame.layout.chains):
        top = len(chain.types)
        runs = frame.runs(CellRange(number, top, 0, chain.roots))
        keys, places = np.unique(runs.keys, return_inverse=True)
        counts = np.bincount(places, weights=runs.counts).astype(np.int64)
        kinds = tuple((chain.types[level - 1], frame.level_size(number, level)) for level in range(top, 0, -1))
        parts = parts_of(frame, keys.tolist(), counts.tolist())
        found.append(ChainSummary(chain.name, len(frame.keys[number]), parts, kinds))
    return tuple(found)


def told_rows(
    site: Site,
    frame: Frame,
    wanted: CellRange,
    troubled: Mapping[str, BadNode],
    mask: Mask,
    most: int = JOBS_OF_ROW,
) -> tuple[Row, ...]:
    """The cells of a range as rows, with the jobs on them and the troubles of their nodes. Raises UserError (404)."""
    found = rows(frame, wanted)
    chain, topology = frame.cells.topology.chains[wanted.chain], frame.cells.topology
    leaves, base = chain.leaf_count(wanted.level), frame.cell(wanted.chain, 1, 0)
    spans = [(base + at * leaves, base + (at + 1) * leaves) for at in range(wanted.first, wanted.end)]
    on_them = holding.held(site.backend.service, topology, spans, most)
    names = [""] * len(found)
    if wanted.level <= chain.node_level:
        names = [topology.node_names[node] for node in topology.arrays.node[[first for first, _ in spans]].tolist()]
    told = {name: mask.bad_node(troubled[name]) for name in names if name in troubled}
    return tuple(
        msgspec.structs.replace(row, held=_shown(mask, each), node=name, trouble=told.get(name))
        for row, each, name in zip(found, on_them, names, strict=True)
    )


def rows(frame: Frame, wanted: CellRange) -> tuple[Row, ...]:
    """The cells of a range as rows. Raises UserError (404) if there are no such cells."""
    runs = frame.runs(wanted)
    topology, cells = frame.cells.topology, frame.cells
    chain = topology.chains[wanted.chain]
    first = frame.cell(wanted.chain, wanted.level, wanted.first)
    addresses = topology.addresses(np.arange(first, first + wanted.end - wanted.first, dtype=np.int32))
    found = []
    for i, (address, parts) in enumerate(zip(addresses, _parts_by_cell(frame, runs), strict=True)):
        place, _, name = address.rpartition("/")
        below = f"{wanted.chain}.{wanted.level}.{wanted.first + i}" if wanted.level > 1 else ""
        found.append(
            Row(
                name,
                place,
                chain.types[wanted.level - 1],
                STATE_NAMES[int(cells.state[first + i])],
                _health(frame, wanted, wanted.first + i),
                chain.leaf_count(wanted.level),
                parts,
                below,
            )
        )
    return tuple(found)


def _health(frame: Frame, wanted: CellRange, position: int) -> str:
    """`Healthy`, `Bad`, or how many leaf cells are bad."""
    count = frame.cells.topology.chains[wanted.chain].leaf_count(wanted.level)
    keys = frame.keys[wanted.chain][position * count : (position + 1) * count]
    bad = int((keys >> BAD_SHIFT & 1).sum())
    return HEALTH_NAMES[0] if not bad else HEALTH_NAMES[1] if bad == count == 1 else f"{bad} bad of {count}"


def _parts_by_cell(frame: Frame, runs: Runs) -> list[tuple[Part, ...]]:
    keys, counts = runs.keys.tolist(), runs.counts.tolist()
    found, start = [], 0
    for length in runs.lengths.tolist():
        found.append(parts_of(frame, keys[start : start + length], counts[start : start + length]))
        start += length
    return found


def parts_of(frame: Frame, keys: Sequence[int], counts: Sequence[int]) -> tuple[Part, ...]:
    """Keys and their counts in words."""
    found = []
    for key, count in zip(keys, counts, strict=True):
        number, use = vc_of(key), use_of(key)
        vc = frame.layout.vcs[number] if 0 <= number < len(frame.layout.vcs) else ""
        found.append(Part(vc, number, use.name.lower(), is_bad(key), count))
    return tuple(found)


def _place(frame: Frame) -> tuple[int, int, int, int]:
    """Chain, level, the cell above (its place in its level, -1 for all), and page that the question asks for."""
    asked = request.args.get("in", "")
    try:
        page = max(1, int(request.args.get("rows", "1")))
        if not asked:
            return 0, len(frame.layout.chains[0].types), -1, page
        chain, level, above = (int(part) for part in asked.split("."))
    except ValueError as error:
        raise UserError(f"expected cells as in=CHAIN.LEVEL.CELL and a page as rows=NUMBER, not {asked!r}") from error
    if above >= 0:
        frame.check(CellRange(chain, level, above, above + 1))
        level -= 1
    frame.check(CellRange(chain, level, 0, 1))
    return chain, level, above, page


def _cells_below(frame: Frame, chain: int, level: int, above: int) -> tuple[int, int]:
    """The places, in their level, of the cells below one, or of all."""
    if above < 0:
        return 0, frame.level_size(chain, level)
    count = frame.layout.chains[chain].children[level]
    return above * count, (above + 1) * count


def _trail(frame: Frame, chain: int, level: int, above: int) -> list[tuple[str, str]]:
    """The cells above the table's, from the top, as (name, `in` of the table)."""
    found = []
    up, position = level + 1, above
    while above >= 0 and up <= len(frame.layout.chains[chain].types):
        cell = frame.cell(chain, up, position)
        found.append((frame.cells.topology.address(cell).rpartition("/")[2], f"{chain}.{up}.{position}"))
        if up < len(frame.layout.chains[chain].types):
            position //= frame.layout.chains[chain].children[up]
        up += 1
    return found[::-1]


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
    leaves = leaf_rows(share.row for share in rows)
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
