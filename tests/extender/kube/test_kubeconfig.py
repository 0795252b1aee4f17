"""A kubeconfig in each of its forms, the service account of a pod, and the proxies of the environment."""

import base64
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from msgspec.structs import replace

from hived_extender.kube import service_account
from hived_extender.kube.client import KubeClient, load_configuration
from hived_extender.kube.endpoint import (
    Configuration,
    Credentials,
    Endpoint,
    Identity,
    KubeError,
    Way,
    environment_proxy,
)
from hived_extender.kube.kubeconfig import read_kubeconfig
from hived_extender.kube.service_account import read_service_account
from tests.expecting import PATIENCE_S
from tests.extender.http.secured import Files
from tests.stub_server import Request, StubServer

EXEC = "client.authentication.k8s.io/v1"


def write(
    folder: Path, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, name: str = "config"
) -> Path:
    path = folder / name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(document))
    return path


def read(folder: Path, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Configuration:
    return load_configuration(kubeconfig=str(write(folder, user, cluster)))


def program(folder: Path, answer: object, *, before: str = "") -> dict[str, Any]:
    """A program that prints `answer`, and keeps what it was told in the file `told`."""
    path = folder / "plugin.py"
    path.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(folder / 'told')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        f"{before}\nprint({json.dumps(answer)!r})\n"
    )
    path.chmod(0o755)
    return {"exec": {"apiVersion": EXEC, "command": "./plugin.py", "interactiveMode": "Never"}}


def credential(**status: str | None) -> dict[str, Any]:
    return {"apiVersion": EXEC, "kind": "ExecCredential", "status": status}


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "told").read_text().splitlines()]


def shown(way: Way) -> tuple[str, str, str]:
    """The header that a call carries, and the texts of its client certificate and key."""
    files = [way.pool.connection_pool_kw[key] for key in ("cert_file", "key_file")]
    certificate, key = (Path(file).read_text() if file else "" for file in files)
    return way.token, certificate, key


def test_address_and_proxy_are_those_of_the_current_context(tmp_path: Path) -> None:
    configuration = read(tmp_path, None, {"proxy-url": "http://proxy:3128"})
    assert (configuration.host, configuration.proxy) == ("https://host:6443", "http://proxy:3128")


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, ""),
        ({"token": "secret"}, "Bearer secret"),
        ({"username": "me", "password": "x:y"}, f"Basic {base64.b64encode(b'me:x:y').decode()}"),
        # a key that is null counts as unset
        (
            {"token": "secret", "tokenFile": None, "client-key-data": None, "exec": None, "auth-provider": None},
            "Bearer secret",
        ),
        ({"token": None, "exec": None, "username": None, "password": None}, ""),
        ({"token": "secret", "auth-provider": None, "unknown": [None]}, "Bearer secret"),
    ],
)
def test_a_user_has_the_header_of_its_credentials(tmp_path: Path, user: dict[str, Any], header: str) -> None:
    assert read(tmp_path, user).credentials.identity().header == header


def test_a_token_file_that_was_replaced_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_account, "REREAD_S", 0.0)
    (tmp_path / "token").write_text("one\n")
    configuration = read(tmp_path, {"tokenFile": "token"})
    first = configuration.credentials.identity().header
    (tmp_path / "token").write_text("two\n")
    assert (first, configuration.credentials.identity().header) == ("Bearer one", "Bearer two")


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    for name in ("c", "k", "ca"):
        (tmp_path / name).write_text("pem")
    user = {"client-certificate": "c", "client-key": str(tmp_path / "k")}
    configuration = read(tmp_path, user, {"certificate-authority": "ca"})
    assert configuration.credentials.identity() == Identity("", f"{tmp_path}/c", f"{tmp_path}/k")
    assert configuration.tls.ca_file == f"{tmp_path}/ca"


def test_certificates_in_the_file_are_kept_where_nobody_else_reads_them(tmp_path: Path) -> None:
    data = {f"client-{kind}-data": base64.b64encode(kind.encode()).decode() for kind in ("certificate", "key")}
    identity = read(tmp_path, data).credentials.identity()
    kept = [Path(identity.certificate_file), Path(identity.key_file)]
    assert [(path.read_text(), stat.S_IMODE(path.stat().st_mode)) for path in kept] == [
        ("certificate", 0o600),
        ("key", 0o600),
    ]


