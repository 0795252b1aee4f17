"""`hived certificates`: certificates for TLS between kube-scheduler and the extender, as files or as Secrets."""

import base64
import os
import re
from datetime import datetime
from pathlib import Path

import click
import yaml

from hived.values.errors import UserError
from hived_deploy.certificates import Authority, KeyPair, service_hosts

SERVICE = "hived"
NAMESPACE = "hived-system"
CLIENT_NAME = "hived-kube-scheduler"
SERVER_SECRET = "hived-extender-tls"
CLIENT_SECRET = "hived-scheduler-client-tls"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@click.command()
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Write files to DIR.")
@click.option("--as-secrets", is_flag=True, help="Print manifests of Secrets for kubectl apply.")
@click.option("--service", default=SERVICE, show_default=True, help="Name of the extender's Service.")
@click.option("--namespace", default=NAMESPACE, show_default=True, help="Its namespace.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True,
    help="Until the two certificates have to be renewed; the CA lasts ten years.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace certificates that are in DIR; its CA is kept and signs them.")
def command(*, out: Path | None, as_secrets: bool, service: str, namespace: str, days: int, force: bool) -> None:
    """Make certificates for TLS between kube-scheduler and the extender.

    A CA, a certificate for the extender under the names of its Service, and one for kube-scheduler. A CA that is in DIR
    already is used again, so that the certificates can be renewed one after the other.

    \b
    Examples:
      hived certificates --out certificates
      hived certificates --out certificates --days 90 --force
      hived certificates --as-secrets | kubectl apply -f -
      hived certificates --as-secrets --out certificates | kubectl apply -f -
    """
    if out is None and not as_secrets:
        raise click.UsageError("give --out DIR, --as-secrets or both")
    for option, value in (("--service", service), ("--namespace", namespace)):
        if not _LABEL.fullmatch(value):
            raise click.UsageError(f"{option} {value!r}: expected a name of Kubernetes, such as {SERVICE}")
    authority = Authority.create() if out is None else _authority(out)
    server = authority.server(service_hosts(service, namespace), days)
    client = authority.client(CLIENT_NAME, days)
    if out is not None:
        _write(out, authority, server, client, force)
    if as_secrets:
        click.echo(_secrets(namespace, authority.pair.certificate, server, client), nl=False)
    elif out is not None:
        click.echo(_introduction(out, service, namespace, authority.end(days)))


def _authority(folder: Path) -> Authority:
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        return Authority.create()
    try:
        return Authority(KeyPair(certificate.read_bytes(), key.read_bytes()))
    except OSError as error:
        raise UserError(f"cannot read the CA of {folder}, which is ca.crt and ca.key: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"the CA of {folder}, ca.crt and ca.key: {error}; remove both for a new one") from error


def _write(folder: Path, authority: Authority, server: KeyPair, client: KeyPair, force: bool) -> None:
    """All files or, if one is there already, none. Keys are for their owner only from their first byte."""
    pairs = {"tls": server, "client": client}
    taken = [str(path) for name in pairs for path in (folder / f"{name}.crt", folder / f"{name}.key") if path.exists()]
    if taken and not force:
        raise UserError(f"{', '.join(taken)}: there already; --force replaces certificates and keeps the CA")
    if not (folder / "ca.crt").exists():
        pairs = {"ca": authority.pair, **pairs}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, pair in pairs.items():
            _write_file(folder / f"{name}.key", pair.key, 0o600)
            _write_file(folder / f"{name}.crt", pair.certificate, 0o644)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; --out wants a folder") from error


def _write_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once: a server may be reading it."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.replace(path)


def _secrets(namespace: str, ca: bytes, server: KeyPair, client: KeyPair) -> str:
    return yaml.safe_dump_all(
        [_secret(SERVER_SECRET, namespace, ca, server), _secret(CLIENT_SECRET, namespace, ca, client)],
        sort_keys=False,
        explicit_start=True,
    )


def _secret(name: str, namespace: str, ca: bytes, pair: KeyPair) -> dict[str, object]:
    content = {"ca.crt": ca, "tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }


def _introduction(folder: Path, service: str, namespace: str, end: datetime) -> str:
    return f"""\
{folder}/ca.crt       the CA: for --client-ca-file, and for kube-scheduler's tlsConfig.caFile
{folder}/ca.key       its key: not needed to run; keep it where no other user can read it
{folder}/tls.crt      the extender, reached as {service}.{namespace}.svc or localhost
{folder}/tls.key
{folder}/client.crt   kube-scheduler, as {CLIENT_NAME}
{folder}/client.key

Serve with them:

  hived serve --tls-cert-file {folder}/tls.crt --tls-private-key-file {folder}/tls.key \\
    --client-ca-file {folder}/ca.crt

and tell kube-scheduler in the extender's entry of its configuration:

  urlPrefix: https://{service}.{namespace}.svc:9096/v1/extender
  enableHTTPS: true
  tlsConfig: {{caFile: {folder}/ca.crt, certFile: {folder}/client.crt, keyFile: {folder}/client.key}}

Renew both before {end:%Y-%m-%d}: hived certificates --out {folder} --force, with the same --service and
--namespace. The extender takes a renewed certificate up by itself; kube-scheduler has to be restarted."""
