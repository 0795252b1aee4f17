"""Reading a kubeconfig by the official client.

Its import takes 0.12 s of CPU and 17 MB, so this module is imported only where a kubeconfig is read. In front of it are
the checks without which it would go on with no server, no user or no credentials.
"""

import base64
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import certifi
import yaml
from kubernetes.client import Configuration as Loaded
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader

from hived_extender.kube import service_account
from hived_extender.kube.endpoint import NEVER, Configuration


def read_kubeconfig(paths: list[Path]) -> Configuration:
    """The API server of the current context, of files that are read as one. Raises what the official client raises,
    or ValueError.

    Of two entries with one name, and of two current contexts, the first counts, as with kubectl.
    """
    document: dict[str, Any] = {"current-context": None, "clusters": [], "contexts": [], "users": []}
    for path in paths:
        file = _without_nulls(yaml.safe_load(path.read_text()) or {})
        document["current-context"] = document["current-context"] or file.get("current-context")
        for kind in ("clusters", "contexts", "users"):
            known = {node.value["name"] for node in document[kind]}
            new = [each for each in file.get(kind, ()) if each["name"] not in known]
            document[kind] += [ConfigNode(f"{path}/{kind}", each, str(path)) for each in new]
    return service_account.configuration_of(lambda: _load(document))


def _load(document: dict[str, Any]) -> tuple[Any, float]:
    """A merged kubeconfig as the official client reads it, and when the credentials in it expire.

    Refuses where the official client would go on without a server, a user or credentials.
    """
    root = ConfigNode("kubeconfig", document)
    context = root["contexts"].get_with_name(root["current-context"])["context"]
    cluster = root["clusters"].get_with_name(context["cluster"])["cluster"]
    if not cluster.safe_get("server"):
        raise ValueError(f"cluster {context['cluster']!r} has no server")
    loaded, expires_at = Loaded(proxy=""), time.time() + service_account.REREAD_S
    if name := context.safe_get("user"):
        user = root["users"].get_with_name(name)["user"]
        if "auth-provider" in user:
            _verify_provider(user["auth-provider"])
        elif "exec" in user and "token" not in user and "tokenFile" not in user:
            given, expires_at = _run_program(user, cluster)
            document = document | {"users": [ConfigNode(name, {"name": name, "user": given}, user.path)]}
    KubeConfigLoader(document, config_base_path=None).load_and_set(loaded)
    if name and "auth-provider" in user and not loaded.api_key:
        raise ValueError(f"auth-provider of user {name!r}: expected an id-token that is a JSON web token")
    return loaded, expires_at


def _verify_provider(provider: Any) -> None:
    """Have an identity provider checked against public authorities: by default the official client accepts any."""
    if provider["name"] != "oidc":
        raise ValueError(f"auth-provider {provider['name']!r} is not supported: expected oidc, or exec")
    config = provider["config"].value
    if not config.keys() & {"idp-certificate-authority", "idp-certificate-authority-data"}:
        config["idp-certificate-authority"] = certifi.where()


def _run_program(user: Any, cluster: Any) -> tuple[dict[str, Any], float]:
    """A user's entry with what its program gives, a token, a certificate or both, and when these expire.

    The official client drops one of two, does not renew certificates, and logs what went wrong. Raises ValueError.
    """
    program, folder = user["exec"], str(Path(user.path).absolute().parent)
    name = program.safe_get("command")
    authority = FileOrData(cluster, "certificate-authority", file_base_path=str(Path(cluster.path).absolute().parent))
    if data := authority.as_data():
        cluster = ConfigNode(cluster.name, cluster.value | {"certificate-authority-data": data}, cluster.path)
    try:
        status = ExecProvider(program, folder, cluster).run()
    except Exception as error:
        hint = program.safe_get("installHint") if isinstance(error, FileNotFoundError) else ""
        raise ValueError(f"exec {name}: {error} {hint or ''}".strip()) from error
    token, certificate, key = (status.get(key) or "" for key in ("token", "clientCertificateData", "clientKeyData"))
    if (not token and not certificate) or bool(certificate) != bool(key):
        raise ValueError(f"exec {name}: expected a token, or a client certificate with its key, or both")
    given = {key: value for key, value in user.value.items() if key != "exec"}
    if token:
        given["token"] = token
    if certificate and not given.keys() & {"client-certificate", "client-certificate-data"}:
        given["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        given["client-key-data"] = base64.b64encode(key.encode()).decode()
    expiry = status.get("expirationTimestamp")
    return given, datetime.fromisoformat(expiry).timestamp() if expiry else NEVER


def _without_nulls(value: Any) -> Any:
    """A document without keys whose value is null: kubectl reads these as unset, and generators of files write them.

    Extensions stay as they are, as they belong to others.
    """
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each is not None}
        return {key: each if key == "extensions" else _without_nulls(each) for key, each in kept.items()}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