def test_the_options_of_tls_reach_the_connections(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("pem")
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "other", "certificate-authority": "pem"}
    pool = Endpoint(read(tmp_path, {"client-certificate": "pem", "client-key": "pem"}, cluster)).way().pool
    options = pool.connection_pool_kw
    assert [options[key] for key in ("ca_certs", "cert_file", "key_file", "server_hostname", "cert_reqs")] == [
        str(pem), str(pem), str(pem), "other", 0,
    ]  # fmt: skip


def test_a_proxy_that_nobody_can_use_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(KubeError, match="proxy for the API server"):
        Endpoint(read(tmp_path, None, {"proxy-url": "socks5://proxy:1080"}))


def test_several_files_are_read_as_one_and_the_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"token": "first"}, name="first")
    document = json.loads(write(tmp_path, {"token": "second"}, name="second").read_text())
    document["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
    (tmp_path / "second").write_text(json.dumps(document))
    (tmp_path / "third").write_text("current-context: there\ncontexts: [{name: there, context: {cluster: d, user: u}}]")
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) for name in ("third", "absent", "second", "first")))
    configuration = load_configuration()
    assert (configuration.host, configuration.credentials.identity().header) == ("https://d", "Bearer second")


def test_nulls_in_entries_that_are_not_in_use_do_no_harm(tmp_path: Path) -> None:
    document = json.loads(write(tmp_path, {"token": "secret"}).read_text())
    document["clusters"].append({"name": "d", "cluster": None})
    document["contexts"].append({"name": "there", "context": None})
    program = {"command": None, "apiVersion": None, "args": None, "env": [{"name": "V", "value": None}]}
    document["users"] += [{"name": "v", "user": None}, {"name": "w", "user": {"exec": program, "token": None}}]
    (tmp_path / "config").write_text(json.dumps(document))
    assert load_configuration(kubeconfig=str(tmp_path / "config")).credentials.identity().header == "Bearer secret"


def test_an_empty_file_beside_others_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/empty:{write(tmp_path, {'token': 'secret'})}")
    assert load_configuration().credentials.identity().header == "Bearer secret"


def test_nulls_in_the_extension_for_a_program_reach_it(tmp_path: Path) -> None:
    user = program(tmp_path, credential(token="x"))
    user["exec"]["provideClusterInfo"] = True
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": None}}
    read(tmp_path, user, {"extensions": [extension]})
    assert told(tmp_path)[0]["spec"]["cluster"]["config"] == {"audience": None}


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider 'gcp' is not supported"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}, {}, "expected an id-token"),
        ({}, {"server": ""}, "cluster 'c' has no server"),
        ({"client-certificate": "absent"}, {}, "File does not exist: .*/absent"),
        ({"exec": {"apiVersion": EXEC, "command": None}}, {}, "missing key 'command'"),
        ({"exec": {"command": "x"}}, {}, "missing key 'apiVersion'"),
        ({"tokenFile": "absent"}, {}, "No such file"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeError, match=message):
        read(tmp_path, user, cluster)


@pytest.mark.parametrize("kind", ["contexts", "clusters", "users"])
def test_an_entry_that_is_not_there_is_named(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, {"token": "x"})
    path.write_text(json.dumps(json.loads(path.read_text()) | {kind: None}))
    with pytest.raises(KubeError, match=f"{path}.*Expected object with name (here|c|u) in kubeconfig/{kind} list"):
        load_configuration(kubeconfig=str(path))


OWN = {"client-certificate": "pem", "client-key": "pem"}


@pytest.mark.parametrize(
    ("status", "user", "expected"),
    [
        ({"token": "secret"}, {}, ("Bearer secret", "", "")),
        ({"clientCertificateData": "c", "clientKeyData": "k"}, {}, ("", "c", "k")),
        ({"token": "t", "clientCertificateData": "c", "clientKeyData": "k"}, {}, ("Bearer t", "c", "k")),
        # null is as nothing, and a certificate of the user counts more than one of the program
        ({"token": "t", "clientCertificateData": None, "expirationTimestamp": None}, {}, ("Bearer t", "", "")),
        ({"token": "t", "clientCertificateData": "c", "clientKeyData": "k"}, OWN, ("Bearer t", "own", "own")),
    ],
)
def test_a_program_gives_a_token_or_a_certificate_or_both(
    tmp_path: Path, status: dict[str, str | None], user: dict[str, str], expected: tuple[str, str, str]
) -> None:
    (tmp_path / "pem").write_text("own")
    assert shown(Endpoint(read(tmp_path, program(tmp_path, credential(**status)) | user)).way()) == expected


