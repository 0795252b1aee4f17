"""`hived config generate`: a configuration from the machines that there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_cli.config.helpers.machines import Machines, reads_machines, tell
from hived_cli.helpers.answers import as_json
from hived_config.document import read_text
from hived_config.generating.generate import Generated, generated
from hived_config.generating.layout import RESERVED_CPU, RESERVED_MEMORY_MIB, read_layout
from hived_config.generating.machines import FoundMachines
from hived_config.generating.nodes import machines_of
from hived_config.generating.shares import Shares
from hived_config.generating.topologies import Topology, machines_of_topologies, with_topologies


@click.command()
@click.option(
    "--layout", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Machines of OpenPAI's layout.yaml, instead of a cluster's.",
)  # fmt: skip
@click.option(
    "--topology", "topologies", metavar="[NAME=]FILE", multiple=True,
    help="What `nvidia-smi topo -m` prints on all machines, or on those of a name, a pattern (dgx-*) or a product.",
)  # fmt: skip
@click.option("--offline", is_flag=True, help="The machines are those that --topology NODE=FILE names; ask nobody.")
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
def command(*, output: Path | None, force: bool, form: str, **source: Any) -> None:
    """Write a configuration from a cluster's nodes, OpenPAI's layout.yaml or `nvidia-smi topo -m`.

    Each product of devices becomes a leaf cell type, its nodes become cells, and --levels groups them by their labels.
    All cells of one type have equally many children. So a rack with 3 nodes among racks of 4 is of another type and in
    a cell chain of its own, which no gang leaves. With --pad it gets a placeholder, a node that does not exist.
    A rack with two products is a cell in a chain of each. A node without a label is not in a cell of that level.

    Every virtual cluster gets whole cells, the largest that its share covers, then whole nodes. The rest belongs to
    nobody. Notes on omissions and surprises go to standard error.

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
