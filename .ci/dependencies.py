"""Locked dependencies: remakes the lock files, fetches advisories, and checks versions, licences and vulnerabilities.

    python .ci/dependencies.py lock [--upgrade]   .ci/*.lock, from pyproject.toml; pins are kept unless told otherwise
    python .ci/dependencies.py advisories         .ci/advisories.json, from OSV
    python .ci/dependencies.py check              what `make check` runs: works without a network

A lock names for each package one version, and the digests of its wheels for every Python and platform in TARGETS. They
come from pip itself, so that any index that pip is configured for will do.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
OSV = "https://api.osv.dev/v1/query"
OLD_DAYS = 30
"""A list of advisories that is older is worth a warning."""

PYTHONS = ("3.11", "3.12", "3.13")
_MACHINES = {
    "linux-x86_64": ("linux", "Linux", "x86_64"),
    "linux-aarch64": ("linux", "Linux", "aarch64"),
    "macos-arm64": ("darwin", "Darwin", "arm64"),
}
TARGETS = tuple(product(PYTHONS, _MACHINES))
_LOCKS = {
    "requirements.lock": "what hived needs to run",
    "build.lock": "what builds the wheel",
    "dev.lock": "all of it, and what tests and checks need",
}
_HEADER = "# Made by `make lock` from pyproject.toml: {}. Python {} on {}.\n--only-binary :all:\n"
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^ ;]+)(?: ; (?P<marker>[^\\]+?))?(?P<rest>(?: --hash=\S+)*)$")


class CheckError(Exception):
    """Something that has to be put right, in words for whoever runs the program."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock."""

    name: str
    version: str
    marker: str = ""
    hashes: tuple[str, ...] = ()

    def applies(self, environment: dict[str, str] | None = None) -> bool:
        """Whether it is installed in an environment; in this one, if none is given."""
        return not self.marker or Marker(self.marker).evaluate(environment)


