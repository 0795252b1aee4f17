"""The page on dialects has what the modules read."""

import pytest

from hived_extender.jobs.kinds import koordinator, table
from hived_extender.jobs.kinds.description import MatchPolicy
from hived_extender.jobs.kinds.kind import Dialect
from tests.test_docs import ROOT

PAGE = (ROOT / "docs" / "dialects.md").read_text()
ROWS = {
    cells[0]: cells for line in PAGE.splitlines() if len(cells := [cell.strip() for cell in line.split("|")[1:-1]]) == 5
}


def is_named(word: str) -> bool:
    return f"`{word}`" in PAGE or f"`{word.removeprefix(koordinator.PREFIX)}`" in PAGE


@pytest.mark.parametrize("dialect", table.DIALECTS, ids=lambda dialect: dialect.name)
def test_every_key_is_documented(dialect: Dialect) -> None:
    assert [key for key in dialect.keys if not is_named(key)] == []


def test_exactly_the_dialects_have_a_row_with_their_waiting_time() -> None:
    waiting = {name: cells[4] for name, cells in ROWS.items() if name not in {"dialect", "---"}}
    expected = {
        each.name: "" if each.waiting_s is None else f"{each.waiting_s:.0f} s"
        for each in table.DIALECTS
        if each.describe is not None
    }
    assert waiting == expected


def test_every_match_policy_is_documented() -> None:
    assert all(is_named(policy.value) for policy in MatchPolicy)
