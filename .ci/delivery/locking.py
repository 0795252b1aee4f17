"""Remaking the lock files from pyproject.toml.

Versions and digests come from pip itself, so that any index that pip is configured for will do.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from delivery.locks import MACHINES, TARGETS, Pin, closure, environment_of, marker_for, read_lock, roots, write_lock
from delivery.project import CheckError, read_pyproject


def lock(folder: Path, upgrade: bool) -> None:
    """Remake every lock file."""
    wanted = roots(read_pyproject())
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
    architecture = MACHINES[machine][2]
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
        command = [sys.executable, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
                   "--disable-pip-version-check", "--only-binary", ":all:", "--report", str(report),
                   "--constraint", str(constraints), "--requirement", str(asked), *options]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            hint = "\nTo choose all versions anew: make lock UPGRADE=1" if kept else ""
            raise CheckError(f"pip finds no versions that fit:\n{done.stderr.strip()}{hint}")
        installs: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return installs
