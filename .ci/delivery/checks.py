"""What `make check` finds wrong with locks, licences, advisories and the bill of materials; needs no network."""

import datetime
import json
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from delivery.advisories import check_advisories
from delivery.licences import check_licences, check_vendored
from delivery.locks import Pin, read_lock, roots
from delivery.project import CheckError, Findings, read_pyproject
from delivery.sbom import check_bills


def check_locks(locks: dict[str, dict[str, Pin]], wanted: dict[str, list[Requirement]]) -> list[str]:
    """Requirements that a lock does not meet, and packages that two locks disagree on."""
    problems = []
    for name, requirements in wanted.items():
        for each in requirements:
            pin = locks[name].get(canonicalize_name(each.name))
            if pin is None:
                problems.append(f"{name}: {each} is not in it: make lock")
            elif not each.specifier.contains(pin.version, prereleases=True):
                problems.append(f"{name}: {pin.name} {pin.version} is not what pyproject.toml says, {each}: make lock")
        for pin in locks[name].values():
            other = locks["dev.lock"].get(pin.name)
            if other is None or (other.version, other.hashes) != (pin.version, pin.hashes):
                problems.append(f"{name}: {pin.name} is not the same in dev.lock: make lock")
    return problems


def check_installed(pins: dict[str, Pin]) -> list[str]:
    """Locked packages that this environment has in another version or not at all, or that need more than is locked."""
    problems = []
    for pin in pins.values():
        if not pin.applies():
            continue
        try:
            installed = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{pin.name} {pin.version} is locked, but not installed: make setup")
            continue
        if installed.version != pin.version:
            problems.append(f"{pin.name} {pin.version} is locked, but {installed.version} is installed: make setup")
        for each in map(Requirement, installed.requires or []):
            is_needed = each.marker is None or each.marker.evaluate({"extra": ""})
            if is_needed and canonicalize_name(each.name) not in pins:
                problems.append(f"{pin.name} needs {each.name}, which is not locked: make lock")
    return problems


def check(root: Path, today: datetime.date) -> Findings:
    """All checks."""
    folder = root / ".ci"
    wanted = roots(read_pyproject(root))
    locks = {}
    for name in wanted:
        try:
            locks[name] = read_lock((folder / name).read_text())
        except (OSError, CheckError) as error:
            return Findings(problems=[f"{name}: {error}"])
    policy = json.loads((folder / "policy.json").read_text())
    pins = locks["dev.lock"]
    path = folder / "advisories.json"
    findings = check_advisories(
        pins, json.loads(path.read_text()) if path.exists() else None, policy["accepted_advisories"], today
    )
    findings.problems += check_locks(locks, wanted) + check_installed(pins) + check_licences(pins, policy)
    findings.problems += check_vendored(root, policy) + check_bills(root)
    findings.notes.append(f"{len(pins)} packages are locked, {len(locks['requirements.lock'])} of them to run hived")
    return findings
