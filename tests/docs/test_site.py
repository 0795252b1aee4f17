"""The pages form a site: every link leads somewhere, every page has its place, and all readers see the same lists."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

from docs.site import build
from docs.site.pages import Page, broken_links, pages, slug_of
from tests.places import ROOT

MORE = [
    "ARCHITECTURE.md", "CHANGELOG.md", "examples/README.md", "examples/dialects/README.md", "examples/philly/README.md",
    "config/README.md",
    "config/deploy/README.md",
]  # fmt: skip


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make a page of a text, beside a page `other.md` with the heading `Two words`."""
    monkeypatch.setattr("docs.site.pages.ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Two words\n")
    (tmp_path / "file.yaml").write_text("a: 1\n")

    def made(text: str) -> Page:
        (tmp_path / "page.md").write_text(text)
        return Page("page.md")

    return made


def test_no_link_of_a_page_leads_nowhere() -> None:
    assert broken_links([*pages(), *map(Page, MORE)]) == []


@pytest.mark.parametrize(
    "link",
    ["[a](none.md)", "[a](other.md#none)", "[a](#none)", "[a](file.yaml#one)", "[two\nlines](none.md)", "![a](no.png)"],
)
def test_a_link_that_leads_nowhere_is_found(page, link: str) -> None:
    assert len(broken_links([page(f"# Here\n\nText, {link}.\n")])) == 1


def test_sound_links_are_left_alone(page) -> None:
    text = (
        "# Here\n\n[a](other.md#two-words), [b](#here), [c](file.yaml), [d](https://example.com/none), `[e](none.md)`\n"
    )
    assert broken_links([page(text + "\n    [f](none.md)\n")]) == []


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("POST /v1/inspect/what-if", "post-v1inspectwhat-if"),
        ("`placement: topology`", "placement-topology"),
        ("HiveD's own annotations", "hiveds-own-annotations"),
        ("A & B", "a--b"),
    ],
)
def test_anchors_are_those_of_github(heading: str, slug: str) -> None:
    assert slug_of(heading) == slug


def test_every_page_has_one_place_in_the_navigation() -> None:
    sections = tomllib.loads((ROOT / "docs/site/zensical.toml").read_text())["project"]["nav"]
    entries = [value for section in sections for value in section.values()]
    listed = [page for entry in entries for page in ([entry] if isinstance(entry, str) else entry)]
    assert sorted(page for page in listed if "/" not in page) == sorted(
        path.name for path in (ROOT / "docs").glob("*.md")
    )


def test_the_index_leads_to_every_page_of_the_navigation() -> None:
    index = Page(build.INDEX)
    linked = {index.resolve(link.target)[0] for link in index.links if not link.is_external}
    assert {page.path for page in pages() if page.path not in (build.INDEX, "README.md")} - linked == set()


@pytest.mark.parametrize("found", pages(), ids=lambda page: page.path)
def test_lists_begin_after_an_empty_line(found: Page) -> None:
    """GitHub sees a list right behind a sentence as well; the site takes it for a part of the sentence."""
    lines = ["", *found.prose]
    wrong = [
        number
        for number, (before, line) in enumerate(itertools.pairwise(lines), 1)
        if re.match(r"(?:- |\d+\. )", line) and before and not re.match(r" |- |\d+\. ", before)
    ]
    assert wrong == []


@pytest.mark.parametrize("found", pages(), ids=lambda page: page.path)
def test_what_belongs_to_a_numbered_item_is_indented_by_four(found: Page) -> None:
    """CommonMark asks for three; the site ends the list there."""
    items = re.findall(r"^\d+\. .*\n(?:(?: .*)?\n)*", "\n".join(found.prose), re.MULTILINE)
    assert [line for item in items for line in re.findall(r"(?<=\n\n) {1,3}\S.*", item)] == []


def test_a_page_keeps_its_links_in_the_site_where_files_stand_elsewhere(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(build, "SOURCE", tmp_path / "source")
    monkeypatch.setattr(build, "TARGET", tmp_path / "target")
    build.stage()
    text = (tmp_path / "source" / "configuration.md").read_text()
    assert "](repository/config/samples/racks.yaml.md)" in text
    assert "A100-SWITCH" in (tmp_path / "source/repository/config/samples/racks.yaml.md").read_text()
    assert "](../install.md" in (tmp_path / "source/repository/CHANGELOG.md").read_text()


def test_a_picture_stands_in_the_site_as_it_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(build, "SOURCE", tmp_path / "source")
    monkeypatch.setattr(build, "TARGET", tmp_path / "target")
    build.stage()
    picture = ROOT / "docs" / "guarantee" / "delays.svg"
    assert (tmp_path / "source" / "guarantee" / "delays.svg").read_bytes() == picture.read_bytes()
    assert "](guarantee/delays.svg)" in (tmp_path / "source" / "guarantee.md").read_text()
    assert "](../page/cluster.png)" in (tmp_path / "source" / "repository" / "README.md").read_text()


def test_pictures_are_small_enough_for_every_checkout() -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.suffix in build.PICTURES}
    assert sizes.keys() >= {"cluster.png", "job.png"}
    assert max(sizes.values()) < 200_000
