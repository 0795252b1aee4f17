"""`hived config get-id`: which cluster a service schedules."""

import click

from hived.values.errors import UserError
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("get-id")
@asks_service
def command(inspector: Inspector) -> None:
    """Print the id of the cluster.

    The first `hived config push --cluster-id ID` gives it one; from then on a push that names another id is refused.

    \b
    Examples:
      hived config get-id
      hived config get-id --server http://10.0.0.7:9096
    """
    current = ConfigClient(inspector).current()
    cluster_id = current.cluster_id
    if not cluster_id and not current.is_pushable:
        raise UserError(f"the cluster has no id: its configuration is the {current.source}, which takes no pushes")
    if not cluster_id:
        raise UserError("the cluster has no id yet; `hived config push --cluster-id ID` gives it one")
    click.echo(cluster_id)
