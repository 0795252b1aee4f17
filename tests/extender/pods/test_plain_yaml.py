"""Plain YAML is read as the parser reads it, or not at all."""

import json
import re
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.pods.annotation_yaml import parse_yaml
from hived_extender.pods.plain_yaml import SIZE_LIMIT, Value, read_plain
from tests.places import ROOT
from tests.property.examples import examples

GANG = """\
virtualCluster: VC1
priority: 100                # 0..1000 guaranteed, -1 opportunistic
leafCellType: 'V100'
leafCellNumber: 8

affinityGroup:               # optional
  name: "default/training 7"
  members:
  - podNumber: 1
    leafCellNumber: 1
  - {podNumber: 2, leafCellNumber: 010}
"""
BIND_INFO = """\
node: n1
cellChain: V100-NODE
affinityGroupBindInfo:
  - podPlacements:
    - physicalNode: n1
      physicalLeafCellIndices:
      - 0
      - 1
      preassignedCellTypes: [RACK, "", null]
"""
PIECES = """a: |b:|priority: |leafCellNumber: |elastic: |gpuNumber: |members:|null: |<<: |- |  |    |0|1|-1|010|0x1f
0b1|1_000|+1|.5|1e3|~|null|yes|No|x|foo/bar|2001-01-01|12:30|'q'|"q"|''|"|'|it's|"\\n"|#| #c|# c|: |:|[|]|{|}|, |,
[1, 2]|{a: 1}|[{a: 1, b: x}]|{a:1}|[a: 1]|[a,]|{a: , b: 1}|&a |*a|!t |> |? |--- |---|...|%|@|`|\t|\r|\r\n|é|\u2028
\x85|\ufeff|=|-|--|- - |{}|[]|[ ]"""
FRAGMENTS = [*re.split(r"[|\n]", PIECES), "|", "\n", "\n  ", "\n    ", "\n- ", "\n  - ", "\n#", "\n\n"]


def parsed(text: str) -> Value:
    """The document by the parser; the text as an error where it refuses it, which equals no document."""
    try:
        return parse_yaml(text)
    except UserError as error:
        return [error.message]


def agrees(text: str) -> bool:
    """Is a text read as the parser does it, in the same order, or not at all?"""
    plain = read_plain(text)
    return plain is None or repr(plain) == repr(parsed(text))


def written_texts() -> list[str]:
    """Annotations in YAML as they stand in the documentation and in examples."""
    found = []
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
    block = re.compile(r"^( *)hivedscheduler\.microsoft\.com/pod-[a-z-]+: [|>]-?\n((?:\1 +.*\n|\n)+)", re.MULTILINE)
    for file in files:
        for _, text in block.findall(file.read_text(encoding="utf-8")):
            lines = [line for line in text.splitlines() if line.strip()]
            indent = min(len(line) - len(line.lstrip()) for line in lines)
            found.append("".join(f"{line[indent:]}\n" for line in lines))
    return found


def recorded_texts() -> list[str]:
    """The specs of recorded scenarios, as YAML."""
    specs = set()
    for file in sorted(Path(__file__).parents[2].glob("parity/recorded/scenarios/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            operation: dict[str, Any] = json.loads(line)
            if isinstance(operation.get("spec"), dict):
                specs.add(yaml.safe_dump(operation["spec"], sort_keys=False))
            specs |= {text for key in ("annotation", "bindInfo") if isinstance(text := operation.get(key), str)}
    return sorted(specs)


WRITTEN, RECORDED = written_texts(), recorded_texts()


@pytest.mark.parametrize("text", [GANG, BIND_INFO, *WRITTEN])
def test_what_people_write_is_plain(text: str) -> None:
    assert read_plain(text) == parse_yaml(text)


def test_recorded_specs_are_plain() -> None:
    plain = [text for text in RECORDED if read_plain(text) is not None]
    assert len(plain) > 20
    assert all(map(agrees, RECORDED))


@pytest.mark.long
@settings(max_examples=examples(3000), deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join))
def test_no_text_of_fragments_is_read_otherwise(text: str) -> None:
    assert agrees(text)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(FRAGMENTS)
keys = st.sampled_from(["a", "priority", "leafCellNumber", "elastic", "gpuType", "null", "members"])
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=examples(800), deadline=None)
@given(st.dictionaries(keys, trees, max_size=4), st.sampled_from([None, False]), st.sampled_from([2, 4]))
def test_no_dumped_document_is_read_otherwise(document: dict[str, Any], flow: bool | None, indent: int) -> None:
    assert agrees(yaml.safe_dump(document, default_flow_style=flow, sort_keys=False, indent=indent))


