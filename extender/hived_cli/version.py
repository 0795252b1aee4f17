"""`hived version`: what is installed here, for people and for bug reports."""

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from hived import __version__
from hived_cli.helpers.answers import as_json, output_option
from hived_extender.warm import describe_kernels

LIBRARIES = ("numpy", "numba", "flask", "uvloop")


@click.command()
@output_option
def command(output: str) -> None:
    """Show the version of hived and of what it runs on.

    `kernels` says whether the loops that decide are linked, compiled or plain Python, and how to have quick ones.

    \b
    Examples:
      hived version
      hived version -o json
    """
    versions = {"hived": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in LIBRARIES} | {"kernels": describe_kernels()}
    if output == "json":
        click.echo(as_json(versions))
        return
    width = max(map(len, versions))
    for name, number in versions.items():
        click.echo(f"{name:<{width}}  {number}")


def _version(name: str) -> str:
    """A demo's environment has no numba."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
