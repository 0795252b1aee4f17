"""`hived demo`: experiments, one after the other, each on an embedded cluster of its own."""

import logging
import sys
from pathlib import Path

import click

from hived.values.errors import UserError
from hived_cli import BEGAN_S
from hived_cli.helpers.answers import as_json
from hived_cli.helpers.progress import stop_signal
from hived_cli.helpers.tables import table
from hived_extender.kube import logs
from hived_lab.demo.experiment import experiments_folder, load_experiments
from hived_lab.demo.report import Report, TableReport
from hived_lab.demo.runner import LabCluster, run_all, start_lab

STORIES = ("lab", "dialects")


@click.command()
@click.argument("story", type=click.Choice(STORIES), default="lab", metavar="[lab|dialects]")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Run this experiment; may be given again.")
@click.option("--list", "is_list", is_flag=True, help="List the experiments and run none.")
@click.option("--keep", is_flag=True, help="Keep the last cluster up for exploration until Ctrl-C.")
@click.option(
    "--from", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of experiments.  [default: those that come with hived]",
)  # fmt: skip
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Write the cluster's log to this file.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "table", "json"]),
    help="Form of the answer.  [default: text for the lab, table for dialects]",
)  # fmt: skip
def command(
    *,
    story: str,
    names: tuple[str, ...],
    is_list: bool,
    keep: bool,
    folder: Path | None,
    log: Path | None,
    output: str | None,
) -> None:
    """Run the lab: HiveD's guarantees, shown and checked on an embedded cluster.

    Needs no Kubernetes. Every experiment says what it submits, what it expects and why, draws what happens (one
    character per GPU), and passes or fails. The exit code is 0 only if all passed. With `dialects`, the same for jobs
    that are written for Kubeflow, Volcano, DLRover, Koordinator, Kubernetes and others.

    \b
    Examples:
      hived demo
      hived demo dialects
      hived demo dialects --only tfjob -o text
      hived demo --list
      hived demo --only gang --only lazy-preemption
      hived demo --only vc-safety --keep      then look around with kubectl and hived get
      hived demo -o json
      hived demo --from ./my-experiments      your own, in the same format
    """
    _send_logs(log)
    folder = folder or experiments_folder(story)
    if is_list:
        _print_list(folder)
        return
    experiments = load_experiments(folder, names)
    output = output or ("text" if story == "lab" else "table")
    report = TableReport(click.echo) if output == "table" else Report(click.echo if output == "text" else _say_nothing)
    results = run_all(experiments, report, start_lab, _stay if keep else None, BEGAN_S)
    if output == "json":
        click.echo(as_json([result.as_json() for result in results]))
    if not all(result.is_passed for result in results):
        sys.exit(1)


def _say_nothing(_line: str) -> None:
    """An answer for scripts has no story beside it."""


def _send_logs(log: Path | None) -> None:
    """The report tells the story; what the cluster logs goes to a file or nowhere."""
    if log is None:
        logging.getLogger().addHandler(logging.NullHandler())
        return
    try:
        stream = log.open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{log}: cannot be written: {error.strerror}") from error
    logs.configure("json", "INFO", stream)


def _print_list(folder: Path) -> None:
    rows = [[one.name, one.experiment.title] for one in load_experiments(folder)]
    click.echo(table(["NAME", "SHOWS"], rows))


def _stay(cluster: LabCluster) -> None:
    """Say how to look around, on stderr so that it does not mix with an answer; then wait for Ctrl-C."""
    click.echo(_GUIDE.format(kubeconfig=cluster.kubeconfig, server=cluster.url), err=True)
    with stop_signal() as stop:
        stop.wait()


_GUIDE = """
The cluster of the last experiment is still up. In another terminal:

  export KUBECONFIG={kubeconfig}
  export HIVED_SERVER={server}

  hived get cluster                        who uses which GPU
  hived get vc                             what each virtual cluster is promised, and where that is
  hived get jobs                           who runs, who waits, and why
  hived get groups -o wide                 every gang with its devices
  hived submit job.yaml                    an OpenPAI job or a pod, checked against this cluster
  kubectl get pods -o wide --watch
  hived why NAME                           why it waits, what would help, and when it starts
  hived top                                all of it, live; in a browser at {server}/
  kubectl annotate node NAME embedded.hived/ready=unknown     a machine fails ...
  kubectl annotate node NAME embedded.hived/ready-            ... and comes back
  curl $HIVED_SERVER/v1/inspect/clusterstatus

Ctrl-C ends it."""
