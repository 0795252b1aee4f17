"""Bills of materials (CycloneDX 1.6) and lists of licences: what hived is installed with, by the lock of its version.

Both follow from the lock, the metadata of the installed packages and the policy alone. They name neither a time nor a
machine, so that the same checkout gives the same bytes.
"""

import json
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from delivery.licences import known_licence
from delivery.locks import TARGETS, Pin, environment_of, read_lock, roots, walk
from delivery.project import CI, ROOT, read_pyproject, read_version

SBOM = "hivedscheduler.cdx.json"
"""The bill of materials: in .ci, in the wheel's dist-info/sboms, beside the wheel and in the image."""

LICENCES = "licences.txt"
"""The list of licences: in .ci, beside the wheel and in the image."""


def make_sbom(root: Path = ROOT) -> str:
    """The bill of materials of a checkout, as JSON text."""
    project = read_pyproject(root)
    pins, policy = _locked(root), _policy(root)
    version, name = read_version(root), project["project"]["name"]
    ourselves = {
        "type": "application",
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "description": project["project"]["description"],
        "licenses": [{"expression": project["project"]["license"]}],
        "purl": _purl(name, version),
    }
    content = {
        "metadata": {"component": ourselves},
        "components": [
            *(_component(pin, policy) for pin in pins.values()),
            *(_vendored(each) for each in policy["vendored"]),
        ],
        "dependencies": _dependencies(project, name, version, pins, policy),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps(head | content, indent=1) + "\n"


def make_licences(root: Path = ROOT) -> str:
    """A line for each package that hived is installed with: name, version, licence."""
    policy, pins = _policy(root), _locked(root)
    rows = [(read_pyproject(root)["project"]["name"], read_version(root), read_pyproject(root)["project"]["license"])]
    rows += [(pin.name, pin.version, known_licence(pin.name, policy) or "unknown") for pin in pins.values()]
    rows += [(each["name"], each["version"], each["licence"]) for each in policy["vendored"]]
    return "".join(f"{name:28} {version:12} {licence}\n" for name, version, licence in rows)


def make_bills(root: Path = ROOT) -> dict[str, str]:
    """The text of both files by name."""
    return {SBOM: make_sbom(root), LICENCES: make_licences(root)}


def check_bills(root: Path) -> list[str]:
    """The files in .ci that are not those of the lock."""
    return [
        f"{name}: it is not that of requirements.lock: make sbom"
        for name, text in make_bills(root).items()
        if not (root / ".ci" / name).exists() or (root / ".ci" / name).read_text() != text
    ]


def _locked(root: Path) -> dict[str, Pin]:
    return read_lock((root / ".ci" / "requirements.lock").read_text())


def _policy(root: Path) -> dict[str, Any]:
    policy: dict[str, Any] = json.loads((root / ".ci" / "policy.json").read_text())
    return policy


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(pin: Pin, policy: dict[str, Any]) -> dict[str, Any]:
    """One package. Its wheels differ from platform to platform, so the digests are those of its distribution."""
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(pin.name, pin.version),
        "name": pin.name,
        "version": pin.version,
        "purl": _purl(pin.name, pin.version),
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{pin.name}/{pin.version}/",
                "hashes": [{"alg": "SHA-256", "content": each.removeprefix("sha256:")} for each in pin.hashes],
            }
        ],
    }
    if licence := known_licence(pin.name, policy):
        component["licenses"] = [{"expression": licence}]
    return component


def _vendored(entry: dict[str, Any]) -> dict[str, Any]:
    """A library for browsers, whose files lie in the checkout as the npm registry has them."""
    return {
        "type": "library",
        "bom-ref": _npm_purl(entry),
        "name": entry["name"],
        "version": entry["version"],
        "purl": _npm_purl(entry),
        "licenses": [{"expression": entry["licence"]}],
        "components": [
            {"type": "file", "name": path.rpartition("/")[2], "hashes": [{"alg": "SHA-256", "content": digest}]}
            for path, digest in entry["files"].items()
        ],
    }


def _npm_purl(entry: dict[str, Any]) -> str:
    return f"pkg:npm/{entry['name']}@{entry['version']}"


def _dependencies(
    project: dict[str, Any], name: str, version: str, pins: dict[str, Pin], policy: dict[str, Any]
) -> list[dict[str, Any]]:
    """The packages that each package asks for on any target; hived brings the vendored ones along."""
    requires: dict[str, list[str]] = {}
    for pin in pins:
        try:
            requires[pin] = metadata.requires(pin) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
    found: dict[str, set[str]] = {each: set() for each in ("", *pins)}
    for target in TARGETS:
        for asking, requirement in walk(roots(project)["requirements.lock"], requires, environment_of(*target)):
            found[asking].add(canonicalize_name(requirement.name))
    vendored = [_npm_purl(each) for each in policy["vendored"]]
    refs = {
        _purl(each, pins[each].version) if each else _purl(name, version): sorted(
            [*(_purl(other, pins[other].version) for other in others), *(vendored if not each else [])]
        )
        for each, others in found.items()
    }
    return [{"ref": ref, "dependsOn": others} for ref, others in (refs | {each: [] for each in vendored}).items()]


def write_bills(*folders: Path) -> None:
    """Write both files into .ci and into other folders, which are made if need be."""
    for name, text in make_bills().items():
        for folder in (CI, *folders):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            print(f"{folder.name}/{name}: {len(text.encode()) / 1e3:.0f} kB")
