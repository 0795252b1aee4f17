"""The resources that a process uses, by the kernel's own count, and the machine that figures depend on."""

import contextlib
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.places import ROOT

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEASURED = ("hived", "config", "extender", "tests/benchmarks")


def resident_mb(pid: int | str = "self") -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process and of its children, ended ones among them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    total = time.clock_gettime((~pid << 3) | 2)  # the CPU clock of another process: see clock_getcpuclockid(3)
    total += sum(map(int, fields[13:15])) / TICKS_PER_S
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            with contextlib.suppress(OSError):  # it has just ended
                total += cpu_s(int(child))
    return total


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
