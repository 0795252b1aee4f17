"""Controllers of jobs on a control plane: their own manifests, with the webhooks on loopback instead of in a pod.

Of what a project ships to install itself all is applied but what only makes a pod of its program. The program runs here
with the token of its own account, so with the rights that its project gives it.
"""

import base64
import contextlib
import datetime
import os
import socket
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.certificates import LOOPBACK, Authority, KeyPair
from tests.e2e.plane import ControlPlane
from tests.e2e.podgroups import DEFINITIONS
from tests.e2e.processes import Process, free_port
from tests.e2e.tools import controller_source, find_controller

NOT_HERE = ("Deployment", "ConfigMap", "Service", "Secret", "APIService")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

CERTIFICATES = Path("k8s-webhook-server") / "serving-certs"
"""Where controllers look for the certificates of their webhooks, below the folder for temporary files."""

LIFETIME = datetime.timedelta(days=365)
"""training-operator replaces certificates that end within three months."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a controller is to listen; no port for one without webhooks."""

    webhook: int
    health: int


@dataclass(frozen=True, slots=True)
class Controller:
    """How one is installed and started.

    Attributes
    ----------
    name : of its program
    module : the Go module that it and its manifests are of
    manifests : folders of the module, as kustomize reads them
    namespace, account : where it runs, and as whom
    arguments : what to start it with; its configuration file, if it has one, is `configuration`
    configuration : what that file says, from the ports and the folder with the certificates
    rights : that its account needs besides those of the manifests, as rules of a ClusterRole
    service, secret, signer : for one that insists on making certificates itself: the names of its Service, of the
        Secret with the certificates, and of who signs them. It takes those that it finds.
    kubeconfig : the name of its option
    health : the path, at `Ports.health`, that answers when it is ready; one with a port of its own names that as well
    """

    name: str
    module: str
    manifests: tuple[str, ...]
    namespace: str
    account: str
    arguments: Callable[[Ports], list[str]] = lambda ports: []
    configuration: Callable[[Ports, Path], Json] | None = None
    rights: tuple[Json, ...] = ()
    service: str = ""
    secret: str = ""
    signer: str = ""
    kubeconfig: str = "--kubeconfig"
    health: str = "{health}/readyz"


@contextlib.contextmanager
def installed(plane: ControlPlane, controller: Controller, *options: str, **settings: Any) -> Iterator[Process]:
    """A controller while it runs and its webhooks answer; what it has installed is removed after that.

    `options` are further ones of its program, `settings` further ones of its configuration.
    """
    with tempfile.TemporaryDirectory(prefix=f"hived-e2e-{controller.name}-") as folder, contextlib.ExitStack() as stack:
        pair, authority = _certificates(controller, Path(folder))
        ports = Ports(free_port(), free_port())
        objects = _manifests(plane, controller)
        webhooks = [_on_loopback(one, ports.webhook, authority) for one in objects if one["kind"] in WEBHOOKS]
        others = [one for one in objects if one["kind"] not in (*WEBHOOKS, *NOT_HERE)] + _further_rights(controller)
        for one in others:
            _convert_on_loopback(one, ports.webhook, authority)
        stack.callback(_delete, plane, [one for one in others if one["kind"] != "Namespace"])
        _apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": controller.namespace}}, *others])
        for name in [one["metadata"]["name"] for one in others if one["kind"] == "CustomResourceDefinition"]:
            await_served(plane, name)
        if controller.secret:
            _apply(plane, [_secret(controller, pair, authority)])
            _take_for_mounted(stack)
        if not webhooks:
            ports = replace(ports, webhook=0)
        process = _process(plane, controller, Path(folder), ports, options, settings)
        stack.callback(process.stop)
        if webhooks:
            stack.callback(_delete, plane, webhooks)
            _apply(plane, webhooks)
        process.start(ready_s=180)
        yield process


