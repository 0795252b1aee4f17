"""`hived config generate` and `sync`: the nodes of a cluster -> a configuration, or new nodes in one."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml
from msgspec.structs import replace

from hived.values.errors import HivedError, InvariantError, UserError
from hived_cli.config.editing import replace_file
from hived_cli.config.given import find_file
from hived_cli.config.pushing import PushOptions, push_text, pushes
from hived_cli.helpers.answers import AnsweringCommand, FiniteRange, as_json, ask, difference, with_options
from hived_cli.helpers.connecting import asks_api_server, asks_service
from hived_cli.helpers.progress import stop_signal
from hived_config.document import read_stream, read_text
from hived_config.generating.generate import Generated, generated
from hived_config.generating.layout import RESERVED_CPU, RESERVED_MEMORY_MIB, read_layout
from hived_config.generating.machines import FoundMachines
from hived_config.generating.nodes import Reading, machines_of, parse_selector
from hived_config.generating.shares import Shares
from hived_config.generating.sync import Synced, synced
from hived_config.generating.topologies import Topology, machines_of_topologies, with_topologies
from hived_config.quantities import quantity
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.kube.answers import Listing
from hived_extender.kube.client import NODES, KubeClient

Connect = Callable[..., KubeClient | None]
Node = dict[str, Any]

_OPTIONS = (
    click.option("--nodes", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
                 help="Read nodes from what `kubectl get nodes -o json` prints; - reads standard input."),
    click.option("--levels", metavar="LABEL,...", default="", callback=lambda _c, _p, text: split(text),
                 help="Labels of the groups that nodes stand in, outermost first, such as zone, block and rack."),
    click.option("--resource", "resources", metavar="NAME,...", multiple=True,
                 help="A device resource; nodes with several have cells of each.  "
                 "[default: nvidia.com/gpu, amd.com/gpu]"),
    click.option("--product-label", metavar="LABEL", default="", help="The label that names a node's product, "
                 "instead of nvidia.com/gpu.product or amd.com/gpu.product-name."),
    click.option("-l", "--selector", metavar="SELECTOR", default="", help="Only nodes with these labels, as kubectl "
                 "takes them: pool=gpu,!spare."),
    click.option("--cpu", "with_cpus", is_flag=True, help="Nodes without devices become cells of one CPU each."),
    click.option("--reserve-cpu", metavar="N", default=None, help="CPUs of each node that pods of ours do not get.  "
                 "[default: 0; of a layout 1]"),
    click.option("--reserve-memory", metavar="QUANTITY", default=None, help="Memory of each node that they do not get. "
                 " [default: 0; of a layout 2Gi]"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machines:
    """The place of nodes, a file or else the API server, and how they are read; `reserved` is CPUs and MiB if given."""

    nodes_file: Path | None
    connect: Connect
    reading: Reading
    reserved: tuple[float | None, float | None]

    def nodes(self) -> list[Node]:
        """The nodes. Raises UserError or KubeError if they cannot be read."""
        if self.nodes_file is not None:
            return _nodes_in(self.nodes_file)
        kube = self.connect()
        assert kube is not None  # only a connect that may fail gives none
        try:
            listing: Listing[Node] = kube.list_objects(NODES, dict)
            return listing.items
        finally:
            kube.close()


def reads_machines(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the place of nodes and of how they are read; the command gets them as `machines`."""

    @wraps(function)
    def run(connect: Connect, **options: Any) -> None:
        machines, rest = _machines(connect, options)
        function(machines=machines, **rest)

    return asks_api_server(with_options(run, _OPTIONS))


def reads_machines_of_files(function: Callable[..., None]) -> Callable[..., None]:
    """As `reads_machines`, for a command that asks no API server: without --nodes there are no nodes."""

    @wraps(function)
    def run(**options: Any) -> None:
        machines, rest = _machines(lambda: None, options)
        function(machines=machines, **rest)

    return with_options(run, _OPTIONS)


