"""Loads the library of kernels that was linked when hived was built, if it is whole and of the present sources.

`_kernels.abi3.so` lies beside this file, and beside it `_kernels.json`, which has the SHA-256 digest of the library and
of the sources that it was made from. Both are compared before the library is loaded: a truncated one ends the process,
and one of other sources decides otherwise. A library of other sources is skipped silently, as a checkout has one after
each edit; a damaged one is reported once, on stderr.

The library has the kernels in several variants, for CPUs with wider vectors. HIVED_KERNELS names the variant, or
another way to run kernels.
"""

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
LIBRARY = "_kernels.abi3.so"
DESCRIPTION = "_kernels.json"
VARIABLE = "HIVED_KERNELS"
SAYS = "hived: "
"""Begins each line on stderr that says why kernels are not loaded, or not kept."""


class Way(Enum):
    """The ways to run kernels."""

    LINKED = "linked"
    COMPILED = "compiled"
    PLAIN = "plain"


class _NotUsableError(Exception):
    """The reason why the library is not used; empty if it need not be reported."""


class Library:
    """A library that was loaded, and the functions of one of its variants."""

    def __init__(self, folder: Path, wanted: str = "") -> None:
        """Load it. _NotUsableError if it is not there, not whole or not of these sources."""
        self._sources = _describe(folder)
        module = _load(folder / LIBRARY)
        names = module.variants()
        if wanted and wanted not in names:
            raise _NotUsableError(f"{VARIABLE}={wanted}: this CPU has {', '.join(names)}, compiled and plain")
        self.variant: str = wanted or names[0]
        self._functions: dict[str, Callable[..., Any]] = module.kernels(self.variant)

    def find(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """The linked form of a kernel; None for one that the library was not made of."""
        module = function.__module__
        if not module.startswith("hived."):
            source = Path(function.__code__.co_filename)
            if self._sources.get(module) != digest_of(source.parent, [source]):
                return None
        return self._functions.get(f"{module}.{function.__name__}")


def wanted_way() -> Way:
    """The way to run kernels that the environment asks for."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}:
        return Way.PLAIN
    named = os.environ.get(VARIABLE, "")
    return Way(named) if named in {way.value for way in Way} else Way.LINKED


def find(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The linked form of a kernel; None if this process has none."""
    library = _library()
    return None if library is None else library.find(function)


def variant() -> str:
    """The variant of the library in use; nothing if none is."""
    library = _library()
    return "" if library is None else library.variant


def core_digest(folder: Path = HERE) -> str:
    """Digest of all sources of the core, and of what compiles them."""
    return digest_of(folder, sorted([*folder.rglob("*.py"), *folder.rglob("*.c")]))


def digest_of(folder: Path, sources: list[Path]) -> str:
    """Digest of the contents of sources, and of their places in a folder."""
    digest = hashlib.sha256()
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.relative_to(folder).as_posix()} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


@cache
def _library() -> Library | None:
    if wanted_way() is not Way.LINKED:
        return None
    wanted = os.environ.get(VARIABLE, "")
    try:
        return Library(HERE, "" if wanted == Way.LINKED.value else wanted)
    except _NotUsableError as error:
        if str(error):
            print(f"{SAYS}the linked kernels are not used: {error}", file=sys.stderr, flush=True)
        return None


def _describe(folder: Path) -> dict[str, str]:
    """The digests of the sources of a library that is whole and of the core's present sources."""
    try:
        description = json.loads((folder / DESCRIPTION).read_bytes())
        sources: dict[str, str] = description["sources"]
        if sources["hived"] != core_digest(folder):
            raise _NotUsableError
        expected: str = description["sha256"]
        library = (folder / LIBRARY).read_bytes()
    except FileNotFoundError:
        raise _NotUsableError from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _NotUsableError(f"{folder / DESCRIPTION}: {error!r}") from None
    if expected != hashlib.sha256(library).hexdigest():
        raise _NotUsableError(f"{folder / LIBRARY} is damaged, its SHA-256 digest differs")
    return sources


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("hived._kernels", path)
    assert spec is not None
    assert spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise _NotUsableError(f"{path}: {error}") from None
    return module