def edited(text: str, source: Random) -> str:
    """A text with one to three changes: characters lost, fragments added, lines moved, doubled, or indented anew."""
    for _ in range(source.randint(1, 3)):
        place, lines = source.randrange(len(text) + 1), text.split("\n")
        row = source.randrange(len(lines))
        match source.randrange(5):
            case 0:
                text = text[:place] + text[place + source.randint(1, 3) :]
            case 1:
                text = text[:place] + source.choice(FRAGMENTS) + text[place:]
            case 2:
                lines.insert(source.randrange(len(lines) + 1), lines.pop(row))
                text = "\n".join(lines)
            case 3:
                text = "\n".join([*lines[:row], lines[row], *lines[row:]])
            case 4:
                lines[row] = " " * source.randint(0, 4) + lines[row].lstrip()
                text = "\n".join(lines)
    return text


@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_edited_text_is_read_otherwise(seed: int) -> None:
    source = Random(seed)
    texts = [GANG, BIND_INFO, *WRITTEN, *RECORDED]
    assert [text for _ in range(200) if not agrees(text := edited(source.choice(texts), source))] == []


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2", "gpuType: x\nleafCellType: y", "a: {b: 1, b: 2}", "a: one\n  two", "a: one\n  b: 2", "a:\n  one",
        'a: "x\\n"', "a: 'it''s'", "a: x\tb", "a: 1\r\nb: 2", "a: é", "--- \na: 1", "a: 1\n...", "a: &x 1", "b: *x",
        "a: !!str 1", "a: |\n  x", "a: >\n  x", "<<: {a: 1}", "? a\n: 1", "a: 12:30:45", "a: [1, 2", "a: [a: 1]",
        "a: [1,]", "a: {b: }", "- 1", "one", "", "# nothing", "{a: 1}", "  a: 1\nb: 2", "a:\n    b: 1\n  c: 2",
        "a: 1 #\n  b", "- - 1", "a:\n-  b: 1", "a: x y", "a: @x", "%YAML 1.1", "a : 1", "1: 2", "'a': 1",
    ],
)  # fmt: skip
def test_all_else_is_left_to_the_parser(text: str) -> None:
    assert read_plain(text) is None


def test_a_long_text_is_left_to_the_parser() -> None:
    line = "name: " + "x" * 92 + "\n"
    assert read_plain("".join(f"{chr(97 + i % 26)}{i}{line}" for i in range(SIZE_LIMIT // len(line) + 1))) is None


@pytest.mark.parametrize("form", ["{0}: {1}", "{0}: [{1}]", "{0}:\n- {1}", "a: {{{0}: {1}}}"])
@pytest.mark.parametrize("key", ["priority", "elastic", "name"])
def test_a_scalar_means_what_its_key_makes_of_it(key: str, form: str) -> None:
    values = ("1", "010", "0x1f", "1_000", "-1", "", "null", "yes", "No", "1e3", "2001-01-01", "9" * 200)
    assert [value for value in values if not agrees(form.format(key, value))] == []


def test_documents_that_share_lines_do_not_share_changes() -> None:
    first, text = read_plain(GANG), GANG
    assert first is not None
    first["affinityGroup"] = None
    assert read_plain(text) == parse_yaml(text)


@pytest.mark.parametrize("start", ["", "a: ", "a: [", "a: {b: ", "- "])
def test_cost_is_linear_whatever_the_line(start: str) -> None:
    """A pattern that tries each place in two ways would take longer than this process lives."""
    units = ("[", "{", "[{", "a: ", "- ", " ", "'", '"', "a", "a,", "[a,", "{a: ", "-", "#", ": ", " #", "[ ", '"a" ')
    before = thread_time()
    for unit in units:
        for length in range(230, 257):
            read_plain((start + unit * length)[:length])
    assert thread_time() - before < 60
