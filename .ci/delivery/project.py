"""The project as the other modules see it: its folders, its pyproject.toml, and the errors that its user sees."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

CI = ROOT / ".ci"
"""The folder of the locks and the policy."""


class CheckError(Exception):
    """A mistake that the user of the program can put right."""


def read_policy() -> dict[str, Any]:
    """.ci/policy.json: licences that are allowed, files of others, advisories that are accepted."""
    policy: dict[str, Any] = json.loads((CI / "policy.json").read_text())
    return policy


def read_version() -> str:
    """The version of this checkout, which `hived/__init__.py` has."""
    found = re.search(r'^__version__ = "([^"]+)"', (ROOT / "hived" / "__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise CheckError("hived/__init__.py: expected a line with __version__")
    return found[1]


def time_of_release() -> int:
    """The time that goes into archives: SOURCE_DATE_EPOCH, else that of the last commit, else the start of 2020."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    try:
        asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        said = ""
    return int(said or 1577836800)


@dataclass(slots=True)
class Findings:
    """Problems fail the check; notes do not."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
