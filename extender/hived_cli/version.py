"""`hived version`: what is installed here, for people and for bug reports."""

import platform
from importlib.metadata import version

import click

from hived import __version__
from hived_cli.helpers.answers import as_json, output_option

LIBRARIES = ("numpy", "numba", "flask", "uvloop")


@click.command()
@output_option
def command(output: str) -> None:
    """Show the version of hived and of what it runs on.

    \b
    Examples:
      hived version
      hived version -o json
    """
    versions = {"hived": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in LIBRARIES}
    if output == "json":
        click.echo(as_json(versions))
        return
    width = max(map(len, versions))
    for name, number in versions.items():
        click.echo(f"{name:<{width}}  {number}")
