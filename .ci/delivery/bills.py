"""The bill of materials (CycloneDX 1.6) and the licences of all packages that hived is installed with.

cyclonedx-py reads requirements.lock, and the licences and needs of the packages in this environment. Neither file names
a time or a machine, so that the same checkout gives the same bytes.
"""

import json
import os
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from license_expression import ExpressionError, Licensing

from delivery.project import CI, ROOT, CheckError, read_policy, read_version

SBOM = "hivedscheduler.cdx.json"
"""The bill of materials: in .ci, in the wheel's dist-info/sboms, beside the wheel and in the image."""

LICENCES = "licences.txt"
"""The list of licences: in .ci, beside the wheel and in the image."""


@cache
def read_lock(name: str) -> dict[str, dict[str, Any]]:
    """The components of a lock by name, with their digests."""
    return {each["name"]: each for each in _describe("requirements", CI / name)["components"]}


@cache
def read_environment() -> dict[str, Any]:
    """The bill of this environment, with the development tools in it; a component has one licence expression."""
    bill = _describe("environment", Path(sys.prefix))
    policy = read_policy()
    for each in bill["components"]:
        each["licenses"] = [{"expression": licence}] if (licence := licence_of(each, policy)) else []
    return bill


def _describe(kind: str, source: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "cyclonedx_py", kind, str(source), "--spec-version", "1.6",
               "--output-reproducible", "--no-validate", "--pyproject", str(ROOT / "pyproject.toml")]  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckError(f"cyclonedx-py {kind} {source}: {done.stderr.strip()}")
    bill: dict[str, Any] = json.loads(done.stdout)
    return bill


def name_of(component: dict[str, Any]) -> str:
    """The name of a package as locks write it."""
    return str(component["purl"]).removeprefix("pkg:pypi/").partition("@")[0]


def licence_of(component: dict[str, Any], policy: dict[str, Any]) -> str:
    """The licence that the policy or the package's metadata name, as an expression; empty if that is not clear."""
    if known := policy["licences"].get(name_of(component)):
        return str(known)
    said = component.get("licenses", [])
    named = [each.get("expression") or each["license"].get("id") for each in said]
    unclear = [each["license"]["name"] for each in said if "name" in each.get("license", {})]
    found = [each for each in named if each] or [
        policy["classifiers"].get(each.split(" :: ")[-1], "") for each in unclear
    ]
    return " AND ".join(found) if all(found) else ""


def is_allowed(expression: str, allowed: list[str]) -> bool:
    """True if a licence expression leaves a choice among allowed licences. No exception makes one stricter."""
    licensing = Licensing()
    try:
        parsed = licensing.parse(expression)
    except ExpressionError:
        return False
    if parsed is None:
        return False
    answers = {
        symbol: licensing.TRUE if getattr(symbol, "license_symbol", symbol).key in allowed else licensing.FALSE
        for symbol in licensing.license_symbols(parsed, decompose=False)
    }
    return bool(parsed.subs(answers).simplify() == licensing.TRUE)


def make_bill() -> dict[str, Any]:
    """The bill of materials of this checkout."""
    locked, bill = read_lock("requirements.lock"), deepcopy(read_environment())
    vendored = [_vendored(each) for each in read_policy()["vendored"]]
    kept = [each for each in bill["components"] if name_of(each) in locked]
    for each in kept:
        each["externalReferences"] = locked[name_of(each)]["externalReferences"]
    refs = {each["bom-ref"] for each in kept}
    root = bill["metadata"]["component"]
    root["version"] = read_version()
    needs = {each["ref"]: sorted(refs & set(each.get("dependsOn", []))) for each in bill["dependencies"]}
    needs[root["bom-ref"]] += [each["bom-ref"] for each in vendored]
    refs |= {root["bom-ref"], *(each["bom-ref"] for each in vendored)}
    return bill | {
        "components": kept + vendored,
        "dependencies": [{"ref": ref, "dependsOn": needs.get(ref, [])} for ref in sorted(refs)],
    }


def _vendored(entry: dict[str, Any]) -> dict[str, Any]:
    """A library for browsers, whose files lie in the checkout as the npm registry has them."""
    purl = f"pkg:npm/{entry['name']}@{entry['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": entry["name"],
        "version": entry["version"],
        "purl": purl,
        "licenses": [{"expression": entry["licence"]}],
        "components": [
            {"type": "file", "name": path.rpartition("/")[2], "hashes": [{"alg": "SHA-256", "content": digest}]}
            for path, digest in entry["files"].items()
        ],
    }


def make_licences(bill: dict[str, Any]) -> str:
    """A line for each package of a bill: name, version, licence."""
    rows = [(bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"], "MIT")]
    rows += [(each["name"], each["version"], each["licenses"][0]["expression"]) for each in bill["components"]]
    return "".join(f"{name:28} {version:12} {licence}\n" for name, version, licence in rows)


def make_bills() -> dict[str, str]:
    """The text of both files by name."""
    bill = make_bill()
    return {SBOM: json.dumps(bill, indent=1, sort_keys=True) + "\n", LICENCES: make_licences(bill)}


def write_bills(*folders: Path) -> None:
    """Write both files into .ci and into other folders, which are made if need be."""
    for name, text in make_bills().items():
        for folder in (CI, *folders):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            print(f"{folder.name}/{name}: {len(text.encode()) / 1e3:.0f} kB")
