"""The checks of locks, licences, advisories and the bill of materials in `make check`; they need no network."""

import datetime
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from delivery.advisories import check_advisories
from delivery.bills import LICENCES, SBOM, is_allowed, make_bill, make_licences, name_of, read_environment, read_lock
from delivery.project import CI, ROOT, Findings, read_policy


def check_installed(*wanted: str) -> list[str]:
    """Differences between this environment and requirements, in uv's words."""
    command = [sys.executable, "-P", "-m", "uv", "pip", "install", "--dry-run", "--offline", "--no-config",
               "--python", sys.executable, *wanted]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or "Would make no changes" not in done.stderr:
        return [f"this environment is not as {wanted[-1]} says: make lock, make setup\n{done.stderr.strip()}"]
    return []


def check_licences(components: Iterable[dict[str, Any]], policy: dict[str, Any]) -> list[str]:
    """Packages whose licence is not allowed, or not known."""
    problems = []
    for each in components:
        name, licence = name_of(each), "".join(found["expression"] for found in each["licenses"])
        if not licence:
            problems.append(f"{name}: its metadata name no clear licence: look, and add it to .ci/policy.json")
        elif not is_allowed(licence, [*policy["allowed_licences"], *policy["allowed_for"].get(name, [])]):
            problems.append(f"{name}: its licence {licence} is not among those allowed in .ci/policy.json")
    return problems


def check_vendored(root: Path, policy: dict[str, Any]) -> list[str]:
    """Files of others in the checkout that are not as the policy says, or whose licence is not allowed."""
    problems = []
    for each in policy["vendored"]:
        if not is_allowed(each["licence"], policy["allowed_licences"]):
            problems.append(f"{each['name']}: its licence {each['licence']} is not allowed in .ci/policy.json")
        for name, digest in each["files"].items():
            path = root / name
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                problems.append(f"{name}: it is not the file of {each['name']} {each['version']} in .ci/policy.json")
    return problems


def check_bills(folder: Path = CI) -> list[str]:
    """Files that were not made from the lock. Dependencies are not compared: they differ from Python to Python."""
    bill = make_bill()
    paths = [folder / name for name in (SBOM, LICENCES)]
    bills, licences = (path.read_text() if path.exists() else "" for path in paths)
    same = {
        SBOM: bills and json.loads(bills)["components"] == bill["components"],
        LICENCES: licences == make_licences(bill),
    }
    return [f"{name}: it is not that of requirements.lock: make sbom" for name, is_same in same.items() if not is_same]


def check(today: datetime.date) -> Findings:
    """All checks."""
    policy, locked = read_policy(), read_lock("dev.lock")
    path = CI / "advisories.json"
    versions = {name: each["version"] for name, each in locked.items()}
    known = json.loads(path.read_text()) if path.exists() else None
    findings = check_advisories(versions, known, policy["accepted_advisories"], today)
    findings.problems += check_installed("--no-deps", "--requirement", ".ci/dev.lock")
    findings.problems += check_installed("--extra", "dev", "--requirement", "pyproject.toml")
    findings.problems += check_licences((e for e in read_environment()["components"] if name_of(e) in locked), policy)
    findings.problems += check_vendored(ROOT, policy) + check_bills()
    findings.notes.append(
        f"{len(locked)} packages are locked, {len(read_lock('requirements.lock'))} of them to run hived"
    )
    return findings
