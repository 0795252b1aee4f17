"""The resources that a process uses, by the kernel's own count."""

import contextlib
import os
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
