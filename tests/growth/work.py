"""Counts what an operation costs, in work instead of time: the same events give the same numbers on every machine.

    with counted() as work:
        handle(state, event)

Nothing is counted by hand, because a loop that somebody adds by accident would not count itself. Kernels run as plain
Python (NUMBA_DISABLE_JIT=1), where every line can be observed. The core knows nothing of it.

A walk in C that allocates nothing is not seen: a sum over an array, or a comparison of lists. One that allocates is
seen by its bytes. Threads other than the one that counts are not observed.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import hived
from hived.kernels.jit import IS_INTERPRETED


@dataclass(slots=True)
class Work:
    """The work that was done. `operations` is exact; `allocated` can vary by some hundred bytes."""

    operations: int = 0  # lines run in files of the packages; every round of a loop or comprehension counts
    allocated: int = 0  # bytes in use at the worst moment, beyond those at the start


@contextmanager
def counted(*packages: ModuleType) -> Iterator[Work]:
    """Count until the end of the block, in the core and in `packages`; cannot be nested.

    Raises RuntimeError if kernels are compiled: there is nothing to observe then.
    """
    if not IS_INTERPRETED:
        raise RuntimeError("work cannot be counted in compiled kernels; start Python with NUMBA_DISABLE_JIT=1")
    work = Work()
    with ExitStack() as afterwards:
        if gc.isenabled():  # when it runs must make no difference
            gc.disable()
            afterwards.callback(gc.enable)
        tracemalloc.start()
        afterwards.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        afterwards.callback(sys.settrace, sys.gettrace())
        sys.settrace(_line_counter(work, tuple(str(Path(each.__file__ or "").parent) for each in (hived, *packages))))
        yield work
        sys.settrace(None)
        work.allocated = tracemalloc.get_traced_memory()[1] - before


def _line_counter(work: Work, folders: tuple[str, ...]) -> Callable[..., Any]:
    """A trace function that counts the lines that run in files of some folders."""
    is_ours: dict[CodeType, bool] = {}

    def trace_line(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            work.operations += 1
        return trace_line

    def trace_call(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in is_ours:
            is_ours[code] = code.co_filename.startswith(folders)
        return trace_line if is_ours[code] else None

    return trace_call


class Meter:
    """The cost of operations, in `work`; `packages` are counted besides the core."""

    def __init__(self, *packages: ModuleType) -> None:
        self.work: dict[str, Work] = {}
        self._packages = packages

    @contextmanager
    def counting(self, name: str) -> Iterator[None]:
        """Count what happens as one operation of this name."""
        with counted(*self._packages) as work:
            yield
        known = asdict(self.work.get(name, work))
        self.work[name] = Work(**{meter: max(count, known[meter]) for meter, count in asdict(work).items()})
