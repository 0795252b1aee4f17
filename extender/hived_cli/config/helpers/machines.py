"""The machines of `generate` and `sync`: the options that name them, and reading them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from hived.values.errors import UserError
from hived_cli.helpers.answers import with_options
from hived_cli.helpers.connecting import asks_api_server
from hived_config.document import read_stream, read_text
from hived_config.generating.nodes import Reading, parse_selector
from hived_config.quantities import quantity
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
    def ask(
        nodes: Path | None, connect: Connect, reserve_cpu: str | None, reserve_memory: str | None, **options: Any
    ) -> None:
        parse_selector(options["selector"])
        cpu, memory = _amount("--reserve-cpu", reserve_cpu), _amount("--reserve-memory", reserve_memory)
        memory_mib = None if memory is None else memory / 2**20
        given = {name: options.pop(name) for name in ("levels", "resources", "product_label", "selector", "with_cpus")}
        given["resources"] = split(",".join(given["resources"])) or Reading().resources
        reading = Reading(**given, reserved_cpu=cpu or 0.0, reserved_memory_mib=memory_mib or 0.0)
        function(machines=Machines(nodes, connect, reading, (cpu, memory_mib)), **options)

    return asks_api_server(with_options(ask, _OPTIONS))


def split(text: str) -> tuple[str, ...]:
    """The parts of a list that is written with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_limits(option: str, written: tuple[str, ...]) -> dict[str, int]:
    """How many places there are to be, by cell type, as an option has it. Raises UserError."""
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
    """Whether it has the form of a Node, as far as it is looked at."""
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
