"""The glossary: few words, which other pages spell alike, and links to it wherever readers may ask for a word."""

import re

from click.testing import CliRunner

from docs.site.pages import pages
from hived_cli import main
from hived_extender.http.pages.glossary import words
from tests.places import ROOT

PAGE = "docs/glossary.md"
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\([^)]+\) \|$", (ROOT / PAGE).read_text(), re.MULTILINE)


def test_it_has_thirty_words_at_most_in_their_order() -> None:
    found = [word for word, _ in ROWS]
    assert found == sorted(found)
    assert 20 <= len(found) <= 30
    assert all(meaning.count(". ") <= 1 for _, meaning in ROWS)


def test_other_pages_use_each_word_by_this_spelling() -> None:
    texts = [page.text.lower() for page in pages() if page.path not in (PAGE, "docs/rules.md")]
    rare = {word: sum(bool(re.search(rf"\b{word}", text)) for text in texts) for word, _ in ROWS}
    assert {word: count for word, count in rare.items() if count < 2} == {}


def test_readers_find_it() -> None:
    linking = {page.path for page in pages() if any(page.resolve(link.target)[0] == PAGE for link in page.links)}
    assert {"README.md", "docs/index.md", "docs/page.md", "docs/rules.md"} <= linking
    assert '"glossary.md"' in (ROOT / "docs" / "site" / "zensical.toml").read_text()
    assert PAGE in CliRunner().invoke(main, ["--help"]).output


def test_the_page_has_the_same_words() -> None:
    assert words() == tuple((word, meaning.replace("`", "")) for word, meaning in ROWS)
