"""`hived simulate report`: the page of results, made anew."""

from pathlib import Path

import click

from hived_simulator.report.page import NAME, write_pictures, write_report


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, metavar="DIR...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help=f"Write the page to this file.  [default: {NAME} in the first DIR]",
)  # fmt: skip
@click.option(
    "--svg", "pictures", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    help="Instead of the page, write each plot as a file of its own, with its legend, to this folder.",
)  # fmt: skip
def command(*, folders: tuple[Path, ...], output: Path | None, pictures: Path | None) -> None:
    """Make the page of results anew, also of several simulations beside each other.

    DIR is a folder that `hived simulate --out` wrote. The page is one file of HTML with plots and tables, without
    scripts; it works offline. A policy that is the same in several folders is shown once. The exit code is 0 if it is
    written, 1 if results are missing or damaged, 2 for a wrong command line.

    \b
    Examples:
      hived simulate report results
      hived simulate report monday tuesday -o both.html
      hived simulate report results --svg plots
    """
    if pictures is not None:
        if output is not None:
            raise click.UsageError("give -o for the page or --svg for plots, not both")
        for path in write_pictures(folders, pictures):
            click.echo(path)
        return
    target = folders[0] / NAME if output is None else output
    write_report(folders, target)
    click.echo(f"{target}: {target.stat().st_size / 1000:.0f} kB")
