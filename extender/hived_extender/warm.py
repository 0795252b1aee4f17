"""Having quick kernels, the core's and our own; `python -m hived_extender.warm` compiles them ahead of time.

Linked kernels are there at once. Where there is no library of these sources, numba compiles them, once, and keeps them
on disk. Nothing happens where kernels shall stay plain.
"""

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from importlib.util import find_spec

from hived.kernels.jit import EXCHANGEABLE, has_plain_kernels, kernels_in_use
from hived.kernels.linked import SAYS
from hived.scheduler import handle
from hived_extender.jobs.node_names import NodeNames

log = logging.getLogger(__name__)

NICENESS = 10
END_S = 5.0
_PROGRESS = re.compile(r"(\d+) (\d+)\n")

MODULES_WITH_KERNELS = (handle, NodeNames)
"""Something of each module above all others that have kernels: once these are imported, all kernels are known."""


NO_COMPILER = (
    "none are linked, and numba is not installed: make kernels or make setup in a checkout, or pip install numba"
)

COMPILE = "python -m hived_extender.warm compiles them, once"
NOT_COMPILED = f"kernels are plain Python, which is slow: {COMPILE}"


def may_compile() -> bool:
    """True if kernels are plain Python for now only: not where all are quick, nor where they have to stay plain."""
    return lacks_kernels() and has_compiler()


def lacks_kernels() -> bool:
    """True if kernels are plain Python, and shall be others."""
    return has_plain_kernels() and bool(EXCHANGEABLE)


@cache
def has_compiler() -> bool:
    """True if numba is installed."""
    return find_spec("numba") is not None


def describe_kernels() -> str:
    """Return which kernels a command here runs, and of slow ones how to have quick ones.

    Loads those that are on disk.
    """
    load_kernels()
    if not lacks_kernels():
        return kernels_in_use()
    return f"{kernels_in_use()} Python, which is slow: {COMPILE if has_compiler() else NO_COMPILER}"


def compile_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> None:
    """Compile or load the kernels, and use them from now on.

    `tell` is called with how many of them are ready, and how many there are. Cost a minute of CPU, once.
    """
    if may_compile():
        from hived.kernels.compiling import compiled  # noqa: PLC0415  # numba, which few processes need

        _tell_of_unusable_folder()
        compiled.compile_kernels(tell)
        compiled.use_compiled()
    elif lacks_kernels():
        print(f"{SAYS}kernels are plain Python, which is slow: {NO_COMPILER}", file=sys.stderr, flush=True)


def load_kernels(
    tell: Callable[[int, int], None] = lambda ready, total: None,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> bool:
    """As `compile_kernels`, but compile nothing: False, and kernels stay plain, if one is not on disk.

    The change itself takes place `within` a context. Cost half a second of CPU.
    """
    if may_compile():
        from hived.kernels.compiling import compiled  # noqa: PLC0415  # numba, which few processes need

        _tell_of_unusable_folder()
        if not compiled.load_kernels(tell):
            return False
        with within():
            compiled.use_compiled()
    return True


@cache
def _tell_of_unusable_folder() -> None:
    """Say once, on stderr, why compiled kernels are in a temporary folder.

    The cache says so itself where others may write to the folder. Nothing needs saying of one that has kernels already
    and is read-only, as in an image.
    """
    from hived.kernels.compiling import kernel_cache  # noqa: PLC0415  # numba

    folders = kernel_cache.kernel_folders()
    try:
        top, base, mode = kernel_cache._base_folder()
        wanted = base / folders[0].name
        if wanted not in folders:
            kernel_cache._make_checked(wanted, top, mode)
            return
    except RuntimeError as error:
        why = str(error)
    except kernel_cache._NotUsableError:
        return
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    else:
        return
    print(
        f"{SAYS}compiled kernels are not kept: {why}. Name a folder of your own with NUMBA_CACHE_DIR; until then every "
        "process compiles them anew",
        file=sys.stderr, flush=True,
    )  # fmt: skip


class Changeover:
    """Has the kernels compiled beside a service that goes on answering, and then used.

    A first start without a library has nothing to run but plain Python. A process of its own compiles the kernels into
    the cache folder, so that this one never holds what a compiler needs. Then they are loaded, and used from one
    stimulus to the next: both kinds change the same arrays in the same way.
    """

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
            elif lacks_kernels() and not self._is_stopping:
                log.warning("kernels are plain Python, which is slow", extra={"fields": {"cause": NO_COMPILER}})

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
        """Return which kernels run, as `kernels_in_use` says it, and how far the compiler is: `plain, compiling 3 of
        26`.
        """
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


def main() -> None:
    """Compile, and say how long it took; stdout has a line with the number of kernels that are ready after each."""
    started = time.monotonic()
    compile_kernels(lambda ready, total: print(ready, total, flush=True))
    count = len(EXCHANGEABLE)
    print(f"{count} kernels were to be compiled; {kernels_in_use()} ones are ready after", end=" ", file=sys.stderr)
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
