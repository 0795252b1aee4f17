"""Building the wheels, with the time of the last commit in them, so that the same checkout gives the same bytes.

One has linked kernels for this machine's architecture, another one has none, for every other platform; pip takes the
first where it fits. With a cross compiler there is one for aarch64 as well.
"""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from delivery.bills import write_bills
from delivery.project import ROOT, CheckError, time_of_release

CROSS = {"aarch64": "aarch64-linux-gnu-gcc"}
"""The C compilers for architectures other than this machine's."""


def build_wheels(folder: Path) -> list[Path]:
    """Build the wheels into a folder, in place of older ones, with the bill of materials and the licences beside them.

    Needs a C compiler, and what .ci/dev.lock names, in this environment: numba translates the kernels, which takes a
    minute and says how far it is. Raises CheckError if a build fails.
    """
    print(f"building wheels into {folder}: one with linked kernels, which takes a minute ...", flush=True)
    write_bills(folder)
    for old in folder.glob("hivedscheduler-*.whl"):
        old.unlink()
    return [_build(folder, choices) for choices in _kinds()]


def _kinds() -> list[dict[str, str]]:
    """The variables that the build hook, link_kernels.py, is told by, for each wheel."""
    kinds = [{"HIVED_WHEEL": "linked"}, {"HIVED_WHEEL": "pure"}]
    for architecture, compiler in CROSS.items():
        if architecture != platform.machine() and shutil.which(compiler):
            kinds.append({"HIVED_WHEEL": "linked", "HIVED_BUILD_ARCHITECTURE": architecture, "CC": compiler})
    return kinds


def _build(folder: Path, choices: dict[str, str]) -> Path:
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    environ = {**os.environ, **choices, "SOURCE_DATE_EPOCH": str(time_of_release())}
    if subprocess.run(command, env=environ, check=False).returncode:
        raise CheckError("the wheel cannot be built: its last words stand above")
    (wheel,) = set(folder.glob("*.whl")) - before
    with zipfile.ZipFile(wheel) as content:
        unpacked = sum(each.file_size for each in content.infolist())
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {unpacked / 1e6:.2f} MB unpacked", flush=True)
    return wheel
