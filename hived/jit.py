"""The one place that knows numba: two decorators and the folder in which compiled kernels are kept.

`@kernel` marks a function that other kernels call; `@entry_kernel` marks one that Python calls: it is compiled once
and then loaded from disk. numba's own cache only notices edits in the file of the entry itself, so the folder's name
carries a digest of every source file of this package: an edit anywhere means another folder, and kernels may call
kernels of other files. Those of other packages call only kernels of their own file. Two rules for kernels: no recursion
(numba crashes when it loads a cached recursive kernel), and every write to `State.cells.memory` goes through
`journal.put`.

With NUMBA_DISABLE_JIT=1 both decorators leave the function as it is.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

KEPT_FOLDERS = 8
"""Versions whose compiled kernels stay on disk, 20 MB each: those that were used last."""

ENTRY_KERNELS: list[Any] = []
"""Every entry kernel of the modules imported so far; `warm.count_compiled` checks that none was missed."""


def _source_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Where compiled kernels live: below NUMBA_CACHE_DIR if set, else below the user's cache folder.

    numba wants to write there. Where it cannot, as in an image with a read-only root, the kernels compiled beforehand
    are copied to a temporary folder.
    """
    folder = Path("/nonexistent")
    try:
        folder = _base_folder() / ("kernels-" + _source_digest())
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
        if is_new:
            _remove_old_versions(folder.parent)
    except (OSError, RuntimeError):
        copy = Path(tempfile.mkdtemp(prefix="hived-kernels-"))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        if folder.is_dir():
            shutil.copytree(folder, copy, dirs_exist_ok=True)
        return copy
    return folder


def _remove_old_versions(base: Path) -> None:
    """Every edit of a kernel and every new version makes a folder, which nothing else would ever remove."""
    with suppress(OSError):  # another process may be doing the same
        folders = sorted(base.glob("kernels-*"), key=lambda folder: folder.stat().st_mtime)
        for folder in folders[:-KEPT_FOLDERS]:
            shutil.rmtree(folder, ignore_errors=True)


def _base_folder() -> Path:
    """RuntimeError if no folder is named and the user has no home."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hived"


# numba makes the attributes of its configuration at run time
numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]


def kernel(function: Kernel) -> Kernel:
    """Compile a helper that only other kernels call; its code becomes part of each entry kernel that uses it."""
    return cast(Kernel, numba.njit(error_model="numpy")(function))


def entry_kernel(function: Kernel) -> Kernel:
    """Compile a kernel that Python calls, and keep the result on disk. A call costs 0.3 us and 0.1 us per array."""
    compiled = numba.njit(error_model="numpy", cache=True)(function)
    ENTRY_KERNELS.append(compiled)
    return cast(Kernel, compiled)


def forget_sources() -> None:
    """Free what compiled kernels were made from, about 23 MB; to be called once all are compiled.

    numba keeps LLVM's own form of every kernel for linking it into others, which nothing does with an entry kernel. It
    has no name of its own for that; should another version keep it elsewhere, nothing is freed.
    """
    for entry in ENTRY_KERNELS:
        for compiled in getattr(entry, "overloads", {}).values():
            compiled.library._shared_module = None
