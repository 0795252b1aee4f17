"""`hived migrate kueue`: Kueue's objects -> a configuration, a quota tree, and remarks on what has no counterpart."""

from pathlib import Path
from typing import Any

import click

from hived.values.errors import UserError
from hived_cli.config.generating import Machines, reads_machines_of_files, tell
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.documents import as_yaml
from hived_cli.helpers.tables import table
from hived_cli.migrate.objects import KueueObjects, Remark, read_objects
from hived_cli.migrate.promises import configuration_of, quotas_of
from hived_cli.migrate.quotas import LocalQueueUse, QuotasOfQueues, quotas, refuse_unknown

CONFIGURATION, TREE = "hivedscheduler.yaml", "quotas.yaml"


@click.command("kueue")
@click.argument("paths", metavar="FILE|DIR...", type=click.Path(path_type=Path, exists=True, allow_dash=True), nargs=-1)
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help=f"Write {CONFIGURATION} and {TREE} into this folder.  [default: standard output]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace these files if they are there.")
@format_option
@reads_machines_of_files
def command(*, paths: tuple[Path, ...], output: Path | None, force: bool, form: str, machines: Machines) -> None:
    """Turn Kueue's queues, cohorts and flavors into a configuration and a quota tree.

    Reads ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass and AdmissionCheck of
    v1beta1 or v1beta2, in YAML or JSON, also in Lists; - is standard input. Other objects are left out. A
    ClusterQueue becomes a virtual cluster and a leaf of an ElasticQuotaTree, a Cohort a quota above its leaves. The
    nodes of a flavor become cells.

    Without --nodes there is a tree, but no configuration. Each field that means less here has a line on standard
    error, with its file and line. The exit code is 1 if the input has mistakes, and then nothing is written.

    \b
    Examples:
      kubectl get clusterqueues,cohorts,localqueues,resourceflavors,topologies -A -o yaml > kueue.yaml
      kubectl get nodes -o json > nodes.json
      hived migrate kueue kueue.yaml --nodes nodes.json -o hived/
      hived migrate kueue queues/ --nodes nodes.json --format json | jq '.remarks[] | select(.isLost)'
      cat queues.yaml | hived migrate kueue -
    """
    if not paths:
        raise click.UsageError("expected files with Kueue's objects: FILE, DIR or -")
    objects = read_objects(paths)
    refuse_unknown(objects)
    objects.refuse()
    made = quotas(objects)
    text, notes = "", [f"{count} {kind} left out, no object of Kueue" for kind, count in objects.others.items()]
    if machines.nodes_file is None:
        notes.append(_how_to_generate(objects))
    else:
        text, _, more = configuration_of(objects, machines.nodes(), machines.reading)
        notes += more
    remarks = sorted(dict.fromkeys(objects.remarks), key=lambda each: (each.file, each.line))
    written = _write(output, force, {CONFIGURATION: text, TREE: as_yaml([made.tree]) + "\n"})
    if form == "json":
        click.echo(as_json(_answer(text, made, remarks, notes, written)))
        return
    for each in remarks:
        click.echo(str(each), err=True)
    tell(notes)
    if output is None:
        click.echo("".join(filter(None, (text, as_yaml([made.tree]) + "\n"))), nl=False)
    for name in written:
        click.echo(f"wrote {name}", err=True)
    if made.local_queues:
        click.echo(_uses(made.local_queues), err=output is None)


def _how_to_generate(objects: KueueObjects) -> str:
    """The command that writes a configuration with virtual clusters of these names and sizes."""
    shares = []
    for queue in objects.of("ClusterQueue"):
        devices = sum(int(quota.nominal) for quota in quotas_of(queue) if "/" in quota.resource)
        shares.append(f"--vc {queue.name}={devices}")
    return (
        "without --nodes there is no configuration: give what kubectl get nodes -o json prints, or begin with "
        f"hived config generate {' '.join(shares)}"
    )


def _answer(
    text: str, made: QuotasOfQueues, remarks: list[Remark], notes: list[str], written: list[str]
) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "configuration": text,
        "quotaTree": made.tree,
        "localQueues": list(made.local_queues),
        "remarks": [
            {"file": each.file, "line": each.line, "object": each.object, "field": each.field, "text": each.text,
             "isLost": each.is_lost}
            for each in remarks
        ],
        "notes": notes,
        "written": written,
    }  # fmt: skip


def _write(folder: Path | None, force: bool, texts: dict[str, str]) -> list[str]:
    """Write the texts that there are, all or none; returns the names of the files. Raises UserError."""
    if folder is None:
        return []
    files = {folder / name: text for name, text in texts.items() if text}
    try:
        there = [click.format_filename(file) for file in files if file.exists()]
        if there and not force:
            raise UserError(f"{', '.join(there)}: there already, give --force to replace")
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            file.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"cannot write {click.format_filename(error.filename or folder)}: {error.strerror}") from error
    return [click.format_filename(file) for file in files]


def _uses(queues: tuple[LocalQueueUse, ...]) -> str:
    """Return a table of the labels that jobs of each LocalQueue need from now on."""
    rows = []
    for each in queues:
        words = [f"label {key}={value} of the job" for key, value in each.job_labels.items()]
        words += [f"annotation {key}: {value} of its pods" for key, value in each.pod_annotations.items()]
        rows.append(
            [each.namespace, each.name, each.cluster_queue, ", ".join(words) or "nothing: the namespace is enough"]
        )
    return table(["NAMESPACE", "LOCAL QUEUE", "VIRTUAL CLUSTER", "JOBS SAY, NOT kueue.x-k8s.io/queue-name"], rows)
