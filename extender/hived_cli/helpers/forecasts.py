"""A running service asked about pods before they are created: where each would run, or whether it takes them."""

from collections.abc import Sequence

import click

from hived.errors import UserError
from hived_cli.helpers.outcomes import RUNS, worst
from hived_cli.helpers.tables import table
from hived_config.generating.machines import listed
from hived_config.loader import Configuration
from hived_config.reader import printable
from hived_extender.api.waiting import MASKED
from hived_extender.api.what_if import PodOutcome
from hived_extender.client.inspection import Inspector, NoAnswerError
from hived_jobs.creation import submission_refusals
from hived_jobs.submission import Manifest, PlannedJob

UNCHECKED = "--unchecked"

_OUTCOMES = {"bind": "run", "never": "never run", "refused": "be refused", "not-ours": "not be for hived"}


def print_forecasts(inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str) -> int:
    """A row for every pod that would be created; returns the exit code of the worst. Raises UserError if the service
    does not say.
    """
    for job in jobs:
        if job.is_suspended:
            click.echo(f"job {job.name} is suspended: no pod would be created")
        for each in job.objects if job.document is None else ():
            click.echo(f"{each['kind'].lower()}/{each['metadata']['name']} would be created")
    manifests = _manifests(jobs, namespace)
    if not manifests:
        return RUNS
    try:
        told = inspector.what_if(manifests)
    except NoAnswerError as error:
        raise UserError(f"{error.message} Name it with --server, or print the objects alone: -o yaml") from error
    except UserError as error:
        raise UserError(f"{error.message}; -o yaml prints the objects alone") from error
    rows = [[one.name, _OUTCOMES.get(one.outcome, one.outcome), one.node, ",".join(map(str, one.cells)), one.reason]
            for one in told]  # fmt: skip
    click.echo(table(["POD", "WOULD", "NODE", "CELLS", "REASON"], rows))
    for one in told:
        if one.victims:
            click.echo(f"{_preemptor(one, told)} would preempt {_victims(one)}")
    if any(one.outcome == "preempt" for one in told) and not any(one.victims for one in told):  # an older service
        click.echo("Who may have to leave: hived get jobs --node NODE lists the jobs of a node", err=True)
    return worst([one.outcome for one in told])


def _preemptor(one: PodOutcome, told: Sequence[PodOutcome]) -> str:
    """The pod, unless it is the only one."""
    return "It" if len(told) == 1 else one.name


def _victims(one: PodOutcome) -> str:
    """The jobs that would have to leave, each with the number of its pods; hidden ones together."""
    hidden = [victim.pods for victim in one.victims if victim.name == MASKED]
    named = [f"{printable(victim.name)} ({_pods(victim.pods)})" for victim in one.victims if victim.name != MASKED]
    if hidden:
        named.append(f"{len(hidden)} job{'s' * (len(hidden) != 1)} of other tenants ({_pods(sum(hidden))})")
    if one.more_victims:
        named.append(f"{one.more_victims} more jobs")
    return ", ".join(named)


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"


def check_taken(inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str) -> str:
    """Ask the service whether it takes the pods. Returns why it could not be asked, "" if it could.

    Raises UserError, with the reason for each pod, if it refuses some, or has no room for them at any time.
    """
    manifests = _manifests(jobs, namespace)
    if not manifests:
        return ""
    try:
        told = inspector.what_if(manifests)
    except NoAnswerError as error:
        return f"{error.message} Name it with --server."
    except UserError as error:
        return error.message
    refused = [one for one in told if one.outcome in ("refused", "never")]
    if refused:
        count = f"{len(refused)} of {len(told)} pods" if len(told) > 1 else "the pod"
        can_never = all(one.outcome == "never" for one in refused)
        says = f"says that {count} can never run" if can_never else f"refuses {count}"
        raise UserError(
            f"nothing was created, because {inspector.server} {says}:\n{_by_reason(refused)}\n"
            f"Correct that, name the cluster's own service with --server, or create them all the same with {UNCHECKED}"
        )
    return ""


def check_access(configuration: Configuration, jobs: Sequence[PlannedJob], namespace: str) -> None:
    """Raise UserError for pods that may not use their virtual cluster, by a configuration that may be another's."""
    refused = submission_refusals(_manifests(jobs, namespace), configuration.rules, configuration.cluster)
    if refused:
        listing = "\n".join(f"  {one}" for one in refused)
        raise UserError(
            f"nothing was created, because the configuration does not allow it:\n{listing}\n"
            f"Correct that, or create the pods all the same with {UNCHECKED}"
        )


def _by_reason(refused: Sequence[PodOutcome]) -> str:
    """A line for each reason, with the pods that it is told of."""
    pods: dict[str, list[str]] = {}
    for one in refused:
        pods.setdefault(one.reason, []).append(f"{one.namespace}/{one.name}")
    return "\n".join(f"  {listed(names)}: {reason}" for reason, names in pods.items())


def _manifests(jobs: Sequence[PlannedJob], namespace: str) -> list[Manifest]:
    """The pods that would be created now, each with its namespace."""
    pods = [pod.manifest for job in jobs for pod in job.first_pods()]
    return [{**pod, "metadata": {"namespace": namespace, **pod["metadata"]}} for pod in pods]
