"""The figures depend on more than the code: machine, versions, commit, and who else was running."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.places import ROOT

MEASURED = ("hived", "config", "extender", "tests/benchmarks")


def describe_machine() -> dict[str, Any]:
    """JSON-ready; `load_average` is that of the last minute, in runnable processes."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain", "--", *MEASURED).splitlines()),
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _git(*arguments: str) -> str:
    """Output of a git command; "unknown" where this is no checkout or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
