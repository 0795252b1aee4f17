"""`hived` as a process of its own, beside a test."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HIVED = [sys.executable, "-c", "from hived_cli import main; main(prog_name='hived')"]


def program(product: Path | None) -> tuple[list[str], str]:
    """The command `hived` of another checkout, this one if None, and its PYTHONPATH.

    A checkout without a `.venv` is run by this Python, on its own sources.
    """
    if product is None:
        return HIVED, os.pathsep.join(filter(None, sys.path))
    python, apart = product / ".venv" / "bin" / "python", ["-P", *HIVED[1:]]  # else the working directory comes first
    if python.exists():
        return [str(python), *apart], ""
    build = tomllib.loads((product / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = {str((product / package).parent.resolve()): None for package in build["targets"]["wheel"]["packages"]}
    return [sys.executable, *apart], os.pathsep.join(folders)


@contextmanager
def hived(*words: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """The command `hived` with these words, until the end; `options` are those of `Popen`.

    A program that still runs then is killed. The end of a `Popen` by itself would wait for it: for ever, if the test
    fails before it has told the program to stop.
    """
    with subprocess.Popen([*HIVED, *words], text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(*words: str) -> str:
    """The standard output of the command `hived` with these words. Raises CalledProcessError."""
    return subprocess.run([*HIVED, *words], check=True, capture_output=True, text=True).stdout


def run_without_input(*words: str) -> "subprocess.CompletedProcess[str]":
    """The command `hived` with these words, whose standard input is closed from the beginning."""
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *HIVED, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
