"""Edits of files in every style: the virtual clusters that are named get what is asked, nothing else changes.

`HIVED_EDITS` is the number of files; more than the few of `make test` are tried by `make soak`.
"""

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.division import counts_of
from hived_config.loader import Configuration, load_text
from hived_config.text.edits import move_cells, remove_vc, set_vc
from tests.config.sound_file import cluster_of

FILES = int(os.environ.get("HIVED_EDITS", "300"))
PATHS = ("RACK", "RACK.NODE", "RACK.NODE.GPU", "NODE", "NODE.GPU")
NAMES = ("a", "b-team", "'no'", "12:30", '"x y"', "zwölf")
HARDWARE = """\
physicalCluster:
  cellTypes:   # kinds
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{pinnedCellId: pin}, {}]}
"""
TOPS = "  - {cellType: RACK}\n" * 20 + "".join(f"  - {{cellType: NODE, cellAddress: n{i}}}\n" for i in range(20))


class Writer:
    """Writes a random sound file.

    `comments` says whose lines each comment is in, which is a number of its own; `blocks` has the lines of each virtual
    cluster, none where all of them are on one line.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = self.random.sample(NAMES, self.random.randint(0, 4))
        self.comments: dict[str, str] = {}
        self.blocks: dict[str, str] = {}

    def comment(self, owner: str) -> str:
        if self.random.random() < 0.7:
            return ""
        text = f"#{len(self.comments)}#"
        self.comments[text] = owner
        return f"  {text}"

    def own_line(self, owner: str, indent: int) -> str:
        comment = self.comment(owner).strip()
        blank = "\n" if self.random.random() < 0.1 else ""
        return blank + (f"{' ' * indent}{comment}\n" if comment else "")

    def flow_entry(self) -> str:
        path, count = self.random.choice(PATHS), self.random.randint(0, 2)
        pairs = [f"cellType: {path}", f"cellNumber: {count}"]
        self.random.shuffle(pairs)
        return f"{{{', '.join(pairs)}}}"

    def entry(self, owner: str, indent: int) -> str:
        dash = " " * indent + "- "
        if self.random.random() < 0.5:
            return f"{dash}{self.flow_entry()}{self.comment(owner)}\n"
        path, count = self.random.choice(PATHS), self.random.randint(0, 2)
        lines = [f"cellType: {path}", f"cellNumber: {count}"]
        self.random.shuffle(lines)
        return f"{dash}{lines[0]}{self.comment(owner)}\n{' ' * indent}  {lines[1]}{self.comment(owner)}\n"

    def flow_list(self, owner: str, indent: int) -> str:
        entries = [self.flow_entry() for _ in range(self.random.randint(0, 3))]
        if self.random.random() < 0.6 or not entries:
            return f"[{', '.join(entries)}{',' if entries and self.random.random() < 0.2 else ''}]"
        pad = " " * (indent + 2)
        tail = self.random.choice(["", ","])
        lines = [f"{pad}{each}," for each in entries[:-1]] + [f"{pad}{entries[-1]}{tail}"]
        return "[\n" + "".join(f"{line}{self.comment(owner)}\n" for line in lines) + " " * indent + "]"

    def cells(self, owner: str, indent: int) -> str:
        pad = " " * indent
        style = self.random.random()
        if style < 0.15:
            return ""
        if style < 0.3:
            return f"{pad}virtualCells:{self.random.choice(['', ' []', ' ~', ' null'])}{self.comment(owner)}\n"
        if style < 0.5:
            return f"{pad}virtualCells: {self.flow_list(owner, indent)}{self.comment(owner)}\n"
        dash = indent + self.random.choice([0, 2])
        entries = [self.own_line(owner, dash) + self.entry(owner, dash) for _ in range(self.random.randint(1, 3))]
        return f"{pad}virtualCells:{self.comment(owner)}\n{''.join(entries)}"

    def cluster(self, name: str, indent: int, is_first: bool) -> str:
        step = self.random.choice([2, 4])
        parts = [self.cells(name, indent + step)]
        pad = " " * (indent + step)
        if is_first:
            parts.append(f"{pad}pinnedCells: [{{pinnedCellId: pin}}]{self.comment(name)}\n")
        if self.random.random() < 0.3:
            parts.append(f"{pad}namespaces:{self.comment(name)}\n{pad}- ns-{self.names.index(name)}\n")
        self.random.shuffle(parts)
        body = "".join(parts)
        if not body:
            return f"{' ' * indent}{name}:{self.random.choice(['', ' {}', ' ~'])}{self.comment(name)}\n"
        return f"{' ' * indent}{name}:{self.comment(name)}\n{body}"

    def clusters(self) -> str:
        if not self.names:
            return f"virtualClusters: {{}}{self.comment('')}\n"
        if self.random.random() < 0.15:
            inner = ", ".join(f"{name}: {{virtualCells: [{self.flow_entry()}]}}" for name in self.names)
            return f"virtualClusters: {{{inner}}}{self.comment('')}\n"
        indent = self.random.choice([2, 4])
        blocks = [self.cluster(name, indent, i == 0) for i, name in enumerate(self.names)]
        self.blocks = dict(zip(self.names, blocks, strict=True))
        return f"virtualClusters:{self.comment('')}\n" + self.random.choice(["", "\n"]).join(blocks)

    def file(self) -> str:
        parts = [HARDWARE + TOPS, self.clusters()]
        self.random.shuffle(parts)
        parts.insert(self.random.randint(0, 2), f"webServerAddress: :9096{self.comment('')}\n")
        text = "".join(parts)
        if self.random.random() < 0.3:
            pad = " " * self.random.randint(2, 6)
            inner = "".join(f"{pad}{line}\n" if line else "\n" for line in text.splitlines())
            text = f"hivedscheduler:\n  config: |\n{'  '.join(['', *inner.splitlines(True)])}other: 1\n"
        if self.random.random() < 0.2:
            text = text.rstrip("\n")
        return text.replace("\n", "\r\n") if self.random.random() < 0.2 else text

    def edit(self, cluster: ClusterSpec) -> tuple[Callable[[str], str], dict[str, dict[tuple[str, int], int] | None]]:
        """(the edit, by virtual cluster what it has then)."""
        depths = {"RACK": ("RACK", 0), "RACK.NODE": ("RACK", 1), "RACK.NODE.GPU": ("RACK", 2),
                  "NODE": ("NODE", 0), "NODE.GPU": ("NODE", 1)}  # fmt: skip
        vcs = list(cluster.virtual_clusters)
        kind = self.random.choice(["set", "set", "new", "move", "remove"])
        path, count = self.random.choice(PATHS), self.random.randint(0, 3)
        if kind == "move" and len(vcs) > 1:
            one, other = self.random.sample(vcs, 2)
            has, gets = counts_of(cluster, one), counts_of(cluster, other)
            place = depths[path]
            then = {one: has | {place: has.get(place, 0) - count}, other: gets | {place: gets.get(place, 0) + count}}
            return lambda text: move_cells(text, count, path, one, other), dict(then)
        if kind == "remove" and vcs:
            name = self.random.choice(vcs)
            return lambda text: remove_vc(text, name), {name: None}
        name = "new one" if kind == "new" or not vcs else self.random.choice(vcs)
        cells = {each: self.random.randint(0, 3) for each in self.random.sample(PATHS, self.random.randint(1, 3))}
        then = counts_of(cluster, name) | {depths[each]: number for each, number in cells.items()}
        return lambda text: set_vc(text, name, cells), {name: then}


def given(counts: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    return {place: count for place, count in counts.items() if count}


def others(configuration: Configuration, edited: set[str], gone: set[str]) -> tuple[object, ...]:
    """All that a configuration says, apart from what the edited virtual clusters are promised."""
    cluster = configuration.cluster
    vcs = [
        replace(vc, virtual_cells=()) if name in edited else vc
        for name, vc in cluster.virtual_clusters.items()
        if name not in gone
    ]
    access = configuration.rules.access.virtual_clusters
    namespaces = {name: own for name, own in access.items() if name not in gone and own.namespaces}
    return vcs, namespaces, cluster.cell_types, cluster.physical_cells, configuration.settings


def try_edit(seed: int) -> bool:
    """Edit the file of a seed; whether that could be done."""
    writer = Writer(seed)
    text = writer.file()
    before = load_text(text, "f", environ={})
    edit, then = writer.edit(before.cluster)
    try:
        result = edit(text)
    except UserError as error:
        if any(reason in str(error) for reason in ("were to move", "needed", "there is no virtual cluster")):
            return False
        raise
    after = load_text(result, "f", environ={})
    gone = {vc for vc, counts in then.items() if counts is None}
    new = then.keys() - before.cluster.virtual_clusters.keys()
    assert after.cluster.virtual_clusters.keys() == (before.cluster.virtual_clusters.keys() | new) - gone
    for vc, counts in then.items():
        assert given(counts_of(after.cluster, vc)) == given(counts or {})
    assert others(before, set(then), gone) == others(after, set(then), new)
    check_text(writer, text, result, set(then))
    return True


@pytest.mark.sample(1)
@pytest.mark.parametrize("start", range(0, FILES, 50))
def test_any_edit_of_any_file_does_what_it_says_and_no_more(start: int) -> None:
    done = 0
    for seed in range(start, min(FILES, start + 50)):
        try:
            done += try_edit(seed)
        except (AssertionError, UserError) as error:
            raise AssertionError(f"seed {seed}:\n{Writer(seed).file()}") from error
    assert done > 10


def check_text(writer: Writer, text: str, result: str, edited: set[str]) -> None:
    """Comments and lines that have nothing to do with an edited virtual cluster are as they were, in their order."""
    plain = {name.strip("'\""): name for name in writer.names}
    names = {plain.get(name, name) for name in edited}
    assert [text for text, owner in writer.comments.items() if owner not in names and text not in result] == []
    assert result.count("\r\n") == (result.count("\n") if "\r\n" in text else 0)
    kept = text.replace("\r\n", "\n")
    touched = [line.strip() for name in names for line in writer.blocks.get(name, "").splitlines()]
    lines = iter(result.splitlines())
    for line in kept.splitlines():
        if line.strip() and line.strip() not in touched and "virtualClusters:" not in line:
            assert line in lines, line


def test_the_files_are_of_every_kind() -> None:
    texts = [Writer(seed).file() for seed in range(100)]
    for sign in (
        "\r\n",
        "config: |",
        "virtualClusters: {}",
        "virtualCells: []",
        "virtualCells: [\n",
        "- cellNumber:",
        "~",
    ):
        assert any(sign in text for text in texts), sign
    assert any(not text.endswith("\n") for text in texts)
    assert any(len(cluster_of(text).virtual_clusters) == 4 for text in texts)
