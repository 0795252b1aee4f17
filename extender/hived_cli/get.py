"""`hived get`: what the service knows, as tables."""

import getpass
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, get_args, get_type_hints

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.answers import as_json
from hived_cli.helpers.connecting import RECORDS_S, asks_api_server, unwatched_jobs
from hived_cli.helpers.lazy import CommandGroup
from hived_cli.helpers.listing import form, lists, ordered_json, selector_option
from hived_cli.helpers.names import (
    check_group,
    check_known,
    complete_jobs,
    complete_queues,
    complete_vcs,
    nearest,
    of_vc,
)
from hived_cli.helpers.tables import output_option, paragraph, table, with_note
from hived_cli.helpers.usage import OWNERS, Usage, usage_of
from hived_cli.helpers.waits import (
    ENDED_STATES,
    UNKNOWN,
    age,
    brief_when,
    ended_columns,
    ended_table,
    job_columns,
    job_table,
    listed,
    rank_of,
)
from hived_cli.helpers.watching import Answer, Show, watches
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api import pictures
from hived_extender.api.cells import AffinityGroup, Cell, GroupStatus, LostDevices
from hived_extender.api.inspection import Inspector, NoAnswerError, OlderError, jobs_path, nodes_path, queue_jobs_path
from hived_extender.api.names import matching
from hived_extender.api.paths import (
    FREE_CELLS_PATH,
    GROUPS_PATH,
    PHYSICAL_CLUSTER_PATH,
    QUEUES_PATH,
    VIRTUAL_CLUSTERS_PATH,
    group_path,
    virtual_cluster_path,
)
from hived_extender.api.pictures import BAD, FREE, RESERVED, cell_picture, legend, letters
from hived_extender.api.queues import QueuedJob, QueuedJobs, QueueReport, folded
from hived_extender.api.waiting import (
    KEPT_S,
    MASKED,
    NOT_READY_NEXT,
    WAITING_STATES,
    FreeCells,
    Job,
    Jobs,
    JobState,
    NodeView,
    is_not_ready,
    rank,
    with_records,
)
from hived_extender.jobs.progress import read_duration
from hived_extender.kube.client import KubeClient, KubeError

ALIASES = {
    "job": "jobs",
    "node": "nodes",
    "no": "nodes",
    "queues": "queue",
    "q": "queue",
    "vcs": "vc",
    "group": "groups",
    "clusters": "cluster",
}
"""Other words for the same lists, as kubectl takes several."""


@click.group(cls=CommandGroup, aliases=ALIASES)
def command() -> None:
    """Show the cluster, virtual clusters, jobs, nodes or affinity groups.

    Asks a running service. Tables are plain text when the output is not a terminal or NO_COLOR is set. With --watch an
    answer is shown anew whenever it changes, until Ctrl-C (exit code 130); with -o json as one line each.

    \b
    Examples:
      hived get cluster                      every node, one character per GPU
      hived get vc research                  what research is promised, and where it is
      hived get jobs --waiting --vc research why its jobs wait, and when they start
      hived get nodes --bad                  bad nodes, why and since when
      hived get queue                        how many jobs wait and run in each queue
      hived get free                         how many cells of each size could start a job now
      hived get usage --since 7d             GPU-hours by virtual cluster, and what was lost of them
      hived get groups -o wide               every gang with its nodes and devices
      hived get groups team-a:train          one gang
      hived get cluster --watch              again whenever it changes
      hived get cluster -o json | jq .       as served by the inspect paths
      HIVED_SERVER=http://10.0.0.7:9096 hived get groups
      hived get groups --server https://10.0.0.7:9096 --certificate-authority ca.crt --token-file token
    """


SIGN_COLORS = {BAD: "red", RESERVED: "yellow", FREE: "bright_black"}
VC_COLORS = ("cyan", "green", "magenta", "blue", "yellow")


def _health(cell: Cell) -> str:
    """The health of a cell, in colour."""
    return click.style(pictures.health(cell), fg="red" if cell.is_bad else "green")


def _use(cell: Cell) -> str:
    leaves = cell.leaves()
    return f"{sum(leaf.is_used for leaf in leaves)}/{len(leaves)}"


def _colored(picture: str, letter_of: dict[str, str]) -> str:
    """The picture with each run of equal characters in its colour."""
    colors = SIGN_COLORS | {letter: VC_COLORS[i % len(VC_COLORS)] for i, letter in enumerate(letter_of.values())}
    runs = ("".join(run) for _, run in groupby(picture))
    return "".join(click.style(run, fg=colors.get(run[0].upper(), colors.get(run[0]))) for run in runs)