@dataclass(slots=True)
class Findings:
    """Problems fail the check; notes do not."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# -- what the project asks for ---------------------------------------------------------------------------------------


def roots(pyproject: dict[str, Any]) -> dict[str, list[Requirement]]:
    """The requirements that each lock has to meet."""
    run = [Requirement(text) for text in pyproject["project"]["dependencies"]]
    dev = [Requirement(text) for text in pyproject["project"]["optional-dependencies"]["dev"]]
    build = [Requirement(text) for text in pyproject["build-system"]["requires"]]
    build += [each for each in dev if each.name in {"build", "editables", "hatchling"}]
    return {"requirements.lock": run, "build.lock": build, "dev.lock": [*run, *build, *dev]}


def environment_of(python: str, machine: str) -> dict[str, str]:
    """What markers see on a target."""
    sys_platform, system, architecture = _MACHINES[machine]
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": architecture,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": system,
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": sys_platform,
    }


def closure(
    wanted: Iterable[Requirement], requires: dict[str, list[str]], environment: dict[str, str]
) -> dict[str, Requirement]:
    """Everything that is installed for some requirements, by name; `requires` is what each package asks for itself."""
    found: dict[str, Requirement] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(requirement, "") for requirement in wanted]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.setdefault(name, requirement)
        for wanted_extra in {"", *requirement.extras} - {each for known, each in seen if known == name}:
            seen.add((name, wanted_extra))
            todo += [(Requirement(text), wanted_extra) for text in requires.get(name, [])]
    return found


# -- lock files ------------------------------------------------------------------------------------------------------


def read_lock(text: str) -> dict[str, Pin]:
    """The pins of a lock file by name. CheckError where a line is no pin with SHA-256 digests."""
    pins: dict[str, Pin] = {}
    for line in (" ".join(each.split()) for each in text.replace("\\\n", "").splitlines()):
        if not line or line.startswith(("#", "--only-binary")):
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise CheckError(f"this line pins nothing: {line[:60]}")
        hashes = tuple(each.removeprefix("--hash=") for each in match["rest"].split())
        wrong = [each for each in hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", each)]
        if wrong or not hashes:
            raise CheckError(f"{match['name']} has no SHA-256 digest" + (f": {wrong[0]}" if wrong else ""))
        name = canonicalize_name(match["name"])
        if name in pins:
            raise CheckError(f"{name} is pinned twice")
        pins[name] = Pin(name, match["version"], match["marker"] or "", hashes)
    return pins


def write_lock(name: str, pins: Iterable[Pin]) -> str:
    """The text of a lock file."""
    lines = [_HEADER.format(_LOCKS[name], ", ".join(PYTHONS), ", ".join(_MACHINES))]
    for pin in sorted(pins, key=lambda pin: pin.name):
        marker = f" ; {pin.marker}" if pin.marker else ""
        lines.append(" \\\n    ".join([f"{pin.name}=={pin.version}{marker}", *(f"--hash={h}" for h in pin.hashes)]))
    return "\n".join(lines) + "\n"


def marker_for(targets: set[tuple[str, str]]) -> str:
    """The marker that holds on these targets only; nothing if it holds on all."""
    machines = {
        python: frozenset(machine for each, machine in targets if each == python) for python in PYTHONS
    }  # which machines for each Python
    if all(each == frozenset(_MACHINES) for each in machines.values()):
        return ""
    parts = []
    for python, some in machines.items():
        on = [
            f'(sys_platform == "{_MACHINES[each][0]}" and platform_machine == "{_MACHINES[each][2]}")'
            for each in _MACHINES
            if each in some
        ]
        if some == frozenset(_MACHINES):
            parts.append(f'python_version == "{python}"')
        elif some:
            parts.append(f'(python_version == "{python}" and ({" or ".join(on)}))')
    return " or ".join(parts)


def lock(folder: Path, upgrade: bool) -> None:
    """Remake every lock file."""
    wanted = roots(_pyproject(ROOT))
    kept = {} if upgrade else _kept(folder, wanted["dev.lock"])
    versions, requires = _resolve(wanted["dev.lock"], kept)
    needed: dict[str, dict[str, set[tuple[str, str]]]] = {name: {} for name in wanted}
    hashes: dict[str, set[str]] = {}
    for target in TARGETS:
        environment = environment_of(*target)
        for name, requirements in wanted.items():
            for package in closure(requirements, requires, environment):
                needed[name].setdefault(package, set()).add(target)
        here = [f"{each}=={versions[each]}" for each in closure(wanted["dev.lock"], requires, environment)]
        print(f"digests for Python {target[0]} on {target[1]} ...", flush=True)
        for package, digest in _digests(here, target).items():
            hashes.setdefault(package, set()).add(digest)
    for name, packages in needed.items():
        pins = [
            Pin(each, versions[each], marker_for(targets), tuple(sorted(hashes[each])))
            for each, targets in packages.items()
        ]
        (folder / name).write_text(write_lock(name, pins))
        print(f"{name}: {len(pins)} packages")


def _kept(folder: Path, wanted: list[Requirement]) -> dict[str, str]:
    """The pins that there are, without those that pyproject.toml does not allow any more."""
    path = folder / "dev.lock"
    pins = read_lock(path.read_text()) if path.exists() else {}
    refused = {
        name for each in wanted if (name := canonicalize_name(each.name)) in pins
        and not each.specifier.contains(pins[name].version, prereleases=True)
    }  # fmt: skip
    return {name: pin.version for name, pin in pins.items() if name not in refused}


def _resolve(wanted: list[Requirement], kept: dict[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """(version, requirements) of every package that some target needs.

    pip looks at this machine only, so what other targets need besides is asked for by name until nothing is missing.
    """
    more: dict[str, Requirement] = {}
    while True:
        print(f"choosing versions of {len(wanted) + len(more)} requirements and all that they need ...", flush=True)
        asked = [_without_marker(each) for each in (*wanted, *more.values())]
        found = {_name(each): each["metadata"] for each in _pip(asked, kept)}
        requires = {name: each.get("requires_dist", []) for name, each in found.items()}
        needed: dict[str, Requirement] = {}
        for target in TARGETS:
            needed |= closure(wanted, requires, environment_of(*target))
        if missing := needed.keys() - found.keys():
            more |= {name: needed[name] for name in missing}
            continue
        return {name: found[name]["version"] for name in needed}, requires


def _without_marker(requirement: Requirement) -> str:
    return str(requirement).split(";")[0].strip()


def _digests(pins: list[str], target: tuple[str, str]) -> dict[str, str]:
    """The digest of the wheel that pip takes for each pin on a target."""
    options = ["--no-deps", "--python-version", target[0], "--implementation", "cp"]
    for platform in _platforms(target[1]):
        options += ["--platform", platform]
    with tempfile.TemporaryDirectory() as folder:
        installs = _pip(pins, {}, [*options, "--target", folder])
    hashes = {_name(each): each["download_info"]["archive_info"]["hashes"] for each in installs}
    return {name: f"sha256:{each['sha256']}" for name, each in hashes.items()}


def _name(install: dict[str, Any]) -> str:
    return canonicalize_name(install["metadata"]["name"])


def _platforms(machine: str) -> list[str]:
    """Tags of the wheels that run on a machine; on Linux those for glibc 2.36 (Debian 12) and older."""
    architecture = _MACHINES[machine][2]
    if machine.startswith("macos"):
        return [f"macosx_14_0_{architecture}"]
    numbered = [f"manylinux_2_{minor}_{architecture}" for minor in range(36, 4, -1)]
    return [*numbered, f"manylinux2014_{architecture}", f"linux_{architecture}"]


def _pip(wanted: list[str], kept: dict[str, str], options: Iterable[str] = ()) -> list[dict[str, Any]]:
    """What pip would install. CheckError with pip's own words if it finds nothing that fits."""
    with tempfile.TemporaryDirectory() as folder:
        report, constraints, asked = (Path(folder) / name for name in ("report.json", "kept.txt", "asked.txt"))
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in kept.items()))
        asked.write_text("\n".join(wanted))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
                   "--disable-pip-version-check", "--only-binary", ":all:", "--report", str(report),
                   "--constraint", str(constraints), "--requirement", str(asked), *options]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            hint = "\nTo choose all versions anew: make lock UPGRADE=1" if kept else ""
            raise CheckError(f"pip finds no versions that fit:\n{done.stderr.strip()}{hint}")
        installs: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return installs


