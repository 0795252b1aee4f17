"""A program of ours whose wall clock the tests set while it runs."""

from pathlib import Path

from tests.e2e.tools import faketime

_SLEEPS = """\
import threading
import time

time.sleep = lambda seconds: threading.Event().wait(seconds) and None
"""
"""The library breaks the call by which Python sleeps: with it, that fails or lasts for hours."""


def own_clock(offset: Path) -> dict[str, str]:
    """The variables that let a program read its wall clock with the offset that is in a file at that moment.

    The folder of the file has to be the program's alone. Raises ToolsMissing.
    """
    set_clock(offset, 0)
    (offset.parent / "sitecustomize.py").write_text(_SLEEPS)
    return {
        "PYTHONPATH": str(offset.parent),
        "LD_PRELOAD": str(faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",  # seconds; each look at a clock would read the file else
        # No step of a machine's clock moves the clocks that measure intervals.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(offset: Path, seconds: int) -> None:
    """Within a second the programs with that file see a wall clock that is so far off."""
    fresh = offset.with_suffix(".new")
    fresh.write_text(f"{seconds:+d}")
    fresh.replace(offset)
