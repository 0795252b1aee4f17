"""From a checkout to what is delivered. Run with .ci on the path: `PYTHONPATH=.ci python -m delivery COMMAND`.

lock [--upgrade]     .ci/*.lock, from pyproject.toml; pins are kept unless told otherwise
advisories           .ci/advisories.json, from OSV
check                what `make check` runs: locks, licences, vulnerabilities; works without a network
sbom [FOLDER]        bill of materials and list of licences into .ci; with a folder also there
wheel [FOLDER]       the wheels into FOLDER (default: dist), with bill and licences beside them
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

from delivery.advisories import fetch_advisories
from delivery.chart import write_chart
from delivery.checks import check
from delivery.layout import write_package
from delivery.locking import lock
from delivery.locks import read_lock
from delivery.project import CI, ROOT, CheckError, Findings, time_of_release
from delivery.sbom import write_bills
from delivery.wheel import build_wheels

COMMANDS = ("lock", "advisories", "check", "sbom", "wheel", "chart")


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("folder", nargs="?", type=Path, help="where to put the files")
    parser.add_argument("--upgrade", action="store_true", help="lock: choose all versions anew")
    given = parser.parse_args(arguments)
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        match given.command:
            case "lock":
                lock(CI, given.upgrade)
            case "advisories":
                _write_advisories(CI, today)
            case "check":
                return _report(check(ROOT, today))
            case "sbom":
                write_bills(*([given.folder] if given.folder else []))
            case "wheel":
                build_wheels(given.folder or ROOT / "dist")
            case "chart":
                write_chart()
                if given.folder:
                    write_package(given.folder, time_of_release())
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
