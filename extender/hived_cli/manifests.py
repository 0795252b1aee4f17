"""`hived manifests`: everything that a cluster needs to run hived, as YAML for kubectl."""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hived.values.errors import UserError
from hived_cli.helpers.documents import as_yaml
from hived_cli.helpers.refusals import refused_in_vain
from hived_config.loader import Configuration, load
from hived_config.openpai import inner_text
from hived_config.rules import names_for
from hived_config.settings import config_path
from hived_deploy.installation import FAILURE_POLICIES, NAMESPACE, OVERLAYS, Installation, kinds_of_queues
from hived_extender.jobs.wire import ENABLE_LIMIT

LEFT_OVER = """\
# Applying this removes nothing. kube-schedulers that were made before for other virtual clusters, if there are any:
#   kubectl -n {namespace} get deployments,poddisruptionbudgets,configmaps -l '{selector}'"""


@click.command()
@click.option(
    "--config", type=click.Path(path_type=Path), help="Configuration file. [default: $CONFIG or hivedscheduler.yaml]"
)
@click.option(
    "--overlay", type=click.Choice(OVERLAYS), default="ha", show_default=True,
    help="One replica of everything, two, or two with TLS and token checks.",
)  # fmt: skip
@click.option("-n", "--namespace", default=NAMESPACE, show_default=True, help="Namespace; is created.")
@click.option("--image", default="", help="hived's image, with tag or digest.  [default: hived of this version]")
@click.option(
    "--kube-scheduler-image", "scheduler_image", default="",
    help="Take the version of your cluster.  [default: of config/deploy]",
)  # fmt: skip
@click.option("--replicas", type=click.IntRange(1, 9), help="Of hived.  [default: the overlay's]")
@click.option(
    "--scheduler-name", "scheduler_names", multiple=True, metavar="NAME",
    help="schedulerName to serve; {vc} stands for each virtual cluster; may be given again.  "
    "[default: schedulerNames of the configuration, else hived, hived-{vc}, hivedscheduler-ds-{vc}]",
)  # fmt: skip
@click.option(
    "--scheduler-per-vc/--one-scheduler", "is_scheduler_per_vc", default=True, show_default=True,
    help="A kube-scheduler, and so a queue, for each virtual cluster, or one for all.",
)  # fmt: skip
@click.option(
    "--webhook", metavar="CA-FILE", type=click.Path(path_type=Path),
    help="Add the admission webhook that isolates devices; CA-FILE has signed the certificate of hived-extender-tls.",
)  # fmt: skip
@click.option(
    "--webhook-failure-policy", type=click.Choice(FAILURE_POLICIES), default="Fail", show_default=True,
    help="Whether pods for hived can be created while no webhook answers.",
)  # fmt: skip
@click.option(
    "--without-config", is_flag=True,
    help="Leave the ConfigMap with the configuration out: the one in the cluster stays as it is.",
)  # fmt: skip
@click.option(
    "--without-queue-kinds", is_flag=True,
    help="Leave out the kinds of objects of queues: those of Kube Queue stay as they are.",
)  # fmt: skip
@click.option("--kueue", "has_kueue", is_flag=True, help="Let hived answer Kueue's admission checks.")
@click.option(
    "--service-monitor", "has_service_monitor", is_flag=True, help="Add what the Prometheus operator reads, and alerts."
)
def command(
    *,
    config: Path | None,
    namespace: str,
    scheduler_names: tuple[str, ...],
    webhook: Path | None,
    without_config: bool,
    without_queue_kinds: bool,
    **wanted: Any,
) -> None:
    """Print the manifests that install hived in a cluster, with your configuration.

    The same as `kubectl kustomize config/deploy` with your values and a kube-scheduler for each virtual cluster; needs
    neither a checkout nor kubectl. The configuration is checked first. It is what the cluster starts with; applied
    again, a changed one is tried like any other edit, without a restart. To upgrade, take the one in force. It is read
    with --without-config too, as schedulers and rights follow from it.

    \b
    Examples:
      hived manifests --config hivedscheduler.yaml | kubectl apply --server-side -f -
      hived manifests --overlay single --image registry.example/hived:0.1.0
      hived manifests --overlay tls --service-monitor
      hived manifests --config hivedscheduler.yaml --without-config --image registry.example/hived:0.2.0
      hived manifests --webhook certificates/ca.crt
      hived manifests --kueue
      hived manifests --one-scheduler --kube-scheduler-image registry.k8s.io/kube-scheduler:v1.33.13
    """
    path = config or config_path(os.environ)
    if without_config and not path.exists():
        raise UserError(f"{click.format_filename(path)}: found no file; {NEEDS_CONFIG}")
    # Settings that the file leaves open come from the pod's environment, not from this one.
    configuration = load(path, environ={"KUBECONFIG": os.devnull})
    _warn(configuration, path, scheduler_names, has_webhook=webhook is not None)
    _check_settings(configuration, path)
    rules = configuration.rules
    installation = Installation(
        configuration=inner_text(path.read_text(encoding="utf-8"), str(path)),
        virtual_clusters=tuple(configuration.cluster.virtual_clusters),
        namespace=namespace,
        scheduler_names=scheduler_names or rules.scheduler_names,
        has_configuration=not without_config,
        tenant_namespaces=sorted(rules.access.tenants or ()),
        webhook_ca=_authority(webhook) if webhook else "",
        refused_resources=rules.refused_in(configuration.cluster),
        holds_jobs=rules.queueing.is_enabled,
        has_queues=rules.queueing.is_enabled,
        **wanted,
    )
    kinds = kinds_of_queues() if rules.queueing.is_enabled and not without_queue_kinds else []
    objects = as_yaml([*installation.objects(), *kinds])
    click.echo(LEFT_OVER.format(namespace=namespace, selector=installation.left_over()))
    click.echo(objects)


NEEDS_CONFIG = (
    "--without-config leaves only the ConfigMap out: schedulers and rights follow from the configuration in force, "
    "which hived config pull prints; name its file with --config"
)
"""Where there is no configuration to read."""


def _check_settings(configuration: Configuration, path: Path) -> None:
    """Raise UserError for settings that no pod can use."""
    settings = configuration.settings
    for key, value in (
        ("kubeApiServerAddress", settings.kube_api_server_address),
        ("kubeConfigFilePath", settings.kube_config_file_path),
    ):
        if value:
            raise UserError(f"{path}: {key}: found {value!r}; remove it, a pod uses its service account")


def _warn(configuration: Configuration, path: Path, scheduler_names: Sequence[str], *, has_webhook: bool) -> None:
    warnings = [str(each) for each in configuration.warnings]
    if not has_webhook and (in_vain := refused_in_vain(configuration, "--webhook CA-FILE")):
        warnings.append(in_vain)
    virtual_clusters = configuration.cluster.virtual_clusters
    warnings += [
        f"{name} is not among schedulerNames of {path}: of its pods only those with the limit {ENABLE_LIMIT} are "
        "scheduled; add it there"
        for name in names_for(scheduler_names, virtual_clusters)
        if not configuration.rules.serves(name, virtual_clusters)
    ]
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def _authority(file: Path) -> str:
    """The text of a CA's certificate. Raises UserError if it is none."""
    try:
        text = file.read_text(encoding="ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)  # which refuses an empty text
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"--webhook {file}: expected the PEM certificate of a CA, such as hived certificates makes, found: {found}"
        ) from error
    return text
