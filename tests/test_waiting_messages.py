"""Every message that a waiting pod can get is on the page about them, and nothing else is.

A message is any text of three words or more in the modules that decide about pods, other than those in EXCEPT. A new
one fails here until the page says what it means and what helps.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.places import ROOT

PAGE = (ROOT / "docs/waiting.md").read_text()
FILES = (
    "config/hived_config/access.py",
    "extender/hived_extender/api/queues.py",
    "extender/hived_extender/insight/judge.py",
    "extender/hived_extender/jobs/amounts.py",
    "extender/hived_extender/jobs/annotations.py",
    "extender/hived_extender/jobs/asks.py",
    "extender/hived_extender/jobs/bind_info.py",
    "extender/hived_extender/jobs/document.py",
    "extender/hived_extender/jobs/interpreter.py",
    "extender/hived_extender/jobs/quotas/usage.py",
    "extender/hived_extender/jobs/readings.py",
    "extender/hived_extender/jobs/starts.py",
    "extender/hived_extender/queues/awaited.py",
    "extender/hived_extender/kube_rules/mates.py",
    "extender/hived_extender/machine/acceptance.py",
    "extender/hived_extender/machine/bound_pods.py",
    "extender/hived_extender/machine/certificates.py",
    "extender/hived_extender/machine/cluster_cache.py",
    "extender/hived_extender/machine/devices/guarantees.py",
    "extender/hived_extender/machine/devices/keeper.py",
    "extender/hived_extender/machine/gang_notices.py",
    "extender/hived_extender/machine/kept_cells.py",
    "extender/hived_extender/machine/offers.py",
    "extender/hived_extender/machine/pods.py",
    "extender/hived_extender/machine/preemptions.py",
    "extender/hived_extender/machine/quota_bound.py",
    "extender/hived_extender/machine/service.py",
    "extender/hived_extender/machine/verbs.py",
    "extender/hived_extender/machine/waiting.py",
    "extender/hived_extender/queues/reasons.py",
    "hived/cells/views.py",
    "hived/complete/fitting.py",
    "hived/complete/offered_placement.py",
    "hived/deciding.py",
    "hived/hived_rules/packing.py",
    "hived/hived_rules/packing_below.py",
    "hived/hived_rules/placement.py",
    "hived/life/bind_info.py",
    "hived/life/checks.py",
    "hived/life/groups.py",
    "hived/scheduler.py",
    "hived/search.py",
)
FOLDERS = ("extender/hived_extender/jobs/kinds", "extender/hived_extender/machine/gangs")
OF_JOBS = {"gangs.py", "ray.py"}
"""Kinds of jobs, which wait with messages of their own."""

MODULES = (
    *(ROOT / file for file in FILES),
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py")) if path.name not in OF_JOBS),
)
ONLY = {"config/hived_config/access.py": "AccessRules"}
"""Of these files a class decides about pods; the rest is about configurations."""

EXCEPT = {
    "GiB of memory": "a unit",
    r"(?: *(?:- )*(?:[A-Za-z0-9][\w./-]*:?(?: [A-Za-z0-9][\w./-]*)?|\"\")(?:\n|$))*": "a pattern",
    r"[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?": "a pattern",
    "^{}:\\n(?:[ -].*(?:\\n|\\Z))+": "a pattern",
    "(.*[-._]|)(0|[1-9][0-9]{0,9})": "a pattern",
    "asks for {}, but the SKU has none": "of submissions",
    "virtual cluster {} does not exist; the configuration has {}": "of submissions",
    "head -c 32 /dev/urandom | base64": "a command",
    "{}: {}; expected a key in base64 on each line, such as {}": "of the file of keys",
    "{}: expected keys of at least {} bytes, such as {}": "of the file of keys",
    "a number of many digits": "a value",
    "the job object: ": "a place",
    "true or false": "of job objects",
    "{} found {} of {}, expected one of: {}": "of job objects",
    "{}: found {} of {}, which hived cannot hold back": "of job objects",
    "suggested nodes must be a mask of {} nodes": "for programs that use the core",
    "suggested nodes and an offer were both given; an offer stands in their place": "for programs that use the core",
    "{}/namespaces/{}/{}/{}": "an address",
    "nothing proves that hived bound it: its devices count as used by others": "of pods that run",
    "_Pending | None": "a type",
    "bool | int | str | list[Value] | dict[str, Value] | None": "a type",
    "Terms | UserError | None": "a type",
    "Offers | None": "a type",
}
WORDS = 3


def texts(tree: ast.Module) -> Iterator[str]:
    """The messages in a module, {} for each filled-in part; no docstrings, logs, or errors of ours."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring, or a call whose value nobody uses
            silent |= {id(node.value)}
        if isinstance(node, ast.JoinedStr):
            silent |= {id(value) for value in node.values}
        if isinstance(node, ast.Call) and _is_silent(node.func):
            silent |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        text = _text(node) if id(node) not in silent else ""
        if len(re.findall(r"[^\s{}]+", text)) >= WORDS:
            yield text


def _is_silent(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return isinstance(called.value, ast.Name) and called.value.id == "log"
    of_keys = {"refuses", "ignores"}  # docs/dialect-keys.md has them
    return isinstance(called, ast.Name) and called.id in {"InvariantError", "IndexError", *of_keys}


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
    return ""


def pattern(text: str) -> re.Pattern[str]:
    """A message as it looks on the page."""
    text = re.sub(r"^(\[\{\}\]: |\{\}\s*)", "", text.strip())  # whom it is about
    return re.compile(".*?".join(re.escape(part) for part in text.split("{}")))


ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| message")]
PLACES = [*ROWS, *(" ".join(part.split()) for part in PAGE.split("\n\n") if not part.startswith("|"))]


@cache
def found() -> frozenset[str]:
    """All that is said anywhere. Not looked for before a test asks: every worker collects all tests."""
    return frozenset(text for path in MODULES for text in texts(_deciding(path)))


def _deciding(path: Path) -> ast.Module:
    """What a file has about pods."""
    tree, name = ast.parse(path.read_text()), ONLY.get(path.relative_to(ROOT).as_posix())
    if name is not None:
        tree.body = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
        assert tree.body
    return tree


def messages() -> list[str]:
    """All that has to be on the page."""
    return sorted(found() - EXCEPT.keys())


def test_every_message_is_on_the_page() -> None:
    assert len(messages()) > 80
    missing = [text for text in messages() if not any(pattern(text).search(place) for place in PLACES)]
    assert missing == []


def test_every_row_of_the_page_has_a_message_and_a_remedy() -> None:
    patterns = [pattern(text) for text in messages()]
    for row in ROWS:
        message, meaning, remedy = (cell.strip() for cell in row.strip("|").split(" | "))
        assert min(len(meaning), len(remedy)) > 0, message
        assert any(one.search(message) for one in patterns), message


def test_the_exceptions_are_still_there() -> None:
    assert EXCEPT.keys() - found() == set()