def test_a_program_is_asked_again_only_once_its_token_has_expired(tmp_path: Path) -> None:
    """Rule 34.4."""
    user = program(tmp_path, credential(token="x", expirationTimestamp="2999-01-01T00:00:00Z"))
    configuration = read(tmp_path, user)
    asked = [configuration.credentials.identity().header and len(told(tmp_path)) for _ in range(3)]
    user = program(tmp_path, credential(token="x", expirationTimestamp="2001-01-01T00:00:00Z"))
    configuration = read(tmp_path, user)
    asked += [configuration.credentials.identity().header and len(told(tmp_path)) for _ in range(2)]
    assert [number - asked[0] for number in asked] == [0, 0, 0, 2, 3]


def test_a_token_without_an_expiry_is_renewed_when_it_is_refused(tmp_path: Path) -> None:
    endpoint = Endpoint(read(tmp_path, program(tmp_path, credential(token="old"))))
    refused = endpoint.way()
    program(tmp_path, credential(token="new"))
    endpoint.forget(refused)
    assert [refused.token, endpoint.way().token] == ["Bearer old", "Bearer new"]


def test_many_calls_that_are_refused_at_once_run_the_program_once(tmp_path: Path) -> None:
    endpoint = Endpoint(read(tmp_path, program(tmp_path, credential(token="x"))))
    refused = endpoint.way()
    for _ in range(3):
        endpoint.forget(refused)
        endpoint.way()
    assert len(told(tmp_path)) == 2


def test_an_expired_certificate_is_renewed(tmp_path: Path) -> None:
    old = credential(clientCertificateData="c", clientKeyData="k", expirationTimestamp="2001-01-01T00:00:00Z")
    endpoint = Endpoint(read(tmp_path, program(tmp_path, old)))
    program(tmp_path, credential(clientCertificateData="d", clientKeyData="l"))
    assert shown(endpoint.way()) == ("", "d", "l")


def test_connections_are_kept_if_the_certificate_stays_the_same(tmp_path: Path) -> None:
    answer = credential(token="old", clientCertificateData="c", clientKeyData="k")
    endpoint = Endpoint(read(tmp_path, program(tmp_path, answer)))
    refused = endpoint.way()
    program(tmp_path, credential(token="new", clientCertificateData="c", clientKeyData="k"))
    endpoint.forget(refused)
    way = endpoint.way()
    assert (way.token, way.connections) == ("Bearer new", refused.connections)


