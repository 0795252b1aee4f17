"""Edits change the virtual clusters they name, and nothing else of the text, whatever its style.

`HIVED_EDITS` is the number of random files; more than the few of `make test` are tried by `make soak`.
"""

import difflib
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, Rules
from hived_config.division import counts_of
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load_text
from hived_config.text.edits import move_cells, remove_vc, set_vc
from tests.config.sound_file import SOUND, cluster_of

HARDWARE = """\
# the cluster
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}   # four each
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: RACK}, {cellType: RACK}, {cellType: RACK}, {cellType: RACK}]
"""


def changes(before: str, after: str) -> list[str]:
    """The lines that differ, each with - or +."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def edited(virtual_clusters: str, name: str, **cells: int) -> str:
    """The text that `set_vc` makes of these virtual clusters; a dot of a path is `__`."""
    text = HARDWARE + virtual_clusters
    result = set_vc(text, name, {cell_type.replace("__", "."): count for cell_type, count in cells.items()})
    assert result.startswith(HARDWARE)
    return result.removeprefix(HARDWARE)


@pytest.mark.parametrize(
    ("before", "cells", "after"),
    [
        # a number in braces, with comments around it
        (
            "virtualClusters:\n  a:   # 1\n    virtualCells:\n    # why\n    - {cellType: RACK, cellNumber: 2} # two\n",
            {"RACK": 3},
            "virtualClusters:\n  a:   # 1\n    virtualCells:\n    # why\n    - {cellType: RACK, cellNumber: 3} # two\n",
        ),
        # block style, number before type
        (
            "virtualClusters:\n  a:\n    virtualCells:\n      - cellNumber: 2 # two\n        cellType: RACK\n",
            {"RACK": 1},
            "virtualClusters:\n  a:\n    virtualCells:\n      - cellNumber: 1 # two\n        cellType: RACK\n",
        ),
        # a new entry is written as the one before it
        (
            "virtualClusters:\n  a:\n    virtualCells:\n      - cellType: RACK\n        cellNumber: 1\n    # end\n",
            {"NODE": 1},
            "virtualClusters:\n  a:\n    virtualCells:\n      - cellType: RACK\n        cellNumber: 1\n"
            "      - cellType: RACK.NODE\n        cellNumber: 1\n    # end\n",
        ),
        # an entry goes, with the comment above it
        (
            "virtualClusters:\n  a:\n    virtualCells:\n    # racks\n    - {cellType: RACK, cellNumber: 1}\n"
            "    # nodes\n    - {cellType: RACK.NODE, cellNumber: 1} # one\n    namespaces: [x]\n",
            {"NODE": 0},
            "virtualClusters:\n  a:\n    virtualCells:\n    # racks\n    - {cellType: RACK, cellNumber: 1}\n"
            "    namespaces: [x]\n",
        ),
        # the last entry goes
        (
            "virtualClusters:\n  a:\n    virtualCells: # c\n    - cellType: RACK\n      cellNumber: 1\n"
            "    namespaces: [x]\n",
            {"RACK": 0},
            "virtualClusters:\n  a:\n    virtualCells: [] # c\n    namespaces: [x]\n",
        ),
        # nothing there yet
        ("virtualClusters:\n  a:\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"),
        ("virtualClusters:\n  a: {}   # none", {"RACK": 1},
         "virtualClusters:\n  a:   # none\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}"),
        ("virtualClusters:\n  a:\n    virtualCells: [] # c\n    namespaces: [x]\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    virtualCells: # c\n    - {cellType: RACK, cellNumber: 1}\n    namespaces: [x]\n"),
        ("virtualClusters:\n  a:\n    virtualCells:\n    namespaces: [x]\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n    namespaces: [x]\n"),
        ("virtualClusters:\n  a:\n    namespaces:\n    - x\n\n# end\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    namespaces:\n    - x\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"
         "\n# end\n"),
        # flow style
        ("virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n", {"RACK": 2, "NODE": 1},
         "virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 2}, "
         "{cellType: RACK.NODE, cellNumber: 1}]}}\n"),
        ("virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}, "
         "{cellType: RACK.NODE, cellNumber: 1}]}}\n",
         {"RACK": 0}, "virtualClusters: {a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}}\n"),
        ("virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}, "
         "{cellType: RACK.NODE, cellNumber: 1}]}}\n",
         {"NODE": 0}, "virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n"),
        ("virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n", {"RACK": 0},
         "virtualClusters: {a: {virtualCells: []}}\n"),
        ("virtualClusters: {a: {}}\n", {"RACK": 1},
         "virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n"),
        ("virtualClusters: {a: {namespaces: [x]}}\n", {"RACK": 1},
         "virtualClusters: {a: {namespaces: [x], virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n"),
        ("virtualClusters: {a: }\n", {"RACK": 1},
         "virtualClusters: {a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n"),
        # flow style over several lines
        ("virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK, cellNumber: 1}, # r\n"
         "      {cellType: RACK.NODE, cellNumber: 1} # n\n    ]\n",
         {"NODE": 0},
         "virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK, cellNumber: 1} # r\n    ]\n"),
        ("virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK, cellNumber: 1}, # r\n"
         "      {cellType: RACK.NODE, cellNumber: 1} # n\n    ]\n",
         {"RACK": 0},
         "virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK.NODE, cellNumber: 1} # n\n    ]\n"),
        ("virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK, cellNumber: 1} # r\n    ]\n",
         {"NODE": 1}, "virtualClusters:\n  a:\n    virtualCells: [\n      {cellType: RACK, cellNumber: 1}, # r\n"
         "      {cellType: RACK.NODE, cellNumber: 1}\n    ]\n"),
        # brackets on lines of their own
        ("virtualClusters:\n  a:\n    virtualCells:\n      []\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"),
        ("virtualClusters:\n  a:\n    virtualCells: [ # none\n    ]\n", {"RACK": 1},
         "virtualClusters:\n  a:\n    virtualCells: [ # none\n    {cellType: RACK, cellNumber: 1}]\n"),
        ("virtualClusters:\n  a: {virtualCells: [\n]}\n", {"RACK": 1},
         "virtualClusters:\n  a: {virtualCells: [\n{cellType: RACK, cellNumber: 1}]}\n"),
        ("virtualClusters:\n  a:\n    virtualCells: [\n{cellType: RACK, cellNumber: 1}]\n", {"RACK": 0},
         "virtualClusters:\n  a:\n    virtualCells: []\n"),
        ("virtualClusters:\n  a:\n    virtualCells: [ # r\n{cellType: RACK, cellNumber: 1}]\n", {"RACK": 0},
         "virtualClusters:\n  a:\n    virtualCells: [ # r\n]\n"),
        # one type twice becomes one entry
        ("virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK.NODE, cellNumber: 1}\n"
         "    - {cellType: RACK, cellNumber: 1}\n    - {cellType: RACK.NODE, cellNumber: 2}\n",
         {"RACK__NODE": 4},
         "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK.NODE, cellNumber: 4}\n"
         "    - {cellType: RACK, cellNumber: 1}\n"),
        # everything goes and something else comes
        ("virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK.NODE, cellNumber: 1}\n",
         {"NODE": 0, "RACK": 1}, "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"),
    ],
)  # fmt: skip
def test_cells_are_set_where_they_are_written(before: str, cells: dict[str, int], after: str) -> None:
    assert edited(before, "a", **cells) == after
    numbers = {cell_type.replace("__", "."): count for cell_type, count in cells.items()}
    assert set_vc(wrapped(HARDWARE + before), "a", numbers) == wrapped(HARDWARE + after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("virtualClusters: {} # none\n",
         "virtualClusters: # none\n  new:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"),
        ("virtualClusters: {a: {}}\n",
         "virtualClusters: {a: {}, new: {virtualCells: [{cellType: RACK, cellNumber: 1}]}}\n"),
        ("virtualClusters:\n    a:\n      virtualCells:\n        - cellType: RACK\n          cellNumber: 1\n\n"
         "    b:   # nothing\n\nwebServerAddress: :9096\n",
         "virtualClusters:\n    a:\n      virtualCells:\n        - cellType: RACK\n          cellNumber: 1\n\n"
         "    b:   # nothing\n\n    new:\n      virtualCells:\n        - cellType: RACK\n          cellNumber: 1\n\n"
         "webServerAddress: :9096\n"),
    ],
)  # fmt: skip
def test_a_virtual_cluster_is_added_in_the_style_of_the_others(before: str, after: str) -> None:
    assert edited(before, "new", RACK=1) == after


def test_a_name_that_yaml_would_misread_is_quoted() -> None:
    result = edited("virtualClusters: {}\n", "a: #1", RACK=1)
    assert '"a: #1":' in result
    assert list(cluster_of(HARDWARE + result).virtual_clusters) == ["a: #1"]


def test_json_stays_json() -> None:
    text = (
        '{"physicalCluster": {"cellTypes": {"N": {"childCellType": "G", "childCellNumber": 2, "isNodeLevel": true}},\n'
        '  "physicalCells": [{"cellType": "N"}, {"cellType": "N"}]},\n "virtualClusters": {"a": {}}}\n'
    )
    result = set_vc(set_vc(text, "a", {"N": 1}), "b", {"G": 1})
    assert result.splitlines()[-1] == (
        ' "virtualClusters": {"a": {"virtualCells": [{"cellType": "N", "cellNumber": 1}]}, '
        '"b": {"virtualCells": [{"cellType": "N.G", "cellNumber": 1}]}}}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("virtualClusters:\n  b: {}\n  # of a\n  a:\n    virtualCells: []\n    # more of a\n  c: {}\n",
         "virtualClusters:\n  b: {}\n    # more of a\n  c: {}\n"),
        ("virtualClusters:\n  a: # only\n    virtualCells: []\nwebServerAddress: :9096\n",
         "virtualClusters: {}\nwebServerAddress: :9096\n"),
        ("virtualClusters: {b: {}, a: {virtualCells: []}}\n", "virtualClusters: {b: {}}\n"),
        ("virtualClusters: {a: {virtualCells: []}, b: {}}\n", "virtualClusters: {b: {}}\n"),
        ("virtualClusters: {a: {virtualCells: []}}\n", "virtualClusters: {}\n"),
        ("virtualClusters:\n  b: {namespaces: &n []}\n  a:\n    namespaces: *n\n",
         "virtualClusters:\n  b: {namespaces: &n []}\n"),
    ],
)  # fmt: skip
def test_a_virtual_cluster_goes_with_its_lines(before: str, after: str) -> None:
    assert remove_vc(HARDWARE + before, "a") == HARDWARE + after


TWO = "virtualClusters:\n  a:\n    virtualCells:\n    - {cellType: RACK, cellNumber: 2}\n  b:\n"


BETTER = "rules:  '2'  # since spring\n"
KEYS = "    combine: yes # pairs\n    sparing: true\n"


def test_rules_and_their_keys_stay_byte_for_byte() -> None:
    text = BETTER + HARDWARE + TWO.replace("  b:\n", "  b:\n" + KEYS)
    moved = move_cells(text, 1, "RACK", "a", "b")
    for result in (moved, set_vc(text, "b", {"NODE": 1}), remove_vc(moved, "a")):
        assert result.startswith(BETTER + HARDWARE)
        assert KEYS in result
        cluster = cluster_of(result)
        assert cluster.rules is Rules.BETTER
        assert (cluster.virtual_clusters["b"].combines, cluster.virtual_clusters["b"].spares) == (True, True)


def test_cells_move() -> None:
    result = move_cells(HARDWARE + TWO, 1, "RACK", "a", "b")
    assert changes(HARDWARE + TWO, result) == [
        "-     - {cellType: RACK, cellNumber: 2}",
        "+     - {cellType: RACK, cellNumber: 1}",
        "+     virtualCells:",
        "+     - {cellType: RACK, cellNumber: 1}",
    ]


def test_all_cells_move_away() -> None:
    cluster = cluster_of(move_cells(HARDWARE + TWO, 2, "RACK", "a", "b"))
    assert (counts_of(cluster, "a"), counts_of(cluster, "b")) == ({}, {("RACK", 0): 2})


def test_line_ends_stay_as_they_are() -> None:
    text = HARDWARE + TWO + "  # end\n"
    for ending in ("\r\n", "\n"):
        result = remove_vc(move_cells(text.replace("\n", ending), 2, "RACK", "a", "b"), "a")
        assert result == remove_vc(move_cells(text, 2, "RACK", "a", "b"), "a").replace("\n", ending)


def test_empty_lines_are_not_taken_from_line_ends() -> None:
    text = HARDWARE + TWO
    assert set_vc(text.replace("\n", "\r\n"), "c", {}) == set_vc(text, "c", {}).replace("\n", "\r\n")


def wrapped(text: str, ending: str = "") -> str:
    """The text inside OpenPAI's file."""
    lines = "".join(f"      {line}\n" if line else "\n" for line in text.splitlines())
    return f"# all services\nhivedscheduler:\n  config: |  # ours\n{lines}{ending}"


