"""The resources that a process uses, by the kernel's own count."""

from pathlib import Path


def resident_mb(pid: int | str = "self") -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


def cpu_ms(pid: int) -> float:
    """Time that the process's threads have spent on a processor so far, without those that have ended."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6
