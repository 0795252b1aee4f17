"""Having quick kernels, the core's and our own; `python -m hived_extender.warm` compiles them ahead of time.

Linked kernels are there at once. Where there is no library of these sources, numba compiles them, once, and keeps them
on disk. Nothing happens where kernels shall stay plain.
"""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

from hived.kernels.jit import EXCHANGEABLE, has_plain_kernels, kernels_in_use
from hived.kernels.linked import SAYS
from hived.scheduler import handle
from hived_extender.jobs.node_names import NodeNames

MODULES_WITH_KERNELS = (handle, NodeNames)
"""Something of each module above all others that have kernels: once these are imported, all kernels are known."""


def may_compile() -> bool:
    """Whether kernels run as plain Python for now only: false where all are quick, and where they shall stay plain."""
    return has_plain_kernels() and bool(EXCHANGEABLE)


def compile_kernels(tell: Callable[[int, int], None] = lambda ready, total: None) -> None:
    """Compile or load the kernels, and use them from now on.

    `tell` is called with how many of them are ready, and how many there are. Cost a minute of CPU, once.
    """
    if may_compile():
        from hived.kernels.compiling import compiled  # noqa: PLC0415  # numba, which few processes need

        _tell_of_unusable_folder()
        compiled.compile_kernels(tell)
        compiled.use_compiled()


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


def main() -> None:
    """Compile, and say how long it took; stdout has a line with the number of kernels that are ready after each."""
    started = time.monotonic()
    compile_kernels(lambda ready, total: print(ready, total, flush=True))
    count = len(EXCHANGEABLE)
    print(f"{count} kernels were to be compiled; {kernels_in_use()} ones are ready after", end=" ", file=sys.stderr)
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
