"""Building the wheel, with the time of the last commit in it, so that the same checkout gives the same bytes."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from delivery.project import ROOT, CheckError, time_of_release
from delivery.sbom import write_bills


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, in place of older ones, with the bill of materials and the licences beside it.

    Needs what .ci/build.lock names, in this environment. Raises CheckError with the last words of a build that failed.
    """
    print(f"building the wheel into {folder} ...", flush=True)
    write_bills(folder)
    for old in folder.glob("hivedscheduler-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(time_of_release())}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckError(f"the wheel cannot be built:\n{(done.stdout + done.stderr)[-4000:].strip()}")
    (wheel,) = folder.glob("hivedscheduler-*.whl")
    with zipfile.ZipFile(wheel) as content:
        unpacked = sum(each.file_size for each in content.infolist())
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {unpacked / 1e6:.2f} MB unpacked")
    return wheel