def test_a_program_gets_an_authority_in_a_file_as_data(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("pem")
    user = program(tmp_path, credential(token="x"))
    user["exec"]["provideClusterInfo"] = True
    read(tmp_path, user, {"certificate-authority": "ca.crt"})
    assert base64.b64decode(told(tmp_path)[0]["spec"]["cluster"]["certificate-authority-data"]) == b"pem"


def test_a_program_is_told_about_the_cluster_if_it_wants_to_be(tmp_path: Path) -> None:
    user = program(tmp_path, credential(token="x"))
    user["exec"]["provideClusterInfo"] = True
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    read(tmp_path, user, {"extensions": [extension]})
    cluster = told(tmp_path)[0]["spec"]["cluster"]
    assert (cluster["server"], cluster["config"]) == ("https://host:6443/", {"audience": "a"})


@pytest.mark.parametrize(
    ("answer", "before", "message"),
    [
        (credential(), "", "expected a token, or a client certificate with"),
        (credential(token="x", clientCertificateData="c"), "", "expected a token, or a client certificate with"),
        (credential(token="x") | {"apiVersion": "v0"}, "", "api version v0 does not match client.authentication"),
        ({}, "", "malformed response. missing key 'apiVersion'"),
        (None, "sys.exit('log in first')", "process returned 1. log in first"),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_named(tmp_path: Path, answer: object, before: str, message: str) -> None:
    with pytest.raises(KubeError, match=f"exec ./plugin.py: .*{message}"):
        read(tmp_path, program(tmp_path, answer, before=before))


def test_a_program_that_is_not_installed_comes_with_the_advice_to_install_it(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": EXEC, "command": "hived-no-such-plugin", "installHint": "see the manual"}}
    with pytest.raises(KubeError, match=r"hived-no-such-plugin.*see the manual"):
        read(tmp_path, user)


FAR = 32503680000
"""The year 3000."""


def json_web_token(expiry: int, mark: str = "") -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry, "mark": mark}).encode()).decode().rstrip("=")
    return f"head.{claims}.signature"


class Provider(StubServer):
    """Answers as an identity provider does, and keeps the forms that it gets."""

    def __init__(self) -> None:
        super().__init__(self._answer_one)
        self.scheme = "http"
        self.forms: list[tuple[dict[str, list[str]], str]] = []
        self.renewed: dict[str, Any] = {"id_token": json_web_token(1, "new"), "refresh_token": "next"}

    @property
    def issuer(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def _answer_one(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, {"token_endpoint": f"{self.issuer}/token"}
        self.forms.append((parse_qs(request.body.decode()), request.headers.get("Authorization", "")))
        return 200, {"access_token": "x", "token_type": "Bearer"} | self.renewed


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    with Provider() as running:
        yield running


def oidc(provider: Provider, expiry: int = 1) -> dict[str, Any]:
    config = {
        "id-token": json_web_token(expiry),
        "idp-issuer-url": provider.issuer,
        "client-id": "hived",
        "client-secret": "s",
        "refresh-token": "r",
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


def test_a_token_of_an_identity_provider_that_is_good_is_used_as_it_is(tmp_path: Path, provider: Provider) -> None:
    header = read(tmp_path, oidc(provider, FAR)).credentials.identity().header
    assert (header, provider.forms) == (f"Bearer {json_web_token(FAR)}", [])


def test_an_expired_token_is_renewed_by_its_provider(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_account, "REREAD_S", 0.0)
    credentials = read(tmp_path, oidc(provider)).credentials
    assert credentials.identity().header == f"Bearer {json_web_token(1, 'new')}"
    assert [form["refresh_token"] for form, _ in provider.forms] == [["r"], ["next"]]
    assert base64.b64decode(provider.forms[0][1].removeprefix("Basic ")) == b"hived:s"


def test_an_identity_provider_is_checked_against_its_authority_or_public_ones(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with Provider() as provider:
        provider.socket = files.tls().context.wrap_socket(provider.socket, server_side=True)
        provider.scheme = "https"
        user = oidc(provider)
        with pytest.raises(KubeError, match="CERTIFICATE_VERIFY_FAILED"):
            read(tmp_path, user)
        user["auth-provider"]["config"]["idp-certificate-authority"] = str(files.ca)
        assert read(tmp_path, user).credentials.identity().header == f"Bearer {json_web_token(1, 'new')}"


def account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (folder / "ca.crt").write_text("pem")
    (folder / "token").write_text("secret\n")
    return folder


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = read_service_account(account(tmp_path, monkeypatch))
    found = configuration.host, configuration.tls.ca_file, configuration.credentials.identity().header
    assert found == ("https://10.0.0.1:443", f"{tmp_path}/ca.crt", "bearer secret")


def test_a_token_of_a_pod_that_is_refused_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(read_service_account(account(tmp_path, monkeypatch)))
    refused = endpoint.way()
    (tmp_path / "token").write_text("new\n")
    endpoint.forget(refused)
    assert [refused.token, endpoint.way().token] == ["bearer secret", "bearer new"]


def test_a_token_of_a_pod_is_read_anew_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_account, "REREAD_S", 0.0)
    credentials = read_service_account(account(tmp_path, monkeypatch)).credentials
    (tmp_path / "token").write_text("new\n")
    assert credentials.identity().header == "bearer new"


@pytest.mark.parametrize(("name", "message"), [("token", "Token file"), ("ca.crt", "Cert file")])
def test_an_empty_file_of_a_service_account_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (account(tmp_path, monkeypatch) / name).write_text("")
    with pytest.raises(Exception, match=f"{message} exists but empty"):
        read_service_account(tmp_path)


def test_a_process_that_is_no_pod_has_no_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeError, match=r"expected kubeApiServerAddress.*Service host/port is not set"):
        load_configuration()


def test_a_pod_imports_the_reader_of_its_account_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from pathlib import Path; from hived_extender.kube.service_account import read_service_account;"
        f"read_service_account(Path({str(account(tmp_path, monkeypatch))!r}));"
        "assert not {'kubernetes', 'kubernetes.config', 'requests', 'pydantic'} & sys.modules.keys();"
        "from kubernetes import config; config.load_incluster_config, config.kube_config.KubeConfigLoader"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_address_alone_does_without_the_official_client() -> None:
    code = (
        "import sys; from hived_extender.kube.client import KubeClient; KubeClient.connect('http://127.0.0.1:1');"
        "sys.exit(bool({'kubernetes', 'yaml'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"HTTP_PROXY": "", "http_proxy": ""}, check=True)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"users": [{"name": "u", "user": {}}, {"name": "u", "user": {"token": "second"}}]},
        {"users": [{"name": "u", "user": {"token": "abc"}}]},
        {"users": []},
    ],
    ids=["an address alone", "the first user has none", "a token", "no user"],
)
def test_a_file_with_an_address_alone_is_read_as_the_official_client_reads_it(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    path = write(tmp_path, cluster={"server": "http://host:8080/"})
    path.write_text(json.dumps(json.loads(path.read_text()) | more))

    def found(read: Callable[[], Configuration]) -> object:
        try:
            configuration = read()
        except Exception as error:
            return str(error).partition("(kubeconfig ")[2] or f"{path}: {error})"
        return configuration.host, configuration.proxy, configuration.tls, configuration.credentials.identity()

    assert found(lambda: load_configuration(kubeconfig=str(path))) == found(lambda: read_kubeconfig([path]))


def test_many_calls_at_once_renew_a_token_once() -> None:
    renewals = []

    def renew() -> tuple[Identity, float]:
        renewals.append(1)
        time.sleep(0.02)
        return Identity("Bearer x"), time.time() + 3600

    credentials = Credentials(renew)
    threads = [threading.Thread(target=credentials.identity) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(renewals) == 1


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One without proxies."""
    for name in ("http", "https", "no", "all"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("url", "listed", "expected"),
    [
        ("https://host.example.com:6443", "*", ""),
        ("https://host.example.com:6443", "a, EXAMPLE.com", ""),
        ("https://host.example.com:6443", "*.example.com", ""),
        ("https://host.example.com:6443", "host.example.com:6443", ""),
        ("https://host.example.com:6443", " ,ample.com, host.example.com:1, 10.0.0.0/8", "http://secure:1"),
        ("https://10.96.0.1", "10.0.0.0/8", ""),
        ("https://11.96.0.1", "10.0.0.0/8", "http://secure:1"),
        ("http://host", "", "http://plain:1"),
    ],
)
def test_the_proxy_is_the_one_of_the_servers_scheme_unless_the_server_is_listed(
    environment: pytest.MonkeyPatch, url: str, listed: str, expected: str
) -> None:
    environment.setenv("HTTPS_PROXY", "http://secure:1")
    environment.setenv("HTTP_PROXY", "http://plain:1")
    environment.setenv("NO_PROXY", listed)
    assert environment_proxy(url) == expected


def test_a_proxy_without_a_scheme_speaks_http(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "proxy:3128")
    assert environment_proxy("https://host") == "http://proxy:3128"


@pytest.mark.parametrize(
    ("login", "expected"),
    [("me:p%40ss%3A", "me:p@ss:"), ("m%C3%A9:p%E2%82%AC", "m\u00e9:p\u20ac"), ("me", "me:")],
)
def test_the_login_of_a_proxy_is_sent_as_it_was_before_it_was_encoded(login: str, expected: str) -> None:
    sent = []

    def answer(request: Request) -> tuple[int, dict[str, str]]:
        sent.append(request.headers["proxy-authorization"].removeprefix("Basic "))
        return 200, {}

    with StubServer(answer) as server:
        proxy = f"http://{login}@127.0.0.1:{server.server_port}"
        configuration = replace(load_configuration("http://nowhere.example:1"), proxy=proxy)
        KubeClient(configuration, request_timeout_s=PATIENCE_S).get("/api")
    assert base64.b64decode(sent[0]).decode() == expected
