"""Known vulnerabilities: advisories from OSV, and the locked versions that they are about."""

import datetime
import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from delivery.project import CheckError, Findings

OSV = "https://api.osv.dev/v1/query"
OLD_DAYS = 30
"""A list of advisories that is older is worth a warning."""


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
    """True if an advisory lists a version, or has it in one of its ranges."""
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
    versions: Mapping[str, str], known: dict[str, Any] | None, accepted: dict[str, str], today: datetime.date
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
        package, names = advisory["package"], {advisory["id"], *advisory["aliases"]}
        version = versions.get(package)
        if version is not None and not names & accepted.keys() and is_affected(version, advisory):
            findings.problems.append(f"{package} {version}: {' '.join(sorted(names))}: {advisory['summary']}")
    return findings