def await_served(plane: ControlPlane, name: str) -> None:
    """Wait until the API server has objects of a kind that was defined."""

    def is_served() -> bool:
        conditions = (plane.kube.get(f"{DEFINITIONS}/{name}").get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    plane.wait_for(f"{name} to be served", is_served)


def _process(
    plane: ControlPlane,
    controller: Controller,
    folder: Path,
    ports: Ports,
    options: tuple[str, ...],
    settings: Json,
) -> Process:
    arguments = [*controller.arguments(ports), *options]
    if controller.configuration is not None:
        file = folder / "configuration.yaml"
        document = controller.configuration(ports, folder / CERTIFICATES)
        file.write_text(yaml.safe_dump(document | settings))
        arguments.append(f"--config={file}")
    account = plane.service_account_kubeconfig(controller.namespace, controller.account)
    health = f"http://{LOOPBACK}:{controller.health.format(health=ports.health)}"
    return Process(
        controller.name,
        [find_controller(controller.name), f"{controller.kubeconfig}={account}", *arguments],
        plane.logs / f"{controller.name}.log",
        is_ready=lambda: _answers(health) and (not ports.webhook or _listens(ports.webhook)),
        environment={"TMPDIR": str(folder), "MY_POD_NAMESPACE": controller.namespace},
    )


def _manifests(plane: ControlPlane, controller: Controller) -> list[Json]:
    source = controller_source(controller.name, controller.module)
    with tempfile.TemporaryDirectory() as folder:
        bases = [os.path.relpath(source / name, os.path.realpath(folder)) for name in controller.manifests]
        (Path(folder) / "kustomization.yaml").write_text(
            yaml.safe_dump({"namespace": controller.namespace, "resources": bases})
        )
        found = yaml.safe_load_all(plane.kubectl("kustomize", folder).stdout)
        return [one for one in found if one]


def _further_rights(controller: Controller) -> list[Json]:
    if not controller.rights:
        return []
    version, name = "rbac.authorization.k8s.io/v1", f"{controller.account}-more"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "name": controller.account, "namespace": controller.namespace}
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(controller.rights)},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [account],
        },
    ]


def _on_loopback(webhooks: Json, port: int, authority: Authority) -> Json:
    bundle = base64.b64encode(authority.file.read_bytes()).decode()
    for one in webhooks["webhooks"]:
        path = one["clientConfig"]["service"]["path"]
        one["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
    return webhooks


def _convert_on_loopback(definition: Json, port: int, authority: Authority) -> None:
    """The same for a kind whose versions a webhook converts into each other."""
    webhook = (definition.get("spec") or {}).get("conversion", {}).get("webhook")
    if definition["kind"] == "CustomResourceDefinition" and webhook is not None:
        bundle = base64.b64encode(authority.file.read_bytes()).decode()
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}


def _certificates(controller: Controller, folder: Path) -> tuple[KeyPair, Authority]:
    key = rsa.generate_private_key(65537, 2048)  # training-operator reads no others
    authority = Authority(folder / "pki", controller.signer or controller.name, LIFETIME, key)
    pair = authority.server("webhook", [f"{controller.service}.{controller.namespace}.svc"])
    mounted = folder / CERTIFICATES
    mounted.mkdir(parents=True)
    (mounted / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (mounted / "tls.key").write_bytes(pair.key.read_bytes())
    return pair, authority


def _secret(controller: Controller, pair: KeyPair, authority: Authority) -> Json:
    files = {
        "tls.crt": pair.certificate,
        "tls.key": pair.key,
        "ca.crt": authority.pair.certificate,
        "ca.key": authority.pair.key,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": controller.secret, "namespace": controller.namespace},
        "data": {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()},
    }


def _take_for_mounted(stack: contextlib.ExitStack) -> None:
    """The maker of certificates waits for a file of this name, wherever else it reads them from."""
    awaited = Path("/tmp") / CERTIFICATES / "tls.crt"
    if not awaited.exists():
        awaited.parent.mkdir(parents=True, exist_ok=True)
        awaited.write_text("the certificates are elsewhere\n")
        stack.callback(awaited.unlink, missing_ok=True)


def _apply(plane: ControlPlane, objects: list[Json]) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _delete(plane: ControlPlane, objects: list[Json]) -> None:
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2):
            return True
    except OSError:
        return False
