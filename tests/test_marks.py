"""Marks that silence a checker: each says which rule it silences, and why the code is right all the same."""

import re
import tokenize
from pathlib import Path

import pytest

from tests.places import ROOT

FOLDERS = ("hived", "config", "extender", "tests", "docs", ".ci")
_MARK = re.compile(r"#\s*(noqa|type:\s*ignore)\b")
_REASONED = re.compile(r"# (noqa: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)*|type: ignore\[[a-z, -]+\])  # \S.*")


def unreasoned(path: Path) -> list[str]:
    """The marks of a file without a rule, or without a reason behind them, as `# noqa: RULE  # reason`."""
    if not _MARK.search(path.read_text()):
        return []
    with tokenize.open(path) as file:
        comments = [token for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.COMMENT]
    return [
        f"{path}:{token.start[0]} {token.string}"
        for token in comments
        if _MARK.match(token.string) and not _REASONED.fullmatch(token.string)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_mark_that_silences_a_checker_says_why(folder: str) -> None:
    assert not [mark for path in sorted((ROOT / folder).rglob("*.py")) for mark in unreasoned(path)]


@pytest.mark.parametrize(
    ("comment", "is_reasoned"),
    [
        ("# noqa: B023  # called at once", True),
        ("# type: ignore[method-assign, assignment]  # Flask's way", True),
        ("# noqa: B023", False),
        ("# noqa: B023 - called at once", False),
        ("# noqa  # called at once", False),
        ("# type: ignore  # Flask's way", False),
        ("# type: ignore[method-assign]", False),
        ("# nothing is silenced", True),
    ],
)
def test_a_mark_has_a_rule_and_a_reason(tmp_path: Path, comment: str, is_reasoned: bool) -> None:
    file = tmp_path / "some.py"
    file.write_text(f"text = '# noqa: in a text'\ncall()  {comment}\n")
    assert unreasoned(file) == ([] if is_reasoned else [f"{file}:2 {comment}"])
