"""The right to push over HTTP: the routes behind the gate, with reviews, with a loopback address, with neither."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.http.access import Gate, Reviews
from hived_extender.http.answers import Identity
from hived_extender.http.app import create_app
from hived_extender.http.change_rights import ConfigPushes, MayDo
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.reconfiguration.configurations import Refused
from hived_extender.reconfiguration.stores import ConfigMapStore, FileStore, Store
from hived_extender.reconfiguration.versions import Stored, Version
from tests.extender.http.secured import ReviewServer
from tests.extender.machine.small_cluster import CONFIG, SmallCluster
from tests.extender.stored_config import FIRST, api_server, begun, configurations_of

pytestmark = pytest.mark.sample(10)

OTHER = CONFIG + "# other\n"


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeClient]:
    with api_server() as client:
        yield client


@pytest.fixture
def store(kube: KubeClient) -> ConfigMapStore:
    return begun(ConfigMapStore(kube, "kube-system", "hived-config", Metrics()))


def client_of(
    store: Store, may_do: MayDo | None = None, *, is_private: bool = False, gate: Gate | None = None
) -> FlaskClient:
    configurations = configurations_of(SmallCluster().service, store)
    app = create_app(SmallCluster().service, gate, ConfigPushes(configurations, may_do, is_private=is_private))
    return app.test_client()


def push(client: FlaskClient, token: str = "", **more: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.post("/v1/config", data=json.dumps({"text": OTHER} | more), headers=headers)
    return answer.status_code, answer.json


def test_without_known_callers_only_a_private_service_takes_pushes(store: ConfigMapStore) -> None:
    open_client = client_of(store)
    status, message = push(open_client)
    assert status == 403
    assert "run it with --authorize, or change the ConfigMap kube-system/hived-config with kubectl" in message
    assert open_client.get("/v1/config").json["isPushable"] is False
    private = client_of(store, is_private=True)
    assert private.get("/v1/config").json["isPushable"] is True
    assert push(private, who="ann", message="because")[0] == 200
    assert {key: private.get("/v1/config").json[key] for key in ("version", "who", "why")} == {
        "version": 2,
        "who": "ann",
        "why": "because",
    }


def test_a_push_takes_the_path_and_the_right_to_update_the_config_map_and_carries_the_callers_name(
    store: ConfigMapStore,
) -> None:
    users = {"admin-token": {"username": "admin"}, "viewer-token": {"username": "viewer"}}
    rights = {("admin", "*", "/v1/config*"), ("viewer", "post", "/v1/config"), ("admin", "get", "/v1/config")}
    rights |= {("admin", "post", "/v1/config"), ("viewer", "post", "/v1/config/plan")}
    asked: list[tuple[str, Mapping[str, str]]] = []

    def may_do(caller: Identity, resource: Mapping[str, str]) -> bool:
        asked.append((caller.name, resource))
        return caller.name == "admin"

    with ReviewServer.running(users, rights) as server:
        client = client_of(store, may_do, gate=Gate(None, Reviews(server.kube)))
        assert push(client)[0] == 401
        assert push(client, "wrong")[0] == 401
        status, message = push(client, "viewer-token", who="admin")
        assert (status, message) == (
            403,
            "viewer may not push: no role of theirs allows 'update' on the ConfigMap kube-system/hived-config",
        )
        assert store.read().stored.versions == (FIRST,)
        assert push(client, "admin-token", who="somebody else")[0] == 200
        answer = client.post(
            "/v1/config/plan", data=json.dumps({"text": CONFIG}), headers={"Authorization": "Bearer viewer-token"}
        )
        assert (answer.status_code, answer.json["identical"]) == (200, True)
    wanted = {"verb": "update", "resource": "configmaps", "namespace": "kube-system", "name": "hived-config"}
    assert asked == [("viewer", wanted), ("admin", wanted)]
    newest = store.read().stored.newest
    assert newest is not None
    assert newest.who == "admin"


def test_rights_that_cannot_be_asked_about_are_not_given(store: ConfigMapStore) -> None:
    def may_do(caller: Identity, resource: Mapping[str, str]) -> bool:
        raise KubeError(0, "NoAnswer", "gone")

    with ReviewServer.running({"t": {"username": "u"}}, {("u", "post", "/v1/config")}) as server:
        client = client_of(store, may_do, gate=Gate(None, Reviews(server.kube)))
        status, message = push(client, "t")
    assert (status, message.split(":")[0]) == (503, "cannot check who may push")


def test_pages_in_a_browser_do_not_push(store: ConfigMapStore) -> None:
    """Any page may post to a loopback address; it can send no JSON type unasked, and we do not look at types."""
    client = client_of(store, is_private=True)
    body = json.dumps({"text": OTHER})
    for origin in ("https://elsewhere.example", "null"):
        answer = client.post("/v1/config", data=body, headers={"Origin": origin, "Content-Type": "text/plain"})
        assert (answer.status_code, answer.json) == (
            403,
            "a page of another site may not call this: its Origin is not this host",
        )
    assert store.read().stored.versions == (FIRST,)
    assert push(client)[0] == 200


def test_a_file_takes_no_pushes(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    client = client_of(FileStore(file), is_private=True)
    status, answer = push(client)
    assert (status, answer["plan"]) == (409, None)
    assert answer["message"] == f"the configuration comes from the file {file}: change that instead"
    assert client.get("/v1/config").json["isPushable"] is False


@pytest.mark.parametrize("number", ["0", "2", "x", "-1", "1e3", "9" * 30, "%C2%B2"])
def test_a_version_that_is_not_kept_is_not_found(store: ConfigMapStore, number: str) -> None:
    assert client_of(store, is_private=True).get(f"/v1/config/versions/{number}").status_code == 404


def test_versions_are_listed_and_shown(store: ConfigMapStore) -> None:
    client = client_of(store, is_private=True)
    assert push(client)[1]["version"] == 2
    assert [one["version"] for one in client.get("/v1/config/versions").json["items"]] == [2, 1]
    assert "text" not in client.get("/v1/config/versions").json["items"][0]
    assert client.get("/v1/config/versions/1").json["text"] == CONFIG


def test_before_the_first_start_has_been_written_down_the_version_in_force_is_the_history(
    store: ConfigMapStore,
) -> None:
    store.create(Stored(CONFIG))
    client = client_of(store, is_private=True)
    assert [one["version"] for one in client.get("/v1/config/versions").json["items"]] == [1]
    assert client.get("/v1/config/versions/1").json["text"] == CONFIG


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"text": 1}', b"\xff", b'{"text": "a", "agreed": []}'])
def test_a_body_that_is_no_push_is_refused(store: ConfigMapStore, body: bytes) -> None:
    client = client_of(store, is_private=True)
    for path in ("/v1/config", "/v1/config/plan"):
        if path == "/v1/config" or b"agreed" not in body:
            assert client.post(path, data=body).status_code == 400
    assert store.read().stored.versions == (FIRST,)


@pytest.mark.parametrize("words", [{"message": "x" * 1001}, {"who": "a\x1b[31m"}, {"clusterId": "a\nb"}])
def test_words_that_cannot_be_kept_with_a_version_are_refused(store: ConfigMapStore, words: dict[str, str]) -> None:
    status, answer = push(client_of(store, is_private=True), **words)
    assert (status, answer["plan"]) == (422, None)
    assert f"{next(iter(words))}: expected one line of at most 1000 printable characters" in answer["message"]
    assert store.read().stored.versions == (FIRST,)


def test_a_demand_binds_everybody_but_the_service_itself(kube: KubeClient) -> None:
    demanding = f"certify: {{days: 14}}\n{CONFIG}"
    first = Version(1, "then", "", "first", demanding)
    store = begun(ConfigMapStore(kube, "kube-system", "demanding", Metrics()), first)
    configurations = configurations_of(SmallCluster().service, store, first)
    with pytest.raises(Refused, match="a certificate of 14 days of its record: push with --certify 14d") as caught:
        configurations.push(ConfigPushArgs(OTHER))
    assert caught.value.code == 422
    assert configurations.push(ConfigPushArgs(OTHER), is_own=True)[0].version == 2
