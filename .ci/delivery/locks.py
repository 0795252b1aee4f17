"""Lock files: a version of each package, and the digests of its wheels for every Python and platform in TARGETS."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from delivery.project import CheckError

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = {
    "linux-x86_64": ("linux", "Linux", "x86_64"),
    "linux-aarch64": ("linux", "Linux", "aarch64"),
    "macos-arm64": ("darwin", "Darwin", "arm64"),
}
TARGETS = tuple(product(PYTHONS, MACHINES))
_LOCKS = {
    "requirements.lock": "what hived needs to run",
    "build.lock": "what builds the wheel",
    "dev.lock": "all of it, and what tests and checks need",
}
_HEADER = "# Made by `make lock` from pyproject.toml: {}. Python {} on {}.\n--only-binary :all:\n"
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^ ;]+)(?: ; (?P<marker>[^\\]+?))?(?P<rest>(?: --hash=\S+)*)$")


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


def roots(pyproject: dict[str, Any]) -> dict[str, list[Requirement]]:
    """The requirements that each lock has to meet."""
    run = [Requirement(text) for text in pyproject["project"]["dependencies"]]
    dev = [Requirement(text) for text in pyproject["project"]["optional-dependencies"]["dev"]]
    opt = [Requirement(text) for text in pyproject["project"]["optional-dependencies"]["opt"]]
    build = [Requirement(text) for text in pyproject["build-system"]["requires"]]
    build += [each for each in dev if each.name in {"build", "editables", "hatchling"}]
    return {"requirements.lock": run, "build.lock": build, "dev.lock": [*run, *build, *dev, *opt]}


def environment_of(python: str, machine: str) -> dict[str, str]:
    """What markers see on a target."""
    sys_platform, system, architecture = MACHINES[machine]
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


def walk(
    wanted: Iterable[Requirement], requires: dict[str, list[str]], environment: dict[str, str]
) -> Iterator[tuple[str, Requirement]]:
    """(the package that asks, "" for ourselves; its requirement) for all that is installed for some requirements.

    `requires` is what each package asks for itself. A requirement is reported once for each extra that asks for it.
    """
    seen: set[tuple[str, str]] = set()
    todo = [("", requirement, "") for requirement in wanted]
    while todo:
        asking, requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
            continue
        yield asking, requirement
        name = canonicalize_name(requirement.name)
        for wanted_extra in {"", *requirement.extras} - {each for known, each in seen if known == name}:
            seen.add((name, wanted_extra))
            todo += [(name, Requirement(text), wanted_extra) for text in requires.get(name, [])]


def closure(
    wanted: Iterable[Requirement], requires: dict[str, list[str]], environment: dict[str, str]
) -> dict[str, Requirement]:
    """Everything that is installed for some requirements, by name, with the requirement that was met first."""
    found: dict[str, Requirement] = {}
    for _, requirement in walk(wanted, requires, environment):
        found.setdefault(canonicalize_name(requirement.name), requirement)
    return found


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
    lines = [_HEADER.format(_LOCKS[name], ", ".join(PYTHONS), ", ".join(MACHINES))]
    for pin in sorted(pins, key=lambda pin: pin.name):
        marker = f" ; {pin.marker}" if pin.marker else ""
        lines.append(" \\\n    ".join([f"{pin.name}=={pin.version}{marker}", *(f"--hash={h}" for h in pin.hashes)]))
    return "\n".join(lines) + "\n"


def marker_for(targets: set[tuple[str, str]]) -> str:
    """The marker that holds on these targets only; nothing if it holds on all."""
    machines = {
        python: frozenset(machine for each, machine in targets if each == python) for python in PYTHONS
    }  # which machines for each Python
    if all(each == frozenset(MACHINES) for each in machines.values()):
        return ""
    parts = []
    for python, some in machines.items():
        on = [
            f'(sys_platform == "{MACHINES[each][0]}" and platform_machine == "{MACHINES[each][2]}")'
            for each in MACHINES
            if each in some
        ]
        if some == frozenset(MACHINES):
            parts.append(f'python_version == "{python}"')
        elif some:
            parts.append(f'(python_version == "{python}" and ({" or ".join(on)}))')
    return " or ".join(parts)
