"""Having kernels ready, the core's and our own; `python -m hived_extender.warm` compiles them ahead of time.

Linked kernels are ready at once. Where there is no library of these sources, numba compiles them, once.
"""

import sys
import time
from collections.abc import Callable

from hived.jit import EXCHANGEABLE, kernels_in_use
from hived.scheduler import handle
from hived_extender.pods.node_names import NodeNames

MODULES_WITH_KERNELS = (handle, NodeNames)
"""Something of each module above all others that have kernels: once these are imported, all kernels are known."""


def compile_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> None:
    """Compile what is not compiled yet and use it from now on, unless kernels are linked or shall stay plain.

    `tell` is called with how many of the kernels are ready, and how many there are. Cost a minute of CPU, once.
    """
    if EXCHANGEABLE:
        from hived.compiling import compiled  # noqa: PLC0415  # numba, which nothing else needs

        compiled.compile_kernels(tell)
        compiled.use_compiled()


def main() -> None:
    """Compile, and say how long it took; stdout has a line with the number of kernels that are ready after each."""
    started = time.monotonic()
    compile_kernels(lambda ready, total: print(ready, total, flush=True))
    print(f"{kernels_in_use()} kernels are ready after {time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