# -- advisories ------------------------------------------------------------------------------------------------------


def fetch_advisories(packages: Iterable[str], today: datetime.date, url: str = OSV) -> dict[str, Any]:
    """Every advisory on these packages, whichever versions it is about. CheckError if they cannot be had."""
    advisories = []
    for package in sorted(packages):
        for each in _ask_osv(package, url):
            if "withdrawn" not in each:
                advisories.append(_shortened(each, package))
    return {"date": today.isoformat(), "source": "osv.dev", "advisories": advisories}


def _ask_osv(package: str, url: str) -> Iterator[dict[str, Any]]:
    question: dict[str, Any] = {"package": {"name": package, "ecosystem": "PyPI"}}
    while True:
        request = urllib.request.Request(url, json.dumps(question).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.load(response)
        except (OSError, ValueError) as error:
            raise CheckError(f"advisories cannot be fetched from {url}: {error}") from None
        yield from answer.get("vulns", [])
        if not (token := answer.get("next_page_token")):
            return
        question["page_token"] = token


def _shortened(advisory: dict[str, Any], package: str) -> dict[str, Any]:
    affected = [each for each in advisory.get("affected", []) if canonicalize_name(each["package"]["name"]) == package]
    ranges = [each["events"] for a in affected for each in a.get("ranges", []) if each["type"] == "ECOSYSTEM"]
    return {
        "id": advisory["id"],
        "aliases": advisory.get("aliases", []),
        "package": package,
        "summary": advisory.get("summary") or advisory.get("details", "")[:120],
        "versions": sorted({version for each in affected for version in each.get("versions", [])}),
        "ranges": ranges,
    }


def is_affected(version: str, advisory: dict[str, Any]) -> bool:
    """Whether an advisory is about a version, which it lists or which lies in one of its ranges."""
    return version in advisory["versions"] or any(_is_within(Version(version), each) for each in advisory["ranges"])


def _is_within(version: Version, events: list[dict[str, str]]) -> bool:
    """A range is a list of events in order: introduced, fixed, introduced again."""
    inside = False
    for event in events:
        if "introduced" in event and version >= Version(event["introduced"]):
            inside = True
        if ("fixed" in event and version >= Version(event["fixed"])) or (
            "last_affected" in event and version > Version(event["last_affected"])
        ):
            inside = False
    return inside


def check_advisories(
    pins: dict[str, Pin], known: dict[str, Any] | None, accepted: dict[str, str], today: datetime.date
) -> Findings:
    """Locked versions that an advisory is about, unless it is accepted with a reason."""
    if known is None:
        return Findings(notes=[
            "known vulnerabilities were NOT checked: there is no .ci/advisories.json. `make advisories` fetches one "
            "where osv.dev can be reached; commit it"
        ])  # fmt: skip
    findings = Findings()
    age = (today - datetime.date.fromisoformat(known["date"])).days
    findings.notes.append(f"known vulnerabilities: {len(known['advisories'])} advisories as of {known['date']}")
    if age > OLD_DAYS:
        findings.notes.append(f"WARNING: that is {age} days ago, what is younger was not checked: make advisories")
    for advisory in known["advisories"]:
        pin = pins.get(advisory["package"])
        names = {advisory["id"], *advisory["aliases"]}
        if pin is not None and not names & accepted.keys() and is_affected(pin.version, advisory):
            findings.problems.append(f"{pin.name} {pin.version}: {' '.join(sorted(names))}: {advisory['summary']}")
    return findings


# -- licences --------------------------------------------------------------------------------------------------------


def is_allowed(expression: str, allowed: Iterable[str]) -> bool:
    """Whether a licence expression leaves a choice among allowed licences: of `OR` one part, of `AND` all."""
    tokens = re.findall(r"[()]|[^\s()]+", expression)

    def either() -> bool:
        good = both()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            good = both() or good
        return good

    def both() -> bool:
        good = one()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            good = one() and good
        return good

    def one() -> bool:
        token = tokens.pop(0) if tokens else ""
        if token != "(":
            return token in allowed and _with_exception()
        good = either()
        return bool(tokens) and tokens.pop(0) == ")" and good

    def _with_exception() -> bool:
        """No exception makes a licence stricter."""
        if tokens and tokens[0].upper() == "WITH":
            del tokens[:2]
        return True

    return either() and not tokens


def licence_of(distribution: metadata.Distribution, policy: dict[str, Any]) -> str:
    """The licence that a package names in its metadata, as an expression; empty if that is not clear."""
    said = distribution.metadata
    if expression := said.get_all("License-Expression"):
        return str(expression[0])
    named = [each for each in said.get_all("Classifier") or [] if each.startswith("License :: OSI Approved ::")]
    if named:
        known = [policy["classifiers"].get(each.split(" :: ")[-1], "") for each in named]
        return " AND ".join(known) if all(known) else ""
    text = said.get_all("License") or [""]
    return text[0] if text[0] in policy["allowed_licences"] else ""


def check_licences(pins: dict[str, Pin], policy: dict[str, Any]) -> list[str]:
    """Locked packages whose licence is not allowed, or not known."""
    problems = []
    for pin in pins.values():
        licence = policy["licences"].get(pin.name) or _installed_licence(pin, policy)
        allowed = {*policy["allowed_licences"], *policy["allowed_for"].get(pin.name, [])}
        if licence is None:
            problems.append(f"{pin.name}: not installed, so its licence is not known: add it to .ci/policy.json")
        elif not licence:
            problems.append(f"{pin.name}: its metadata name no clear licence: look, and add it to .ci/policy.json")
        elif not is_allowed(licence, allowed):
            problems.append(f"{pin.name}: its licence {licence} is not among those allowed in .ci/policy.json")
    return problems


def _installed_licence(pin: Pin, policy: dict[str, Any]) -> str | None:
    try:
        return licence_of(metadata.distribution(pin.name), policy)
    except metadata.PackageNotFoundError:
        return None


# -- locks against pyproject.toml and what is installed ---------------------------------------------------------------


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
    wanted = roots(_pyproject(root))
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
    findings.notes.append(f"{len(pins)} packages are locked, {len(locks['requirements.lock'])} of them to run hived")
    return findings


def _pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


# -- the program -----------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["lock", "advisories", "check"])
    parser.add_argument("--upgrade", action="store_true", help="lock: choose all versions anew")
    given = parser.parse_args(arguments)
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        if given.command == "lock":
            lock(ROOT / ".ci", given.upgrade)
        elif given.command == "advisories":
            _write_advisories(ROOT / ".ci", today)
        else:
            return _report(check(ROOT, today))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _write_advisories(folder: Path, today: datetime.date) -> None:
    known = fetch_advisories(read_lock((folder / "dev.lock").read_text()), today)
    (folder / "advisories.json").write_text(json.dumps(known, indent=1) + "\n")
    print(f"advisories.json: {len(known['advisories'])} advisories")


def _report(findings: Findings) -> int:
    for note in findings.notes:
        print(f"dependencies: {note}")
    for problem in findings.problems:
        print(f"dependencies: {problem}", file=sys.stderr)
    return int(bool(findings.problems))


if __name__ == "__main__":
    sys.exit(main())