def _reasons_by_node(lost: list[LostDevices]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for each in lost:
        reasons[each.node] = "; ".join(filter(None, (reasons.get(each.node, ""), each.reason)))
    return reasons


@command.command("cluster")
@click.argument("name", required=False)
@watches
@lists
@output_option
def cluster(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show every node: health, use, and one character per GPU.

    With NAME those of a cell, or one node. The last line names the rules of decisions, if they are others than HiveD's.

    \b
    Examples:
      hived get cluster
      hived get cluster rack-1    a cell by its address, or a node
      hived get cluster -o wide   with the groups on each node
      hived get cluster --watch   again whenever it changes
    """

    def answer() -> Answer:
        if output != "json":
            return _cluster_table(inspector, name, output == "wide")
        told = inspector.fetch(PHYSICAL_CLUSTER_PATH)
        if name is None:
            return ordered_json(told)
        return ordered_json(as_json(_cells_called(name, inspector.decode(PHYSICAL_CLUSTER_PATH, list[Cell], told))))

    show(answer)


def _cells_called(name: str, cells: Sequence[Cell]) -> list[Cell]:
    """The cells of an address, or of its last part where that is a name of its own: one for each chain that has it.

    Raises UserError (404).
    """
    every = [each for cell in cells for each in cell.subtree()]
    found = [each for each in every if each.cell_address == name]
    found = found or [each for each in every if each.name == name and not each.name.isdecimal()]
    if not found:
        known = [each.cell_address for each in every if each.cell_children]
        near = ", ".join(nearest(name, [*(each.name for each in every if not each.name.isdecimal()), *known]))
        raise UserError(
            f"no cell or node {name!r}; {f'nearest: {near}' if near else 'hived get cluster lists all'}", 404
        )
    return found


def _cluster_table(inspector: Inspector, name: str | None, is_wide: bool) -> str:
    tenants = _groups_by_node(inspector.groups()) if is_wide else {}
    reasons = _reasons_by_node(inspector.lost_devices())
    cells = inspector.physical_cluster()
    letter_of = letters(sorted({leaf.vc for cell in cells for leaf in cell.leaves() if leaf.vc}))
    cells = cells if name is None else _cells_called(name, cells)
    rows = []
    for top in cells:
        nodes = top.nodes()
        if nodes != [top] and not form().sort_by:
            rows.append([top.cell_address, top.cell_type, _health(top), _use(top), "", "", ""])
        for node in nodes:
            address = (
                node.cell_address
                if node is top or form().sort_by
                else "  " + node.cell_address.removeprefix(top.cell_address + "/")
            )
            picture = _colored(cell_picture(node, letter_of), letter_of)
            on_node = ", ".join(tenants.get(node.name, ()))
            reason = reasons.get(node.name, "")
            rows.append([address, node.cell_type, _health(node), _use(node), picture, on_node, reason])
    headers = ["CELL", "TYPE", "HEALTH", ">USED", "CELLS", "GROUPS" if is_wide else "", "DEVICES" if reasons else ""]
    columns = [i for i, header in enumerate(headers) if header]
    shown = form().shown([headers[i] for i in columns], [[row[i] for i in columns] for row in rows])
    rules = inspector.rules()
    named = "" if rules == "hived" else "\n" + click.style(f"rules: {rules}", dim=True)
    return with_note(shown, legend(letter_of)) + named


def _groups_by_node(found: list[AffinityGroup]) -> dict[str, list[str]]:
    by_node: dict[str, list[str]] = {}
    for group in sorted(found, key=lambda one: one.name):
        for node in group.status.physical_placement:
            by_node.setdefault(node, []).append(group.name)
    return by_node


@command.command("vc")
@click.argument("name", required=False, shell_complete=complete_vcs)
@watches
@lists
@output_option
def vc(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show what virtual clusters are promised and where those cells are now.

    \b
    Examples:
      hived get vc
      hived get vc research
      hived get vc research --watch
      hived get vc -o json
    """
    path = virtual_cluster_path(name) if name else VIRTUAL_CLUSTERS_PATH

    def answer() -> Answer:
        try:
            return ordered_json(inspector.fetch(path)) if output == "json" else _vc_table(inspector, name)
        except UserError as error:
            if name is not None and not isinstance(error, NoAnswerError):
                with suppress(OlderError):
                    of_vc(inspector.free_cells(), name)
            raise

    show(answer)


def _vc_table(inspector: Inspector, name: str | None) -> str:
    clusters = {name: inspector.virtual_cluster(name)} if name else inspector.virtual_clusters()
    found = inspector.groups()
    reasons = _reasons_by_node(inspector.lost_devices())
    short: list[str] = []
    rows = []
    for vc_name, cells in clusters.items():
        title = vc_name
        short += _shortage(vc_name, cells, reasons)
        borrowed = [cell for cell in cells if _is_opportunistic_entry(cell)]
        for cell in cells:
            if _is_opportunistic_entry(cell):
                continue
            bound = cell.physical_cell.cell_address if cell.physical_cell else "-"
            picture = _colored(cell_picture(cell, {}), {})
            rows.append([title, cell.cell_address, cell.cell_type, _health(cell), _use(cell), picture, bound])
            title = vc_name if form().sort_by else ""
        if borrowed or not cells:
            nodes = _opportunistic_nodes(vc_name, found)
            rows.append([title, "(opportunistic)", "", "", str(len(borrowed)), "o" * len(borrowed), nodes])
    for shared in inspector.shortages():
        if not clusters.keys().isdisjoint(shared.virtual_clusters):
            short += [click.style(shared.message, fg="red"), *(f"  {reason}" for reason in shared.reasons)]
    headers = ["VC", "CELL", "TYPE", "HEALTH", ">USED", "CELLS", "BOUND TO"]
    shown = "\n".join([form().shown(headers, rows), *([""] if short else []), *short])
    return with_note(shown, "# in use   o in use beyond the promise   . free   x bad, not in use   ~ reserved")


def _is_opportunistic_entry(cell: Cell) -> bool:
    return cell.cell_address.endswith("-opp")


def _opportunistic_nodes(vc_name: str, found: list[AffinityGroup]) -> str:
    """The nodes on which groups of a virtual cluster run without a claim to stay."""
    borrowers = [group.status for group in found if group.status.vc == vc_name and not group.status.virtual_placement]
    return ", ".join(sorted({node for status in borrowers for node in status.physical_placement})) or "-"


def _shortage(vc_name: str, cells: list[Cell], reasons: dict[str, str]) -> list[str]:
    """Return a line for each promised cell that lacks leaf cells now, with the reason."""
    promised = [cell for cell in cells if not _is_opportunistic_entry(cell)]
    lines = []
    short_count = 0
    for cell in promised:
        bad = [leaf.physical_cell for leaf in cell.leaves() if leaf.is_bad and leaf.physical_cell is not None]
        counts = Counter(node for leaf in bad for node in leaf.cell_address.split("/") if node in reasons)
        short_count += bool(counts)
        lines += [f"  {cell.cell_address} is short of {n} on {node}: {reasons[node]}" for node, n in counts.items()]
    if not lines:
        return []
    lack = "lacks" if short_count == 1 else "lack"
    title = f"{vc_name}: {short_count} of {counted(len(promised), 'promised cell')} {lack} GPUs"
    return [click.style(title, fg="red"), *lines]


STATE_COLORS = {"Allocated": "green", "Preempting": "yellow", "BeingPreempted": "yellow"}


@command.command("groups")
@click.argument("name", required=False)
@watches
@lists
@output_option
def groups(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show the affinity groups (gangs) that hold or await cells.

    A row `_moving:...` is no gang: its cells are held for a group that is being moved, see hived defrag status.

    LOSS is the work that is lost if the group has to leave now: since its start, or its last checkpoint. It is in hours
    of one leaf cell: 48.0 A100-h are 6 hours of 8 A100.

    Each pod of a gang of another dialect, such as a PyTorchJob, is a group of one pod once it runs. Its name is
    NAMESPACE/POD.

    \b
    Examples:
      hived get groups
      hived get groups team-a:train
      hived get groups -o wide
      hived get groups --watch -o json
    """
    path = group_path(name) if name else GROUPS_PATH

    def answer() -> Answer:
        try:
            if output == "json":
                return ordered_json(inspector.fetch(path))
            return _group_table(inspector, name, output == "wide")
        except UserError as error:
            if name is not None:
                check_group(inspector, name, error)
            raise

    show(answer)


def _group_table(inspector: Inspector, name: str | None, is_wide: bool) -> str:
    found = [inspector.group(name)] if name else sorted(inspector.groups(), key=lambda group: group.name)
    with_devices = is_wide or name is not None
    rows, now = [], datetime.now(UTC)
    for group in found:
        status = group.status
        pods = "-" if status.held_for else f"{len(status.allocated_pods)}"
        if status.preempting_pods:
            pods += f" +{len(status.preempting_pods)} waiting"
        rows.append(
            [
                group.name,
                status.vc,
                rank(status.priority),
                _state(status),
                pods,
                *([", ".join(status.leaf_cell_types) or "-"] if with_devices else []),
                _placement(group, with_devices),
                *([_loss(group, now)] if with_devices else []),
                _preemptor(group),
            ]
        )
    places = ["TYPE", "PLACEMENT", ">LOSS"] if with_devices else ["NODES"]
    headers = ["GROUP", "VC", ">PRIORITY", "STATE", "PODS", *places, "LAZILY PREEMPTED BY"]
    return form().shown(headers, rows) if rows else "No group holds or awaits cells."


def _state(status: GroupStatus) -> str:
    shown = f"held for {status.held_for}" if status.held_for else status.state
    return click.style(shown, fg="yellow" if status.held_for else STATE_COLORS.get(status.state))


def _loss(group: AffinityGroup, now: datetime) -> str:
    """The hours of leaf cells that are lost if the group leaves now, "-" if its start is unknown."""
    types = group.status.leaf_cell_types
    if group.status.work is None:
        return "-"
    return f"{lost_hours(group, now):.1f} {types[0] if len(types) == 1 else 'cell'}-h"


def lost_hours(group: AffinityGroup, now: datetime) -> float:
    """The hours of leaf cells that are lost if a group leaves now; 0 if its start is unknown."""
    work = group.status.work
    return (
        0.0
        if work is None
        else work.leaf_cells * max((now - datetime.fromisoformat(work.since)).total_seconds(), 0) / 3600
    )


def _preemptor(group: AffinityGroup) -> str:
    """The group that has its place in its VC, and since when; a group names itself if the other is unknown."""
    lazy = group.status.lazy_preemption_status
    if lazy is None:
        return "-"
    who = "unknown, its VC has no place for it" if lazy.preemptor == group.name else lazy.preemptor
    return f"{who} {lazy.preemption_time}"


def _placement(group: AffinityGroup, with_devices: bool) -> str:
    placement = sorted(group.status.physical_placement.items())
    if with_devices:
        return " ".join(f"{node}[{','.join(map(str, sorted(devices)))}]" for node, devices in placement) or "-"
    return ", ".join(node for node, _ in placement) or "-"


user_option = click.option("--user", default="", metavar="NAME", help="Jobs of this user.")

me_option = click.option("--me", "is_mine", is_flag=True, help="Jobs of the caller, as the service or the login says.")


def check_user(user: str, *, is_mine: bool) -> None:
    """Raise UsageError for both of these options."""
    if user and is_mine:
        raise click.UsageError("expected --me or --user, not both: they would be jobs of either")


QUEUED = "500"
"""Jobs of queues that are shown, first ones first."""

STATES = get_args(get_type_hints(Job)["state"])

STATE_WORDS: dict[str, tuple[JobState, ...]] = {
    **dict.fromkeys(("pending", "pd"), WAITING_STATES),
    "queued": ("Waiting",),
    "r": ("Running", "Starting"),
    **dict.fromkeys(("configuring", "cf"), ("Starting",)),
    **dict.fromkeys(("suspended", "s"), ("Held",)),
    **dict.fromkeys(("terminating", "completing", "cg"), ("Leaving",)),
    **dict.fromkeys(("complete", "succeeded", "done", "cd"), ("Completed",)),
    **dict.fromkeys(("error", "f", "timeout", "to", "out_of_memory", "oom"), ("Failed",)),
    **dict.fromkeys(("cancelled", "canceled", "ca"), ("Deleted",)),
    "pr": ("Preempted",),
    **dict.fromkeys(("node_fail", "nf"), ("Evicted",)),
}
"""Other words for states of jobs: those of kubectl and Slurm, also their short forms. Slurm's PD has held jobs too."""


class StateChoice(click.Choice[str]):
    """States of jobs, one or a list with commas, in our words or in others' for the same."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The states that the words mean. Raises click.BadParameter."""
        if not isinstance(value, str):
            return value
        words = [word.strip() for word in value.split(",")]
        meant = [
            each
            for word in words
            for each in STATE_WORDS.get(word.lower()) or (super(StateChoice, self).convert(word, param, ctx),)
        ]
        return tuple(dict.fromkeys(meant))


ENDED_ALONE = tuple(state for state in ENDED_STATES if state != "Preempted")
"""States of jobs that are in no list of those that wait or run."""

SINCE = "1d"


@command.command("jobs")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--vc", default="", metavar="NAME", help="Jobs of this virtual cluster.", shell_complete=complete_vcs)
@click.option("--waiting", "is_waiting", is_flag=True, help="Jobs that have no cells yet.")
@click.option(
    "--state", "wanted_states", default=(), type=StateChoice(STATES, case_sensitive=False), help="Jobs in these states."
)
@user_option
@me_option
@click.option("-n", "--namespace", default="", help="Jobs with pods in this namespace.")
@click.option(
    "-A", "--all-namespaces", is_flag=True, expose_value=False, help="Jobs of all namespaces, which is the default."
)
@click.option("--node", default="", metavar="NAME", help="Jobs on this node.")
@selector_option
@click.option(
    "--pods", "has_pods", is_flag=True, help="Each job with its pods; with NAME those that ended or are to come, too."
)
@click.option("--ended", "is_ended", is_flag=True, help="Jobs that have ended, the latest first.")
@click.option(
    "--since", default="", metavar="TIME", help="With --ended: within this time, such as 6h or 7d.  [default: 1d]"
)
@asks_api_server
@watches
@lists
@output_option
def jobs(
    *,
    inspector: Inspector,
    connect: Callable[..., KubeClient | None],
    show: Show,
    names: tuple[str, ...],
    is_waiting: bool,
    wanted_states: tuple[JobState, ...],
    is_mine: bool,
    has_pods: bool,
    is_ended: bool,
    since: str,
    output: str,
    **wanted: str,
) -> None:
    """Show jobs: why waiting ones do not start, and when they do.

    Waiting jobs come first, in the order in which they are served; then those that wait in queues, without pods, as
    `hived get queue` has them. Jobs that are suspended in the record of `hived submit` are read from the API server, if
    you may list its ConfigMaps. A job is a job object with all of its pods, a gang, an affinity group or a single pod,
    by the name that `hived why` takes; with NAME those that it means. If one of several names is unknown the others are
    shown all the same, and the exit code is 1.

    PODS counts the pods of a job that has several, as in `40 of 50 done, 6 run, 4 wait`. Those to come are not created
    yet; failed ones may have been replaced. WHEN has its kind: certain, bounded by what the holders declared, estimated
    from earlier jobs, or unknown. On a narrow terminal the reason stands below its job;
    -o wide shows all on one line, with users, priorities and nodes.

    With --ended those are shown that have ended, for a week: their state, the exit code and reason of the pod that
    decided, how long they ran, the GPU-hours of all of their runs, and when and for whom they were preempted. The
    states Completed, Failed, Evicted, Deleted and Unknown imply it. Words of kubectl and Slurm do for states, too, and
    lists with commas: pending and PD are Waiting, Preempting, Held and Refused.

    \b
    Examples:
      hived get jobs
      hived get jobs train other
      hived get jobs --waiting --vc research
      hived get jobs --user me --watch
      hived get jobs train --pods            its pods one by one
      hived get jobs --state PD,R             as squeue has them
      hived get jobs --state running --node gpu-7 -o wide
      hived get jobs -l 'team=nlp,!test'      by labels of its object, else of its first pod
      hived get jobs --waiting -o json | jq -r '.items[].name'
      hived get jobs --ended --since 7d --user me
      hived get jobs --state failed
      hived get jobs --ended -o json | jq '[.items[].ended.gpu_hours] | add'
    """
    is_ended = is_ended or bool(since) or any(state in ENDED_ALONE for state in wanted_states)
    if is_waiting and wanted_states:
        raise click.UsageError("--waiting and --state exclude each other")
    check_user(wanted["user"], is_mine=is_mine)
    if is_ended:
        _check_ended(is_waiting=is_waiting, states=wanted_states, selector=wanted["selector"], since=since)
    since = since or SINCE
    states = WAITING_STATES if is_waiting else wanted_states or ("",)
    part = {"ended": (since,)} if is_ended else {"queued": (QUEUED,)}
    asked = {**{key: (value,) for key, value in wanted.items()}, "state": states, **part}
    path = jobs_path(asked | ({"pods": ("1",)} if has_pods else {}) | ({"me": (getpass.getuser(),)} if is_mine else {}))
    is_limited = bool(names) or is_mine or any(states) or any(wanted.values())
    is_known, refusals = False, list[UserError]()

    def is_wanted(job: Job) -> bool:
        """Return whether the options choose a job without pods; the service chooses among all others."""
        return (
            not (wanted["node"] or wanted["selector"])
            and wanted["vc"] in ("", job.vc)
            and (getpass.getuser() if is_mine else wanted["user"]) in ("", job.user)
            and (job.state in states or not any(states))
        )

    def fetch() -> tuple[bytes, list[Job]]:
        told = inspector.fetch(path)
        found = inspector.decode(path, Jobs, told).items
        held = unwatched_jobs(connect, wanted["namespace"])
        if is_ended:
            found = _without_held(found, held)
            told = msgspec.json.encode(Jobs(items=found)) if held else told
        elif held := [job for job in held if is_wanted(job)]:
            found = with_records(found, held)
            told = msgspec.json.encode(Jobs(items=found))
        return told, found

    def named(found: Sequence[Job]) -> list[Job]:
        """Those of the jobs that the names mean, in the order of the names, each once."""
        seen = [job for job in found if job.name != MASKED]
        meant = [job for name in names for job in matching(seen, name, wanted["namespace"])]
        return list({id(job): job for job in meant}.values()) if names else list(found)

    def answer() -> Answer:
        nonlocal is_known
        told, all_found = fetch()
        if not all_found and wanted["vc"]:
            of_vc(inspector.free_cells(), wanted["vc"])
        if not all_found and wanted["node"] and not is_ended:  # a node of ended jobs may be gone
            _check_node(inspector.nodes(), wanted["node"])
        missing = [name for name in names if not matching(all_found, name, wanted["namespace"])]
        if missing and not is_known:
            refusals[:] = _unknown(inspector, missing, wanted["namespace"], is_ended=is_ended)
            if len(refusals) == len(names):
                raise refusals[0]
            told, all_found = fetch()
        is_known = True  # with --watch it may go
        found = named(all_found)
        if has_pods and names:
            found = _with_all_pods(connect, found)
        if output == "json":
            return ordered_json(as_json(Jobs(items=found)) if names else told)
        if is_ended:
            return _ended_jobs(found, since, is_limited=is_limited, is_wide=output == "wide")
        return _present_jobs(found, wanted_states, is_limited=is_limited, is_wide=output == "wide")

    show(answer)
    for refusal in refusals:
        click.echo(f"Error: {refusal.message}", err=True)
    if refusals:
        raise SystemExit(1)


def _with_all_pods(connect: Callable[..., KubeClient | None], jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the pods that have ended or are to come as well, as far as the caller may read these."""
    if (kube := connect(may_fail=True)) is None:
        return list(jobs)
    from hived_jobs.job_pods import with_all_pods  # noqa: PLC0415  # most lists need it not

    found = []
    for job in jobs:
        try:
            found.append(with_all_pods(kube.with_timeout(RECORDS_S), job))
        except KubeError:
            found.append(job)
    return found


def _unknown(inspector: Inspector, names: Sequence[str], namespace: str, *, is_ended: bool) -> list[UserError]:
    """The errors of those of the names that no job has which waits or runs, or that `is_ended`; see `check_known`."""
    found = []
    for name in dict.fromkeys(names):
        try:
            check_known(inspector, name, namespace, is_ended=is_ended)
        except UserError as error:
            found.append(error)
    return found


def _without_held(jobs: Sequence[Job], held: Sequence[Job]) -> list[Job]:
    """The jobs that have ended, without the latest row of each that is held in its record: its pods were deleted."""
    names = [(job.name.rpartition("/")[2], job.namespace) for job in held if not job.api_version]
    going = [next(iter(matching(jobs, *name)), None) for name in names]
    return [job for job in jobs if job.state != "Deleted" or all(job is not one for one in going)]


def _check_ended(*, is_waiting: bool, states: Sequence[str], selector: str, since: str) -> None:
    """Raises UsageError for options of `jobs` that ended jobs do not have, and for a time that cannot be read."""
    present = [state for state in states if state not in ENDED_STATES]
    if is_waiting or present:
        raise click.UsageError(
            f"{'--waiting' if is_waiting else f'--state {present[0]}'} and --ended exclude each other"
        )
    if selector:
        raise click.UsageError("--selector and --ended exclude each other: no labels of ended jobs are kept")
    if since:
        try:
            read_duration(since)
        except UserError as error:
            raise click.BadParameter(error.message, param_hint="'--since'") from error


def _check_node(nodes: Sequence[NodeView], name: str) -> None:
    """Raise UserError if there is no node of this name."""
    known = [one.node for one in nodes]
    if name not in known:
        near = ", ".join(nearest(name, known))
        hint = f"nearest: {near}" if near else "hived get nodes lists all"
        raise UserError(f"no node {name!r}; {hint}", 404)


def _ended_jobs(jobs: Sequence[Job], since: str, *, is_limited: bool, is_wide: bool) -> str:
    """Return the table of jobs that ended within a time, or a sentence if there is none; see below."""
    if not jobs:
        return f"No {'such ' if is_limited else ''}job has ended within {since}."
    now = datetime.now(UTC)
    return form().headless(ended_table(form().ordered(jobs, ended_columns(now)), now, is_wide=is_wide))


def _present_jobs(jobs: Sequence[Job], states: Sequence[JobState], *, is_limited: bool, is_wide: bool) -> str:
    """Return the table of jobs that wait or run, or a sentence if there is none; see below."""
    if not jobs and list(states) == ["Preempted"]:
        return "No such job is gone after a preemption; hived why says it of one that waits or runs again."
    if not jobs and states:
        return f"No such job is {' or '.join(state.lower() for state in states)}."
    if not jobs:
        return "No such job waits or runs." if is_limited else "No job waits or runs."
    now = datetime.now(UTC)
    return form().headless(job_table(form().ordered(jobs, job_columns(now, is_wide=is_wide)), now, is_wide=is_wide))


@command.command("nodes")
@click.argument("name", required=False)
@click.option("--bad", "is_bad", is_flag=True, help="Bad nodes alone: not ready, cordoned, or with lost devices.")
@selector_option
@watches
@lists
@output_option
def nodes(*, inspector: Inspector, show: Show, name: str | None, is_bad: bool, selector: str, output: str) -> None:
    """Show nodes, or the one called NAME: which are bad, why and since when, and what runs on them.

    IF DRAINED says of each job on NAME whether it starts on other nodes now, preempts others there, or waits.

    \b
    Examples:
      hived get nodes
      hived get nodes --bad
      hived get nodes --bad --watch
      hived get nodes -l gpu-type=a100
      hived get nodes --bad -o json | jq -r '.[].node'
    """
    if name is not None and selector:
        raise click.UsageError("NAME and --selector exclude each other")

    def answer() -> Answer:
        if output == "json" and name is None:
            return ordered_json(inspector.fetch(nodes_path(is_bad, selector)))
        found = inspector.nodes(is_bad and name is None, selector)
        if name is not None:
            _check_node(found, name)
            found = [inspector.drained(name)]
        if output == "json":
            return as_json(found)
        return _node_table(found, is_bad, output == "wide", selector, is_one=name is not None)

    show(answer)


def _count(one: NodeView, part: str) -> str:
    """Cells of a node, by leaf cell type where it has several."""
    if part == "lost" and not one.lost:
        return UNKNOWN
    by_type = [f"{getattr(counts, part)} {printable(name)}" for name, counts in one.by_type.items()]
    return ", ".join(by_type) or str(getattr(one, part))


def _node_table(nodes: Sequence[NodeView], is_bad: bool, is_wide: bool, selector: str, *, is_one: bool = False) -> str:
    if not nodes and selector:
        return "No such node is bad." if is_bad else "There is no such node."
    if not nodes:
        return "No node is bad." if is_bad else "There is no node."
    now = datetime.now(UTC)
    has_costs = is_wide or is_one
    rows = [
        [
            printable(one.node),
            click.style("Bad", fg="red") if one.is_bad else click.style("Healthy", fg="green"),
            age(one.since, now) if one.since else UNKNOWN,
            *(_count(one, part) for part in ("cells", "free", "lost")),
            *([str(one.pods), f"{one.gpu_hours:.4g}"] if has_costs else []),
            printable(one.reason) or UNKNOWN,
            listed(one.groups, most=len(one.groups) if is_wide else 4) or UNKNOWN,
        ]
        for one in nodes
    ]
    costs = [">PODS", ">GPU-H AT STAKE"] if has_costs else []
    headers = ["NODE", "HEALTH", ">FOR", ">CELLS", ">FREE", ">LOST", *costs, "REASON", "JOBS"]
    found = form().shown(headers, rows, is_fitted=not is_wide)
    if is_one and nodes[0].if_drained:
        jobs = zip(nodes[0].groups, nodes[0].if_drained, strict=True)
        found += "\n\n" + table(["JOB", "IF DRAINED"], [[printable(job), then] for job, then in jobs])
    has_next = (is_bad or is_one) and any(one.groups and is_not_ready(one.reason) for one in nodes)
    return "\n".join([found, *paragraph(NOT_READY_NEXT, "")]) if has_next else found


ROWS = 500
"""Jobs that are shown. A long queue has tens of thousands, and people look at its beginning."""


@command.command("queue")
@click.argument("name", required=False, shell_complete=complete_queues)
@click.option("--jobs", "has_jobs", is_flag=True, help="The jobs of all queues.")
@user_option
@me_option
@selector_option
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="COUNT",
    help=f"So many jobs at the most, 0 for all.  [default: {ROWS}; all with -o json]",
)  # fmt: skip
@watches
@lists
@output_option
def queue(
    *,
    inspector: Inspector,
    show: Show,
    name: str | None,
    has_jobs: bool,
    user: str,
    is_mine: bool,
    selector: str,
    limit: int | None,
    output: str,
) -> None:
    """Show queues, and the jobs in them with their places and reasons.

    Of the queue NAME its jobs are shown: those that wait in their order, then the others. So they are, of all queues,
    with --jobs, --user, --me or --selector. A job whose pods queue one by one is one row, and several with -o wide.
    MIN is guaranteed, by a quota
    or by cells. MAX bounds all that runs; without a quota nothing does. BORROWED jobs run before their turn, or above
    their MIN, on cells that may be reclaimed. A queue is OVER if its quota was lowered below its use. With an
    oversellrate of 2, MIN and MAX are "x2".

    \b
    Examples:
      hived get queue
      hived get queue root/team-a
      hived get queue research --watch
      hived get queue research --me
      hived get queue --jobs -o json | jq -r '.items[] | select(.state == "Waiting") | .name'
    """
    check_user(user, is_mine=is_mine)
    chosen = {"user": user, "me": getpass.getuser() if is_mine else "", "selector": selector}
    if name is None and not has_jobs and not any(chosen.values()):
        show(lambda: ordered_json(inspector.fetch(QUEUES_PATH)) if output == "json" else _queues(inspector.queues()))
        return
    if limit is None:
        limit = 0 if output == "json" else ROWS
    wanted = chosen | ({"limit": str(limit)} if limit else {})
    show(
        lambda: (
            ordered_json(inspector.fetch(queue_jobs_path(name or "", wanted)))
            if output == "json"
            else _part(
                inspector.queued_jobs(name or "", wanted),
                is_wide=output == "wide",
                is_one=name is not None,
                is_chosen=any(chosen.values()),
            )
        )
    )


def _queues(queues: Sequence[QueueReport]) -> str:
    rows = [
        [
            printable(one.name),
            printable(one.vc),
            one.policy,
            str(one.waiting),
            str(one.running),
            str(one.borrowed),
            _amounts(one.used),
            _amounts(one.guaranteed, one.oversell),
            _amounts(one.max, one.oversell),
            click.style(_amounts(one.over), fg="red") if one.over else UNKNOWN,
        ]
        for one in queues
    ]
    return form().shown(
        ["QUEUE", "VC", "POLICY", ">WAITING", ">RUNNING", ">BORROWED", "USED", "MIN", "MAX", "OVER"], rows
    )


def _part(found: QueuedJobs, *, is_wide: bool, is_one: bool, is_chosen: bool) -> str:
    more = found.total - len(found.items)
    told = f"\n{more:,} more: --limit 0 shows all" if more > 0 else ""
    return _jobs(found.items, is_wide=is_wide, is_one=is_one, is_chosen=is_chosen) + told


def _jobs(jobs: Sequence[QueuedJob], *, is_wide: bool, is_one: bool, is_chosen: bool) -> str:
    if not jobs:
        return "No such job is in a queue." if is_chosen else "No job is in a queue."
    now = datetime.now(UTC)
    has_counts = any(one.counts.words for one in jobs)
    rows = [
        [
            str(one.position) if one.position else UNKNOWN,
            printable(one.name),
            *([] if is_one else [printable(one.queue) or UNKNOWN]),
            rank_of(one),
            str(one.gpus or UNKNOWN),
            *([(not (is_wide and one.part_of) and one.counts.words) or UNKNOWN] if has_counts else []),
            printable(one.user) or UNKNOWN,
            one.state,
            age(datetime.fromtimestamp(one.since, UTC).isoformat().replace("+00:00", "Z"), now),
            brief_when(one.when, now),
            printable(one.reason) or UNKNOWN,
        ]
        for one in (jobs if is_wide else folded(jobs))
    ]
    queue = [] if is_one else ["QUEUE"]
    counts = ["PODS"] if has_counts else []
    headers = [">PLACE", "JOB", *queue, ">PRIORITY", ">GPUS", *counts, "USER", "STATE", ">FOR", "STARTS", "REASON"]
    return form().shown(headers, rows, is_fitted=not is_wide)


def _amounts(amounts: dict[str, float], oversell: float = 1.0) -> str:
    shown = {name.rpartition("/")[2]: amount for name, amount in amounts.items() if amount and name != "memory"}
    times = "" if oversell == 1.0 else f" x{oversell:g}"
    return ", ".join(f"{amount:g} {name}{times}" for name, amount in shown.items()) or UNKNOWN


@command.command("usage")
@click.option(
    "--by", type=click.Choice([*OWNERS]), default="vc", show_default=True, help="Whose jobs are put together."
)
@click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help="Within this time, such as 1d; at most 7d."
)
@watches
@lists
@output_option
def usage(*, inspector: Inspector, show: Show, by: str, since: str, output: str) -> None:
    """Show who used GPUs, and how much of it was lost: jobs that run, wait again or have ended, for a week.

    GPU-HOURS are leaf cells times hours within the time, of all runs. LOST are those of jobs that failed, and of jobs
    that were preempted or evicted and do not run again; what their checkpoints kept is not known. Earlier runs of a job
    that runs or has completed are no loss here: `hived get jobs --ended` and `hived why` list them. SHARE is the part
    of all rows.

    A job that began before the time counts in part. Jobs that you may not see count for their virtual cluster; by user,
    namespace or queue they are one row, `(another tenant's)`. The latest 10,000 jobs that have ended are known.

    \b
    Examples:
      hived get usage
      hived get usage --by user --since 1d
      hived get usage --by queue --sort-by lost
      hived get usage --by user -o json | jq -r '.items[] | [.name, .gpu_hours] | @tsv'
    """
    try:
        since_s = read_duration(since)
    except UserError as error:
        raise click.BadParameter(error.message, param_hint="'--since'") from error
    if since_s > KEPT_S:
        raise click.BadParameter("at most 7d: jobs that have ended are known for a week", param_hint="'--since'")

    def answer() -> Answer:
        jobs = [*inspector.jobs({"ended": (since,)}), *inspector.jobs()]
        found = usage_of(jobs, by, datetime.now(UTC), since_s)
        if output == "json":
            return ordered_json(msgspec.json.encode({"items": found}))
        return _usage_table(found, by, since)

    show(answer)


def _usage_table(found: Sequence[Usage], by: str, since: str) -> str:
    if not found:
        return f"No job has had cells within {since}."
    rows = [
        [
            printable(one.name),
            f"{one.gpu_hours:.1f}",
            f"{one.share:.1f}%",
            f"{one.lost_gpu_hours:.1f}",
            str(one.jobs),
            str(one.gpus),
        ]
        for one in found
    ]
    return form().shown([by.upper(), ">GPU-HOURS", ">SHARE", ">LOST", ">JOBS", ">GPUS NOW"], rows)


@command.command("free")
@click.argument("name", required=False, shell_complete=complete_vcs)
@watches
@lists
@output_option
def free(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show how many cells of each size virtual clusters could start jobs on now.

    FREE counts cells of a level that could start a guaranteed job at once. Lent ones are among them, since borrowers
    leave. IN USE counts cells that a guaranteed job uses or has reserved, bad ones too; BAD counts the other bad ones.
    A cell that is counted at its level counts with its parts below, too. BORROWED is in use beyond the promise, by
    opportunistic jobs.

    \b
    Examples:
      hived get free
      hived get free research --watch
      hived get free -o json
    """
    show(
        lambda: (
            ordered_json(inspector.fetch(FREE_CELLS_PATH))
            if output == "json"
            else _free_table(of_vc(inspector.free_cells(), name))
        )
    )


def _free_table(cells: Sequence[FreeCells]) -> str:
    rows, last = [], ("", "")
    for one in cells:
        key = (one.vc, one.chain)
        last = ("", "") if form().sort_by else last
        vc = "" if one.vc == last[0] else printable(one.vc)
        counts = (one.promised, one.in_use, one.lent, one.bad, one.free, one.borrowed)
        rows.append([vc, "" if key == last else one.chain, one.level, f"{one.leaves}", *map(str, counts)])
        last = key
    headers = ["VC", "CHAIN", "LEVEL", ">GPUS", ">PROMISED", ">IN USE", ">LENT", ">BAD", ">FREE", ">BORROWED"]
    return form().shown(headers, rows)
