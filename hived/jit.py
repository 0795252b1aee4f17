"""The one place that knows numba: two decorators and the folder in which compiled kernels are kept.

`@kernel` marks a function that other kernels call; `@entry_kernel` marks one that Python calls: it is compiled once
and then loaded from disk. numba's own cache only notices edits in the file of the entry itself, so the folder's name
carries a digest of every source file of this package: an edit anywhere means another folder, and kernels may call
kernels of other files. Two rules for kernels: no recursion (numba crashes when it loads a cached recursive kernel),
and every write to `State.cells.memory` goes through `journal.put`.

With NUMBA_DISABLE_JIT=1 both decorators leave the function as it is.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

ENTRY_KERNELS: list[Any] = []
"""Every entry kernel of the modules imported so far; `hived.warm` checks that it compiled them all."""


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
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):
        copy = Path(tempfile.mkdtemp(prefix="hived-kernels-"))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        if folder.is_dir():
            shutil.copytree(folder, copy, dirs_exist_ok=True)
        return copy
    return folder


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
