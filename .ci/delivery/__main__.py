"""From a checkout to what is delivered. Run with .ci on the path: `PYTHONPATH=.ci python -m delivery COMMAND`.

advisories           .ci/advisories.json, from OSV
check                what `make check` runs: locks, licences, vulnerabilities; works without a network
sbom [FOLDER]        bill of materials and list of licences into .ci; with a folder also there
wheel [FOLDER]       the wheels into FOLDER (default: dist), with bill and licences beside them
chart [FOLDER]       the Helm chart as a package and an OCI layout into FOLDER (default: dist)
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

from delivery.advisories import fetch_advisories
from delivery.bills import read_lock, write_bills
from delivery.chart import write_package
from delivery.checks import check
from delivery.project import CI, ROOT, CheckError, Findings, time_of_release
from delivery.wheel import build_wheels

COMMANDS = ("advisories", "check", "sbom", "wheel", "chart")


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("folder", nargs="?", type=Path, help="where to put the files")
    given = parser.parse_args(arguments)
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        match given.command:
            case "advisories":
                _write_advisories(today)
            case "check":
                return _report(check(today))
            case "sbom":
                write_bills(*([given.folder] if given.folder else []))
            case "wheel":
                build_wheels(given.folder or ROOT / "dist")
            case "chart":
                write_package(given.folder or ROOT / "dist", time_of_release())
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _write_advisories(today: datetime.date) -> None:
    known = fetch_advisories(read_lock("dev.lock"), today)
    (CI / "advisories.json").write_text(json.dumps(known, indent=1) + "\n")
    print(f"advisories.json: {len(known['advisories'])} advisories")


def _report(findings: Findings) -> int:
    for note in findings.notes:
        print(f"dependencies: {note}")
    for problem in findings.problems:
        print(f"dependencies: {problem}", file=sys.stderr)
    return int(bool(findings.problems))


if __name__ == "__main__":
    sys.exit(main())
