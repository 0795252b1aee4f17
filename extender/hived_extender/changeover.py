"""From plain kernels to compiled ones, beside a service that goes on answering.

A first start without a library has nothing to run but plain Python. A process of its own compiles the kernels into the
cache folder, so that this one never holds what a compiler needs. Then they are loaded, and used from one stimulus to
the next: both kinds change the same arrays in the same way.
"""

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from hived.kernels.jit import has_plain_kernels, kernels_in_use
from hived.kernels.linked import SAYS
from hived_extender.warm import load_kernels, may_compile

log = logging.getLogger(__name__)

NICENESS = 10
END_S = 5.0
_PROGRESS = re.compile(r"(\d+) (\d+)\n")


class Changeover:
    """Has the kernels compiled, and then used."""

    def __init__(self, between_stimuli: Callable[[], AbstractContextManager[object]]) -> None:
        """`between_stimuli` keeps the service from handling anything for as long as its result is entered."""
        self._between_stimuli = between_stimuli
        self._progress = ""
        self._process: subprocess.Popen[str] | None = None
        self._is_stopping = False
        self._starting = threading.Lock()
        """Held to look at `_is_stopping` and start a thread or a process: none begins once `stop` has looked."""
        self._thread = threading.Thread(target=self._run, name="kernels", daemon=True)

    def start(self) -> None:
        """Begin, unless stopped already; costs nothing where kernels are quick already, or shall stay plain."""
        with self._starting:
            if may_compile() and not self._is_stopping:
                self._progress = "compiling"
                log.info("kernels are plain Python, which is slow, until they are compiled beside the service")
                self._thread.start()

    def stop(self) -> None:
        """Compile no more, from now on."""
        with self._starting:
            self._is_stopping = True
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()  # it has nothing to finish: a kernel is kept as a whole, or not at all
        if self._thread.is_alive():
            self._thread.join(END_S)

    def describe(self) -> str:
        """Which kernels run, as `kernels_in_use` says it, and how far the compiler is: `plain, compiling 3 of 26`."""
        in_use, progress = kernels_in_use(), self._progress
        return f"{in_use}, {progress}" if progress and has_plain_kernels() else in_use

    def _run(self) -> None:
        try:
            code, said = self._compile()
            if self._is_stopping:
                return
            if code or not load_kernels(within=self._between_stimuli):
                fields = {"exit_code": code, "error": said}
                log.warning("kernels stay plain Python, which is slow", extra={"fields": fields})
            else:
                log.info("kernels are compiled", extra={"fields": {"kernels": kernels_in_use()}})
        except Exception:
            log.warning("kernels stay plain Python, which is slow", exc_info=True)
        finally:
            self._progress = ""

    def _compile(self) -> tuple[int | None, str]:
        """(exit code of the process that has compiled, the line that says why there may be no kernels).

        The code is None if the process was not started any more. Its kernels are where this process looks for them.
        """
        from hived.kernels.compiling.kernel_cache import kernel_folders  # noqa: PLC0415  # numba, which few services need

        environment = {
            "HIVED_KERNELS": "compiled",
            "NUMBA_CACHE_DIR": str(kernel_folders()[0].parent),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with self._starting:
            if self._is_stopping:
                return None, ""
            process = self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hived_extender.warm"],  # not from the working directory
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        last = warning = ""
        with process:
            assert process.stdout is not None
            with suppress(OSError):  # it has ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            for line in process.stdout:
                if progress := _PROGRESS.fullmatch(line):
                    self._progress = "compiling {} of {}".format(*progress.groups())
                elif line := line.strip():
                    last = line
                    warning = line if line.startswith(SAYS) else warning
        return process.returncode, last if process.returncode else warning
