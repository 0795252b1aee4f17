"""`hived replay`: feed a log of operations to the core and write down what it decided."""

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import click

from hived.values.errors import InvariantError
from hived.values.specs import ClusterSpec
from hived_cli.helpers.progress import Count
from hived_config.loader import load_cluster
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Json, Replay, StateDetail, encode_record


@click.command()
@click.argument(
    "scenarios", metavar="SCENARIO...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--configs", required=True, metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the configurations that the scenarios name.",
)  # fmt: skip
@click.option(
    "--out", required=True, metavar="PATH", type=click.Path(path_type=Path),
    help="The trace; a folder, made if missing, if there are several scenarios.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Check every invariant of the core after each operation.")
@click.option(
    "--state", type=click.Choice([detail.value for detail in StateDetail]), default=StateDetail.FULL.value,
    show_default=True,
    help="How much state a record carries: what changed, only hashes, or nothing.",
)  # fmt: skip
def command(scenarios: tuple[Path, ...], configs: Path, out: Path, check: bool, state: str) -> None:
    """Feed a log of operations to the scheduler core and write one record per operation.

    A SCENARIO is a file of JSON lines, such as `hived serve --record DIR` writes, or a folder of such files. Progress
    goes to stderr. The exit code is 0 if everything was replayed, whatever was decided; 1 if a scenario cannot be read
    or an invariant broke; 2 for a wrong command line.

    \b
    Examples:
      hived replay monday.jsonl --configs configs --out monday.trace.jsonl
      hived replay monday.jsonl --configs configs --out monday.trace.jsonl --check --state hash
      hived replay scenarios/ --configs configs --out traces/
    """
    started = time.monotonic()
    total = 0
    for scenario, trace in _plan(scenarios, out):
        replay = Replay(CoreScheduler, _config_reader(configs), StateDetail(state), check)
        trace.parent.mkdir(parents=True, exist_ok=True)
        records = replay.run(read_scenario(scenario), str(scenario))
        total += _write(_with_progress(records, str(scenario)), trace)
    click.echo(f"{total} operations in {time.monotonic() - started:.1f} s", err=True)


def _plan(scenarios: tuple[Path, ...], out: Path) -> list[tuple[Path, Path]]:
    """Return the trace of each scenario. Raises UsageError if two share one, or a trace would replace its scenario."""
    files = [file for path in scenarios for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    if not files:
        raise click.UsageError("there is no *.jsonl file in the folder")
    is_single = len(files) == 1 and not scenarios[0].is_dir() and not out.is_dir()
    if not is_single and out.is_file():
        raise click.UsageError(f"--out must be a folder for several scenarios, and {out} is a file")
    plan = [(file, out if is_single else out / file.name) for file in files]
    if len({trace for _, trace in plan}) < len(plan):
        raise click.UsageError("two scenarios have the same file name")
    for file, trace in plan:
        if trace.exists() and trace.samefile(file):
            raise click.UsageError(f"the trace would replace its scenario {file}")
    return plan


def _config_reader(configs: Path) -> Callable[[str], ClusterSpec]:
    @cache
    def read(name: str) -> ClusterSpec:
        return load_cluster(configs / name, lenient=True)

    return read


def _write(records: Iterator[Json], trace: Path) -> int:
    count = 0
    try:
        with trace.open("wb") as file:
            for record in records:
                file.write(encode_record(record))
                count += 1
    except InvariantError as error:
        raise click.ClickException(f"{error}; records up to the one before are in {trace}") from error
    except OSError as error:
        raise click.ClickException(f"{trace}: {error.strerror}") from error
    return count


def _with_progress(records: Iterator[Json], name: str) -> Iterator[Json]:
    """The same records; a line on stderr says now and then how far they are."""
    tell = Count(name, "operations")
    for count, record in enumerate(records, 1):
        yield record
        tell(count)
