"""Commands on pages do what the pages say."""

import os
from pathlib import Path

import pytest

from docs.site.pages import Page, pages
from tests.docs.commands import commands_of
from tests.docs.running import Outcome, Session, is_shown, summary

WITH_COMMANDS = [page for page in pages() if commands_of(page)]
EARLY = {"docs/try.md"}
"""Pages that are run with the long tests. The others take a minute, and are run by `make test-docs`."""


@pytest.fixture(scope="module")
def outcomes():
    """What became of each page's commands; printed at the end."""
    found: dict[str, Outcome] = {}
    yield found
    read = [block for page in pages() for block in page.blocks if block.language in {"yaml", "json"}]
    print(f"\n{summary(found)}\nread by test_yaml.py: {len(read)} pieces of YAML and JSON")
    for outcome in found.values():
        for command, reason in outcome.elsewhere:
            print(f"not here: {command}: {command.text.splitlines()[0][:60]}: {reason}")


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.path)
def test_the_commands_of_a_page_succeed_and_print_what_it_shows(page: Page, tmp_path: Path, outcomes) -> None:
    if page.path not in EARLY and not os.environ.get("HIVED_DOCS"):
        pytest.skip("make test-docs runs it")
    with Session(tmp_path) as session:
        outcomes[page.path] = session.run_page(page)
    assert "\n\n".join(outcomes[page.path].wrong) == ""


@pytest.mark.parametrize(
    ("shown", "printed", "is_so"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a b ...", "a b c\n", True),
        ("a\nd", "a\nb\nd\n", False),
        ("a c", "a b\n", False),
    ],
)
def test_what_a_page_shows_is_compared_with_what_is_printed(shown: str, printed: str, is_so: bool) -> None:
    assert is_shown(shown, printed) is is_so
