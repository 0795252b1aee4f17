"""Linking kernels into a library: `python -m hived_extender.build`, which `make kernels` and a build of a wheel run.

It needs a C compiler, and the headers of Python and numpy.
"""

from pathlib import Path

import click

from hived.compiling.build import TARGETS, build
from hived.jit import ENTRY_KERNELS
from hived.linked import HERE
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


if __name__ == "__main__":
    main()
