"""Blocks of code are found as readers see them."""

from pathlib import Path

import pytest

from docs.site.pages import Block, Page


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The blocks of a page with this text."""
    monkeypatch.setattr("docs.site.pages.ROOT", tmp_path)

    def found(text: str) -> list[Block]:
        (tmp_path / "page.md").write_text(text)
        return list(Page("page.md").blocks)

    return found


def test_a_block_between_fences_has_language_and_title(blocks) -> None:
    text = 'Text:\n\n```yaml title="pod.yaml"\na: 1\n```\n'
    assert blocks(text) == [Block("page.md", 4, "yaml", "pod.yaml", "", "a: 1\n")]


def test_an_indented_block_goes_on_over_empty_lines(blocks) -> None:
    assert [block.text for block in blocks("Text:\n\n    one\n\n      two\n\nText\n")] == ["one\n\n  two\n"]


def test_lines_of_a_list_are_no_block(blocks) -> None:
    assert blocks("1. One\n\n    more of one\n\n- Two\n    goes on\n") == []


def test_a_block_in_a_list_is_one(blocks) -> None:
    assert [block.text for block in blocks("1. One\n\n        hived version\n\n    more\n\n        ls\n")] == [
        "hived version\n",
        "ls\n",
    ]


def test_a_fence_in_a_list_loses_its_indentation(blocks) -> None:
    assert [block.text for block in blocks("1. One:\n\n    ```yaml\n    a:\n      b: 1\n    ```\n")] == ["a:\n  b: 1\n"]


def test_a_comment_says_why_the_next_block_is_not_run(blocks) -> None:
    text = "<!-- not run: needs root -->\n\n    reboot\n\nText\n\n    ls\n"
    assert [block.mark for block in blocks(text)] == ["needs root", ""]


def test_code_in_a_sentence_may_go_over_the_end_of_a_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("docs.site.pages.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("Say `hived\nversion`.\n\n```\n`no`\n```\n")
    assert list(Page("page.md").spans) == ["hived version"]