def _machines(connect: Connect, options: dict[str, Any]) -> tuple[Machines, dict[str, Any]]:
    """The machines that options of these say, and the other options. Raises UserError."""
    parse_selector(options["selector"])
    names = {"levels", "resources", "product_label", "selector", "with_cpus"}
    given = {name: options[name] for name in names}
    given["resources"] = split(",".join(given["resources"])) or Reading().resources
    cpu, memory = (_amount(f"--reserve-{each}", options[f"reserve_{each}"]) for each in ("cpu", "memory"))
    memory_mib = None if memory is None else memory / 2**20
    reading = Reading(**given, reserved_cpu=cpu or 0.0, reserved_memory_mib=memory_mib or 0.0)
    rest = {
        name: value for name, value in options.items() if name not in {*names, "nodes", "reserve_cpu", "reserve_memory"}
    }
    return Machines(options["nodes"], connect, reading, (cpu, memory_mib)), rest


def split(text: str) -> tuple[str, ...]:
    """The parts of a list that is written with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_limits(option: str, written: tuple[str, ...]) -> dict[str, int]:
    """The wanted places by cell type, as an option has them. Raises UserError."""
    limits = {}
    for text in written:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal() or len(number) > 6:
            raise UserError(f"{option} {text!r}: expected TYPE=N, as in V100-NODE=32")
        limits[name] = int(number)
    return limits


def _amount(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    value = quantity(text)
    if value is None:
        raise UserError(f"{option} {text!r}: expected a quantity, such as 2, 500m or 4Gi")
    return value


def _nodes_in(path: Path) -> list[Node]:
    name = click.format_filename(path)
    text = _standard_input() if str(path) == "-" else read_text(path, name)
    expected = "what `kubectl get nodes -o json` prints"
    try:
        is_json = text.lstrip().startswith("{")
        document: Any = msgspec.json.decode(text) if is_json else yaml.load(text, Loader=yaml.CSafeLoader)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise UserError(f"{name}: found neither JSON nor YAML ({error}), expected {expected}") from error
    items = document.get("items", [document]) if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(map(_is_node, items)):
        raise UserError(f"{name}: found something else than nodes, expected {expected}")
    return items


def _standard_input() -> str:
    if sys.stdin is None:
        raise UserError("--nodes -: standard input is closed")
    return read_stream(sys.stdin.buffer, "standard input")


def _is_node(item: object) -> bool:
    """True for the form of a Node, as far as it is looked at."""
    if not isinstance(item, dict) or item.get("kind", "Node") != "Node":
        return False
    parts: list[Any] = [item.get("metadata"), item.get("status", {}), item.get("spec", {}) or {}]
    if not all(isinstance(part, dict) for part in parts) or not parts[0].get("name"):
        return False
    maps = [parts[0].get("labels"), parts[1].get("capacity"), parts[1].get("allocatable")]
    taints = parts[2].get("taints") or []
    has_taints = isinstance(taints, list) and all(isinstance(taint, dict) for taint in taints)
    return has_taints and all(each is None or isinstance(each, dict) for each in maps)


def tell(notes: Sequence[str]) -> None:
    """Write notes to standard error."""
    for note in notes:
        click.echo(f"Note: {note}", err=True)


@click.command()
@click.option(
    "--layout", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Machines of OpenPAI's layout.yaml, instead of a cluster's.",
)  # fmt: skip
@click.option(
    "--topology", "topologies", metavar="[NAME=]FILE", multiple=True,
    help="What `nvidia-smi topo -m` prints on all machines, or on those of a name, a pattern (dgx-*) or a product.",
)  # fmt: skip
@click.option("--offline", is_flag=True, help="The machines are those that --topology NODE=FILE names; ask no service.")
@click.option("--product", metavar="NAME", default="GPU", show_default=True, help="What --offline machines have.")
@click.option(
    "--vc", "shares", metavar="NAME=SHARE", multiple=True,
    help="A virtual cluster and its share: all in percent, or all as weights.  [default: default=100%]",
)  # fmt: skip
@click.option("--pad", is_flag=True, help="Fill groups up with placeholders, so that all of a level are of one size.")
@click.option("--name", "names", metavar="PRODUCT=NAME", multiple=True, help="What leaf cells of a product are called.")
@click.option("--name-prefix", metavar="TEXT", default="", help="What names of cell types begin with.")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file.  [default: standard output]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace that file if it is there.")
@click.option(
    "--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True,
    help="A configuration, or JSON with it and the notes.",
)  # fmt: skip
@reads_machines
def generate(*, output: Path | None, force: bool, form: str, **source: Any) -> None:
    """Write a configuration from a cluster's nodes, OpenPAI's layout.yaml or `nvidia-smi topo -m`.

    Each product of devices becomes a leaf cell type, its nodes become cells, and --levels groups them by their labels.
    All cells of one type have equally many children. So a rack with 3 nodes among racks of 4 is of another type and in
    a cell chain of its own, which no gang leaves. With --pad it gets a placeholder, a node that does not exist.
    A rack with two products is a cell in a chain of each. A node without a label is not in a cell of that level.

    Every virtual cluster gets whole cells, the largest that its share covers, then whole nodes. The rest is
    promised to no virtual cluster. Notes on omissions and surprises go to standard error.

    \b
    Examples:
      hived config generate -o hivedscheduler.yaml
      hived config generate --levels topology.kubernetes.io/zone,example.com/rack --vc research=60% --vc prod=40%
      hived config generate --topology dgx-topology.txt --topology 'old-*=old-topology.txt'
      hived config generate --layout /cluster-configuration/layout.yaml --vc default=2 --vc vision=1
      kubectl get nodes -o json | hived config generate --nodes - --selector pool=gpu
      hived config generate --offline --topology node-1=node-1.txt --topology node-2=node-2.txt --product A100
    """  # fmt: skip
    _write(_Options(**source).generated(), output, force, form)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that say what is generated; names are those of the command line."""

    layout: Path | None
    topologies: tuple[str, ...]
    offline: bool
    product: str
    shares: tuple[str, ...]
    pad: bool
    names: tuple[str, ...]
    name_prefix: str
    machines: Machines

    def generated(self) -> Generated:
        """The configuration. Raises UsageError for more than one source of machines, or none."""
        found, source = self._found([_topology(text) for text in self.topologies])
        if not found.machines:  # the notes say why, and an error has none
            tell(found.notes)
        levels = () if self.offline else self.machines.reading.levels
        shares, names = Shares.parse(self.shares), _names(self.names)
        made = generated(found.machines, levels, shares, self.pad, names, self.name_prefix, source)
        return replace(made, notes=(*found.notes, *made.notes))

    def _found(self, topologies: Sequence[Topology]) -> tuple[FoundMachines, str]:
        """The machines, and their source for people."""
        if sum(map(bool, (self.layout, self.offline, self.machines.nodes_file))) > 1:
            raise click.UsageError("expected one of --layout, --nodes and --offline")
        if self.offline:
            if not topologies:
                raise click.UsageError("--offline: expected machines by --topology NODE=FILE")
            return machines_of_topologies(topologies, self.product), "nvidia-smi topo -m"
        if self.layout is not None:
            found, source = _of_layout(self.layout, self.machines), "a layout of OpenPAI"
        else:
            found, source = machines_of(self.machines.nodes(), self.machines.reading), "a Kubernetes cluster"
        inner = with_topologies(found.machines, topologies)
        return FoundMachines(inner.machines, (*found.notes, *inner.notes)), source


