"""Programs with kernels that begin where numba is ready, each in a process of its own: `python -m tests.core.forked`.

Importing numba and compiling a first function take a second of CPU; two tiny kernels take a tenth of that. One process
does the former once, and forks for every program. It imports no module of hived, so a program reads its environment
as a new process does.
"""

import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import numba

ROOT = Path(__file__).parent.parent.parent


class Fork:
    """A program that runs, with what it has said in two files."""

    def __init__(self, starter: "Starter", order: dict[str, Any]) -> None:
        self._starter = starter
        self._out, self._err = Path(order["out"]), Path(order["err"])
        self._pid = starter.ask(order)

    def communicate(self) -> tuple[int, str, str]:
        """(exit code, stdout, stderr), once it has ended."""
        code = self._starter.ask({"wait": self._pid})
        return code, self._out.read_text(), self._err.read_text()


class Starter:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        environ = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def start(self, folder: Path, path: Path, *arguments: str, before: str, environ: dict[str, str]) -> Fork:
        """Run the program at `path`, and `before` it some Python; what it says is kept in new files in `folder`."""
        out, err = (tempfile.mkstemp(dir=folder, suffix=suffix) for suffix in (".out", ".err"))
        for handle, _ in (out, err):
            os.close(handle)
        order = {"program": [str(path), *arguments], "before": before, "environ": environ}
        return Fork(self, order | {"out": out[1], "err": err[1]})

    def ask(self, order: dict[str, Any]) -> int:
        """Tell the process to do something; returns a process id or an exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        """End it."""
        self._process.communicate()


def main() -> None:
    """Answer orders until there are no more."""
    _get_ready()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        elif not (answer := os.fork()):
            _become(order, answers)
            return
        print(answer, file=answers, flush=True)


def _get_ready() -> None:
    """Have numba load what it needs for the first function; no fork then looks for garbage in that when it ends."""
    for argument in (2, 2.0):
        numba.njit(error_model="numpy")(lambda value: value * 2 + 1)(argument)
    gc.freeze()


def _become(order: dict[str, Any], answers: IO[str]) -> None:
    answers.close()
    for target, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY),
        (2, order["err"], os.O_WRONLY),
    ):
        handle = os.open(path, flags)
        os.dup2(handle, target)
        os.close(handle)
    os.environ.clear()
    os.environ.update(order["environ"])
    tempfile.tempdir = None
    sys.argv = order["program"]
    exec(order["before"], {})
    runpy.run_path(order["program"][0])


if __name__ == "__main__":
    main()