@pytest.mark.parametrize("ending", ["", "rest-server: {password: x}\n", "\n# end\nrest-server:\n  password: x\n"])
def test_openpai_keeps_everything_around_it(ending: str) -> None:
    text = HARDWARE + TWO.replace("  b:", "\n  b:")
    plain = set_vc(set_vc(move_cells(text, 2, "RACK", "a", "b"), "c", {"NODE": 1}), "a", {"GPU": 2})
    inside = set_vc(set_vc(move_cells(wrapped(text, ending), 2, "RACK", "a", "b"), "c", {"NODE": 1}), "a", {"GPU": 2})
    assert inside == wrapped(plain, ending)
    assert remove_vc(inside, "c") == wrapped(remove_vc(plain, "c"), ending)


def test_openpai_text_in_another_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="config: found text in another form, expected a literal block"):
        remove_vc("hivedscheduler: {config: '{physicalCluster: {cellTypes: {N: {childCellType: G, childCellNumber: 2, "
                  "isNodeLevel: true}}, physicalCells: [{cellType: N}]}, virtualClusters: {a: {}}}'}", "a")  # fmt: skip


@pytest.mark.parametrize(
    ("virtual_clusters", "found"),
    [
        ("  x: &x {virtualCells: [{cellType: RACK, cellNumber: 1}]}\n  a: *x\n", "an alias of what stands in line 8"),
        ("  a: &x {virtualCells: [{cellType: RACK, cellNumber: 1}]}\n  b: *x\n", "something else would change too"),
        ("  x: {virtualCells: &x [{cellType: RACK, cellNumber: 1}]}\n  a: {virtualCells: *x}\n", "an alias of what"),
        ("  x: &x {virtualCells: [{cellType: RACK, cellNumber: 1}]}\n  a: {<<: *x}\n", "merged from elsewhere"),
        ("  x: {virtualCells: [&x {cellType: RACK, cellNumber: 1}]}\n  a: {virtualCells: [*x]}\n", "behind an alias"),
        ("  x: {virtualCells: [&x {cellType: RACK, cellNumber: 1}]}\n  a: {virtualCells: [{<<: *x}]}\n", "an al"),
        ("  x: {virtualCells: [{cellType: RACK, cellNumber: &n 1}]}\n"
         "  a: {virtualCells: [{cellType: RACK, cellNumber: *n}]}\n", "behind an alias"),
        ("  a: {virtualCells: [{cellType: RACK, cellNumber: &n 1}]}\n", "a number with an anchor or a tag"),
        ("  a: &x {}\n", "an empty collection with an anchor or a tag"),
        ("  <<: {a: {}}\n", "merged from elsewhere"),
    ],
)  # fmt: skip
def test_what_does_not_stand_alone_is_not_edited(virtual_clusters: str, found: str) -> None:
    with pytest.raises(UserError, match=found):
        set_vc(f"{HARDWARE}virtualClusters:\n{virtual_clusters}", "a", {"RACK": 2})