def _of_layout(layout: Path, machines: Machines) -> FoundMachines:
    file, reading = click.format_filename(layout), machines.reading
    cpu, memory_mib = machines.reserved
    return read_layout(
        read_text(layout, file),
        file,
        RESERVED_CPU if cpu is None else cpu,
        RESERVED_MEMORY_MIB if memory_mib is None else memory_mib,
        reading.with_cpus,
        reading.levels,
    )


def _topology(text: str) -> Topology:
    """A topology by [NAME=]FILE."""
    name, _, file = text.rpartition("=")
    return Topology.parse(name, read_text(Path(file), file), file)


def _names(written: tuple[str, ...]) -> dict[str, str]:
    names = {}
    for text in written:
        product, is_given, name = text.rpartition("=")
        if not is_given or not product:
            raise UserError(f"--name {text!r}: expected PRODUCT=NAME, as in Tesla-V100-SXM2-32GB=V100")
        names[product] = name
    return names


def _write(made: Generated, output: Path | None, force: bool, form: str) -> None:
    text = made.text
    if form == "json":
        answer = {"text": text, "machines": made.machine_count, "notes": list(made.notes)}
        text = as_json(answer).decode() + "\n"
    else:
        tell(made.notes)
    if output is None:
        click.echo(text, nl=False)
        return
    name = click.format_filename(output)
    try:
        with output.open("w" if force else "x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UserError(f"{name} is there already: give --force to replace it") from error
    except OSError as error:
        raise UserError(f"cannot write {name}: {error.strerror}") from error
    click.echo(f"wrote {name}", err=True)


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
def sync(
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
        raise click.UsageError("--watch: expected --yes, as no question can be asked")
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
