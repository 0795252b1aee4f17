"""Pages for those who come from another scheduler have each field of its queues once, and name what exists here."""

import re

import pytest

from docs.site.pages import Page
from tests.docs.others import FIELDS
from tests.places import ROOT

NET = (ROOT / "tests" / "net.txt").read_text()
TEXTS = NET + (ROOT / "docs" / "configuration.md").read_text() + (ROOT / "docs" / "quotas.md").read_text()
WORDS = frozenset(re.findall(r"[\w./-]+", TEXTS))

QUEUES = {
    "docs/migration-volcano.md": ("scheduling.volcano.sh/v1beta1", "Queue"),
    "docs/migration-kai.md": ("scheduling.run.ai/v2", "Queue"),
}
OTHERS = {"volcano", "kai-scheduler"}
"""Words that are names of others also here: schedulerNames that hived may serve."""

PAGES = [*QUEUES, "docs/migration-kueue.md"]


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the tables under a heading, each as its cells."""
    text = Page(page).text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]


def paths(fields: object, before: str) -> list[str]:
    """The paths of the fields of an object; a path ends where a page may speak of all below it at once."""
    if not isinstance(fields, dict):
        return [before]
    return [path for name, below in fields.items() for path in paths(below, f"{before}.{name}")]


@pytest.mark.parametrize("page", QUEUES)
def test_every_field_of_a_queue_has_a_counterpart_or_none(page: str) -> None:
    every = [
        row for row in rows(page, "Field by field") + rows(page, "No counterpart") if "Queue" in row[0].split("`")[0]
    ]
    named = [path for row in every for path in re.findall(r"`(spec\.[\w.]+)`", row[0])]
    wanted = paths(FIELDS[QUEUES[page]], "spec")
    missing = [path for path in wanted if not any(path == each or path.startswith(f"{each}.") for each in named)]
    assert (missing, sorted({each for each in named if named.count(each) > 1})) == ([], [])


@pytest.mark.parametrize("page", PAGES)
def test_what_is_said_to_be_the_counterpart_exists(page: str) -> None:
    spans = [span for row in rows(page, "Field by field") for span in re.findall(r"`([^`]+)`", row[1])]
    words = [word for span in spans for word in re.findall(r"[a-zA-Z][\w./-]{3,}", span.replace("[].", " "))]
    parts = [part for word in words for part in ([word] if "/" in word else word.split("."))]
    assert [part for part in parts if part not in WORDS | OTHERS and not part.isupper()] == []
