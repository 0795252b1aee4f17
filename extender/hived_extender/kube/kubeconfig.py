"""Reading a kubeconfig, and the service account of a pod.

It takes the place of the official client, which hived used for nothing else. Importing that took 0.24 s of CPU and 20
MB at every start. It knows what kubectl's own reader knows, but for proxies of the kind SOCKS.
"""

import base64
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hived_extender.kube.configuration import NOBODY, Configuration, Credentials, Header, Tls, basic
from hived_extender.kube.credentials import IdentityProvider, Issuer, Program, Renewed, bearer, kept, token_file

Entry = TypeVar("Entry")

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] | None = None


class _Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"
    install_hint: str = ""


class _Provider(msgspec.Struct):
    name: str = ""
    config: IdentityProvider | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: _Provider | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str = ""
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _NamedUser(msgspec.Struct):
    name: str = ""
    user: _User = msgspec.field(default_factory=_User)


class _NamedContext(msgspec.Struct):
    name: str = ""
    context: _Context = msgspec.field(default_factory=_Context)


class _File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    contexts: list[_NamedContext] | None = None
    users: list[_NamedUser] | None = None


class _Kubeconfig:
    """Files that are read as one: of two entries with one name the first counts."""

    def __init__(self) -> None:
        self.current = ""
        self.clusters: dict[str, tuple[_Cluster, Path]] = {}  # with the folder that paths in it are relative to
        self.contexts: dict[str, _Context] = {}
        self.users: dict[str, tuple[_User, Path]] = {}

    def add(self, path: Path) -> None:
        """Read one more file."""
        document = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        document = {} if document is None else document  # an empty file says nothing, as with kubectl
        file, folder = msgspec.convert(_without_nulls(document), _File), path.absolute().parent
        self.current = self.current or file.current_context
        for cluster in file.clusters or ():
            self.clusters.setdefault(cluster.name, (cluster.cluster, folder))
        for context in file.contexts or ():
            self.contexts.setdefault(context.name, context.context)
        for user in file.users or ():
            self.users.setdefault(user.name, (user.user, folder))


def default_files() -> list[Path]:
    """The files that `KUBECONFIG` lists, else ~/.kube/config; only those that are there."""
    listed = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
    return [path for path in paths if path.is_file()]


def read_kubeconfig(paths: list[Path]) -> Configuration:
    """The API server of the current context.

    Raises OSError, yaml.YAMLError, msgspec.ValidationError, KeyError or ValueError, each with a message.
    """
    found = _Kubeconfig()
    for path in paths:
        found.add(path)
    if not found.current:
        raise ValueError("current-context is not set")
    context = _named(found.contexts, "context", found.current)
    cluster, cluster_folder = _named(found.clusters, "cluster", context.cluster)
    user, user_folder = _named(found.users, "user", context.user) if context.user else (_User(), cluster_folder)
    if not cluster.server:
        raise ValueError(f"cluster {context.cluster!r} has no server")
    certificate, key = _certificate(user, user_folder)
    return Configuration(
        host=cluster.server.rstrip("/"),
        tls=Tls(
            ca_file="" if cluster.certificate_authority_data else _path(cluster.certificate_authority, cluster_folder),
            ca_data=_decoded(cluster.certificate_authority_data, "certificate-authority-data"),
            certificate_file=certificate,
            key_file=key,
            server_name=cluster.tls_server_name,
            is_verified=not cluster.insecure_skip_tls_verify,
        ),
        proxy=cluster.proxy_url or None,
        credentials=_credentials(user, user_folder, cluster, cluster_folder),
    )


def read_service_account(folder: Path = SERVICE_ACCOUNT) -> Configuration:
    """The API server of the cluster that this process is a pod of. Raises ValueError or OSError."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority, token = folder / "ca.crt", token_file(folder / "token")
    token.identity()  # a pod without a service account has none: better known now than at the first call
    if not authority.read_text():
        raise ValueError(f"{authority} is empty")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Configuration(server, Tls(ca_file=str(authority)), credentials=token)


def _without_nulls(value: Any) -> Any:
    """A document without keys whose value is null: kubectl reads these as unset, and generators of files write them.

    Extensions stay as they are, as they belong to others.
    """
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each is not None}
        return {key: each if key == "extensions" else _without_nulls(each) for key, each in kept.items()}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _named(entries: Mapping[str, Entry], kind: str, name: str) -> Entry:
    if name not in entries:
        raise ValueError(f"there is no {kind} {name!r}")
    return entries[name]


def _credentials(user: _User, folder: Path, cluster: _Cluster, cluster_folder: Path) -> Credentials:
    """Of several means the first counts that kubectl would use."""
    if user.auth_provider is not None:
        if user.auth_provider.name != "oidc" or user.auth_provider.config is None:
            raise ValueError(f"auth-provider {user.auth_provider.name!r} is not supported: expected oidc, or exec")
        return Renewed(user.auth_provider.config.renew)
    if user.token_file:
        return token_file(Path(_path(user.token_file, folder)))
    if user.token:
        header = bearer(user.token)
        return Header(lambda: header)
    if user.exec is not None:
        asked = Renewed(Issuer(_program(user.exec, folder, cluster, cluster_folder)).renew)
        asked.identity()  # a program that fails is better known now than at the first call
        return asked
    if user.username:
        header = basic(user.username, user.password)
        return Header(lambda: header)
    return NOBODY


def _certificate(user: _User, folder: Path) -> tuple[str, str]:
    """Paths of a client certificate and its key, "" without."""
    certificate = _path(user.client_certificate, folder)
    key = _path(user.client_key, folder)
    if user.client_certificate_data:
        certificate = kept(_decoded(user.client_certificate_data, "client-certificate-data"))
    if user.client_key_data:
        key = kept(_decoded(user.client_key_data, "client-key-data"))
    return certificate, key


def _program(wanted: _Exec, folder: Path, cluster: _Cluster, cluster_folder: Path) -> Program:
    for key, value in (("command", wanted.command), ("apiVersion", wanted.api_version)):
        if not value:
            raise ValueError(f"exec has no {key}")
    is_interactive = wanted.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": is_interactive}
    if wanted.provide_cluster_info:
        spec["cluster"] = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": _authority(cluster, cluster_folder),
            "proxy-url": cluster.proxy_url,
        }
        for extension in cluster.extensions or ():
            if extension.get("name") == EXEC_EXTENSION:
                spec["cluster"]["config"] = extension.get("extension")
    command = _path(wanted.command, folder) if os.sep in wanted.command else wanted.command
    return Program(
        arguments=[command, *(wanted.args or ())],
        environment=os.environ | {variable.name: variable.value for variable in wanted.env or ()},
        folder=folder,
        info={"apiVersion": wanted.api_version, "kind": "ExecCredential", "spec": spec},
        install_hint=wanted.install_hint,
        is_interactive=is_interactive,
    )


def _authority(cluster: _Cluster, folder: Path) -> str:
    """The authority in base64, from its file if need be: a program gets it as data in any case."""
    if cluster.certificate_authority_data or not cluster.certificate_authority:
        return cluster.certificate_authority_data
    return base64.b64encode(Path(_path(cluster.certificate_authority, folder)).read_bytes()).decode()


def _path(written: str, folder: Path) -> str:
    return str(folder / written) if written else ""


def _decoded(data: str, key: str) -> str:
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode()
    except ValueError as error:
        raise ValueError(f"{key} is not base64: {error}") from error
