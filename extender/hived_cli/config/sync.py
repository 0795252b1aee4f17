"""`hived config sync`: the nodes of a configuration follow those of the cluster."""

from pathlib import Path

import click

from hived.values.errors import HivedError, InvariantError
from hived_cli.config.helpers.answering import AnsweringCommand
from hived_cli.config.helpers.asking import ask
from hived_cli.config.helpers.editing import replace_file
from hived_cli.config.helpers.files import find_file
from hived_cli.config.helpers.machines import Machines, Node, read_limits, reads_machines, tell
from hived_cli.config.helpers.pushing import PushOptions, push_text, pushes
from hived_cli.helpers.answers import FiniteRange, as_json, difference
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.progress import stop_signal
from hived_config.document import read_text
from hived_config.generating.nodes import Reading
from hived_config.generating.sync import Synced, synced
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector

OUTDATED = 2
"""Exit code of a dry run that found something to do."""


@click.command(cls=AnsweringCommand)
@click.option(
    "-f", "path", metavar="FILE|DIR", type=click.Path(path_type=Path, exists=True),
    help="Change this file, instead of what is in force in the service.",
)  # fmt: skip
@click.option(
    "--max", "limits", metavar="TYPE=N", multiple=True,
    help="Placeholders for nodes to come, until there are N places for nodes of a cell type.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would change; exit code 2 if something would.")
@click.option(
    "--watch", metavar="SECONDS", type=FiniteRange(min=1), default=None,
    help="Stay, and look again so often; needs --yes.",
)  # fmt: skip
@reads_machines
@asks_service
@pushes
def command(
    *,
    path: Path | None,
    limits: tuple[str, ...],
    dry_run: bool,
    watch: float | None,
    machines: Machines,
    inspector: Inspector,
    pushing: PushOptions,
) -> None:
    """Bring the nodes of a configuration up to date, and leave everything else in it as it is.

    A node that is gone keeps its place, as virtual clusters have been promised it: the scheduler takes it for a bad
    cell. A new node takes the place of a placeholder, one without a name, which is written then, or that of a gone
    node with the same product and number of devices. With --levels it takes one in the same group only. If there is
    none, its chain grows by a cell of the top type, which placeholders fill up. Cell types, virtual clusters,
    comments and the rest of the text are not touched. With --max there are places, and so guarantees, for nodes that
    an autoscaler has yet to bring.

    \b
    Examples:
      hived config sync
      hived config sync --yes --watch 60 --levels topology.kubernetes.io/zone,example.com/rack
      hived config sync --max V100-NODE=32 --message 'the node group may have 32'
      hived config sync -f hivedscheduler.yaml --dry-run
    """  # fmt: skip
    if watch is not None and not (pushing.yes or dry_run):
        raise click.UsageError("--watch: expected --yes, as there is nobody to ask")
    at_least = read_limits("--max", limits)
    syncing = _Syncing(machines.reading, at_least, dry_run, pushing, is_watch=watch is not None)

    def look() -> bool:
        nodes = machines.nodes()
        return syncing.sync_service(inspector, nodes) if path is None else syncing.sync_file(find_file(path), nodes)

    if watch is None:
        if look() and dry_run:
            raise SystemExit(OUTDATED)
        return
    with stop_signal() as stop:
        while not stop.is_set():
            try:
                look()
            except InvariantError:
                raise
            except HivedError as error:  # the cluster or the service may be there again next time
                click.echo(f"Error: {error}", err=True)
            stop.wait(watch)


class _Syncing:
    """Syncs configurations and prints the changes; while watching, nothing is printed twice."""

    def __init__(
        self, reading: Reading, at_least: dict[str, int], dry_run: bool, options: PushOptions, is_watch: bool
    ) -> None:
        self._reading = reading
        self._at_least = at_least
        self._dry_run = dry_run
        self._options = options
        self._is_watch = is_watch
        self._told: Synced | None = None

    def sync_file(self, path: Path, nodes: list[Node]) -> bool:
        """Sync a file; returns whether there was something to do."""
        file = click.format_filename(path)
        text = read_text(path, file)
        result = synced(text, nodes, self._reading, file=file, at_least=self._at_least)
        self._show(text, result, file)
        if result.changes and not self._dry_run:
            if not self._options.yes:
                ask(f"Write {file}?", "written", self._options.is_json)
            replace_file(path.resolve(), result.text)
        return bool(result.changes)

    def sync_service(self, inspector: Inspector, nodes: list[Node]) -> bool:
        """Sync what is in force in the service; returns whether there was something to do."""
        current = ConfigClient(inspector).current()
        file = f"version {current.version}"
        result = synced(current.text, nodes, self._reading, file=file, at_least=self._at_least)
        is_push = bool(result.changes) and not self._dry_run
        self._show(current.text, result, file, is_push)
        if is_push:
            message = f"sync of nodes: {'; '.join(result.changes[:3])}"
            push_text(inspector, result.text, file, self._options, current.version, message)
        return bool(result.changes)

    def _show(self, text: str, result: Synced, file: str, is_push: bool = False) -> None:
        """The difference and what it means, or that there is none; on stderr if JSON of the service's is to follow."""
        if self._is_watch and result == self._told:
            return
        is_first, self._told = self._told is None, result
        to_stderr = self._options.is_json
        if to_stderr and not is_push:
            answer = {"changed": bool(result.changes), "changes": list(result.changes), "notes": list(result.notes)}
            click.echo(as_json(answer))
            return
        for line in (*difference(text, result.text, file, f"{file}, synced", context=1), *result.changes):
            click.echo(line, err=to_stderr)
        if not result.changes and is_first:
            outcome = "nothing to change" if result.notes else "all nodes are up to date"
            click.echo(f"{file}: {outcome}", err=to_stderr)
        tell(result.notes)
