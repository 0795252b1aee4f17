"""Builds the linked library from the entry kernels: `_kernels.abi3.so` and `_kernels.json`.

numba translates the kernels once; LLVM makes object code of them for each kind of CPU; a C compiler adds `kernels.c`,
which is what Python calls. `linked` loads the result. The library needs nothing but the C library, of which it uses old
symbols only.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hived.kernels.compiling.object_code import Error, Target, emit, result_of, symbol_of, translate
from hived.kernels.jit import Parameter, parameters
from hived.kernels.linked import DESCRIPTION, HERE, LIBRARY, core_digest, digest_of

TARGETS = {
    "x86_64": (
        Target("avx512", "x86_64-pc-linux-gnu", "x86-64-v4", "x86-64-v4"),
        Target("avx2", "x86_64-pc-linux-gnu", "x86-64-v3", "x86-64-v3"),
        Target("baseline", "x86_64-pc-linux-gnu", "x86-64"),
    ),
    "aarch64": (Target("baseline", "aarch64-unknown-linux-gnu", "generic"),),
}
"""The variants of each architecture, the best one first."""

_SOURCE = Path(__file__).parent / "kernels.c"
_WORDS_OF_ARRAY = 2
_PROCESSES = 2
_FLAGS = (
    "-std=c11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Werror", "-Wl,-z,relro,-z,now",
    "-Wl,--gc-sections", "-Wl,--build-id=none", "-s",
)  # fmt: skip


def build(
    entries: Sequence[Callable[..., Any]],
    folder: Path = HERE,
    architecture: str = "",
    variants: Sequence[str] = (),
    compiler: str = "",
) -> Path:
    """Build the library of these entry kernels in a folder, unless it is there; returns its path. Prints progress.

    `architecture` is by default this machine's, `variants` all of them, `compiler` what CC says or `cc`. Raises
    ValueError for an architecture or variant that is not known, subprocess.CalledProcessError if the C compiler fails,
    OSError at once if it cannot be run.
    Costs 80 s of CPU, and 10 s for each variant.
    """
    architecture = architecture or os.uname().machine
    if architecture not in TARGETS:
        raise ValueError(f"architecture {architecture} is none of {', '.join(TARGETS)}")
    known = {target.name: target for target in TARGETS[architecture]}
    if unknown := set(variants) - known.keys():
        raise ValueError(f"{', '.join(sorted(unknown))}: {architecture} has the variants {', '.join(known)}")
    targets = [target for target in known.values() if not variants or target.name in variants]
    compile_c = shlex.split(compiler or os.environ.get("CC", "cc"))
    description = _describe(entries, architecture, [target.name for target in targets]) | {"tools": _tools(compile_c)}
    if is_current(folder, description):
        print(f"{folder / LIBRARY} is of these sources and tools already", file=sys.stderr)
        return folder / LIBRARY
    started = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", file=sys.stderr, flush=True)

    bitcode, errors = translate(list(entries), lambda done, total: tell(f"translating kernel {done + 1} of {total}"))
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(scratch)
        tell(f"optimizing for {', '.join(target.name for target in targets)}")
        with ProcessPoolExecutor(_PROCESSES) as pool:
            for target, code in zip(targets, pool.map(_emit, [(bitcode, each) for each in targets]), strict=True):
                (there / f"{target.name}.o").write_bytes(code)
        (there / "table.h").write_text(_table(entries, errors, targets))
        objects = [str(there / f"{target.name}.o") for target in targets]
        includes = [f"-I{each}" for each in (there, np.get_include(), sysconfig.get_path("include"))]
        library = there / LIBRARY
        subprocess.run([*compile_c, *_FLAGS, *includes, str(_SOURCE), *objects, "-o", str(library)], check=True)
        _put(folder, library.read_bytes(), description)
    tell(f"built {folder / LIBRARY}")
    return folder / LIBRARY


def _emit(work: tuple[bytes, Target]) -> bytes:
    return emit(*work)


def is_current(folder: Path, description: dict[str, Any]) -> bool:
    """True if there is a whole library with this description."""
    try:
        found = json.loads((folder / DESCRIPTION).read_bytes())
        return bool(found == description | {"sha256": hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest()})
    except (OSError, ValueError):
        return False


def _describe(entries: Sequence[Callable[..., Any]], architecture: str, variants: Sequence[str]) -> dict[str, Any]:
    """Describe the present sources of the library: an edit during the build makes another library of it."""
    others = {each.__module__: Path(each.__code__.co_filename) for each in entries}
    sources = {name: digest_of(path.parent, [path]) for name, path in others.items() if not name.startswith("hived.")}
    return {"architecture": architecture, "variants": variants, "sources": {"hived": core_digest(), **sources}}


def _tools(compile_c: Sequence[str]) -> dict[str, str]:
    """The versions of the build tools: another version may make other code of the same sources.

    Of the C compiler and of Python, whose headers are compiled, it is the first line that they say about themselves.
    """
    said = subprocess.run([*compile_c, "--version"], check=True, capture_output=True, text=True).stdout
    versions = {name: version(name) for name in ("numba", "llvmlite", "numpy")}
    return versions | {"python": sys.version.partition("\n")[0], "compiler": said.partition("\n")[0]}


def _put(folder: Path, library: bytes, description: dict[str, Any]) -> None:
    """Replace library and description. A process that loads them meanwhile sees that they do not match."""
    text = json.dumps(description | {"sha256": hashlib.sha256(library).hexdigest()}, indent=2) + "\n"
    for name, content in ((LIBRARY, library), (DESCRIPTION, text.encode())):
        unfinished = folder / f"{name}.{os.getpid()}"
        unfinished.write_bytes(content)
        unfinished.replace(folder / name)


def _table(entries: Sequence[Callable[..., Any]], errors: Sequence[Error], targets: Sequence[Target]) -> str:
    """Write `table.h`: the arguments, results and entry points of each kernel."""
    lines, kernels, most_words, most_results = [], [], 1, 1
    for function in entries:
        taken = parameters(function)
        kind, count = result_of(function)
        most_results = max(most_results, count)
        gives = {"none": "GIVES_NONE", "bool": "GIVES_TRUTH", "int": "GIVES_NUMBER", "tuple": "GIVES_TUPLE"}[kind]
        name = function.__name__
        rows = ", ".join(_parameter(each) for each in taken)
        lines.append(f"static const Parameter PARAMETERS_OF_{name}[] = {{{rows}}};")
        kernels.append(f'{{"{name}", "{function.__module__}", PARAMETERS_OF_{name}, {len(taken)}, {gives}, {count}}}')
        most_words = max(most_words, sum(_WORDS_OF_ARRAY if each.is_array else 1 for each in taken))
    lines.append(_array("Kernel KERNELS", kernels))
    lines.append(_array("Error ERRORS", [_error(*each) for each in errors]))
    for target in targets:
        symbols = [f"{symbol_of(function)}_{target.name}" for function in entries]
        lines += [f"extern Translated {symbol};" for symbol in symbols]
        lines.append(_array(f"Entry ENTRIES_OF_{target.name}", symbols))
    lines.append(_array("Variant VARIANTS", [f'{{"{each.name}", ENTRIES_OF_{each.name}}}' for each in targets]))
    numbers = {
        "KERNEL_COUNT": len(entries), "ERROR_COUNT": len(errors), "VARIANT_COUNT": len(targets),
        "MOST_WORDS": most_words, "MOST_RESULTS": most_results,
    }  # fmt: skip
    lines += [f"#define {name} {number}" for name, number in numbers.items()]
    checks = "".join(
        f"    case {i}: return __builtin_cpu_supports({json.dumps(each.feature)}) != 0;\n"
        for i, each in enumerate(targets)
        if each.feature
    )
    lines.append(f"static int is_supported(int variant)\n{{\n    switch (variant) {{\n{checks}")
    lines.append("    default: return 1;\n    }\n}\n")
    return "\n".join(lines)


def _array(declaration: str, items: Sequence[str]) -> str:
    return f"static const {declaration}[] = {{{', '.join(items)}}};"


def _error(module: str, name: str, text: str) -> str:
    return f"{{{json.dumps(module)}, {json.dumps(name)}, {json.dumps(text)}}}"


def _parameter(each: Parameter) -> str:
    how, layout, kind, size = "NUMBER", 0, "i", 8
    if each.kind is bool:
        how = "TRUTH"
    elif each.is_array:
        how, kind, size = "ARRAY", each.kind.kind, each.kind.itemsize
    elif each.kind is not int:
        how, layout = "BLOCK", each.kind.layout
    return f"{{\"{each.name}\", {layout}LL, {int(each.is_written)}, '{kind}', {how}, {size}}}"
