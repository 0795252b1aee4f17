"""Linking kernels into a library: `python -m hived_extender.build`, which `make kernels` and a build of a wheel run.

It needs a C compiler, and the headers of Python and numpy. numba goes through sets of strings, whose order changes with
the seed of hashes. So the program starts itself anew with a fixed one: the same sources make the same bytes. And with
numba told not to optimize, which LLVM does later for each kind of CPU.
"""

import os
import sys
from pathlib import Path

import click

from hived.kernels.compiling.build import TARGETS, build
from hived.kernels.compiling.object_code import TRANSLATING
from hived.kernels.jit import ENTRY_KERNELS
from hived.kernels.linked import HERE
from hived_extender.warm import MODULES_WITH_KERNELS

_VARIANTS = sorted({target.name for targets in TARGETS.values() for target in targets})


@click.command()
@click.option(
    "--folder", type=click.Path(path_type=Path), default=HERE, help="Where to; beside the sources by default."
)
@click.option("--architecture", type=click.Choice(list(TARGETS)), help="Another one than this machine's.")
@click.option(
    "--variant", "variants", type=click.Choice(_VARIANTS), multiple=True, help="Only this one; may be repeated."
)
@click.option("--compiler", default="", help="The C compiler with its options; by default what CC says, or cc.")
def main(folder: Path, architecture: str | None, variants: tuple[str, ...], compiler: str) -> None:
    """Build the library of linked kernels."""
    assert MODULES_WITH_KERNELS
    try:
        build(ENTRY_KERNELS, folder, architecture or "", variants, compiler)
    except FileNotFoundError as error:
        raise click.ClickException(f"no C compiler: {error}; name one by --compiler or CC") from error


def fix_environment() -> None:
    """Start this process anew with a fixed seed of hashes, and numba as `translate` wants it, unless it has them."""
    if os.environ.get("PYTHONHASHSEED") != "0" or not TRANSLATING.items() <= os.environ.items():
        environment = os.environ | TRANSLATING | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


if __name__ == "__main__":
    fix_environment()
    main()
