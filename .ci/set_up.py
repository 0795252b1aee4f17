"""Installs what a lock names into the Python that runs this, and says how far it is: `set_up.py LOCK [OPTION...]`.

Options are those of `pip install`. It needs nothing but pip, since nothing else is there yet.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from site import getsitepackages

PIN = re.compile(r"^[\w.-]+==")
FOUND = re.compile(r"(?:Collecting|Ignoring|Requirement already satisfied:) ([\w.-]+)")
DRAW_S, TELL_S = 0.2, 5.0
"""Between two signs of life: on a terminal, and elsewhere."""


class Progress:
    """The progress of pip, from what it prints and the packages installed so far."""

    def __init__(self, lock: Path, folder: Path) -> None:
        self._folder = folder
        self._before = self._installed()
        self._of = sum(bool(PIN.match(line)) for line in lock.read_text().splitlines())
        self._found = 0
        self.what = "looking"
        self.log: list[str] = []

    def read(self, line: str) -> None:
        """Take in a line of pip."""
        self.log.append(line)
        if found := FOUND.match(line):
            self._found, self.what = self._found + 1, found[1]
        elif line.startswith("Installing collected packages:"):
            self.what = f"installing {line.count(',') + 1} packages"

    @property
    def percent(self) -> int:
        """Half of it is to fetch packages, half to install them."""
        return min(99, 50 * (self._found + self._installed() - self._before) // self._of)

    def _installed(self) -> int:
        return sum(1 for _ in self._folder.glob("*.dist-info"))


def main() -> int:
    """Exit code: that of pip, whose last lines are shown if it fails."""
    lock, *options = sys.argv[1:]
    progress, is_terminal = Progress(Path(lock), Path(getsitepackages()[0])), sys.stdout.isatty()
    began = told = time.monotonic()
    pip = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-color",
        "--progress-bar",
        "off",
    ]
    with subprocess.Popen(
        [*pip, "--require-hashes", "--requirement", lock, *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        reader = threading.Thread(target=lambda lines: [progress.read(line) for line in lines], args=(process.stdout,))
        reader.start()
        while reader.is_alive():
            reader.join(DRAW_S)
            if is_terminal or time.monotonic() - told > TELL_S:
                told = time.monotonic()
                line = f"  {progress.percent:3} %  {told - began:3.0f} s  {progress.what}"
                print(f"\r{line:60}" if is_terminal else line, end="" if is_terminal else "\n", flush=True)
    if process.returncode:
        print("\n" * is_terminal + "".join(progress.log[-20:]), file=sys.stderr, end="")
        return process.returncode
    line = f"  100 %  {time.monotonic() - began:3.0f} s  {lock}"
    print(f"\r{line:60}" if is_terminal else line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
