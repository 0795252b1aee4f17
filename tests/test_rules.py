"""Every rule that is cited exists, is numbered once and is cited by code, and its chapter names code that exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

PAGE = ROOT / "docs" / "rules.md"
TEXT = PAGE.read_text()
DEFINED = re.findall(r"^- <a id=\"(\d+\.\d+)\"></a>\*\*(\d+\.\d+)\*\* ", TEXT, re.MULTILINE)
RULES = [number for number, _ in DEFINED]
CHAPTERS = re.findall(r"^## (\d+) ", TEXT, re.MULTILINE)
NUMBER = r"\d+(?:\.\d+)?"
CITATION = re.compile(rf"\brules?\s+({NUMBER}(?:(?:,\s+|\s+to\s+|\s+and\s+){NUMBER})*)", re.IGNORECASE)
FORMER = re.compile(r"\b(?:SEMANTICS|FORMAT\.md)\b|\(\d[a-h](?:\.\d+)?\)|\b4[a-h]\.\d|\b5a:|\bC[1-6] ?[a-i]\b")
SKIPPED = {".git", ".venv", "build", "node_modules", "out"}


def sources() -> Iterator[Path]:
    """All Python files and pages of the checkout."""
    tops = [path for path in sorted(ROOT.iterdir()) if path.name not in SKIPPED]
    files = [path for top in tops for path in (sorted(top.rglob("*")) if top.is_dir() else [top])]
    yield from (path for path in files if path.suffix in {".py", ".md"})


def line_of(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def test_each_rule_has_one_number_and_an_anchor_of_that_name() -> None:
    assert all(anchor == number for anchor, number in DEFINED)
    assert len(set(RULES)) == len(RULES)
    assert TEXT.count('<a id="') == len(RULES)


def test_rules_and_chapters_are_numbered_without_gaps() -> None:
    assert [int(chapter) for chapter in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))
    for chapter in CHAPTERS:
        own = [int(number.split(".")[1]) for number in RULES if number.startswith(f"{chapter}.")]
        assert own == list(range(1, len(own) + 1)), chapter
        assert own, chapter


def test_every_rule_that_is_cited_exists() -> None:
    known = {*RULES, *CHAPTERS}
    unknown = []
    for path in sources():
        text = path.read_text()
        for citation in CITATION.finditer(text):
            place = f"{path.relative_to(ROOT)}:{line_of(text, citation.start())}"
            unknown += [f"{place}: {each}" for each in re.findall(NUMBER, citation[1]) if each not in known]
    assert unknown == []


def test_every_rule_is_cited_by_its_own_number_where_the_code_follows_it() -> None:
    """A rule inside a range, such as "rules 5.1 to 5.6", would not be found by a search for its number."""
    cited: set[str] = set()
    for path in sources():
        if path.suffix == ".py" and not path.is_relative_to(ROOT / "tests"):
            for citation in CITATION.finditer(path.read_text()):
                cited.update(re.findall(NUMBER, citation[1]))
    differences = "17."  # from HiveD, in all of the code
    assert [rule for rule in RULES if rule not in cited and not rule.startswith(differences)] == []


def test_no_other_numbering_is_cited() -> None:
    found = []
    for path in sources():
        if path == Path(__file__):
            continue
        text = path.read_text()
        for each in FORMER.finditer(text):
            found.append(f"{path.relative_to(ROOT)}:{line_of(text, each.start())}: {each[0]}")
    assert found == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_chapter_says_where_it_is_in_the_code(chapter: str) -> None:
    section = re.split(r"^## ", TEXT.split(f"\n## {chapter} ", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    where = section.split("In the code:", 1)[1].split("\n\n", 1)[0]
    files = re.findall(r"`([\w/]+\.py)`", where)
    assert files or "everywhere" in where
    assert [each for each in files if not (ROOT / each).is_file()] == []
    assert [each for each in set(files) if files.count(each) > 1] == []


def test_what_decides_is_in_the_code_and_cites_its_rules() -> None:
    """Each row of "Where it is decided" names functions that exist, and rules that its files or their chapters cite."""
    table = TEXT.split("\n## Where it is decided\n", 1)[1].split("\n## ", 1)[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| ") and "`" in row]
    assert len(rows) > 30
    for question, rules, places in rows:
        read = ""
        for file, names in re.findall(r"`([\w/]+\.py)`(?: \(((?:`\w+`(?:, )?)+)\))?", places):
            text = (ROOT / file).read_text()
            for name in re.findall(r"\w+", names):
                assert re.search(rf"^ *(def |class )?{name}\b(\(| =|:)", text, re.MULTILINE), f"{file} has no {name}"
            read += text
        cited = {each for citation in CITATION.finditer(read) for each in re.findall(NUMBER, citation[1])}
        unknown = [rule for rule in re.findall(r"\[([\d.]+)\]", rules) if rule not in cited]
        assert unknown == [], f"{question}: {unknown}"


def test_every_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= anchors
    assert {"glossary", "worked-example"} <= anchors