def test_an_anchor_that_others_need_is_not_removed() -> None:
    text = HARDWARE + "virtualClusters:\n  a: &x {namespaces: []}\n  b: *x\n"
    with pytest.raises(UserError, match="found an anchor that is used elsewhere"):
        remove_vc(text, "a")


def test_an_anchor_below_which_nothing_is_left_is_not_edited() -> None:
    text = HARDWARE + "virtualClusters:\n  a:\n    virtualCells: &x\n    - {cellType: RACK, cellNumber: 1}\n"
    with pytest.raises(ConfigError, match="found the last item below an anchor or a tag"):
        set_vc(text, "a", {"RACK": 0})


def test_an_alias_beside_the_edit_does_not_matter() -> None:
    text = HARDWARE + "virtualClusters:\n  b: {namespaces: &n []}\n  a:\n    namespaces: *n # same\n"
    assert set_vc(text, "a", {"RACK": 1}) == text + "    virtualCells:\n    - {cellType: RACK, cellNumber: 1}\n"


@pytest.mark.parametrize(
    ("cell_type", "message"),
    [
        ("RAK", r"there is no cell type 'RAK' in a chain; there are: .*\(did you mean RACK\?\)"),
        ("RACK.GPU.NODE", "NODE is not below GPU; expected part of RACK.NODE.PAIR.GPU"),
        ("PAIR", r"is in several chains; name one of RACK\.NODE\.PAIR, NODE\.PAIR"),
    ],
)
def test_a_cell_type_has_to_be_clear(cell_type: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        set_vc(SOUND, "a", {cell_type: 1})


def test_a_type_that_heads_a_chain_is_the_one_of_that_chain() -> None:
    assert "- {cellType: NODE.PAIR, cellNumber: 1}" in set_vc(SOUND, "b", {"NODE.PAIR": 1})
    with pytest.raises(ConfigError, match="cells of chain NODE promised"):
        set_vc(SOUND, "b", {"NODE": 2})


@pytest.mark.parametrize(
    ("move", "message"),
    [
        ((3, "RACK", "a", "b"), "is promised 2 of them besides pinned ones; it has: 2 RACK"),
        ((1, "NODE", "b", "a"), "is promised 0 of them besides pinned ones; it has: none"),
        ((1, "RACK", "a", "c"), "there is no virtual cluster 'c'; there are: a, b"),
        ((1, "RACK", "aa", "b"), r"did you mean a\?"),
        ((1, "RACK", "a", "a"), "expected two virtual clusters"),
        ((0, "RACK", "a", "b"), "expected at least 1"),
    ],
)
def test_a_move_that_cannot_be_says_why(move: tuple[int, str, str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        move_cells(HARDWARE + TWO, *move)


def test_other_mistakes_of_the_user_say_what_was_expected() -> None:
    for name, cells, message in [
        ("a", {"RACK": -1}, "expected at least 0"),
        ("a", {"NODE": 1, "RACK.NODE": 1}, "are given twice"),
        ("a/b", {"RACK": 1}, "expected a name"),
        ("c", {"RACK": 0}, "there is no virtual cluster 'c'"),
    ]:
        with pytest.raises(UserError, match=message):
            set_vc(HARDWARE + TWO, name, cells)
    with pytest.raises(UserError, match="there is no virtual cluster 'c'"):
        remove_vc(HARDWARE + TWO, "c")


def test_more_than_there_is_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigError, match=r"5 RACK cells of chain RACK promised \(a 5\)"):
        set_vc(HARDWARE + TWO, "a", {"RACK": 5})


@pytest.mark.long
def test_a_file_of_16_384_nodes_is_edited_in_seconds() -> None:
    cells = "".join(f"  - {{cellType: NODE, cellAddress: n{i}}}\n" for i in range(16384))
    text = f"{HARDWARE.partition('  physicalCells')[0]}  physicalCells:\n{cells}virtualClusters:\n  a:\n  b:\n"
    start = time.thread_time()
    result = set_vc(text, "a", {"NODE": 16384})
    assert time.thread_time() - start < 30
    assert counts_of(cluster_of(result), "a") == {("NODE", 0): 16384}


FILES = int(os.environ.get("HIVED_EDITS", "300"))
PATHS = ("RACK", "RACK.NODE", "RACK.NODE.GPU", "NODE", "NODE.GPU")
NAMES = ("a", "b-team", "'no'", "12:30", '"x y"', "zwölf")
RACKS_AND_NODES = """\
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
        parts = [RACKS_AND_NODES + TOPS, self.clusters()]
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
